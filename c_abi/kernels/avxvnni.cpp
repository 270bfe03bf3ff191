// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// AVX2 with VNNI in 256-bit form, as processors without AVX-512 have it. A compiler that does not know it
// makes this tier equal to AVX2.
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_X86)

#include "kernels/avx2.h"

namespace superslm::kernels {

namespace {

#if defined(__AVXVNNI__) || defined(_MSC_VER)
struct VexVnniDot {
  static __m256i dot(__m256i sum, __m256i w, __m256i a) {
#if defined(__GNUC__) && !defined(__clang__)
    // The intrinsic makes GCC copy the accumulator in every step.
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(w), "xm"(a));
    return sum;
#else
    return _mm256_dpwssd_avx_epi32(sum, w, a);
#endif
  }
};
#else
using VexVnniDot = Avx2Dot;
#endif

}  // namespace

const Kernels kAvxVnni = avx2_table<VexVnniDot>("avxvnni");

}  // namespace superslm::kernels

#endif
