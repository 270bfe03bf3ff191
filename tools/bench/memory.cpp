// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What pages and prefixes cost, on the clock and in bytes; tools/bench_memory.py builds and runs it against a
// library with the test seams. A call prints one line of JSON: samples in nanoseconds, or counts.
//
//   memory decode ARTIFACT LENGTH PAIRS SEED     tokens from a contiguous pool (twice) and from scattered
//   pages memory shared ARTIFACT LENGTH PAIRS SEED     the same, the pages being those of a shared prefix
//   memory verbs ARTIFACT ARTIFACT LENGTH PAIRS BUDGET   reset and adopt at two context caps, B pinned to 64
//   memory create ARTIFACT COUNT                 creates without a budget in a pool of one block
//   memory save ARTIFACT LENGTH COUNT BUDGET     saves against copies of the blob
//   memory counts ARTIFACT                       bytes touched, locks taken, allocations made
//
// Tokens and saves are timed on the thread's own clock, so that the turns of other programs do not count; the
// verbs that take microseconds on the steady one, which is cheaper to read.
//
// K/V rows are arbitrary bytes, put there by restoring a made-up blob: no speed here depends on their values.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "sslm_test.h"
#include "superslm/sslm_abi.h"
#include "superslm/sslm_ext.h"

namespace {

using Bytes = std::vector<uint8_t>;
using Samples = std::vector<int64_t>;

void ok(sslm_status status, const char* call) {
  if (status == SSLM_OK) return;
  std::fprintf(stderr, "%s: %s\n", call, sslm_ext_status_name(status));
  std::exit(1);
}
#define OK(call) ok(call, #call)

template <typename Work>
int64_t nanoseconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
      .count();
}

// The same in time of this thread, where the system tells it.
template <typename Work>
int64_t thread_nanoseconds(Work work) {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  timespec start, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  work();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return (end.tv_sec - start.tv_sec) * int64_t{1000000000} + (end.tv_nsec - start.tv_nsec);
#else
  return nanoseconds(work);
#endif
}

// Memory on a 64-byte boundary, every page of it present.
struct Memory {
  Bytes bytes;
  explicit Memory(size_t size) : bytes(size + 64, 1) {}
  uint8_t* data() { return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64; }
};

struct Model {
  Bytes file;
  sslm_model handle = nullptr;
  sslm_ext_model_info_out info = {};
  sslm_workspace workspace = nullptr;
  Memory scratch{0};

  explicit Model(const char* path) {
    FILE* in = std::fopen(path, "rb");
    if (in == nullptr) {
      std::fprintf(stderr, "cannot open %s\n", path);
      std::exit(1);
    }
    std::fseek(in, 0, SEEK_END);
    file.resize(static_cast<size_t>(std::ftell(in)));
    std::rewind(in);
    const bool whole = std::fread(file.data(), 1, file.size(), in) == file.size();
    std::fclose(in);
    if (!whole) std::exit(1);
    OK(sslm_model_map(file.data(), file.size(), &handle));
    info.struct_size = sizeof(info);
    OK(sslm_ext_model_info(handle, &info));
    const sslm_config config = {1, 64, static_cast<int32_t>(info.layers), 0};
    const size_t size = sslm_workspace_size(handle, &config);
    scratch = Memory(size);
    OK(sslm_workspace_create(handle, &config, scratch.data(), size, &workspace));
  }
  size_t position_bytes() const {
    return size_t{2} * static_cast<size_t>(info.layers) * static_cast<size_t>(info.kv_heads) *
           static_cast<size_t>(info.head_dim);
  }
  size_t residual_bytes() const { return sizeof(int32_t) * static_cast<size_t>(info.hidden); }
  int32_t cap() const { return static_cast<int32_t>(info.cap); }
};

struct Pool {
  Memory memory;
  sslm_kv_pool handle = nullptr;

  static Pool pages(const Model& m, uint32_t count) {
    const size_t size =
        count * sslm_kv_page_size(m.handle) + sslm_kv_page_pool_overhead_size(m.handle, count);
    Pool pool{Memory(size)};
    OK(sslm_kv_page_pool_create(m.handle, pool.memory.data(), size, count, &pool.handle));
    return pool;
  }
  static Pool contiguous(const Model& m, uint32_t count) {
    const size_t size = sslm_kv_pool_contiguous_size(m.handle, count);
    Pool pool{Memory(size)};
    OK(sslm_kv_pool_create_contiguous(m.handle, pool.memory.data(), size, count, &pool.handle));
    return pool;
  }
  static Pool block(const Model& m, uint32_t count) {
    const size_t size = count * sslm_kv_block_size(m.handle) + sslm_kv_pool_overhead_size(m.handle, count);
    Pool pool{Memory(size)};
    OK(sslm_kv_pool_create(m.handle, pool.memory.data(), size, count, &pool.handle));
    return pool;
  }

  // Brings the free list out of order: holders of many sizes are drawn and given back at random.
  void scatter(const Model& m, std::mt19937& random) {
    for (int round = 0; round < 4; ++round) {
      std::vector<sslm_seq> holders;
      for (;;) {
        sslm_seq seq = nullptr;
        const int32_t budget = 1 + static_cast<int32_t>(random() % 3) * sslm_kv_page_positions(m.handle);
        if (sslm_seq_create_budgeted(m.handle, &handle, std::min(budget, m.cap()), &seq) != SSLM_OK) break;
        holders.push_back(seq);
      }
      std::shuffle(holders.begin(), holders.end(), random);
      for (sslm_seq seq : holders) OK(sslm_seq_release(seq));
    }
  }
};

sslm_seq create(const Model& m, Pool& pool, int32_t budget) {
  sslm_seq seq = nullptr;
  if (budget > 0) {
    OK(sslm_seq_create_budgeted(m.handle, &pool.handle, budget, &seq));
  } else {
    OK(sslm_seq_create(m.handle, &pool.handle, &seq));
  }
  return seq;
}

Bytes save(sslm_seq seq) {
  size_t size = 0;
  sslm_seq_save(seq, nullptr, &size);
  Bytes blob(size);
  OK(sslm_seq_save(seq, blob.data(), &size));
  return blob;
}

void fill(uint8_t* bytes, size_t size, uint32_t seed) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (size_t i = 0; i < size; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    bytes[i] = static_cast<uint8_t>(static_cast<int>(x % 255) - 127);
  }
}

// A made-up save of a budget sequence that rests ready with `length` arbitrary positions.
Bytes make_save(const Model& m, int32_t length, int32_t budget) {
  Pool pool = Pool::contiguous(m, 1);
  sslm_seq seq = create(m, pool, budget);
  const int32_t token = 1;
  int32_t consumed = 0;
  OK(sslm_prefill(m.handle, seq, &token, 1, 1, SSLM_SPAN_PROMPT, m.workspace, &consumed));
  Bytes one = save(seq);
  OK(sslm_seq_release(seq));
  OK(sslm_kv_pool_destroy(pool.handle));
  const size_t header = 172 + m.residual_bytes() + 8;
  Bytes blob(header + static_cast<size_t>(length) * m.position_bytes());
  std::memcpy(blob.data(), one.data(), header);
  const int64_t positions = length;
  std::memcpy(blob.data() + 60, &positions, 8);
  std::memcpy(blob.data() + header - 8, &positions, 8);
  fill(blob.data() + header, blob.size() - header, static_cast<uint32_t>(length));
  return blob;
}

// The same content as a frozen prefix's blob.
sslm_prefix make_prefix(const Model& m, Pool& pool, const Bytes& saved, int32_t length) {
  Bytes blob(saved.size() + 32);
  std::memcpy(blob.data(), saved.data(), 172);
  std::memcpy(blob.data(), "SSP1", 4);
  std::memcpy(blob.data() + 160, &length, 4);
  std::memcpy(blob.data() + 204, saved.data() + 172, saved.size() - 172);
  sslm_prefix prefix = nullptr;
  OK(sslm_ext_prefix_restore(m.handle, &pool.handle, blob.data(), blob.size(), nullptr, &prefix));
  return prefix;
}

sslm_seq restore(const Model& m, Pool& pool, const Bytes& blob) {
  sslm_seq seq = nullptr;
  OK(sslm_seq_restore(m.handle, &pool.handle, blob.data(), blob.size(), &seq));
  return seq;
}

int64_t token_time(const Model& m, sslm_seq seq) {
  sslm_decode_params params = {};
  params.layer_budget = static_cast<int32_t>(m.info.layers);
  int32_t token = -9;
  return thread_nanoseconds([&] { OK(sslm_decode_step(m.handle, &seq, 1, &params, m.workspace, &token)); });
}

void print(const char* name, const Samples& samples, bool last = false) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < samples.size(); ++i)
    std::printf(i == 0 ? "%lld" : ", %lld", static_cast<long long>(samples[i]));
  std::printf(last ? "]}\n" : "], ");
}

// ---- Decode ----

// Arms 0 and 1 are contiguous, arm 2 is paged; a token of each in random order, again and again.
void compare_tokens(const Model& m, sslm_seq (&arms)[3], int pairs, std::mt19937& random) {
  Samples samples[3];
  int order[3] = {0, 1, 2};
  for (int arm : order) token_time(m, arms[arm]);  // the first is the adopted prompt's, without layers
  for (int arm : order) token_time(m, arms[arm]);
  for (int i = 0; i < pairs; ++i) {
    std::shuffle(order, order + 3, random);
    for (int arm : order) samples[arm].push_back(token_time(m, arms[arm]));
  }
  Bytes state[3] = {save(arms[0]), save(arms[1]), save(arms[2])};
  if (state[0] != state[1] || state[0] != state[2]) {
    std::fprintf(stderr, "the pools do not give the same tokens\n");
    std::exit(1);
  }
  std::printf("{\"tier\": \"%s\", ", sslm_ext_kernel_tier());
  print("contiguous", samples[0]);
  print("again", samples[1]);
  print("paged", samples[2], true);
}

void decode(const Model& m, int32_t length, int pairs, uint32_t seed) {
  std::mt19937 random(seed);
  const int32_t budget = std::min(length + pairs + 8, m.cap());
  const Bytes saved = make_save(m, length, budget);
  Pool flat = Pool::contiguous(m, 2);
  Pool paged = Pool::pages(m, static_cast<uint32_t>(sslm_kv_pages_for_budget(m.handle, budget)) * 2 + 16);
  paged.scatter(m, random);
  sslm_seq arms[3] = {restore(m, flat, saved), restore(m, flat, saved), restore(m, paged, saved)};
  compare_tokens(m, arms, pairs, random);
}

void shared(const Model& m, int32_t length, int pairs, uint32_t seed) {
  std::mt19937 random(seed);
  const int32_t budget = pairs + 8;
  const Bytes saved = make_save(m, length, length);
  Pool flat = Pool::contiguous(m, 3);
  Pool paged = Pool::pages(m, static_cast<uint32_t>(length / sslm_kv_page_positions(m.handle)) * 2 + 64);
  paged.scatter(m, random);
  const sslm_prefix source = make_prefix(m, flat, saved, length),
                    world = make_prefix(m, paged, saved, length);
  sslm_seq arms[3] = {create(m, flat, budget), create(m, flat, budget), create(m, paged, budget)};
  for (int i = 0; i < 3; ++i) OK(sslm_seq_adopt_prefix(arms[i], i < 2 ? source : world));
  compare_tokens(m, arms, pairs, random);
}

// ---- Verbs ----

// Reset and adopt at equal live length in two models that differ in their cap; samples alternate.
void verbs(const char* small, const char* large, int32_t length, int pairs, int32_t budget) {
  sslm_test_pin_page_positions(64);
  const Model models[2] = {Model(small), Model(large)};
  std::mt19937 random(1);
  Samples reset[2], adopt[2];
  std::vector<Pool> pools;
  sslm_seq seqs[2];
  sslm_prefix prefixes[2];
  for (const Model& m : models) {
    const size_t context = sslm_kv_pages_for_budget(m.handle, m.cap());
    pools.push_back(Pool::pages(m, static_cast<uint32_t>(context) + 64));
  }
  for (int i = 0; i < 2; ++i) {
    prefixes[i] = make_prefix(models[i], pools[i], make_save(models[i], length, length), length);
    seqs[i] = create(models[i], pools[i], budget);
  }
  for (int pair = -3; pair < pairs; ++pair) {
    const int first = static_cast<int>(random() % 2);
    for (int k = 0; k < 2; ++k) {
      const int i = (first + k) % 2;
      const int64_t a = nanoseconds([&] { OK(sslm_seq_adopt_prefix(seqs[i], prefixes[i])); });
      const int64_t r = nanoseconds([&] { OK(sslm_seq_reset(seqs[i])); });
      if (pair < 0) continue;
      adopt[i].push_back(a);
      reset[i].push_back(r);
    }
  }
  std::printf("{");
  print("adopt_small", adopt[0]);
  print("adopt_large", adopt[1]);
  print("reset_small", reset[0]);
  print("reset_large", reset[1], true);
}

void creates(const Model& m, int count) {
  Pool pool = Pool::block(m, 1);
  Samples samples;
  for (int i = 0; i < count; ++i) {
    sslm_seq seq = nullptr;
    samples.push_back(nanoseconds([&] { OK(sslm_seq_create(m.handle, &pool.handle, &seq)); }));
    OK(sslm_seq_release(seq));
  }
  std::printf("{");
  print("create", samples, true);
}

// Saves, copies and copies again of as many bytes between buffers of one alignment, in random order. Each of
// the three has a source and a target of its own, so that all find equally little of them in the processor's
// caches.
void saves(const Model& m, int32_t length, int count, bool budgeted) {
  std::mt19937 random(1);
  Pool pool = Pool::pages(m, static_cast<uint32_t>(sslm_kv_pages_for_budget(m.handle, m.cap())) * 2 + 64);
  sslm_seq seq = nullptr;
  {
    const Bytes saved = make_save(m, length, std::max(length, 1));
    if (budgeted) {
      seq = restore(m, pool, saved);
    } else {
      seq = create(m, pool, 0);
      const sslm_prefix prefix = make_prefix(m, pool, saved, length);
      OK(sslm_seq_adopt_prefix(seq, prefix));
      OK(sslm_prefix_release(prefix));
    }
  }
  size_t size = 0;
  sslm_seq_save(seq, nullptr, &size);
  Memory blob(size), from[2] = {Memory(size), Memory(size)}, to[2] = {Memory(size), Memory(size)};
  Samples samples[3];
  int order[3] = {0, 1, 2};
  for (int i = -2; i < count; ++i) {
    std::shuffle(order, order + 3, random);
    for (int arm : order) {
      size_t n = size;
      const int64_t time = thread_nanoseconds([&] {
        if (arm == 0) {
          OK(sslm_seq_save(seq, blob.data(), &n));
        } else {
          std::memcpy(to[arm - 1].data(), from[arm - 1].data(), size);
        }
      });
      if (i >= 0) samples[arm].push_back(time);
    }
  }
  std::printf("{\"size\": %zu, ", size);
  print("save", samples[0]);
  print("copy", samples[1]);
  print("again", samples[2], true);
}

// ---- Counts ----

template <typename Work>
uint64_t touched(Work work) {
  const uint64_t before = sslm_test_bytes_touched();
  work();
  return sslm_test_bytes_touched() - before;
}

void counts(const Model& m) {
  static const int32_t kLengths[] = {16, 200, 1000, 1200, 3000};
  const int32_t budget = 256;
  Pool pool = Pool::pages(m, static_cast<uint32_t>(sslm_kv_pages_for_budget(m.handle, m.cap())) + 128);
  std::printf("{\"page\": %zu, \"position\": %zu, \"rows\": [", sslm_kv_page_size(m.handle),
              m.position_bytes());
  for (int32_t length : kLengths) {
    const Bytes saved = make_save(m, length, length);
    const sslm_prefix prefix = make_prefix(m, pool, saved, length);
    sslm_seq sharer = create(m, pool, budget), copier = create(m, pool, 0), restored = nullptr;
    const uint64_t share = touched([&] { OK(sslm_seq_adopt_prefix(sharer, prefix)); });
    const uint64_t copy = touched([&] { OK(sslm_seq_adopt_prefix(copier, prefix)); });
    const uint64_t saving = touched([&] { save(sharer); });
    OK(sslm_seq_release(copier));
    const uint64_t restoring = touched([&] { restored = restore(m, pool, saved); });
    const uint64_t releasing = touched([&] { OK(sslm_seq_release(restored)); });
    OK(sslm_seq_release(sharer));
    OK(sslm_prefix_release(prefix));
    std::printf(
        "%s{\"length\": %d, \"share\": %llu, \"copy\": %llu, \"save\": %llu, \"restore\": %llu, "
        "\"release\": %llu}",
        length == kLengths[0] ? "" : ", ", length, static_cast<unsigned long long>(share),
        static_cast<unsigned long long>(copy), static_cast<unsigned long long>(saving),
        static_cast<unsigned long long>(restoring), static_cast<unsigned long long>(releasing));
  }
  // Prefill and decode over several page boundaries.
  sslm_seq seq = create(m, pool, budget);
  std::vector<int32_t> tokens(150, 3);
  const uint64_t locks = sslm_test_pool_lock_count(), allocations = sslm_test_allocation_count();
  for (int32_t done = 0; done < 150;) {
    int32_t consumed = 0;
    OK(sslm_prefill(m.handle, seq, tokens.data() + done, 150 - done, 64, SSLM_SPAN_PROMPT, m.workspace,
                    &consumed));
    done += consumed;
  }
  for (int i = 0; i < 100; ++i) token_time(m, seq);
  std::printf("], \"positions\": 249, \"locks\": %llu, \"allocations\": %llu}\n",
              static_cast<unsigned long long>(sslm_test_pool_lock_count() - locks),
              static_cast<unsigned long long>(sslm_test_allocation_count() - allocations));
}

int number(const char* text) { return std::atoi(text); }

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "decode" && argc == 6) {
    decode(Model(argv[2]), number(argv[3]), number(argv[4]), static_cast<uint32_t>(number(argv[5])));
  } else if (what == "shared" && argc == 6) {
    shared(Model(argv[2]), number(argv[3]), number(argv[4]), static_cast<uint32_t>(number(argv[5])));
  } else if (what == "verbs" && argc == 7) {
    verbs(argv[2], argv[3], number(argv[4]), number(argv[5]), number(argv[6]));
  } else if (what == "create" && argc == 4) {
    creates(Model(argv[2]), number(argv[3]));
  } else if (what == "save" && argc == 6) {
    saves(Model(argv[2]), number(argv[3]), number(argv[4]), number(argv[5]) != 0);
  } else if (what == "counts" && argc == 3) {
    counts(Model(argv[2]));
  } else {
    std::fprintf(stderr, "see the top of tools/bench/memory.cpp\n");
    return 2;
  }
  return 0;
}
