// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Scores and values with AVX-512. Sixteen positions are transposed once, so that a lane is a position and no
// sum crosses lanes; the query heads of a KV head share that work.
#pragma once

#include <cstring>

#include "kernels/avx512.h"

#if defined(__GNUC__) && !defined(__clang__)
// Sums that a loop indexes GCC keeps in memory, and stores in every step.
#define SUPERSLM_UNROLL _Pragma("GCC unroll 8")
#else
#define SUPERSLM_UNROLL
#endif

namespace superslm::kernels {

namespace {

// Rows of dwords to columns: on return out[c] holds dword c of each of the 16 rows.
inline void transpose16(const __m512i* rows, __m512i* out) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  // b[4g + k]: of rows 4g .. 4g+3, dword k of each 128-bit lane.
  for (int k = 0; k < 4; ++k) {
    const __m512i lo0 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x88),
                  hi0 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xdd);
    const __m512i lo1 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x88);
    const __m512i hi1 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xdd);
    out[k] = _mm512_shuffle_i32x4(lo0, lo1, 0x88);
    out[8 + k] = _mm512_shuffle_i32x4(lo0, lo1, 0xdd);
    out[4 + k] = _mm512_shuffle_i32x4(hi0, hi1, 0x88);
    out[12 + k] = _mm512_shuffle_i32x4(hi0, hi1, 0xdd);
  }
}

// Loads `count` dwords of up to 16 rows, transposes them, and asks for those of the 16 rows at `ahead`.
inline void load_columns(const uint8_t* first, const uint8_t* ahead, size_t row_bytes, int64_t rows,
                         int32_t count, __m512i* out) {
  __m512i x[16];
  const auto next = [&](size_t r) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead + r * row_bytes), _MM_HINT_T0);
  };
  if (rows == 16 && count == 16) {
    for (size_t r = 0; r < 16; ++r) {
      x[r] = _mm512_loadu_si512(first + r * row_bytes);
      next(r);
    }
  } else {
    const __mmask16 m = mask16(count);
    for (size_t r = 0; r < 16; ++r) {
      const __mmask16 own = static_cast<int64_t>(r) < rows ? m : 0;
      x[r] = _mm512_maskz_loadu_epi32(own, first + (own ? r : 0) * row_bytes);
      next(r);
    }
  }
  transpose16(x, out);
}

constexpr int32_t kMostPairs = 256;  // of a head: 512 channels

// The queries' values as pairs, in the order the keys' columns come: of four channels (0, 2), then (1, 3).
struct QueryPairs {
  int16_t of[8][2 * kMostPairs];
};

// Paged rows come in short runs, so this is done often.
inline void prepare_pairs(const Query& q, int32_t head_dim, int h, QueryPairs& out) {
  const __m512i middle =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  for (int32_t c = 0; c < head_dim; c += 32) {
    const __mmask32 m = static_cast<__mmask32>(mask64(head_dim - c));
    _mm512_mask_storeu_epi16(out.of[h] + c, m,
                             _mm512_shuffle_epi8(_mm512_maskz_loadu_epi16(m, q.values + c), middle));
  }
}

// Two consecutive numbers, everywhere.
inline __m512i broadcast_pair(const int16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

// Dot products of sixteen keys with H queries.
template <typename Dot, int H>
inline void key_sums(const QueryPairs& pairs, const int8_t* keys, const int8_t* ahead, int64_t rows,
                     int32_t head_dim, __m512i* sum) {
  __m512i acc[H], column[16];
  for (int h = 0; h < H; ++h) acc[h] = _mm512_setzero_si512();
  for (int32_t c = 0; c < head_dim; c += 64) {
    const int32_t dwords = head_dim - c < 64 ? (head_dim - c) / 4 : 16;
    load_columns(reinterpret_cast<const uint8_t*>(keys) + c, reinterpret_cast<const uint8_t*>(ahead) + c,
                 static_cast<size_t>(head_dim), rows, dwords, column);
    for (int32_t i = 0; i < dwords; ++i) {
      const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(column[i], 8), 8);
      const __m512i odd = _mm512_srai_epi16(column[i], 8);
      for (int h = 0; h < H; ++h) {
        acc[h] = Dot::dot(acc[h], even, broadcast_pair(pairs.of[h] + c + 4 * i));
        acc[h] = Dot::dot(acc[h], odd, broadcast_pair(pairs.of[h] + c + 4 * i + 2));
      }
    }
  }
  for (int h = 0; h < H; ++h) sum[h] = acc[h];
}

// Dot products of sixteen rows of T with H centres, in two planes.
template <typename Dot, int H>
inline void center_sums(const Query* queries, const uint8_t* trig, int64_t rows, int32_t head_dim,
                        __m512i* high, __m512i* low) {
  __m512i acc_high[H], acc_low[H], column[16];
  for (int h = 0; h < H; ++h) acc_high[h] = acc_low[h] = _mm512_setzero_si512();
  for (int32_t c = 0; c < head_dim; c += 32) {
    const int32_t dwords = head_dim - c < 32 ? (head_dim - c) / 2 : 16;
    const size_t row_bytes = static_cast<size_t>(head_dim) * 2;
    const uint8_t* first = trig + static_cast<size_t>(c) * 2;
    load_columns(first, first + 32 * row_bytes, row_bytes, rows, dwords, column);
    for (int32_t i = 0; i < dwords; ++i) {
      for (int h = 0; h < H; ++h) {
        const int16_t* center = queries[h].center + c + 2 * i;
        acc_high[h] = Dot::dot(acc_high[h], column[i], broadcast_pair(center));
        acc_low[h] = Dot::dot(acc_low[h], column[i], broadcast_pair(center + head_dim));
      }
    }
  }
  for (int h = 0; h < H; ++h) {
    high[h] = acc_high[h];
    low[h] = acc_low[h];
  }
}

// The score of section 9 from its two sums, for eight positions.
inline __m512i centred_score(__m512i key, __m512i high, __m512i low, const Rounding& shift,
                             const Rounding& center) {
  const __m512i d = _mm512_add_epi64(_mm512_slli_epi64(high, 8), low);
  return _mm512_add_epi64(shift(key), center(d));
}

template <typename Dot, int H>
void avx512_scores_of(const Query* queries, const int8_t* keys, const uint8_t* trig, int64_t count,
                      int32_t head_dim) {
  QueryPairs pairs;
  for (int h = 0; h < H; ++h) prepare_pairs(queries[h], head_dim, h, pairs);
  const int8_t* ahead = queries[0].next_keys ? queries[0].next_keys : keys;
  for (int64_t j = 0; j < count; j += 16) {
    const int64_t rows = count - j < 16 ? count - j : 16;
    const __mmask8 m0 = mask8(rows), m1 = rows > 8 ? mask8(rows - 8) : 0;
    __m512i key[H], high[H], low[H];
    key_sums<Dot, H>(pairs, keys + j * head_dim, ahead + j * head_dim, rows, head_dim, key);
    if (trig) {
      center_sums<Dot, H>(queries, trig + static_cast<size_t>(j) * static_cast<size_t>(head_dim) * 2, rows,
                          head_dim, high, low);
    }
    for (int h = 0; h < H; ++h) {
      __m512i s0 = widen_low(key[h]), s1 = widen_high(key[h]);
      if (trig) {
        const Rounding shift(queries[h].shift), center(queries[h].center_shift);
        s0 = centred_score(s0, widen_low(high[h]), widen_low(low[h]), shift, center);
        s1 = centred_score(s1, widen_high(high[h]), widen_high(low[h]), shift, center);
      }
      _mm512_mask_storeu_epi64(queries[h].scores + j, m0, s0);
      _mm512_mask_storeu_epi64(queries[h].scores + j + 8, m1, s1);
    }
  }
}

template <typename Dot>
void avx512_scores(const Query* queries, int32_t query_count, const int8_t* keys, const uint8_t* trig,
                   int64_t count, int32_t head_dim) {
  if (head_dim % 4 != 0) return scalar::scores(queries, query_count, keys, trig, count, head_dim);
  if (queries[0].center == nullptr) trig = nullptr;
  for (; query_count >= 8; query_count -= 8, queries += 8) {
    avx512_scores_of<Dot, 8>(queries, keys, trig, count, head_dim);
  }
  switch (query_count) {
    case 1:
      return avx512_scores_of<Dot, 1>(queries, keys, trig, count, head_dim);
    case 2:
      return avx512_scores_of<Dot, 2>(queries, keys, trig, count, head_dim);
    case 3:
      return avx512_scores_of<Dot, 3>(queries, keys, trig, count, head_dim);
    case 4:
      return avx512_scores_of<Dot, 4>(queries, keys, trig, count, head_dim);
    case 5:
      return avx512_scores_of<Dot, 5>(queries, keys, trig, count, head_dim);
    case 6:
      return avx512_scores_of<Dot, 6>(queries, keys, trig, count, head_dim);
    case 7:
      return avx512_scores_of<Dot, 7>(queries, keys, trig, count, head_dim);
    default:
      return;
  }
}

// ---- Values ----

// Two positions' values of 32 channels as pairs: lanes of `low` are channels 8L .. 8L+3 of each 128-bit lane
// L, lanes of `high` channels 8L+4 .. 8L+7.
struct ValuePairs {
  __m512i low, high;
};

inline ValuePairs value_pairs(__m256i first, __m256i second) {
  const __m512i a = _mm512_cvtepi8_epi16(first), b = _mm512_cvtepi8_epi16(second);
  return {_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)};
}

// Adds 16 channels' int32 sums of both planes to int64.
inline void add_planes(__m512i high, __m512i low, int64_t* out, int32_t channels) {
  for (int i = 0; i < 2 && channels > 8 * i; ++i) {
    const __mmask8 m = mask8(channels - 8 * i);
    const __m512i h = i ? widen_high(high) : widen_low(high), l = i ? widen_high(low) : widen_low(low);
    const __m512i sum = _mm512_add_epi64(_mm512_slli_epi64(h, 15), l);
    _mm512_mask_storeu_epi64(out + 8 * i, m, _mm512_add_epi64(sum, _mm512_maskz_loadu_epi64(m, out + 8 * i)));
  }
}

// Channels [c, c + width) of H heads over at most 512 positions, width <= 32. Asks for 32 bytes at `ahead`
// with each position.
template <typename Dot, int H>
inline void value_tile(const ValueSum* sums, int64_t offset, const int8_t* values, int64_t count,
                       int32_t head_dim, int32_t c, int32_t width, const int8_t* ahead) {
  const __mmask32 m = static_cast<__mmask32>(mask64(width));
  __m512i high[H][2], low[H][2];
  for (int h = 0; h < H; ++h) {
    for (int i = 0; i < 2; ++i) high[h][i] = low[h][i] = _mm512_setzero_si512();
  }
  const int8_t* v = values + c;
  int64_t j = 0;
  for (; j + 2 <= count; j += 2, v += 2 * head_dim) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead + 32 * j), _MM_HINT_T0);
    const ValuePairs p = value_pairs(_mm256_maskz_loadu_epi8(m, v), _mm256_maskz_loadu_epi8(m, v + head_dim));
    SUPERSLM_UNROLL
    for (int h = 0; h < H; ++h) {
      const __m512i ph = broadcast_pair(sums[h].high + offset + j),
                    pl = broadcast_pair(sums[h].low + offset + j);
      high[h][0] = Dot::dot(high[h][0], p.low, ph);
      high[h][1] = Dot::dot(high[h][1], p.high, ph);
      low[h][0] = Dot::dot(low[h][0], p.low, pl);
      low[h][1] = Dot::dot(low[h][1], p.high, pl);
    }
  }
  if (j < count) {
    const ValuePairs p = value_pairs(_mm256_maskz_loadu_epi8(m, v), _mm256_setzero_si256());
    SUPERSLM_UNROLL
    for (int h = 0; h < H; ++h) {
      const __m512i ph = _mm512_set1_epi32(sums[h].high[offset + j]);
      const __m512i pl = _mm512_set1_epi32(sums[h].low[offset + j]);
      high[h][0] = Dot::dot(high[h][0], p.low, ph);
      high[h][1] = Dot::dot(high[h][1], p.high, ph);
      low[h][0] = Dot::dot(low[h][0], p.low, pl);
      low[h][1] = Dot::dot(low[h][1], p.high, pl);
    }
  }
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  SUPERSLM_UNROLL
  for (int h = 0; h < H; ++h) {
    int64_t* out = sums[h].sums + c;
    add_planes(_mm512_permutex2var_epi32(high[h][0], first, high[h][1]),
               _mm512_permutex2var_epi32(low[h][0], first, low[h][1]), out, width);
    if (width <= 16) continue;
    add_planes(_mm512_permutex2var_epi32(high[h][0], second, high[h][1]),
               _mm512_permutex2var_epi32(low[h][0], second, low[h][1]), out + 16, width - 16);
  }
}

template <typename Dot, int H>
inline void value_heads(const ValueSum* sums, const int8_t* values, int64_t count, int32_t head_dim) {
  const int8_t* ahead = sums[0].next_values ? sums[0].next_values : values;
  for (int64_t j = 0; j < count; j += 512) {  // an int32 lane holds 512 positions
    const int64_t n = count - j < 512 ? count - j : 512;
    for (int32_t c = 0; c < head_dim; c += 32) {
      value_tile<Dot, H>(sums, j, values + j * head_dim, n, head_dim, c,
                         head_dim - c < 32 ? head_dim - c : 32, ahead);
      ahead += 32 * n;
    }
  }
}

template <typename Dot>
void avx512_values(const ValueSum* sums, int32_t sum_count, const int8_t* values, int64_t count,
                   int32_t head_dim) {
  for (; sum_count >= 4; sum_count -= 4, sums += 4) value_heads<Dot, 4>(sums, values, count, head_dim);
  switch (sum_count) {
    case 1:
      return value_heads<Dot, 1>(sums, values, count, head_dim);
    case 2:
      return value_heads<Dot, 2>(sums, values, count, head_dim);
    case 3:
      return value_heads<Dot, 3>(sums, values, count, head_dim);
    default:
      return;
  }
}

template <typename Dot>
constexpr Kernels avx512_table(const char* name) {
  return {name,
          Products<Avx512Isa<Dot>>::products,
          avx512_scale,
          avx512_saturate,
          avx512_add,
          Avx512LowRank<Avx512Isa<Dot>>::add,
          avx512_norm,
          avx512_quantise,
          avx512_rotate,
          avx512_land,
          avx512_scale_query,
          avx512_silu_multiply,
          avx512_scores<Dot>,
          avx512_weigh,
          avx512_values<Dot>,
          avx512_argmax};
}

}  // namespace

}  // namespace superslm::kernels
