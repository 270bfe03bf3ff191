// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// ARM with the dot product instruction, which adds four int8 products to an int32 lane. A 15-bit activation
// is 256 * high + low, two int8 planes; each goes against the weights as they are stored, and a block's
// sub-scale multiplies the block's sums.
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_ARM64)

#include <cstring>

#include "kernels/neon.h"

namespace superslm::kernels {

namespace {

// Eight int16 of at most 15 bits to two int8 planes.
inline void split(const int16_t* a, int8_t* high, int8_t* low) {
  const int16x8_t v = vld1q_s16(a);
  vst1_s8(high, vrshrn_n_s16(v, 8));
  vst1_s8(low, vmovn_s16(v));
}

inline int64_t join(int32x4_t high, int32x4_t low) { return vaddlvq_s32(high) * 256 + vaddlvq_s32(low); }

class DotProducts {
  static constexpr int kMostTokens = 4;
  // Blocks times activation rows whose planes are held at once. 256 blocks keep a lane below 2^30.
  static constexpr int32_t kHeldBlocks = 256;

  // Consecutive blocks of T activation rows.
  struct Planes {
    int8_t bytes[kHeldBlocks * 2 * kBlock];  // of each row, per block: high, low
    int32_t sums[kHeldBlocks];               // of the block's activations
    int32_t stride;                          // blocks from row to row
  };

  static void split_rows(const Activations& x, int32_t begin, int32_t blocks, bool with_sums, Planes& out) {
    out.stride = (blocks + 3) & ~3;
    for (int32_t t = 0; t < x.rows; ++t) {
      const int16_t* a = x.values + static_cast<size_t>(t) * x.stride + static_cast<size_t>(begin) * kBlock;
      for (int32_t b = 0; b < blocks; ++b, a += kBlock) {
        const size_t at = static_cast<size_t>(t) * out.stride + b;
        int8_t* to = out.bytes + at * 2 * kBlock;
        for (int i = 0; i < kBlock; i += 8) split(a + i, to + i, to + kBlock + i);
        if (with_sums) out.sums[at] = NeonIsa::sum_block(a);
      }
    }
  }

  // Sub-scales of N <= 4 blocks; of 4-bit blocks also u.
  template <bool kFourBit, int N>
  static inline int32x4_t load_scales(const uint8_t* p, int32x4_t* offsets = nullptr) {
    if constexpr (kFourBit) {
      uint64_t pairs = 0;
      std::memcpy(&pairs, p, 2 * N);
      const uint32x4_t both = vmovl_u16(vcreate_u16(pairs));
      if (offsets) *offsets = vreinterpretq_s32_u32(vshrq_n_u32(both, 8));
      return vreinterpretq_s32_u32(vandq_u32(both, vdupq_n_u32(255)));
    } else {
      static constexpr int32_t kShifts[4] = {0, -4, -8, -12};
      const uint32_t nibbles = N > 2 ? p[0] | static_cast<uint32_t>(p[1]) << 8 : p[0];
      const uint32x4_t shifted = vshlq_u32(vdupq_n_u32(nibbles), vld1q_s32(kShifts));
      return vreinterpretq_s32_u32(vandq_u32(shifted, vdupq_n_u32(15)));
    }
  }

  template <bool kFourBit>
  static inline void load_values(const uint8_t* p, int8x16_t& first, int8x16_t& second) {
    if constexpr (kFourBit) {
      const uint8x16_t both = vld1q_u8(p);
      first = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
      second = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
    } else {
      first = vreinterpretq_s8_u8(vld1q_u8(p));
      second = vreinterpretq_s8_u8(vld1q_u8(p + 16));
    }
  }

  // R weight rows against T activation rows.
  template <bool kFourBit, int R, int T>
  struct Tile {
    const uint8_t* values[R];  // at the block to come
    const uint8_t* scales[R];
    const int8_t* planes;
    size_t plane_stride;  // bytes from activation row to row
    int32x4_t high[R][T], low[R][T];

    // One block; its sub-scale is lane L of `s`.
    template <int L>
    inline void block(const int32x4_t* s) {
      int8x16_t first[R], second[R];
      for (int r = 0; r < R; ++r) {
        load_values<kFourBit>(values[r], first[r], second[r]);
        values[r] += kFourBit ? 16 : 32;
      }
      for (int t = 0; t < T; ++t) {
        const int8_t* a = planes + static_cast<size_t>(t) * plane_stride;
        const int8x16_t h0 = vld1q_s8(a), h1 = vld1q_s8(a + 16), l0 = vld1q_s8(a + 32), l1 = vld1q_s8(a + 48);
        for (int r = 0; r < R; ++r) {
          const int32x4_t zero = vdupq_n_s32(0);
          const int32x4_t h = vdotq_s32(vdotq_s32(zero, first[r], h0), second[r], h1);
          const int32x4_t l = vdotq_s32(vdotq_s32(zero, first[r], l0), second[r], l1);
          high[r][t] = vmlaq_laneq_s32(high[r][t], h, s[r], L);
          low[r][t] = vmlaq_laneq_s32(low[r][t], l, s[r], L);
        }
      }
      planes += 2 * kBlock;
    }

    // N <= 4 blocks.
    template <int N>
    inline void some() {
      int32x4_t s[R];
      for (int r = 0; r < R; ++r) {
        s[r] = load_scales<kFourBit, N>(scales[r]);
        scales[r] += kFourBit ? 8 : 2;
      }
      block<0>(s);
      if constexpr (N > 1) block<1>(s);
      if constexpr (N > 2) block<2>(s);
      if constexpr (N > 3) block<3>(s);
    }

    inline void run(int32_t blocks) {
      for (int r = 0; r < R; ++r) {
        for (int t = 0; t < T; ++t) high[r][t] = low[r][t] = vdupq_n_s32(0);
      }
      for (; blocks >= 4; blocks -= 4) some<4>();
      if (blocks == 3) some<3>();
      if (blocks == 2) some<2>();
      if (blocks == 1) some<1>();
    }
  };

  // u of each block times the block's sum of activations.
  template <int N>
  static inline int64x2_t some_offsets(int64x2_t sum, const uint8_t* scales, const int32_t* block_sums) {
    int32x4_t u, a = vdupq_n_s32(0);
    load_scales<true, N>(scales, &u);
    std::memcpy(&a, block_sums, N * sizeof(int32_t));
    return vmlal_high_s32(vmlal_s32(sum, vget_low_s32(u), vget_low_s32(a)), u, a);
  }
  static int64_t offset_sum(const uint8_t* scales, int32_t blocks, const int32_t* block_sums) {
    int64x2_t sum = vdupq_n_s64(0);
    int32_t b = 0;
    for (; b + 4 <= blocks; b += 4) sum = some_offsets<4>(sum, scales + 2 * b, block_sums + b);
    for (; b < blocks; ++b) sum = some_offsets<1>(sum, scales + 2 * b, block_sums + b);
    return vaddvq_s64(sum);
  }

  template <bool kFourBit, int R, int T>
  static void tile(const WeightRows& m, int32_t row, int32_t begin, int32_t blocks, const Planes& planes,
                   int64_t* acc, size_t acc_stride) {
    Tile<kFourBit, R, T> tile;
    const uint8_t* scales[R];
    for (int r = 0; r < R; ++r) {
      const size_t at = static_cast<size_t>(row) + r, first = static_cast<size_t>(begin);
      tile.values[r] = m.values + at * m.value_stride + first * (kFourBit ? 16 : 32);
      tile.scales[r] = scales[r] = m.scales + at * m.scale_stride + (kFourBit ? first * 2 : first / 2);
    }
    tile.planes = planes.bytes;
    tile.plane_stride = static_cast<size_t>(planes.stride) * 2 * kBlock;
    tile.run(blocks);
    for (int t = 0; t < T; ++t) {
      for (int r = 0; r < R; ++r) {
        int64_t sum = join(tile.high[r][t], tile.low[r][t]);
        if constexpr (kFourBit) sum -= 16 * offset_sum(scales[r], blocks, planes.sums + t * planes.stride);
        acc[static_cast<size_t>(t) * acc_stride + row + r] += sum;
      }
    }
  }

  // All weight rows against T activation rows, in runs of blocks whose planes are held.
  template <bool kFourBit, int T>
  static void run(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride) {
    constexpr int kRows = T == 1 ? 4 : 2;
    constexpr int32_t kSpan = (kHeldBlocks / T) & ~3;
    Planes planes;
    for (int32_t begin = 0; begin < m.blocks; begin += kSpan) {
      const int32_t blocks = m.blocks - begin < kSpan ? m.blocks - begin : kSpan;
      split_rows(x, begin, blocks, kFourBit, planes);
      int32_t row = 0;
      for (; row + kRows <= rows; row += kRows) {
        tile<kFourBit, kRows, T>(m, row, begin, blocks, planes, acc, acc_stride);
      }
      for (; row < rows; ++row) tile<kFourBit, 1, T>(m, row, begin, blocks, planes, acc, acc_stride);
    }
  }

  template <bool kFourBit>
  static void some(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride) {
    if (x.rows == 4) return run<kFourBit, 4>(m, rows, x, acc, acc_stride);
    if (x.rows == 3) return run<kFourBit, 3>(m, rows, x, acc, acc_stride);
    if (x.rows == 2) return run<kFourBit, 2>(m, rows, x, acc, acc_stride);
    return run<kFourBit, 1>(m, rows, x, acc, acc_stride);
  }

 public:
  static void products(const WeightRows& weights, int32_t rows, const Activations& x, int64_t* acc,
                       size_t acc_stride, int16_t*) {
    for (int32_t t = 0; t < x.rows; t += kMostTokens) {
      const int32_t n = x.rows - t < kMostTokens ? x.rows - t : kMostTokens;
      const Activations part{x.values + static_cast<size_t>(t) * x.stride, x.stride, n};
      int64_t* to = acc + static_cast<size_t>(t) * acc_stride;
      for (int32_t i = 0; i < n; ++i) {
        for (int32_t r = 0; r < rows; ++r) to[static_cast<size_t>(i) * acc_stride + r] = 0;
      }
      if (weights.four_bit) {
        some<true>(weights, rows, part, to, acc_stride);
      } else {
        some<false>(weights, rows, part, to, acc_stride);
      }
    }
  }
};

// Keys as they are, queries in two planes.
template <int N>
class PlaneKeyDots {
 public:
  PlaneKeyDots(const Query* queries, int32_t head_dim) {
    for (int h = 0; h < N; ++h) {
      for (int32_t c = 0; c < head_dim; c += 8) split(queries[h].values + c, high_[h] + c, low_[h] + c);
    }
  }
  void operator()(const int8_t* key, int32_t head_dim, int32_t* out) const {
    int32x4_t high[N], low[N];
    for (int h = 0; h < N; ++h) high[h] = low[h] = vdupq_n_s32(0);
    for (int32_t c = 0; c < head_dim; c += 16) {
      const int8x16_t k = vld1q_s8(key + c);
      for (int h = 0; h < N; ++h) {
        high[h] = vdotq_s32(high[h], k, vld1q_s8(high_[h] + c));
        low[h] = vdotq_s32(low[h], k, vld1q_s8(low_[h] + c));
      }
    }
    for (int h = 0; h < N; ++h) out[h] = static_cast<int32_t>(join(high[h], low[h]));
  }

 private:
  int8_t high_[N][kMostChannels];
  int8_t low_[N][kMostChannels];
};

constexpr Kernels table() {
  Kernels k = neon_table("neon_dotprod");
  k.products = DotProducts::products;
  k.scores = neon_scores<PlaneKeyDots>;
  return k;
}

}  // namespace

const Kernels kNeonDotprod = table();

}  // namespace superslm::kernels

#endif
