// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What the 128-bit tiers share. They differ in how int8 becomes int16, and SSE4.1 alone multiplies bytes for
// NibbleRows. Internal linkage throughout: see kernels/scalar.h.
#pragma once

#include <emmintrin.h>

#include "kernels/attention.h"
#include "kernels/low_rank.h"

namespace superslm::kernels {

namespace {

template <typename Widen>
struct SseIsa : PlainScales {
  using Vec = __m128i;
  static constexpr int kLanes = 8, kAccumulators = 8, kTokens = 2;
  static void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
  static Vec zero() { return _mm_setzero_si128(); }
  static Vec load(const int16_t* p) { return _mm_loadu_si128(reinterpret_cast<const Vec*>(p)); }
  static void store(int16_t* p, Vec v) { _mm_storeu_si128(reinterpret_cast<Vec*>(p), v); }
  static Vec widen(const uint8_t* p) {
    return Widen::widen(_mm_loadl_epi64(reinterpret_cast<const Vec*>(p)));
  }
  static void nibbles(const uint8_t* p, Vec* out) {
    const Vec both = _mm_loadu_si128(reinterpret_cast<const Vec*>(p)), mask = _mm_set1_epi8(15);
    const Vec low = _mm_and_si128(both, mask), high = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
    out[0] = _mm_unpacklo_epi8(low, zero());
    out[1] = _mm_unpackhi_epi8(low, zero());
    out[2] = _mm_unpacklo_epi8(high, zero());
    out[3] = _mm_unpackhi_epi8(high, zero());
  }
  static Vec spread(uint32_t pair) { return _mm_set1_epi32(static_cast<int>(pair)); }
  static Vec mul(Vec a, Vec b) { return _mm_mullo_epi16(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm_sub_epi16(a, b); }
  static Vec dot(Vec sum, Vec w, Vec a) { return _mm_add_epi32(sum, _mm_madd_epi16(w, a)); }
  static Vec add32(Vec a, Vec b) { return _mm_add_epi32(a, b); }
  static Vec zip_low(Vec a, Vec b) { return _mm_unpacklo_epi16(a, b); }
  static Vec zip_high(Vec a, Vec b) { return _mm_unpackhi_epi16(a, b); }
  static Vec widen_sum(Vec v) {
    const Vec sign = _mm_srai_epi32(v, 31);
    return _mm_add_epi64(_mm_unpacklo_epi32(v, sign), _mm_unpackhi_epi32(v, sign));
  }
  static void add_planes(int64_t* out, Vec high, Vec low) {
    const Vec high_sign = _mm_srai_epi32(high, 31), low_sign = _mm_srai_epi32(low, 31);
    const auto add = [](int64_t* two, Vec h, Vec l) {
      Vec* to = reinterpret_cast<Vec*>(two);
      _mm_storeu_si128(to, _mm_add_epi64(_mm_loadu_si128(to), _mm_add_epi64(_mm_slli_epi64(h, 15), l)));
    };
    add(out, _mm_unpacklo_epi32(high, high_sign), _mm_unpacklo_epi32(low, low_sign));
    add(out + 2, _mm_unpackhi_epi32(high, high_sign), _mm_unpackhi_epi32(low, low_sign));
  }
  static Vec add64(Vec a, Vec b) { return _mm_add_epi64(a, b); }
  static int64_t sum(Vec v) {
    int64_t lanes[2];
    _mm_storeu_si128(reinterpret_cast<Vec*>(lanes), v);
    return lanes[0] + lanes[1];
  }
  static void add_sums(Vec a, Vec b, Vec c, Vec d, int64_t* out) {
    out[0] += sum(a);
    out[1] += sum(b);
    out[2] += sum(c);
    out[3] += sum(d);
  }
  static void store_sums(Vec a, Vec b, Vec c, Vec d, int32_t* out) {
    const Vec ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    const Vec cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
    _mm_storeu_si128(reinterpret_cast<Vec*>(out),
                     _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd)));
  }
};

template <typename Isa>
constexpr Kernels sse_table(const char* name) {
  Kernels k = kScalarTable;
  k.name = name;
  k.products = Products<Isa>::products;
  k.add_low_rank = LowRank<Isa, scalar::scale>::add;
  k.scores = Attention<Isa>::scores;
  k.values = Attention<Isa>::values;
  return k;
}

}  // namespace

}  // namespace superslm::kernels
