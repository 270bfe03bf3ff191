// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What the tiers of 64-bit ARM share. Internal linkage throughout: see kernels/scalar.h.
#pragma once

#include <arm_neon.h>

#include "kernels/ahead.h"
#include "kernels/low_rank.h"
#include "kernels/products.h"
#include "kernels/scalar.h"

namespace superslm::kernels {

namespace {

struct NeonIsa : PlainScales {
  using Vec = int16x8_t;
  static constexpr int kLanes = 8, kAccumulators = 16, kTokens = 4;
  static int32x4_t wide(Vec v) { return vreinterpretq_s32_s16(v); }
  static Vec narrow(int32x4_t v) { return vreinterpretq_s16_s32(v); }
  static Vec narrow(int64x2_t v) { return vreinterpretq_s16_s64(v); }
  static void prefetch(const uint8_t* p) {
#if defined(__GNUC__)
    __builtin_prefetch(p);
#else
    __prefetch(p);
#endif
  }
  static Vec zero() { return vdupq_n_s16(0); }
  static Vec load(const int16_t* p) { return vld1q_s16(p); }
  static void store(int16_t* p, Vec v) { vst1q_s16(p, v); }
  static Vec widen(const uint8_t* p) { return vmovl_s8(vreinterpret_s8_u8(vld1_u8(p))); }
  static void nibbles(const uint8_t* p, Vec* out) {
    const uint8x16_t both = vld1q_u8(p);
    const uint8x16_t low = vandq_u8(both, vdupq_n_u8(15)), high = vshrq_n_u8(both, 4);
    out[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(low)));
    out[1] = vreinterpretq_s16_u16(vmovl_high_u8(low));
    out[2] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(high)));
    out[3] = vreinterpretq_s16_u16(vmovl_high_u8(high));
  }
  static Vec spread(uint32_t pair) { return vreinterpretq_s16_u32(vdupq_n_u32(pair)); }
  static Vec mul(Vec a, Vec b) { return vmulq_s16(a, b); }
  static Vec sub(Vec a, Vec b) { return vsubq_s16(a, b); }
  // The pairs are elements k and k + 4.
  static Vec dot(Vec sum, Vec w, Vec a) {
    return narrow(vmlal_high_s16(vmlal_s16(wide(sum), vget_low_s16(w), vget_low_s16(a)), w, a));
  }
  static Vec dot_pairs(Vec sum, Vec w, Vec a) {
    const int32x4_t low = vmull_s16(vget_low_s16(w), vget_low_s16(a)), high = vmull_high_s16(w, a);
    return narrow(vaddq_s32(wide(sum), vpaddq_s32(low, high)));
  }
  static Vec add32(Vec a, Vec b) { return narrow(vaddq_s32(wide(a), wide(b))); }
  static Vec widen_sum(Vec v) { return narrow(vpaddlq_s32(wide(v))); }
  static int64x2_t sums(Vec v) { return vreinterpretq_s64_s16(v); }
  static Vec add64(Vec a, Vec b) { return narrow(vaddq_s64(sums(a), sums(b))); }
  static int64_t sum(Vec v) { return vaddvq_s64(sums(v)); }
  static void add_sums(Vec a, Vec b, Vec c, Vec d, int64_t* out) {
    vst1q_s64(out, vaddq_s64(vld1q_s64(out), vpaddq_s64(sums(a), sums(b))));
    vst1q_s64(out + 2, vaddq_s64(vld1q_s64(out + 2), vpaddq_s64(sums(c), sums(d))));
  }
  static int32_t sum_block(const int16_t* a) {
    int32_t sum = 0;
    for (int i = 0; i < kBlock; i += kLanes) sum += vaddlvq_s16(load(a + i));
    return sum;
  }
};

// ---- Scores ----

constexpr int32_t kMostChannels = 512;

// Rounding shift right, 0 <= shift <= 62.
inline int64_t neon_round(int64_t x, int32_t shift) {
  return shift > 0 ? (x + (int64_t{1} << (shift - 1))) >> shift : x;
}

// A centre, in the planes of Query, against a row of trigonometry.
inline int64_t center_dot(const int16_t* center, const uint8_t* trig, int32_t head_dim) {
  int32x4_t high[2] = {vdupq_n_s32(0), vdupq_n_s32(0)}, low[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
  for (int32_t c = 0; c < head_dim; c += 8) {
    const int16x8_t t = vreinterpretq_s16_u8(vld1q_u8(trig + 2 * c));
    const int16x8_t wh = vld1q_s16(center + c), wl = vld1q_s16(center + head_dim + c);
    high[0] = vmlal_s16(high[0], vget_low_s16(wh), vget_low_s16(t));
    high[1] = vmlal_high_s16(high[1], wh, t);
    low[0] = vmlal_s16(low[0], vget_low_s16(wl), vget_low_s16(t));
    low[1] = vmlal_high_s16(low[1], wl, t);
  }
  return vaddlvq_s32(vaddq_s32(high[0], high[1])) * 256 + vaddlvq_s32(vaddq_s32(low[0], low[1]));
}

// Scores of N queries, which share the loads of the keys. KeyDots<N> holds their form of the queries.
template <template <int> typename KeyDots, int N>
inline void scores_of(const Query* queries, const int8_t* keys, const uint8_t* trig, int64_t count,
                      int32_t head_dim) {
  const KeyDots<N> dots(queries, head_dim);
  const size_t trig_bytes = static_cast<size_t>(head_dim) * sizeof(int16_t);
  for (int64_t j = 0; j < count; ++j, keys += head_dim) {
    int32_t score[N];
    dots(keys, head_dim, score);
    for (int h = 0; h < N; ++h) {
      const Query& q = queries[h];
      q.scores[j] = score[h];
      if (trig == nullptr) continue;
      const int64_t center = center_dot(q.center, trig + static_cast<size_t>(j) * trig_bytes, head_dim);
      q.scores[j] = neon_round(score[h], q.shift) + neon_round(center, q.center_shift);
    }
  }
}

template <template <int> typename KeyDots>
inline void neon_scores(const Query* queries, int32_t query_count, const int8_t* keys, const uint8_t* trig,
                        int64_t count, int32_t head_dim) {
  if (head_dim % 16 != 0 || head_dim > kMostChannels) {
    return scalar::scores(queries, query_count, keys, trig, count, head_dim);
  }
  if (queries[0].center == nullptr) trig = nullptr;
  ask_for_first<NeonIsa>(queries[0].next_keys);
  int32_t h = 0;
  for (; h + 4 <= query_count; h += 4) scores_of<KeyDots, 4>(queries + h, keys, trig, count, head_dim);
  for (; h + 2 <= query_count; h += 2) scores_of<KeyDots, 2>(queries + h, keys, trig, count, head_dim);
  if (h < query_count) scores_of<KeyDots, 1>(queries + h, keys, trig, count, head_dim);
}

// ---- Softmax weights ----

inline int64_t neon_top(const int64_t* scores, int64_t count) {
  int64_t top = scores[0];
  for (int64_t j = 1; j < count; ++j) top = scores[j] > top ? scores[j] : top;
  return top;
}

// 2^-z in Q30 of four distances z in Q16.
inline uint32x4_t neon_weights(uint32x4_t z) {
  const uint32x4_t f = vandq_u32(vshrq_n_u32(z, 1), vdupq_n_u32(32767));
  uint32x4_t r = vshrq_n_u32(vmulq_n_u32(f, 2596), 15);
  r = vshrq_n_u32(vmulq_u32(f, vsubq_u32(vdupq_n_u32(15149), r)), 15);
  r = vshrq_n_u32(vmulq_u32(f, vsubq_u32(vdupq_n_u32(45324), r)), 15);
  r = vshlq_n_u32(vsubq_u32(vdupq_n_u32(65535), r), 14);
  const int32x4_t halvings = vreinterpretq_s32_u32(vshrq_n_u32(z, 16));
  return vandq_u32(vshlq_u32(r, vnegq_s32(halvings)), vcltq_u32(z, vdupq_n_u32(31 * 65536)));
}

inline uint64_t neon_weigh(const int64_t* scores, int64_t count, int32_t exponent, int16_t* high,
                           int16_t* low) {
  if (exponent < 16) return scalar::weigh(scores, count, exponent, high, low);
  const int64_t best = neon_top(scores, count);
  const int64x2_t top = vdupq_n_s64(best);
  const int32x4_t shift = vdupq_n_s32(16 - exponent);
  uint64x2_t sum = vdupq_n_u64(0);
  // A distance beyond 32 bits saturates.
  const auto gaps = [&](const int64_t* s) {
    return vqmovn_u64(vreinterpretq_u64_s64(vsubq_s64(top, vld1q_s64(s))));
  };
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const uint32x4_t t = vcombine_u32(gaps(scores + j), gaps(scores + j + 2));
    const uint32x4_t p = neon_weights(vshlq_u32(t, shift));
    sum = vpadalq_u32(sum, p);
    vst1_s16(high + j, vreinterpret_s16_u16(vshrn_n_u32(p, 15)));
    vst1_s16(low + j, vreinterpret_s16_u16(vmovn_u32(vandq_u32(p, vdupq_n_u32(32767)))));
  }
  uint64_t total = vaddvq_u64(sum);
  for (; j < count; ++j) {
    const uint64_t gap = static_cast<uint64_t>(best - scores[j]);
    const uint32_t p = exp2_weight((gap < 0xffffffffu ? gap : 0xffffffffu) >> (exponent - 16));
    high[j] = static_cast<int16_t>(p >> 15);
    low[j] = static_cast<int16_t>(p & 32767);
    total += p;
  }
  return total;
}

// ---- Values ----

// 8 * N channels of one head over at most 512 positions, which an int32 lane holds.
template <int N>
inline void value_tile(const int16_t* high, const int16_t* low, const int8_t* values, int64_t count,
                       int32_t head_dim, int64_t* sums) {
  int32x4_t h[2 * N], l[2 * N];
  for (int i = 0; i < 2 * N; ++i) h[i] = l[i] = vdupq_n_s32(0);
  for (int64_t j = 0; j < count; ++j, values += head_dim) {
    const int16x8_t ph = vdupq_n_s16(high[j]), pl = vdupq_n_s16(low[j]);
    for (int i = 0; i < N; ++i) {
      const int16x8_t v = vmovl_s8(vld1_s8(values + 8 * i));
      h[2 * i] = vmlal_s16(h[2 * i], vget_low_s16(v), vget_low_s16(ph));
      h[2 * i + 1] = vmlal_high_s16(h[2 * i + 1], v, ph);
      l[2 * i] = vmlal_s16(l[2 * i], vget_low_s16(v), vget_low_s16(pl));
      l[2 * i + 1] = vmlal_high_s16(l[2 * i + 1], v, pl);
    }
  }
  const auto join = [](int64_t* to, int32x2_t upper, int32x2_t lower) {
    vst1q_s64(to, vmlal_n_s32(vaddw_s32(vld1q_s64(to), lower), upper, 32768));
  };
  for (int i = 0; i < 2 * N; ++i) {
    join(sums + 4 * i, vget_low_s32(h[i]), vget_low_s32(l[i]));
    join(sums + 4 * i + 2, vget_high_s32(h[i]), vget_high_s32(l[i]));
  }
}

inline void neon_values(const ValueSum* sums, int32_t sum_count, const int8_t* values, int64_t count,
                        int32_t head_dim) {
  if (head_dim % 8 != 0) return scalar::values(sums, sum_count, values, count, head_dim);
  ask_for_first<NeonIsa>(sums[0].next_values);
  for (int64_t j = 0; j < count; j += 512) {
    const int64_t n = count - j < 512 ? count - j : 512;
    for (int32_t s = 0; s < sum_count; ++s) {
      const int16_t *high = sums[s].high + j, *low = sums[s].low + j;
      const int8_t* v = values + j * head_dim;
      int32_t c = 0;
      for (; c + 32 <= head_dim; c += 32) value_tile<4>(high, low, v + c, n, head_dim, sums[s].sums + c);
      for (; c < head_dim; c += 8) value_tile<1>(high, low, v + c, n, head_dim, sums[s].sums + c);
    }
  }
}

constexpr Kernels neon_table(const char* name) {
  Kernels k = kScalarTable;
  k.name = name;
  k.add_low_rank = LowRank<NeonIsa, scalar::scale>::add;
  k.weigh = neon_weigh;
  k.values = neon_values;
  return k;
}

}  // namespace

}  // namespace superslm::kernels
