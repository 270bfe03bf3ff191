// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Which x86 instructions the hash kernels may use. Empty on other processors.
#pragma once

#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
#define SUPERSLM_X86 1

#include <cstdint>
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif

#if defined(__GNUC__) || defined(__clang__)
#define SUPERSLM_TARGET(isa) __attribute__((target(isa)))
#else
#define SUPERSLM_TARGET(isa)
#endif

namespace superslm::artifact {

struct CpuidLeaf {
  uint32_t eax, ebx, ecx, edx;
};

inline CpuidLeaf cpuid(uint32_t leaf) {
  CpuidLeaf r = {};
#if defined(_MSC_VER)
  int regs[4];
  __cpuidex(regs, static_cast<int>(leaf), 0);
  r = {static_cast<uint32_t>(regs[0]), static_cast<uint32_t>(regs[1]), static_cast<uint32_t>(regs[2]),
       static_cast<uint32_t>(regs[3])};
#else
  __cpuid_count(leaf, 0, r.eax, r.ebx, r.ecx, r.edx);
#endif
  return r;
}

// The operating system keeps the upper halves of the vector registers.
inline bool os_keeps_ymm() {
  if ((cpuid(1).ecx >> 27 & 1) == 0) return false;
#if defined(_MSC_VER)
  return (_xgetbv(0) & 6) == 6;
#else
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 6) == 6;
#endif
}

inline CpuidLeaf features7() { return cpuid(0).eax >= 7 ? cpuid(7) : CpuidLeaf{}; }

inline bool has_sha_extension() {
  const uint32_t ecx = cpuid(1).ecx;
  return (ecx >> 9 & 1) != 0 && (ecx >> 19 & 1) != 0 &&
         (features7().ebx >> 29 & 1) != 0;  // SSSE3, SSE4.1, SHA
}

inline bool has_avx2() { return os_keeps_ymm() && (features7().ebx >> 5 & 1) != 0; }

}  // namespace superslm::artifact

#endif
