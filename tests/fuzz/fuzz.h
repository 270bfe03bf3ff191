// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What the fuzz targets share: the input as a stream of choices, the artifacts of bases.py, and a check that
// ends the process, so that the fuzzer keeps the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "sslm_test.h"
#include "superslm/sslm_ext.h"

#define REQUIRE(condition) \
  ((condition) ? static_cast<void>(0) : superslm::fuzz::fail(__FILE__, __LINE__, #condition))

// The two numbers are equal; both are printed where they are not.
#define REQUIRE_EQ(got, want)                                                                        \
  superslm::fuzz::require_equal(static_cast<long long>(got), static_cast<long long>(want), __FILE__, \
                                __LINE__, #got, #want)

namespace superslm::fuzz {

[[noreturn]] inline void fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::abort();
}

inline void require_equal(long long got, long long want, const char* file, int line, const char* got_text,
                          const char* want_text) {
  if (got == want) return;
  std::fprintf(stderr, "%s:%d: %s is %lld, but %s is %lld\n", file, line, got_text, got, want_text, want);
  std::abort();
}

// The input, read from its front; zeros behind its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  size_t left() const { return left_; }
  const uint8_t* rest() const { return at_; }

  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  uint16_t half() {
    const uint16_t low = byte();
    return static_cast<uint16_t>(low | byte() << 8);
  }
  uint32_t word() {
    const uint32_t low = half();
    return low | static_cast<uint32_t>(half()) << 16;
  }
  // A number in [0, n), n in 1..256.
  uint32_t below(uint32_t n) { return byte() % n; }

 private:
  const uint8_t* at_;
  size_t left_;
};

// An allocator of our own: the fuzzer's runtime has a std::vector<uint8_t> into which the memory sanitizer
// cannot see, and which the linker may choose. Nor can it see into std::string.
template <typename T>
struct Allocator : std::allocator<T> {
  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U>&) {}
};
using Bytes = std::vector<uint8_t, Allocator<uint8_t>>;

inline void append(Bytes& to, const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  to.insert(to.end(), bytes, bytes + size);
}

// The bytes of NAME.sslm in the folder that SUPERSLM_FUZZ_BASES names.
inline Bytes read_base(const char* name) {
  const char* folder = std::getenv("SUPERSLM_FUZZ_BASES");
  char path[4096];
  std::snprintf(path, sizeof(path), "%s/%s.sslm", folder == nullptr ? "." : folder, name);
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) {
    std::fprintf(stderr, "%s: cannot be read; start the targets with tools/fuzz.py\n", path);
    std::exit(2);
  }
  Bytes bytes;
  uint8_t block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof(block), file)) > 0;) append(bytes, block, n);
  std::fclose(file);
  return bytes;
}

// A model of a base; its bytes are never freed, as the model reads them in place.
inline sslm_model map_base(const char* name) {
  static auto& kept = *new std::vector<Bytes>;  // lives beyond the checks for leaks
  kept.push_back(read_base(name));
  sslm_model model = nullptr;
  REQUIRE_EQ(sslm_model_map(kept.back().data(), kept.back().size(), &model), SSLM_OK);
  return model;
}

inline sslm_ext_model_info_out info_of(sslm_model model) {
  sslm_ext_model_info_out info = {};
  info.struct_size = sizeof(info);
  REQUIRE_EQ(sslm_ext_model_info(model, &info), SSLM_OK);
  return info;
}

// Memory at a multiple of 64, with nothing legal behind its end.
class Aligned {
 public:
  explicit Aligned(size_t size)
      : data_(static_cast<uint8_t*>(std::aligned_alloc(64, (size + 63) / 64 * 64))), size_(size) {
    REQUIRE(data_ != nullptr);
    std::memset(data_, 0x5A, size);
  }
  ~Aligned() { std::free(data_); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_;
  size_t size_;
};

// Memory that lives as long as the process, beyond the checks for leaks.
inline uint8_t* lend(size_t size) {
  static auto& kept = *new std::vector<Aligned*>;
  kept.push_back(new Aligned(size));
  return kept.back()->data();
}

// A pool that lives as long as the process.
inline sslm_kv_pool make_pool(sslm_model model, bool paged, uint32_t count) {
  const size_t size = paged ? count * sslm_kv_page_size(model) + sslm_kv_page_pool_overhead_size(model, count)
                            : sslm_kv_pool_contiguous_size(model, count);
  uint8_t* buffer = lend(size);
  sslm_kv_pool pool = nullptr;
  REQUIRE_EQ(paged ? sslm_kv_page_pool_create(model, buffer, size, count, &pool)
                   : sslm_kv_pool_create_contiguous(model, buffer, size, count, &pool),
             SSLM_OK);
  return pool;
}

inline sslm_kv_pool_stats_out pool_stats(sslm_kv_pool pool) {
  sslm_kv_pool_stats_out stats = {};
  stats.struct_size = sizeof(stats);
  REQUIRE_EQ(sslm_kv_pool_stats(pool, &stats), SSLM_OK);
  return stats;
}

inline Bytes save(sslm_seq seq) {
  size_t size = 0;
  REQUIRE_EQ(sslm_seq_save(seq, nullptr, &size), SSLM_BUFFER_TOO_SMALL);
  Bytes blob(size);
  REQUIRE_EQ(sslm_seq_save(seq, blob.data(), &size), SSLM_OK);
  REQUIRE_EQ(size, blob.size());
  return blob;
}

}  // namespace superslm::fuzz
