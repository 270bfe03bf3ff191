// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_X86)

#include "kernels/avx512_attention.h"

namespace superslm::kernels {

namespace {

struct VnniDot {
  static __m512i dot(__m512i sum, __m512i w, __m512i a) {
#if defined(__GNUC__) && !defined(__clang__)
    // The intrinsic makes GCC copy the accumulator in every step.
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(w), "vm"(a));
    return sum;
#else
    return _mm512_dpwssd_epi32(sum, w, a);
#endif
  }
};

}  // namespace

const Kernels kAvx512Vnni = avx512_table<VnniDot>("avx512vnni");

}  // namespace superslm::kernels

#endif
