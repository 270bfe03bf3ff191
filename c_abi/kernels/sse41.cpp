// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_X86)

#include <smmintrin.h>

#include "kernels/sse.h"

namespace superslm::kernels {

namespace {

struct ConvertWiden {
  static __m128i widen(__m128i x) { return _mm_cvtepi8_epi16(x); }
};

}  // namespace

const Kernels kSse41 = sse_table<ConvertWiden>("sse41");

}  // namespace superslm::kernels

#endif
