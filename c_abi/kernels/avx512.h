// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The AVX-512 kernels, shared by the tiers with and without VNNI, which differ in how pair sums are
// accumulated. Internal linkage throughout: see kernels/scalar.h.
#pragma once

#include <immintrin.h>

#include "kernels/low_rank.h"
#include "kernels/products.h"
#include "kernels/scalar.h"

namespace superslm::kernels {

namespace {

// Pair sums of int16 products added to int32 lanes.
struct MaddDot {
  static __m512i dot(__m512i sum, __m512i w, __m512i a) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, a));
  }
};

inline __m512i widen_low(__m512i x) { return _mm512_cvtepi32_epi64(_mm512_castsi512_si256(x)); }
inline __m512i widen_high(__m512i x) { return _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(x, 1)); }
// Int32 lanes to eight int64 partial sums, without crossing lanes.
inline __m512i lanes64(__m512i x) {
  return _mm512_add_epi64(_mm512_srai_epi64(x, 32), _mm512_srai_epi64(_mm512_slli_epi64(x, 32), 32));
}
inline __mmask8 mask8(int64_t n) { return n >= 8 ? 0xff : static_cast<__mmask8>((1u << n) - 1); }
inline __mmask16 mask16(int64_t n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1); }
inline __mmask64 mask64(int64_t n) { return n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1; }

template <typename Dot>
struct Avx512Isa {
  using Vec = __m512i;
  static constexpr int kLanes = 32, kAccumulators = 24, kTokens = 6;
  static void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
  static void spread_nibbles(const uint8_t* nibbles, int32_t bytes, uint32_t* out) {
    const Vec x = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask16(bytes), nibbles));
    const Vec low = _mm512_and_si512(x, _mm512_set1_epi32(15)), high = _mm512_srli_epi32(x, 4);
    const Vec first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const Vec second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    const Vec a = _mm512_permutex2var_epi32(low, first, high),
              b = _mm512_permutex2var_epi32(low, second, high);
    _mm512_storeu_si512(out, _mm512_or_si512(a, _mm512_slli_epi32(a, 16)));
    _mm512_storeu_si512(out + 16, _mm512_or_si512(b, _mm512_slli_epi32(b, 16)));
  }
  static void spread_bytes(const uint8_t* pairs, int32_t blocks, uint32_t* scale, uint32_t* offset) {
    const __mmask16 m = mask16(blocks);
    const Vec x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, pairs));
    const Vec s = _mm512_and_si512(x, _mm512_set1_epi32(255));
    const Vec u = _mm512_slli_epi32(_mm512_srli_epi32(x, 8), 4);
    _mm512_storeu_si512(scale, _mm512_or_si512(s, _mm512_slli_epi32(s, 16)));
    _mm512_storeu_si512(offset, _mm512_or_si512(u, _mm512_slli_epi32(u, 16)));
  }
  static int64_t offset_sum(const uint8_t* pairs, int32_t blocks, const int32_t* block_sums) {
    const __mmask16 m = mask16(blocks);
    const Vec u = _mm512_srli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, pairs)), 8);
    const Vec part = _mm512_mullo_epi32(_mm512_slli_epi32(u, 4), _mm512_maskz_loadu_epi32(m, block_sums));
    return _mm512_reduce_add_epi64(lanes64(part));
  }
  static int32_t sum_block(const int16_t* a) {
    return _mm512_reduce_add_epi32(_mm512_madd_epi16(_mm512_loadu_si512(a), _mm512_set1_epi16(1)));
  }
  // For NibbleRows.
  static constexpr int kBytes = 64;
  static Vec load_nibbles(const uint8_t* p, int32_t blocks) {
    return blocks >= 4 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(mask64(16 * blocks), p);
  }
  static Vec load_plane(const int8_t* p) { return _mm512_loadu_si512(p); }
  static Vec low_nibbles(Vec x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static Vec high_nibbles(Vec x) { return low_nibbles(_mm512_srli_epi16(x, 4)); }
  static Vec add_bytes(Vec u, Vec s) { return _mm512_maddubs_epi16(u, s); }
  static Vec add16(Vec a, Vec b) { return _mm512_add_epi16(a, b); }
  static Vec shift_left_8(Vec x) { return _mm512_slli_epi64(x, 8); }
  static Vec group_scales(const uint8_t* pairs, int32_t blocks) {
    const __m128i some = blocks >= 4 ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pairs))
                                     : _mm_maskz_loadu_epi8(mask16(2 * blocks), pairs);
    // Byte 2 * k to both halves of each dword of 128-bit lane k, with zeros above.
    constexpr int kEach = static_cast<int>(0x80008000);
    const Vec from = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi32(kEach + 0x20002), _mm_set1_epi32(kEach))),
        _mm256_set_m128i(_mm_set1_epi32(kEach + 0x60006), _mm_set1_epi32(kEach + 0x40004)), 1);
    return _mm512_shuffle_epi8(_mm512_broadcastq_epi64(some), from);
  }
  static Vec load_offsets(const uint8_t* pairs, int32_t blocks) {
    return _mm512_srli_epi16(_mm512_maskz_loadu_epi8(mask64(2 * blocks), pairs), 8);
  }
  // Halves of the block lie `apart` bytes from each other.
  static void split(const int16_t* a, int8_t* low, int8_t* high, int32_t apart) {
    const Vec x = _mm512_loadu_si512(a);
    const auto put = [apart](Vec v, int8_t* to) {
      const __m256i bytes = _mm512_cvtepi16_epi8(v);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(bytes));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + apart), _mm256_extracti128_si256(bytes, 1));
    };
    put(x, low);
    put(_mm512_srai_epi16(_mm512_add_epi16(x, _mm512_set1_epi16(128)), 8), high);
  }
  static Vec zero() { return _mm512_setzero_si512(); }
  static Vec load(const int16_t* p) { return _mm512_loadu_si512(p); }
  static void store(int16_t* p, Vec v) { _mm512_storeu_si512(p, v); }
  static Vec widen(const uint8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void nibbles(const uint8_t* p, Vec* out) {
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i shifted = _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    out[0] = _mm512_cvtepu8_epi16(_mm256_and_si256(shifted, _mm256_set1_epi8(15)));
  }
  static Vec spread(uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
  static Vec mul(Vec a, Vec b) { return _mm512_mullo_epi16(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_epi16(a, b); }
  static Vec dot(Vec sum, Vec w, Vec a) { return Dot::dot(sum, w, a); }
  static Vec add32(Vec a, Vec b) { return _mm512_add_epi32(a, b); }
  static Vec widen_sum(Vec v) { return lanes64(v); }
  static Vec add64(Vec a, Vec b) { return _mm512_add_epi64(a, b); }
  static int64_t sum(Vec v) { return _mm512_reduce_add_epi64(v); }
  static void add_sums(Vec a, Vec b, Vec c, Vec d, int64_t* out) {
    const Vec ab = _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    const Vec cd = _mm512_add_epi64(_mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d));
    const Vec both = _mm512_add_epi64(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
    const Vec whole = _mm512_add_epi64(both, _mm512_shuffle_i64x2(both, both, 0xb1));
    const __m256i four =
        _mm512_castsi512_si256(_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 4, 5, 0, 0, 0, 0), whole));
    __m256i* to = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), four));
  }
};

// ---- Epilogues of a product ----

// Rounding shift right of int64 lanes; `half` is 2^(shift-1), or 0 for a shift of 0.
struct Rounding {
  __m512i half;
  __m128i shift;
  explicit Rounding(int32_t s)
      : half(_mm512_set1_epi64(s > 0 ? int64_t{1} << (s - 1) : 0)), shift(_mm_cvtsi32_si128(s)) {}
  __m512i operator()(__m512i x) const { return _mm512_sra_epi64(_mm512_add_epi64(x, half), shift); }
};

// Whole vectors are moved plainly, because a masked store is not forwarded to a load; only the last one is
// masked.
struct Whole {};
struct Part {
  __mmask8 mask;
};

inline __m512i load64(const int64_t* p, Whole) { return _mm512_loadu_si512(p); }
inline __m512i load64(const int64_t* p, Part m) { return _mm512_maskz_loadu_epi64(m.mask, p); }
inline __m512i load32(const void* p, Whole) {
  return _mm512_cvtepi32_epi64(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
inline __m512i load32(const void* p, Part m) {
  return _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(m.mask, p));
}
inline void store64(int64_t* p, __m512i v, Whole) { _mm512_storeu_si512(p, v); }
inline void store64(int64_t* p, __m512i v, Part m) { _mm512_mask_storeu_epi64(p, m.mask, v); }
inline void store32(int32_t* p, __m256i v, Whole) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline void store32(int32_t* p, __m256i v, Part m) { _mm256_mask_storeu_epi32(p, m.mask, v); }

// Calls f(i, Whole or Part) for eight elements at a time.
template <typename F>
inline void each8(int32_t n, F f) {
  int32_t i = 0;
  for (; i + 8 <= n; i += 8) f(i, Whole{});
  if (i < n) f(i, Part{mask8(n - i)});
}

inline const uint8_t* at32(const uint8_t* p, int32_t i) {
  return p + static_cast<size_t>(i) * sizeof(int32_t);
}

inline void avx512_scale(int64_t* acc, const uint8_t* multipliers, int32_t rows, int32_t shift) {
  const Rounding first(4), second(shift);
  each8(rows, [&](int32_t r, auto m) {
    const __m512i x = first(load64(acc + r, m));
    store64(acc + r, second(_mm512_mullo_epi64(x, load32(at32(multipliers, r), m))), m);
  });
}

// sat32 of int64 lanes; counts those that changed. Missing lanes are 0 and do not change.
inline __m256i saturate32(__m512i x, uint32_t& clipped) {
  const __m512i top = _mm512_set1_epi64(0x7fffffff), bottom = _mm512_set1_epi64(-0x7fffffff);
  const __m512i y = _mm512_max_epi64(_mm512_min_epi64(x, top), bottom);
  const __mmask8 changed = _mm512_cmpneq_epi64_mask(x, y);
  for (uint32_t bits = changed; bits != 0; bits &= bits - 1) ++clipped;
  return _mm512_cvtepi64_epi32(y);
}

inline uint32_t avx512_saturate(const int64_t* y, const uint8_t* bias, int32_t rows, int32_t* out) {
  uint32_t clipped = 0;
  each8(rows, [&](int32_t r, auto m) {
    __m512i x = load64(y + r, m);
    if (bias) x = _mm512_add_epi64(x, load32(at32(bias, r), m));
    store32(out + r, saturate32(x, clipped), m);
  });
  return clipped;
}

inline uint32_t avx512_add(const int64_t* y, int32_t rows, int32_t* x) {
  uint32_t clipped = 0;
  each8(rows, [&](int32_t r, auto m) {
    store32(x + r, saturate32(_mm512_add_epi64(load32(x + r, m), load64(y + r, m)), clipped), m);
  });
  return clipped;
}

// A vector holds a tile; whole multiplications of a low-rank factor stay in registers.
template <typename Isa>
class Avx512LowRank {
  static constexpr int32_t kBlockPairs = kBlock / 2;

  const LowRankRows& m_;
  const int32_t first_, rows_;
  const int16_t* const b_;
  const Rounding last_;
  int64_t* const y_;

  // y += rsh(part * W, shift) for rows r .. r + 7, as far as they exist.
  template <bool kNarrow>
  void finish8(__m512i part, int32_t r) const {
    const auto add = [&](auto k) {
      const __m512i w = load32(at32(m_.multipliers, first_ + r), k);
      const __m512i product = kNarrow ? _mm512_mul_epi32(part, w) : _mm512_mullo_epi64(part, w);
      store64(y_ + r, _mm512_add_epi64(last_(product), load64(y_ + r, k)), k);
    };
    if (rows_ - r >= 8) {
      add(Whole{});
    } else if (rows_ > r) {
      add(Part{mask8(rows_ - r)});
    }
  }

  __m512i pair(int32_t p) const {
    uint32_t x;
    std::memcpy(&x, b_ + 2 * p, sizeof(x));
    return Isa::spread(x);
  }
  static __m512i scale(__m512i sum, const uint8_t* scales) {
    const __m128i s = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    return _mm512_mullo_epi32(sum, _mm512_cvtepu8_epi32(s));
  }

  // Rows of one block at most: the inputs stay in registers for all tiles, and sums fit int32 to the end.
  template <int32_t kPairs>
  void short_rows(const uint8_t* values, const uint8_t* scales) const {
    __m512i a[kPairs];
    for (int32_t p = 0; p < kPairs; ++p) a[p] = pair(p);
    const __m512i half = _mm512_set1_epi32(8);
    for (int32_t r = 0; r < rows_; r += kLowRankTile, scales += kLowRankTile) {
      __m512i sum = Isa::zero();
      for (int32_t p = 0; p < kPairs; ++p, values += 2 * kLowRankTile)
        sum = Isa::dot(sum, Isa::widen(values), a[p]);
      const __m512i part = _mm512_srai_epi32(_mm512_add_epi32(scale(sum, scales), half), 4);
      finish8<true>(widen_low(part), r);
      finish8<true>(widen_high(part), r + 8);
    }
  }

  void long_rows(const uint8_t* values, const uint8_t* scales) const {
    const Rounding sixteenth(4);
    const uint8_t* ahead = m_.ahead;
    for (int32_t r = 0; r < rows_; r += kLowRankTile) {
      __m512i low = Isa::zero(), high = Isa::zero();
      for (int32_t begin = 0; begin < m_.pairs; begin += kBlockPairs, scales += kLowRankTile) {
        const int32_t n = m_.pairs - begin < kBlockPairs ? m_.pairs - begin : kBlockPairs;
        __m512i sum = Isa::zero();
        const auto step = [&](int32_t i) {
          sum = Isa::dot(sum, Isa::widen(values), pair(begin + i));
          values += 2 * kLowRankTile;
        };
        for (int32_t i = 0; ahead != nullptr && i < n; i += 4, ahead += 64) Isa::prefetch(ahead);
        if (n == kBlockPairs) {  // the usual length unrolls
          for (int32_t i = 0; i < kBlockPairs; ++i) step(i);
        } else {
          for (int32_t i = 0; i < n; ++i) step(i);
        }
        sum = scale(sum, scales);
        low = _mm512_add_epi64(low, widen_low(sum));
        high = _mm512_add_epi64(high, widen_high(sum));
      }
      finish8<false>(sixteenth(low), r);
      finish8<false>(sixteenth(high), r + 8);
    }
  }

  Avx512LowRank(const LowRankRows& m, int32_t first, int32_t rows, const int16_t* b, int32_t shift,
                int64_t* y)
      : m_(m), first_(first), rows_(rows), b_(b), last_(shift), y_(y) {}

 public:
  static void add(const LowRankRows& m, int32_t first, int32_t rows, const int16_t* b, int32_t shift,
                  int64_t* y) {
    if (first % kLowRankTile != 0) return LowRank<Isa, avx512_scale>::add(m, first, rows, b, shift, y);
    const size_t tile = static_cast<size_t>(first / kLowRankTile), pairs = static_cast<size_t>(m.pairs);
    const uint8_t* values = m.values + tile * pairs * 2 * kLowRankTile;
    const uint8_t* scales = m.scales + tile * ((pairs + kBlockPairs - 1) / kBlockPairs) * kLowRankTile;
    const Avx512LowRank self(m, first, rows, b, shift, y);
    switch (m.pairs) {  // the usual ranks
      case 4:
        return self.template short_rows<4>(values, scales);
      case 8:
        return self.template short_rows<8>(values, scales);
      case 16:
        return self.template short_rows<16>(values, scales);
      default:
        return self.long_rows(values, scales);
    }
  }
};

// ---- Vectors of one row ----

inline uint32_t avx512_largest(const int32_t* x, int32_t n) {
  __m512i top = _mm512_setzero_si512();
  for (int32_t i = 0; i < n; i += 16) {
    top = _mm512_max_epu32(top, _mm512_abs_epi32(_mm512_maskz_loadu_epi32(mask16(n - i), x + i)));
  }
  return static_cast<uint32_t>(_mm512_reduce_max_epu32(top));
}

inline void avx512_norm(const int32_t* x, const uint8_t* gains, int32_t n, uint64_t epsilon, int32_t* out) {
  const int32_t s = scalar::norm_shift(avx512_largest(x, n));
  const Rounding part(s), last(30);
  __m512i squares = _mm512_setzero_si512();
  each8(n, [&](int32_t i, auto m) {
    const __m512i v = part(load32(x + i, m));
    squares = _mm512_add_epi64(squares, _mm512_mul_epi32(v, v));
  });
  const scalar::NormFactor f =
      scalar::norm_factor(static_cast<uint64_t>(_mm512_reduce_add_epi64(squares)), s, epsilon);
  const __m512i inverse = _mm512_set1_epi64(f.inverse);
  const Rounding unit_shift(f.shift);
  each8(n, [&](int32_t i, auto m) {
    const __m512i unit = unit_shift(_mm512_mullo_epi64(load32(x + i, m), inverse));
    store32(out + i, _mm512_cvtepi64_epi32(last(_mm512_mul_epi32(unit, load32(at32(gains, i), m)))), m);
  });
}

inline int32_t avx512_quantise(const int32_t* y, int32_t n, int16_t* out) {
  uint32_t m = avx512_largest(y, n);
  int32_t shift = 0;
  for (m >>= 14; m != 0; m >>= 1) ++shift;
  // Adding half may pass the int32 range at the very top, so rounding is floor plus round bit.
  const __m128i count = _mm_cvtsi32_si128(shift), before = _mm_cvtsi32_si128(shift - 1);
  const __m512i one = _mm512_set1_epi32(shift > 0 ? 1 : 0);
  const auto round = [&](__m512i v) {
    return _mm512_cvtepi32_epi16(
        _mm512_add_epi32(_mm512_sra_epi32(v, count), _mm512_and_si512(_mm512_sra_epi32(v, before), one)));
  };
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), round(_mm512_loadu_si512(y + i)));
  }
  const __mmask16 k = mask16(n - i);
  if (k) _mm256_mask_storeu_epi16(out + i, k, round(_mm512_maskz_loadu_epi32(k, y + i)));
  return shift;
}

inline uint32_t avx512_rotate(int32_t* x, int32_t heads, int32_t head_dim, const int32_t* cosine,
                              const int32_t* sine) {
  const Rounding round(30);
  const int32_t half = head_dim / 2;
  uint32_t clipped = 0;
  for (int32_t h = 0; h < heads; ++h, x += head_dim) {
    each8(half, [&](int32_t f, auto m) {
      const __m512i a = load32(x + f, m), b = load32(x + half + f, m);
      const __m512i c = load32(cosine + f, m), s = load32(sine + f, m);
      const __m512i ra = _mm512_sub_epi64(_mm512_mul_epi32(a, c), _mm512_mul_epi32(b, s));
      const __m512i rb = _mm512_add_epi64(_mm512_mul_epi32(b, c), _mm512_mul_epi32(a, s));
      store32(x + f, saturate32(round(ra), clipped), m);
      store32(x + half + f, saturate32(round(rb), clipped), m);
    });
  }
  return clipped;
}

inline uint32_t avx512_land(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t shift,
                            int8_t* out) {
  const Rounding round(shift);
  const __m512i top = _mm512_set1_epi64(127), bottom = _mm512_set1_epi64(-127);
  uint32_t clipped = 0;
  for (int32_t i = 0; i < n; i += 8) {
    const Part m{mask8(n - i)};
    const __m512i y = round(_mm512_mul_epi32(load32(x + i, m), load32(at32(multipliers, i), m)));
    const __m512i z = _mm512_max_epi64(_mm512_min_epi64(y, top), bottom);
    for (uint32_t bits = _mm512_cmpneq_epi64_mask(y, z); bits != 0; bits &= bits - 1) ++clipped;
    _mm512_mask_cvtepi64_storeu_epi8(out + i, m.mask, z);
  }
  return clipped;
}

inline void avx512_scale_query(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t* out) {
  const Rounding round(31);
  each8(n, [&](int32_t i, auto m) {
    const __m512i y = round(_mm512_mul_epi32(load32(x + i, m), load32(at32(multipliers, i), m)));
    store32(out + i, _mm512_cvtepi64_epi32(y), m);
  });
}

// Entries i and i + 1 of a table for each lane. Plain loads: a gather takes several times as long on some
// processors.
inline __m512i table_pairs(const int* table, __m256i index) {
  int32_t at[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), index);
  const auto two = [&](int lane) {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(table + at[lane]));
    return _mm_unpacklo_epi64(low, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(table + at[lane + 1])));
  };
  const __m256i first = _mm256_inserti128_si256(_mm256_castsi128_si256(two(0)), two(2), 1);
  const __m256i second = _mm256_inserti128_si256(_mm256_castsi128_si256(two(4)), two(6), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// SILU of int32 lanes; the table is clamped at its end, where the result is 0 or the input.
inline __m256i avx512_sigmoid(__m256i g, const int* table) {
  const __m256i x = _mm256_abs_epi32(g);
  const __mmask8 far = _mm256_cmpge_epu32_mask(x, _mm256_set1_epi32(16 * 65536));
  const __m256i i = _mm256_min_epu32(_mm256_srli_epi32(x, 10), _mm256_set1_epi32(1023));
  const __m512i pair = table_pairs(table, i);
  const __m256i low = _mm512_cvtepi64_epi32(pair), high = _mm512_cvtepi64_epi32(_mm512_srli_epi64(pair, 32));
  const __m256i f = _mm256_and_si256(x, _mm256_set1_epi32(1023));
  const __m256i part = _mm256_srli_epi32(_mm256_mullo_epi32(_mm256_sub_epi32(low, high), f), 10);
  const __m256i n = _mm256_mask_set1_epi32(_mm256_sub_epi32(low, part), far, 0);
  const __mmask8 negative = _mm256_movepi32_mask(g);
  return _mm256_mask_sub_epi32(n, static_cast<__mmask8>(~negative), _mm256_set1_epi32(1 << 30), n);
}

inline uint32_t avx512_silu_multiply(int32_t* gate, const int32_t* up, int32_t n, const uint8_t* sigmoid,
                                     int32_t shift) {
  const int* table = reinterpret_cast<const int*>(sigmoid);
  const Rounding first(30), second(shift);
  uint32_t clipped = 0;
  each8(n, [&](int32_t i, auto m) {
    const __m512i g = load32(gate + i, m);
    const __m512i s = _mm512_cvtepi32_epi64(avx512_sigmoid(_mm512_cvtepi64_epi32(g), table));
    const __m512i silu = first(_mm512_mul_epi32(g, s));
    store32(gate + i, saturate32(second(_mm512_mul_epi32(silu, load32(up + i, m))), clipped), m);
  });
  return clipped;
}

inline int32_t avx512_argmax(const int32_t* x, int32_t n) {
  __m512i top = _mm512_set1_epi32(INT32_MIN);
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) top = _mm512_max_epi32(top, _mm512_loadu_si512(x + i));
  int32_t best = _mm512_reduce_max_epi32(top);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  const __m512i wanted = _mm512_set1_epi32(best);
  for (i = 0; i + 16 <= n; i += 16) {
    uint32_t equal = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(x + i), wanted);
    if (equal == 0) continue;
    for (; (equal & 1) == 0; equal >>= 1) ++i;
    return i;
  }
  while (x[i] != best) ++i;
  return i;
}

// ---- Softmax weights ----

inline uint64_t avx512_weigh(const int64_t* scores, int64_t count, int32_t exponent, int16_t* high,
                             int16_t* low) {
  if (exponent < 16) return scalar::weigh(scores, count, exponent, high, low);
  __m512i top = _mm512_set1_epi64(scores[0]);
  for (int64_t j = 0; j < count; j += 8) {
    const __mmask8 m = mask8(count - j);
    top = _mm512_mask_max_epi64(top, m, top, _mm512_maskz_loadu_epi64(m, scores + j));
  }
  top = _mm512_set1_epi64(_mm512_reduce_max_epi64(top));
  const __m128i shift = _mm_cvtsi32_si128(exponent - 16);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t j = 0; j < count; j += 16) {
    const __mmask8 m0 = mask8(count - j), m1 = count - j > 8 ? mask8(count - j - 8) : 0;
    const __m512i gap0 = _mm512_maskz_sub_epi64(m0, top, _mm512_maskz_loadu_epi64(m0, scores + j));
    const __m512i gap1 = _mm512_maskz_sub_epi64(m1, top, _mm512_maskz_loadu_epi64(m1, scores + j + 8));
    const __m512i t = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtusepi64_epi32(gap0)),
                                         _mm512_cvtusepi64_epi32(gap1), 1);
    const __m512i z = _mm512_srl_epi32(t, shift);
    // Twice the fraction in the low half of each lane: (f * c) >> 15 is the high word of 2f * c.
    const __m512i f2 = _mm512_and_si512(z, _mm512_set1_epi32(0xfffe));
    __m512i r = _mm512_mulhi_epu16(f2, _mm512_set1_epi32(2596));
    r = _mm512_mulhi_epu16(f2, _mm512_sub_epi32(_mm512_set1_epi32(15149), r));
    r = _mm512_mulhi_epu16(f2, _mm512_sub_epi32(_mm512_set1_epi32(45324), r));
    r = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(65535), r), 14);
    const __mmask16 near = _mm512_mask_cmplt_epu32_mask(mask16(count - j), z, _mm512_set1_epi32(31 * 65536));
    const __m512i p = _mm512_maskz_srlv_epi32(near, r, _mm512_srli_epi32(z, 16));
    sum = _mm512_add_epi64(sum, lanes64(p));
    const __mmask16 m = mask16(count - j);
    _mm256_mask_storeu_epi16(high + j, m, _mm512_cvtepi32_epi16(_mm512_srli_epi32(p, 15)));
    _mm256_mask_storeu_epi16(low + j, m,
                             _mm512_cvtepi32_epi16(_mm512_and_si512(p, _mm512_set1_epi32(32767))));
  }
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
}

}  // namespace

}  // namespace superslm::kernels
