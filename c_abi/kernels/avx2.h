// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The AVX2 kernels. Internal linkage throughout: see kernels/scalar.h.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/attention.h"
#include "kernels/low_rank.h"

namespace superslm::kernels {

namespace {

struct Avx2Dot {
  static __m256i dot(__m256i sum, __m256i w, __m256i a) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, a));
  }
};

template <typename Dot>
struct Avx2Isa : PlainScales {
  using Vec = __m256i;
  static constexpr int kLanes = 16, kAccumulators = 8, kTokens = 2;
  static void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
  // For NibbleRows.
  static constexpr int kBytes = 32;
  static Vec load_nibbles(const uint8_t* p, int32_t blocks) {
    if (blocks >= 2) return _mm256_loadu_si256(reinterpret_cast<const Vec*>(p));
    return _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Vec load_plane(const int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const Vec*>(p)); }
  static Vec low_nibbles(Vec x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
  static Vec high_nibbles(Vec x) { return low_nibbles(_mm256_srli_epi16(x, 4)); }
  static Vec add_bytes(Vec u, Vec s) { return _mm256_maddubs_epi16(u, s); }
  static Vec add16(Vec a, Vec b) { return _mm256_add_epi16(a, b); }
  static Vec shift_left_8(Vec x) { return _mm256_slli_epi64(x, 8); }
  static Vec group_scales(const uint8_t* pairs, int32_t blocks) {
    uint32_t two = pairs[0];
    if (blocks >= 2) std::memcpy(&two, pairs, sizeof(two));
    // Byte 2 * k to both halves of each dword of 128-bit lane k, with zeros above.
    constexpr int kEach = static_cast<int>(0x80008000);
    const Vec from = _mm256_set_m128i(_mm_set1_epi32(kEach + 0x20002), _mm_set1_epi32(kEach));
    return _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(two)), from);
  }
  static Vec load_offsets(const uint8_t* pairs, int32_t blocks) {
    uint8_t some[kBytes] = {};
    if (blocks < kLanes) {
      for (int32_t b = 0; b < blocks; ++b) std::memcpy(some + 2 * b, pairs + 2 * b, 2);
      pairs = some;
    }
    return _mm256_srli_epi16(_mm256_loadu_si256(reinterpret_cast<const Vec*>(pairs)), 8);
  }
  static void split(const int16_t* a, int8_t* low, int8_t* high, int32_t apart) {
    const auto low_bytes = [](Vec v) {
      const Vec bytes = _mm256_and_si256(v, _mm256_set1_epi16(255));
      return _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    };
    for (int half = 0; half < 2; ++half, a += kLanes, low += apart, high += apart) {
      const Vec x = load(a), rounded = _mm256_srai_epi16(_mm256_add_epi16(x, _mm256_set1_epi16(128)), 8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(low), low_bytes(x));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(high), low_bytes(rounded));
    }
  }
  static Vec zero() { return _mm256_setzero_si256(); }
  static Vec load(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const Vec*>(p)); }
  static void store(int16_t* p, Vec v) { _mm256_storeu_si256(reinterpret_cast<Vec*>(p), v); }
  static Vec widen(const uint8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void nibbles(const uint8_t* p, Vec* out) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), mask = _mm_set1_epi8(15);
    out[0] = _mm256_cvtepu8_epi16(_mm_and_si128(both, mask));
    out[1] = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(both, 4), mask));
  }
  static Vec spread(uint32_t pair) { return _mm256_set1_epi32(static_cast<int>(pair)); }
  static Vec mul(Vec a, Vec b) { return _mm256_mullo_epi16(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm256_sub_epi16(a, b); }
  static Vec dot(Vec sum, Vec w, Vec a) { return Dot::dot(sum, w, a); }
  static Vec add32(Vec a, Vec b) { return _mm256_add_epi32(a, b); }
  static Vec zip_low(Vec a, Vec b) { return _mm256_unpacklo_epi16(a, b); }
  static Vec zip_high(Vec a, Vec b) { return _mm256_unpackhi_epi16(a, b); }
  // Int32 lanes to four int64 partial sums.
  static Vec widen_sum(Vec v) {
    return _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(v)),
                            _mm256_cvtepi32_epi64(_mm256_extracti128_si256(v, 1)));
  }
  static Vec add64(Vec a, Vec b) { return _mm256_add_epi64(a, b); }
  static int64_t sum(Vec v) {
    int64_t lanes[4];
    _mm256_storeu_si256(reinterpret_cast<Vec*>(lanes), v);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
  static void add_planes(int64_t* out, Vec high, Vec low) {
    const auto add = [](int64_t* four, __m128i h, __m128i l) {
      const Vec sum =
          _mm256_add_epi64(_mm256_slli_epi64(_mm256_cvtepi32_epi64(h), 15), _mm256_cvtepi32_epi64(l));
      Vec* to = reinterpret_cast<Vec*>(four);
      _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), sum));
    };
    add(out, _mm256_castsi256_si128(high), _mm256_castsi256_si128(low));
    add(out + 8, _mm256_extracti128_si256(high, 1), _mm256_extracti128_si256(low, 1));
  }
  static void add_sums(Vec a, Vec b, Vec c, Vec d, int64_t* out) {
    const Vec ab = _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    const Vec cd = _mm256_add_epi64(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
    const Vec four =
        _mm256_add_epi64(_mm256_permute2x128_si256(ab, cd, 0x20), _mm256_permute2x128_si256(ab, cd, 0x31));
    Vec* to = reinterpret_cast<Vec*>(out);
    _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), four));
  }
  static void store_sums(Vec a, Vec b, Vec c, Vec d, int32_t* out) {
    const Vec ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const Vec cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    const Vec four = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1)));
  }
};

// ---- Int64 lanes ----

// Up to four int32 at any alignment, as int64; missing ones are 0. A tail goes through memory of its own.
inline __m256i load4(const void* p, int32_t n) {
  int32_t lanes[4] = {};
  if (n < 4) p = std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(int32_t));
  return _mm256_cvtepi32_epi64(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

inline __m256i load4_wide(const int64_t* p, int32_t n) {
  int64_t lanes[4] = {};
  if (n < 4) p = static_cast<const int64_t*>(std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(int64_t)));
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// The low halves of int64 lanes as int32.
inline __m128i narrow(__m256i x) {
  return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)));
}

inline void store4(int32_t* p, int32_t n, __m128i v) {
  if (n >= 4) return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
  int32_t lanes[4];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(int32_t));
}

// Rounding shift right of int64 lanes. The arithmetic shift is a logical one of x + 2^63, moved back.
struct Rounding {
  __m256i half, back;
  __m128i shift;
  explicit Rounding(int32_t s)
      : half(_mm256_set1_epi64x(
            static_cast<int64_t>((s > 0 ? uint64_t{1} << (s - 1) : 0) + (uint64_t{1} << 63)))),
        back(_mm256_set1_epi64x(static_cast<int64_t>((uint64_t{1} << 63) >> s))),
        shift(_mm_cvtsi32_si128(s)) {}
  __m256i operator()(__m256i x) const {
    return _mm256_sub_epi64(_mm256_srl_epi64(_mm256_add_epi64(x, half), shift), back);
  }
};

// sat32 of up to four lanes; counts those that changed. Missing lanes are 0 and do not change.
inline __m128i saturate32(__m256i x, uint32_t& clipped) {
  const __m256i top = _mm256_set1_epi64x(0x7fffffff), bottom = _mm256_set1_epi64x(-0x7fffffff);
  const __m256i over = _mm256_cmpgt_epi64(x, top), under = _mm256_cmpgt_epi64(bottom, x);
  const __m256i changed = _mm256_or_si256(over, under);
  if (!_mm256_testz_si256(changed, changed)) {
    for (int bits = _mm256_movemask_pd(_mm256_castsi256_pd(changed)); bits != 0; bits &= bits - 1) ++clipped;
  }
  return narrow(_mm256_blendv_epi8(_mm256_blendv_epi8(x, top, over), bottom, under));
}

// ---- Epilogues of a product ----

inline void avx2_scale(int64_t* acc, const uint8_t* multipliers, int32_t rows, int32_t shift) {
  const Rounding first(4), second(shift);
  for (int32_t r = 0; r < rows; r += 4) {
    const int32_t n = rows - r;
    const __m256i w = load4(multipliers + static_cast<size_t>(r) * 4, n);
    const __m256i x = first(load4_wide(acc + r, n));
    // The multiplier is below 2^32: the two halves of x times it.
    const __m256i high = _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), w), 32);
    const __m256i y = second(_mm256_add_epi64(_mm256_mul_epu32(x, w), high));
    if (n >= 4) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + r), y);
    } else {
      int64_t lanes[4];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), y);
      for (int32_t i = 0; i < n; ++i) acc[r + i] = lanes[i];
    }
  }
}

inline uint32_t avx2_saturate(const int64_t* y, const uint8_t* bias, int32_t rows, int32_t* out) {
  uint32_t clipped = 0;
  for (int32_t r = 0; r < rows; r += 4) {
    __m256i x = load4_wide(y + r, rows - r);
    if (bias) x = _mm256_add_epi64(x, load4(bias + static_cast<size_t>(r) * 4, rows - r));
    store4(out + r, rows - r, saturate32(x, clipped));
  }
  return clipped;
}

inline uint32_t avx2_add(const int64_t* y, int32_t rows, int32_t* x) {
  uint32_t clipped = 0;
  for (int32_t r = 0; r < rows; r += 4) {
    const __m256i sum = _mm256_add_epi64(load4(x + r, rows - r), load4_wide(y + r, rows - r));
    store4(x + r, rows - r, saturate32(sum, clipped));
  }
  return clipped;
}

// ---- Vectors of one row ----

inline uint32_t avx2_largest(const int32_t* x, int32_t n) {
  __m256i top = _mm256_setzero_si256();
  int32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    top =
        _mm256_max_epu32(top, _mm256_abs_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))));
  }
  uint32_t lanes[8], m = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), top);
  for (uint32_t lane : lanes) m = m > lane ? m : lane;
  for (; i < n; ++i) {
    const uint32_t v = x[i] < 0 ? 0u - static_cast<uint32_t>(x[i]) : static_cast<uint32_t>(x[i]);
    m = m > v ? m : v;
  }
  return m;
}

inline void avx2_norm(const int32_t* x, const uint8_t* gains, int32_t n, uint64_t epsilon, int32_t* out) {
  const int32_t s = scalar::norm_shift(avx2_largest(x, n));
  const Rounding part(s), last(30);
  __m256i squares = _mm256_setzero_si256();
  for (int32_t i = 0; i < n; i += 4) {
    const __m256i v = part(load4(x + i, n - i));
    squares = _mm256_add_epi64(squares, _mm256_mul_epi32(v, v));
  }
  const uint64_t total = static_cast<uint64_t>(Avx2Isa<Avx2Dot>::sum(squares));
  const scalar::NormFactor f = scalar::norm_factor(total, s, epsilon);
  if (f.inverse >> 31 != 0) return scalar::norm(x, gains, n, epsilon, out);  // 2^31 is no signed factor
  const __m256i inverse = _mm256_set1_epi64x(f.inverse);
  const Rounding unit_shift(f.shift);
  for (int32_t i = 0; i < n; i += 4) {
    const __m256i unit = unit_shift(_mm256_mul_epi32(load4(x + i, n - i), inverse));
    const __m256i g = load4(gains + static_cast<size_t>(i) * 4, n - i);
    store4(out + i, n - i, narrow(last(_mm256_mul_epi32(unit, g))));
  }
}

inline int32_t avx2_quantise(const int32_t* y, int32_t n, int16_t* out) {
  uint32_t m = avx2_largest(y, n);
  int32_t shift = 0;
  for (m >>= 14; m != 0; m >>= 1) ++shift;
  // Floor plus round bit: adding half may pass the int32 range at the very top.
  const __m128i count = _mm_cvtsi32_si128(shift), before = _mm_cvtsi32_si128(shift - 1);
  const __m256i one = _mm256_set1_epi32(shift > 0 ? 1 : 0);
  const auto round = [&](const int32_t* p) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_add_epi32(_mm256_sra_epi32(v, count), _mm256_and_si256(_mm256_sra_epi32(v, before), one));
  };
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i both = _mm256_packs_epi32(round(y + i), round(y + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(both, 0xd8));
  }
  for (; i < n; ++i) {
    out[i] = static_cast<int16_t>(shift > 0 ? (y[i] >> shift) + ((y[i] >> (shift - 1)) & 1) : y[i]);
  }
  return shift;
}

// The sigmoid's Q30 value for int32 lanes; the table index is clamped at its end, where the result is 0 or 1.
inline __m128i avx2_sigmoid(__m128i g, const int* table) {
  const __m128i x = _mm_abs_epi32(g);
  const __m128i limit = _mm_set1_epi32(16 * 65536 - 1);
  const __m128i inside = _mm_min_epu32(x, limit);
  const __m128i near = _mm_cmpeq_epi32(inside, x);
  const __m128i i = _mm_srli_epi32(inside, 10);
  // Plain loads of neighbouring entries: a gather takes several times as long on some processors.
  int32_t at[4];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), i);
  const auto pair = [&](int lane) {
    return _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(table + at[lane])));
  };
  const __m128 first = _mm_movelh_ps(pair(0), pair(1)), second = _mm_movelh_ps(pair(2), pair(3));
  const __m128i low = _mm_castps_si128(_mm_shuffle_ps(first, second, 0x88));
  const __m128i high = _mm_castps_si128(_mm_shuffle_ps(first, second, 0xdd));
  const __m128i f = _mm_and_si128(inside, _mm_set1_epi32(1023));
  const __m128i part = _mm_srli_epi32(_mm_mullo_epi32(_mm_sub_epi32(low, high), f), 10);
  const __m128i n = _mm_and_si128(_mm_sub_epi32(low, part), near);
  return _mm_blendv_epi8(_mm_sub_epi32(_mm_set1_epi32(1 << 30), n), n, _mm_srai_epi32(g, 31));
}

inline uint32_t avx2_silu_multiply(int32_t* gate, const int32_t* up, int32_t n, const uint8_t* sigmoid,
                                   int32_t shift) {
  const int* table = reinterpret_cast<const int*>(sigmoid);
  const Rounding first(30), second(shift);
  uint32_t clipped = 0;
  for (int32_t i = 0; i < n; i += 4) {
    const __m256i g = load4(gate + i, n - i);
    const __m256i s = _mm256_cvtepi32_epi64(avx2_sigmoid(narrow(g), table));
    const __m256i silu = first(_mm256_mul_epi32(g, s));
    store4(gate + i, n - i, saturate32(second(_mm256_mul_epi32(silu, load4(up + i, n - i))), clipped));
  }
  return clipped;
}

inline uint32_t avx2_rotate(int32_t* x, int32_t heads, int32_t head_dim, const int32_t* cosine,
                            const int32_t* sine) {
  const Rounding round(30);
  const int32_t half = head_dim / 2;
  uint32_t clipped = 0;
  for (int32_t h = 0; h < heads; ++h, x += head_dim) {
    for (int32_t f = 0; f < half; f += 4) {
      const int32_t n = half - f;
      const __m256i a = load4(x + f, n), b = load4(x + half + f, n), c = load4(cosine + f, n),
                    s = load4(sine + f, n);
      const __m256i ra = _mm256_sub_epi64(_mm256_mul_epi32(a, c), _mm256_mul_epi32(b, s));
      const __m256i rb = _mm256_add_epi64(_mm256_mul_epi32(b, c), _mm256_mul_epi32(a, s));
      store4(x + f, n, saturate32(round(ra), clipped));
      store4(x + half + f, n, saturate32(round(rb), clipped));
    }
  }
  return clipped;
}

inline void avx2_scale_query(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t* out) {
  const Rounding round(31);
  for (int32_t i = 0; i < n; i += 4) {
    const __m256i w = load4(multipliers + static_cast<size_t>(i) * 4, n - i);
    store4(out + i, n - i, narrow(round(_mm256_mul_epi32(load4(x + i, n - i), w))));
  }
}

// ---- Softmax weights ----

inline int64_t avx2_top(const int64_t* scores, int64_t count) {
  int64_t top = scores[0];
  int64_t j = 0;
  if (count >= 4) {
    __m256i best = _mm256_set1_epi64x(top);
    for (; j + 4 <= count; j += 4) {
      const __m256i s = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scores + j));
      best = _mm256_blendv_epi8(best, s, _mm256_cmpgt_epi64(s, best));
    }
    int64_t lanes[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), best);
    for (int64_t lane : lanes) top = top > lane ? top : lane;
  }
  for (; j < count; ++j) top = top > scores[j] ? top : scores[j];
  return top;
}

// Weights of eight distances in score units; shift is the exponent less 16.
inline __m256i avx2_weights(__m256i gap0, __m256i gap1, __m128i shift) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256i a = _mm256_permutevar8x32_epi32(gap0, order), b = _mm256_permutevar8x32_epi32(gap1, order);
  const __m256i low = _mm256_permute2x128_si256(a, b, 0x20), high = _mm256_permute2x128_si256(a, b, 0x31);
  const __m256i zero = _mm256_setzero_si256(), ones = _mm256_cmpeq_epi32(zero, zero);
  const __m256i t = _mm256_or_si256(low, _mm256_xor_si256(_mm256_cmpeq_epi32(high, zero), ones));
  const __m256i z = _mm256_srl_epi32(t, shift);
  // Twice the fraction in the low half of each lane: (f * c) >> 15 is the high word of 2f * c.
  const __m256i f2 = _mm256_and_si256(z, _mm256_set1_epi32(0xfffe));
  __m256i r = _mm256_mulhi_epu16(f2, _mm256_set1_epi32(2596));
  r = _mm256_mulhi_epu16(f2, _mm256_sub_epi32(_mm256_set1_epi32(15149), r));
  r = _mm256_mulhi_epu16(f2, _mm256_sub_epi32(_mm256_set1_epi32(45324), r));
  r = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(65535), r), 14);
  const __m256i far = _mm256_set1_epi32(31 * 65536);
  const __m256i near = _mm256_cmpgt_epi32(far, _mm256_min_epu32(z, far));
  return _mm256_and_si256(near, _mm256_srlv_epi32(r, _mm256_srli_epi32(z, 16)));
}

inline void store_plane(int16_t* out, __m256i v) {
  const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), packed);
}

inline uint64_t avx2_weigh(const int64_t* scores, int64_t count, int32_t exponent, int16_t* high,
                           int16_t* low) {
  if (exponent < 16) return scalar::weigh(scores, count, exponent, high, low);
  const int64_t best = avx2_top(scores, count);
  const __m256i top = _mm256_set1_epi64x(best);
  const __m128i shift = _mm_cvtsi32_si128(exponent - 16);
  __m256i sum = _mm256_setzero_si256();
  for (int64_t j = 0; j < count; j += 8) {
    const int64_t n = count - j < 8 ? count - j : 8;
    int64_t tail[8];
    const int64_t* from = scores + j;
    if (n < 8) {
      for (int64_t i = 0; i < 8; ++i) tail[i] = i < n ? from[i] : best;
      from = tail;
    }
    const __m256i s0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i s1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 4));
    __m256i p = avx2_weights(_mm256_sub_epi64(top, s0), _mm256_sub_epi64(top, s1), shift);
    int16_t planes[16];
    if (n < 8) {  // a missing position weighs nothing
      const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      p = _mm256_and_si256(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), index));
    }
    sum = _mm256_add_epi64(sum, Avx2Isa<Avx2Dot>::widen_sum(p));
    store_plane(n < 8 ? planes : high + j, _mm256_srli_epi32(p, 15));
    store_plane(n < 8 ? planes + 8 : low + j, _mm256_and_si256(p, _mm256_set1_epi32(32767)));
    for (int64_t i = 0; n < 8 && i < n; ++i) {
      high[j + i] = planes[i];
      low[j + i] = planes[8 + i];
    }
  }
  return static_cast<uint64_t>(Avx2Isa<Avx2Dot>::sum(sum));
}

template <typename Dot>
constexpr Kernels avx2_table(const char* name) {
  Kernels k = kScalarTable;
  k.name = name;
  k.products = Products<Avx2Isa<Dot>>::products;
  k.scale = avx2_scale;
  k.saturate = avx2_saturate;
  k.add = avx2_add;
  k.add_low_rank = LowRank<Avx2Isa<Dot>, avx2_scale>::add;
  k.norm = avx2_norm;
  k.quantise = avx2_quantise;
  k.rotate = avx2_rotate;
  k.scale_query = avx2_scale_query;
  k.silu_multiply = avx2_silu_multiply;
  k.scores = Attention<Avx2Isa<Dot>>::scores;
  k.weigh = avx2_weigh;
  k.values = Attention<Avx2Isa<Dot>>::values;
  return k;
}

}  // namespace

}  // namespace superslm::kernels
