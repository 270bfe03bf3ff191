// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What the tests of the rooms kv/ and blob/ share: checks, pool memory, and holders filled with known bytes
// in place of a model's rows.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kv/geometry.h"
#include "kv/holder.h"
#include "kv/pool.h"
#include "kv/seams.h"

#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      std::fprintf(stderr, "%s:%d: %s: expected %s\n", __FILE__, __LINE__, current_test, #condition); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

#define CHECK_EQ(expression, expected)                                                                 \
  do {                                                                                                 \
    const long long got_ = static_cast<long long>(expression);                                         \
    const long long want_ = static_cast<long long>(expected);                                          \
    if (got_ != want_) {                                                                               \
      std::fprintf(stderr, "%s:%d: %s: %s is %lld, expected %lld\n", __FILE__, __LINE__, current_test, \
                   #expression, got_, want_);                                                          \
      std::exit(1);                                                                                    \
    }                                                                                                  \
  } while (0)

inline const char* current_test = "";

struct Test {
  const char* name;
  void (*run)();
};
#define TEST(function) \
  Test { #function, function }

inline int run_tests(const std::vector<Test>& tests, int argc, char** argv) {
  for (const Test& test : tests) {
    if (argc > 1 && std::strcmp(argv[1], test.name) != 0) continue;
    current_test = test.name;
    test.run();
    std::printf("ok %s\n", test.name);
  }
  return 0;
}

namespace kv = superslm::kv;

constexpr uint8_t kHostFill = 0x5A;
constexpr uint8_t kPoison = 0xCD;

// A small pseudo-random generator, the same everywhere.
struct Random {
  uint64_t state;
  uint32_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
  }
  int64_t below(int64_t n) { return n <= 0 ? 0 : static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
};

inline kv::Geometry small_geometry(int32_t cap, int32_t head_dim = 64) {
  return kv::make_geometry(2, 1, head_dim, 1, cap);
}

// A pool with its host memory, filled with one byte.
struct PoolFixture {
  kv::Geometry model;
  size_t size;
  uint8_t* buffer;
  kv::Pool pool;

  PoolFixture(const kv::Geometry& geometry, kv::PoolKind kind, uint32_t units) : model(geometry) {
    size = kv::pool_buffer_size(geometry, kind, units).saturated();
    buffer = static_cast<uint8_t*>(std::aligned_alloc(64, (size + 63) / 64 * 64));
    CHECK(buffer != nullptr);
    std::memset(buffer, kHostFill, size);
    CHECK(pool.open(geometry, kind, buffer, size, units) == kv::Status::kOk);
  }
  ~PoolFixture() { std::free(buffer); }
  uint32_t free_pages() { return pool.stats().free_pages; }
};

inline kv::Holder make_holder(kv::Pool& pool, kv::Mode mode, int32_t budget) {
  kv::Holder holder;
  CHECK(kv::Holder::create(pool, mode, budget, &holder) == kv::Status::kOk);
  return holder;
}
inline kv::Holder no_budget(kv::Pool& pool) {
  return make_holder(pool, kv::Mode::kNoBudget, pool.geometry().cap);
}
inline kv::Holder budgeted(kv::Pool& pool, int32_t budget) {
  return make_holder(pool, kv::Mode::kBudget, budget);
}

// The byte a history puts at one place; equal histories give equal rows.
inline uint8_t row_byte(uint64_t stamp, int64_t position, int plane, int element) {
  uint64_t x = stamp * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(position) * 2654435761u +
               static_cast<uint64_t>(plane) * 97u + static_cast<uint64_t>(element) * 13u;
  x ^= x >> 29;
  return static_cast<uint8_t>(x * 0xBF58476D1CE4E5B9u >> 56);
}

// A holder and the history its rows come from: one stamp per position.
struct Filled {
  kv::Holder holder;
  std::vector<uint64_t> history;
  int64_t length() const { return static_cast<int64_t>(history.size()); }

  template <typename Visit>
  static void each_row(const kv::KvView& view, int64_t position, Visit visit) {
    const kv::Geometry& g = *view.geometry;
    int plane = 0;
    for (int32_t layer = 0; layer < g.layers; ++layer) {
      for (kv::Kind kind : {kv::kKey, kv::kValue}) {
        for (int32_t head = 0; head < g.kv_heads; ++head, ++plane) {
          visit(reinterpret_cast<uint8_t*>(view.row(layer, kind, head, position)), plane);
        }
      }
    }
  }
  // Appends one position; false at the limit.
  bool append(uint64_t stamp) {
    const int64_t at = length();
    if (at >= holder.limit()) return false;
    CHECK(holder.map_to(at + 1));
    history.push_back(stamp);
    const int row = static_cast<int>(holder.view().geometry->row_bytes());
    each_row(holder.view(), at, [&](uint8_t* bytes, int plane) {
      for (int i = 0; i < row; ++i) bytes[i] = row_byte(stamp, at, plane, i);
    });
    return true;
  }
  void append_many(int64_t count, uint64_t stamp) {
    for (int64_t i = 0; i < count; ++i) CHECK(append(stamp + static_cast<uint64_t>(i)));
  }
  void check_rows() const {
    const int row = static_cast<int>(holder.view().geometry->row_bytes());
    for (int64_t at = 0; at < length(); ++at) {
      each_row(holder.view(), at, [&](const uint8_t* bytes, int plane) {
        for (int i = 0; i < row; ++i)
          CHECK_EQ(bytes[i], row_byte(history[static_cast<size_t>(at)], at, plane, i));
      });
    }
  }
  void freeze() { holder.freeze(length()); }
  void adopt(const Filled& prefix) {
    holder.adopt(prefix.holder, prefix.length());
    history = prefix.history;
  }
  void reset() {
    holder.reset();
    history.clear();
  }
  // The rows as a blob holds them, with this many positions per plane.
  std::vector<uint8_t> packed(int64_t stride) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(stride) * holder.view().geometry->position_bytes());
    kv::pack_rows(holder.view(), 0, length(), 0, stride, bytes.data());
    return bytes;
  }
};

inline Filled begin_from(const Filled& parent, int32_t budget) {
  Filled child;
  CHECK(kv::Holder::begin_from(parent.holder, parent.length(), budget, &child.holder) == kv::Status::kOk);
  child.history = parent.history;
  return child;
}

inline kv::RestoreRequest request_of(const Filled& saved, const std::vector<uint8_t>& rows) {
  kv::RestoreRequest request;
  request.mode = saved.holder.mode();
  request.budget = saved.holder.budget();
  request.origin = saved.holder.mode() == kv::Mode::kBudget ? saved.holder.origin() : 0;
  request.positions = saved.length();
  request.rows = kv::PackedRows{rows.data(), saved.length(), 0};
  return request;
}
