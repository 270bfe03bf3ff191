// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// What the benchmark needs in machine code: a pool of threads as the host's hook, and the two limits that
// speeds are compared with, reading memory and multiplying integers. Compiled for the machine it runs on.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "superslm_jobs.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace {

using superslm_jobs::Pool;
using Line = uint64_t __attribute__((vector_size(64)));  // a cache line, in the widest registers there are

double seconds_of(Pool* pool, int32_t tasks, sslm_task_fn task, void* context) {
  const auto start = std::chrono::steady_clock::now();
  if (pool == nullptr) {
    for (int32_t i = 0; i < tasks; ++i) task(context, i);
  } else {
    const sslm_parallel_for hook = pool->hook();
    hook.run(hook.host_ctx, tasks, task, context);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The sum of all lines; `kStreams` places are read in turn. Prefetchers differ in what they like.
template <size_t kStreams>
uint64_t read(const uint8_t* data, size_t size) {
  constexpr size_t kLines = 8 / kStreams;
  constexpr size_t kStep = kLines * sizeof(Line), kAhead = 4096;
  std::array<Line, 8> sums{};
  const size_t part = size / kStreams / kStep * kStep;
  for (size_t i = 0; i < part; i += kStep) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const uint8_t* from = data + stream * part + i;
      for (size_t k = 0; k < kLines; ++k) {
        Line line;
        std::memcpy(&line, from + k * sizeof line, sizeof line);
        sums[stream * kLines + k] += line;
      }
      __builtin_prefetch(from + kAhead);
    }
  }
  uint64_t sum = 0;
  for (const Line& line : sums) {
    for (int k = 0; k < 8; ++k) sum += line[k];
  }
  return sum;
}

struct Stream {
  const uint8_t* data;
  size_t size;
  bool four;
  std::vector<uint64_t> sums;  // one a task, so that the reads have a use
};

void read_part(void* context, int32_t index) {
  Stream& s = *static_cast<Stream*>(context);
  const size_t part = s.size / s.sums.size();
  const uint8_t* from = s.data + part * static_cast<size_t>(index);
  s.sums[static_cast<size_t>(index)] = s.four ? read<4>(from, part) : read<1>(from, part);
}

// ---- Multiply and add: sixteen independent chains, enough for any latency ----

constexpr int kChains = 16, kRounds = 1 << 22;

#if defined(__AVX512VNNI__)
struct Bytes {
  static constexpr const char* kName = "vpdpbusd, 512 bits";
  static constexpr int kProducts = 64;
  using Register = __m512i;
  static void step(Register& sum, Register factor) { sum = _mm512_dpbusd_epi32(sum, factor, factor); }
};
struct Words {
  static constexpr const char* kName = "vpdpwssd, 512 bits";
  static constexpr int kProducts = 32;
  using Register = __m512i;
  static void step(Register& sum, Register factor) { sum = _mm512_dpwssd_epi32(sum, factor, factor); }
};
#elif defined(__AVX2__)
struct Bytes {
  static constexpr const char* kName = "vpmaddubsw, vpmaddwd, vpaddd";
  static constexpr int kProducts = 32;
  using Register = __m256i;
  static void step(Register& sum, Register factor) {
    const Register pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(factor, sum), factor);
    sum = _mm256_add_epi32(sum, pairs);
  }
};
struct Words {
  static constexpr const char* kName = "vpmaddwd, vpaddd";
  static constexpr int kProducts = 16;
  using Register = __m256i;
  static void step(Register& sum, Register factor) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(factor, sum));
  }
};
#elif defined(__ARM_FEATURE_DOTPROD)
struct Bytes {
  static constexpr const char* kName = "sdot";
  static constexpr int kProducts = 16;
  using Register = int32x4_t;
  static void step(Register& sum, Register factor) {
    sum = vdotq_s32(sum, vreinterpretq_s8_s32(factor), vreinterpretq_s8_s32(sum));
  }
};
using Words = Bytes;
#else
struct Bytes {
  static constexpr const char* kName = "";  // no figure for this processor
  static constexpr int kProducts = 0;
  using Register = uint32_t;
  static void step(Register& sum, Register factor) { sum += factor; }
};
using Words = Bytes;
#endif

template <class Kind>
void multiply(void* context, int32_t index) {
  typename Kind::Register sums[kChains], factor;
  std::memset(&factor, 3 + index, sizeof factor);
  for (int i = 0; i < kChains; ++i) std::memset(&sums[i], i + 1, sizeof sums[i]);
  for (int round = 0; round < kRounds; round += 16) {
#pragma GCC unroll 16  // both loops: the chains then stay in registers
    for (int repeat = 0; repeat < 16; ++repeat) {
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) Kind::step(sums[i], factor);
    }
  }
  uint32_t use = 0;
  for (const auto& sum : sums) {
    uint32_t part;
    std::memcpy(&part, &sum, sizeof part);
    use += part;
  }
  static_cast<uint32_t*>(context)[index] = use;
}

}  // namespace

// Called from Python. `pool` may be null: one thread.
extern "C" {

void* bench_pool_create(int workers) { return new Pool(workers); }

void bench_pool_destroy(void* pool) { delete static_cast<Pool*>(pool); }

void bench_pool_hook(void* pool, sslm_parallel_for* out) { *out = static_cast<Pool*>(pool)->hook(); }

// Bytes per second of reading `size` bytes once, in `tasks` parts; `four`: each part in four places at once.
double bench_read(void* pool, const void* data, size_t size, int32_t tasks, int four) {
  Stream stream{static_cast<const uint8_t*>(data), size, four != 0,
                std::vector<uint64_t>(static_cast<size_t>(tasks))};
  const double seconds = seconds_of(static_cast<Pool*>(pool), tasks, read_part, &stream);
  volatile uint64_t use = stream.sums[0];
  (void)use;
  return static_cast<double>(size) / seconds;
}

// Products per second of `tasks` parts at once, of bytes or of words; 0 where this processor has no figure.
double bench_multiply(void* pool, int32_t tasks, int words) {
  std::vector<uint32_t> use(static_cast<size_t>(tasks));
  const double seconds =
      seconds_of(static_cast<Pool*>(pool), tasks, words ? multiply<Words> : multiply<Bytes>, use.data());
  volatile uint32_t keep = use[0];
  (void)keep;
  const int products = words ? Words::kProducts : Bytes::kProducts;
  return static_cast<double>(products) * kChains * kRounds * tasks / seconds;
}

const char* bench_multiply_name(int words) { return words ? Words::kName : Bytes::kName; }

}  // extern "C"
