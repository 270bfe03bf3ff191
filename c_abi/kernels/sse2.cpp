// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_X86)

#include "kernels/sse.h"

namespace superslm::kernels {

namespace {

struct UnpackWiden {
  static __m128i widen(__m128i x) { return _mm_srai_epi16(_mm_unpacklo_epi8(x, x), 8); }
};

}  // namespace

const Kernels kSse2 = sse_table<SseIsa<UnpackWiden>>("sse2");

}  // namespace superslm::kernels

#endif
