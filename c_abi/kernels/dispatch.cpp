// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Chooses the best tier that processor and operating system support.
#include <atomic>

#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_X86)
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#elif defined(SSLM_KERNELS_ARM64)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#endif
#endif
#if defined(SUPERSLM_TEST_SEAMS)
#include <cstdlib>
#include <cstring>
#endif

namespace superslm::kernels {

namespace {

#if defined(SSLM_KERNELS_X86)

struct CpuId {
  uint32_t a, b, c, d;
};

CpuId cpuid(uint32_t leaf, uint32_t part = 0) {
  CpuId r{};
#if defined(_MSC_VER)
  int out[4];
  __cpuid(out, 0);
  if (static_cast<uint32_t>(out[0]) < leaf) return r;
  __cpuidex(out, static_cast<int>(leaf), static_cast<int>(part));
  r = {static_cast<uint32_t>(out[0]), static_cast<uint32_t>(out[1]), static_cast<uint32_t>(out[2]),
       static_cast<uint32_t>(out[3])};
#else
  __get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d);
#endif
  return r;
}

// Register state that the operating system saves: XCR0.
uint32_t saved_state() {
#if defined(_MSC_VER)
  return static_cast<uint32_t>(_xgetbv(0));
#else
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
#endif
}

bool bit(uint32_t word, int index) { return (word >> index & 1) != 0; }

struct Features {
  bool sse2, sse41, avx2, avxvnni, avx512, avx512vnni;
};

Features detect() {
  const CpuId basic = cpuid(1), more = cpuid(7);
  const uint32_t state = bit(basic.c, 27) ? saved_state() : 0;
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  Features f{};
  f.sse2 = bit(basic.d, 26);
  f.sse41 = bit(basic.c, 19);
  f.avx2 = ymm && bit(basic.c, 28) && bit(more.b, 5);
  f.avxvnni = f.avx2 && more.a >= 1 && bit(cpuid(7, 1).a, 4);
  // F, DQ, BW, VL
  f.avx512 = zmm && bit(more.b, 16) && bit(more.b, 17) && bit(more.b, 30) && bit(more.b, 31);
  f.avx512vnni = f.avx512 && bit(more.c, 11);
  return f;
}

constexpr int32_t kTierCount = 7;

void fill(Tier* out) {
  const Features f = detect();
  out[0] = {"scalar", &kScalar};
  out[1] = {"sse2", f.sse2 ? &kSse2 : nullptr};
  out[2] = {"sse41", f.sse41 ? &kSse41 : nullptr};
  out[3] = {"avx2", f.avx2 ? &kAvx2 : nullptr};
  out[4] = {"avxvnni", f.avxvnni ? &kAvxVnni : nullptr};
  out[5] = {"avx512", f.avx512 ? &kAvx512 : nullptr};
  out[6] = {"avx512vnni", f.avx512vnni ? &kAvx512Vnni : nullptr};
}

#elif defined(SSLM_KERNELS_ARM64)

bool has_dot_product() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) >> 20 & 1) != 0;  // HWCAP_ASIMDDP
#elif defined(__APPLE__)
  int32_t present = 0;
  size_t size = sizeof(present);
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &present, &size, nullptr, 0) == 0 && present == 1;
#elif defined(_WIN32)
  return IsProcessorFeaturePresent(43) != 0;  // PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
#elif defined(__ARM_FEATURE_DOTPROD)
  return true;
#else
  return false;
#endif
}

constexpr int32_t kTierCount = 3;

void fill(Tier* out) {
  out[0] = {"scalar", &kScalar};
  out[1] = {"neon", &kNeon};
  out[2] = {"neon_dotprod", has_dot_product() ? &kNeonDotprod : nullptr};
}

#elif defined(SSLM_KERNELS_WASM_SIMD128)

constexpr int32_t kTierCount = 2;

void fill(Tier* out) {
  out[0] = {"scalar", &kScalar};
  out[1] = {"simd128", &kSimd128};
}

#else

constexpr int32_t kTierCount = 1;

void fill(Tier* out) { out[0] = {"scalar", &kScalar}; }

#endif

const Kernels* choose() {
  Tier all[kTierCount];
  const int32_t count = tiers(all);
#if defined(SUPERSLM_TEST_SEAMS)
  if (const char* forced = std::getenv("SSLM_FORCE_TIER")) {
    for (int32_t i = 0; i < count; ++i) {
      if (std::strcmp(all[i].name, forced) == 0 && all[i].kernels) return all[i].kernels;
    }
    std::abort();  // a test that names a tier must not run on another
  }
#endif
  const Kernels* best = nullptr;
  for (int32_t i = 0; i < count; ++i) best = all[i].kernels ? all[i].kernels : best;
  return best;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

int32_t tiers(Tier* out) {
  fill(out);
  return kTierCount;
}

const Kernels& active() {
  const Kernels* kernels = chosen.load(std::memory_order_acquire);
  if (kernels == nullptr) {
    kernels = choose();
    chosen.store(kernels, std::memory_order_release);
  }
  return *kernels;
}

}  // namespace superslm::kernels
