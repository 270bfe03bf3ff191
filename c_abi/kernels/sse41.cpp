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

struct Sse41Isa : SseIsa<ConvertWiden> {
  // For NibbleRows; a block's nibbles fill a vector.
  static constexpr int kBytes = 16;
  static Vec load_nibbles(const uint8_t* p, int32_t) {
    return _mm_loadu_si128(reinterpret_cast<const Vec*>(p));
  }
  static Vec load_plane(const int8_t* p) { return _mm_loadu_si128(reinterpret_cast<const Vec*>(p)); }
  static Vec low_nibbles(Vec x) { return _mm_and_si128(x, _mm_set1_epi8(15)); }
  static Vec high_nibbles(Vec x) { return low_nibbles(_mm_srli_epi16(x, 4)); }
  static Vec add_bytes(Vec u, Vec s) { return _mm_maddubs_epi16(u, s); }
  static Vec add16(Vec a, Vec b) { return _mm_add_epi16(a, b); }
  static Vec shift_left_8(Vec x) { return _mm_slli_epi64(x, 8); }
  static Vec group_scales(const uint8_t* pairs, int32_t) { return _mm_set1_epi16(pairs[0]); }
  static Vec load_offsets(const uint8_t* pairs, int32_t blocks) {
    uint8_t some[kBytes] = {};
    if (blocks < kLanes) {
      for (int32_t b = 0; b < blocks; ++b) some[2 * b + 1] = pairs[2 * b + 1];
      pairs = some;
    }
    return _mm_srli_epi16(_mm_loadu_si128(reinterpret_cast<const Vec*>(pairs)), 8);
  }
  static void split(const int16_t* a, int8_t* low, int8_t* high, int32_t apart) {
    const auto low_bytes = [](Vec first, Vec second) {
      const Vec mask = _mm_set1_epi16(255);
      return _mm_packus_epi16(_mm_and_si128(first, mask), _mm_and_si128(second, mask));
    };
    const auto round = [](Vec x) { return _mm_srai_epi16(_mm_add_epi16(x, _mm_set1_epi16(128)), 8); };
    for (int half = 0; half < 2; ++half, a += 2 * kLanes, low += apart, high += apart) {
      const Vec x = load(a), y = load(a + kLanes);
      _mm_storeu_si128(reinterpret_cast<Vec*>(low), low_bytes(x, y));
      _mm_storeu_si128(reinterpret_cast<Vec*>(high), low_bytes(round(x), round(y)));
    }
  }
};

}  // namespace

const Kernels kSse41 = sse_table<Sse41Isa>("sse41");

}  // namespace superslm::kernels

#endif
