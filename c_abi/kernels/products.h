// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Matrix products of the main form: weights times sub-scale as int16, pair sums of int16 products in int32
// lanes. Included by tiers after their instruction set is chosen; the anonymous namespace keeps each tier's
// code its own.
//
// A tier's Isa has: Vec (kLanes int16), kAccumulators (registers for sums), kTokens (of a panel tile), zero,
// load, store, widen (int8), nibbles (a block of 4-bit values), spread (one pair everywhere), mul, sub, dot
// (add pair sums to int32 lanes), add32, sum (of lanes, in int64), add_sums (of four vectors, to consecutive
// int64).
#pragma once

#include "kernels/kernels.h"

namespace superslm::kernels {

namespace {

template <typename Isa>
class Products {
  using Vec = typename Isa::Vec;
  static constexpr int kParts = kBlock / Isa::kLanes;
  static constexpr int kPanelRows = 16;
  static constexpr int kMaxChunk = 32;
  // What stays in the first cache level: activations beyond it are walked chunk by chunk for all rows of a
  // tile.
  static constexpr size_t kNearBytes = 24 * 1024;

  // Blocks after which a lane must go to int64: 32 pair sums at 8 bits, 16 at 4 bits.
  static constexpr int chunk_blocks(bool four_bit) { return four_bit ? Isa::kLanes / 2 : Isa::kLanes; }

  // The sub-scales of one row's chunk, doubled into int16 pairs; 16 * u beside them at 4 bits.
  struct Scales {
    uint32_t scale[kMaxChunk];
    uint32_t offset[kMaxChunk];
  };

  template <bool kFourBit>
  static inline void spread_scales(const uint8_t* row_scales, int32_t begin, int32_t blocks, Scales& out) {
    if constexpr (kFourBit) {
      for (int32_t b = 0; b < blocks; ++b) {
        out.scale[b] = row_scales[2 * (begin + b)] * 0x10001u;
        out.offset[b] = row_scales[2 * (begin + b) + 1] * 0x100010u;
      }
    } else {
      const uint8_t* nibbles = row_scales + begin / 2;
      for (int32_t b = 0; b < blocks; b += 2) {
        out.scale[b] = (nibbles[b / 2] & 15) * 0x10001u;
        out.scale[b + 1] = (nibbles[b / 2] >> 4) * 0x10001u;
      }
    }
  }

  template <bool kFourBit>
  static inline void expand(const uint8_t* row_values, int32_t block, const Scales& scales, int32_t i,
                            Vec* w) {
    const Vec s = Isa::spread(scales.scale[i]);
    if constexpr (kFourBit) {
      Isa::nibbles(row_values + static_cast<size_t>(block) * 16, w);
      const Vec o = Isa::spread(scales.offset[i]);
      for (int p = 0; p < kParts; ++p) w[p] = Isa::sub(Isa::mul(w[p], s), o);
    } else {
      const uint8_t* v = row_values + static_cast<size_t>(block) * kBlock;
      for (int p = 0; p < kParts; ++p) w[p] = Isa::mul(Isa::widen(v + p * Isa::kLanes), s);
    }
  }

  // One row against one activation row, over one chunk. The partial vectors together hold no more steps than
  // one lane may, so they are added in int32.
  template <bool kFourBit>
  static inline void single(const WeightRows& m, int32_t row, int32_t begin, int32_t end, const int16_t* a,
                            int64_t* acc) {
    Scales scales;
    const uint8_t* values = m.values + static_cast<size_t>(row) * m.value_stride;
    spread_scales<kFourBit>(m.scales + static_cast<size_t>(row) * m.scale_stride, begin, end - begin, scales);
    Vec sum[4] = {Isa::zero(), Isa::zero(), Isa::zero(), Isa::zero()};
    const auto step = [&](int32_t b, Vec& to) {
      Vec w[kParts];
      expand<kFourBit>(values, b, scales, b - begin, w);
      for (int p = 0; p < kParts; ++p) {
        to = Isa::dot(to, w[p], Isa::load(a + static_cast<size_t>(b) * kBlock + p * Isa::kLanes));
      }
    };
    int32_t b = begin;
    for (; b + 4 <= end; b += 4) {
      for (int u = 0; u < 4; ++u) step(b + u, sum[u]);
    }
    for (; b < end; ++b) step(b, sum[0]);
    *acc += Isa::sum(Isa::add32(Isa::add32(sum[0], sum[1]), Isa::add32(sum[2], sum[3])));
  }

  // R rows against T activation rows, over one chunk, weights expanded in registers.
  template <bool kFourBit, int R, int T>
  static inline void tile(const WeightRows& m, int32_t row, int32_t begin, int32_t end, const Activations& x,
                          int64_t* acc, size_t acc_stride) {
    Scales scales[R];
    const uint8_t* values[R];
    Vec sum[R][T];
    for (int r = 0; r < R; ++r) {
      values[r] = m.values + static_cast<size_t>(row + r) * m.value_stride;
      spread_scales<kFourBit>(m.scales + static_cast<size_t>(row + r) * m.scale_stride, begin, end - begin,
                              scales[r]);
      for (int t = 0; t < T; ++t) sum[r][t] = Isa::zero();
    }
    for (int32_t b = begin; b < end; ++b) {
      Vec w[R][kParts];
      for (int r = 0; r < R; ++r) {
        expand<kFourBit>(values[r], b, scales[r], b - begin, w[r]);
      }
      const int16_t* a = x.values + static_cast<size_t>(b) * kBlock;
      for (int p = 0; p < kParts; ++p) {
        for (int t = 0; t < T; ++t) {
          const Vec in = Isa::load(a + static_cast<size_t>(t) * x.stride + p * Isa::kLanes);
          for (int r = 0; r < R; ++r) sum[r][t] = Isa::dot(sum[r][t], w[r][p], in);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < T; ++t) acc[static_cast<size_t>(t) * acc_stride + row + r] += Isa::sum(sum[r][t]);
    }
  }

  // All rows against T activation rows. Long activations go chunk by chunk, so that they stay near.
  template <bool kFourBit, int T>
  static void few(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride) {
    constexpr int R = 2 * T <= Isa::kAccumulators ? 2 : 1;
    constexpr int kChunk = chunk_blocks(kFourBit);
    const bool near = static_cast<size_t>(m.blocks) * kBlock * sizeof(int16_t) * T <= kNearBytes || T == 1;
    const int32_t span = near ? m.blocks : kChunk;
    for (int32_t s = 0; s < m.blocks; s += span) {
      const int32_t span_end = m.blocks - s < span ? m.blocks : s + span;
      for (int32_t row = 0; row < rows;) {
        const int step = T > 1 && rows - row >= R ? R : 1;
        for (int32_t b = s; b < span_end; b += kChunk) {
          const int32_t end = span_end - b < kChunk ? span_end : b + kChunk;
          if constexpr (T == 1) {
            single<kFourBit>(m, row, b, end, x.values, acc + row);
          } else if (step == R) {
            tile<kFourBit, R, T>(m, row, b, end, x, acc, acc_stride);
          } else {
            tile<kFourBit, 1, T>(m, row, b, end, x, acc, acc_stride);
          }
        }
        row += step;
      }
    }
  }

  // R expanded rows against T activation rows.
  template <int R, int T>
  static inline void panel_tile(const int16_t* panel, size_t width, const int16_t* a, size_t stride,
                                int64_t* acc, size_t acc_stride) {
    Vec sum[R][T];
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < T; ++t) sum[r][t] = Isa::zero();
    }
    for (size_t i = 0; i < width; i += Isa::kLanes) {
      Vec w[R];
      for (int r = 0; r < R; ++r) w[r] = Isa::load(panel + static_cast<size_t>(r) * width + i);
      for (int t = 0; t < T; ++t) {
        const Vec in = Isa::load(a + static_cast<size_t>(t) * stride + i);
        for (int r = 0; r < R; ++r) sum[r][t] = Isa::dot(sum[r][t], w[r], in);
      }
    }
    for (int t = 0; t < T; ++t) {
      int64_t* to = acc + static_cast<size_t>(t) * acc_stride;
      if constexpr (R == 4) {
        Isa::add_sums(sum[0][t], sum[1][t], sum[2][t], sum[3][t], to);
      } else {
        for (int r = 0; r < R; ++r) to[r] += Isa::sum(sum[r][t]);
      }
    }
  }

  template <int T>
  static void panel_rows(const int16_t* panel, size_t width, int32_t rows, const int16_t* a, size_t stride,
                         int64_t* acc, size_t acc_stride) {
    int32_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      panel_tile<4, T>(panel + static_cast<size_t>(r) * width, width, a, stride, acc + r, acc_stride);
    }
    for (; r < rows; ++r) {
      panel_tile<1, T>(panel + static_cast<size_t>(r) * width, width, a, stride, acc + r, acc_stride);
    }
  }

  // Many activation rows: a panel of weight rows is expanded once and used for all of them.
  template <bool kFourBit>
  static void many(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride,
                   int16_t* panel) {
    constexpr int kChunk = chunk_blocks(kFourBit);
    for (int32_t begin = 0; begin < m.blocks; begin += kChunk) {
      const int32_t blocks = m.blocks - begin < kChunk ? m.blocks - begin : kChunk;
      const size_t width = static_cast<size_t>(blocks) * kBlock;
      for (int32_t row = 0; row < rows; row += kPanelRows) {
        const int32_t n = rows - row < kPanelRows ? rows - row : kPanelRows;
        for (int32_t r = 0; r < n; ++r) {
          expand_row<kFourBit>(m, row + r, begin, blocks, panel + static_cast<size_t>(r) * width);
        }
        const int16_t* a = x.values + static_cast<size_t>(begin) * kBlock;
        int32_t t = 0;
        for (; t + Isa::kTokens <= x.rows; t += Isa::kTokens) {
          panel_rows<Isa::kTokens>(panel, width, n, a + static_cast<size_t>(t) * x.stride, x.stride,
                                   acc + static_cast<size_t>(t) * acc_stride + row, acc_stride);
        }
        for (; t < x.rows; ++t) {
          panel_rows<1>(panel, width, n, a + static_cast<size_t>(t) * x.stride, x.stride,
                        acc + static_cast<size_t>(t) * acc_stride + row, acc_stride);
        }
      }
    }
  }

  template <bool kFourBit>
  static inline void expand_row(const WeightRows& m, int32_t row, int32_t begin, int32_t blocks,
                                int16_t* out) {
    Scales scales;
    const uint8_t* values = m.values + static_cast<size_t>(row) * m.value_stride;
    spread_scales<kFourBit>(m.scales + static_cast<size_t>(row) * m.scale_stride, begin, blocks, scales);
    for (int32_t b = 0; b < blocks; ++b, out += kBlock) {
      Vec w[kParts];
      expand<kFourBit>(values, begin + b, scales, b, w);
      for (int p = 0; p < kParts; ++p) Isa::store(out + p * Isa::kLanes, w[p]);
    }
  }

  template <bool kFourBit>
  static void run(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride,
                  int16_t* panel) {
    if (panel != nullptr && x.rows > kFewRows) return many<kFourBit>(m, rows, x, acc, acc_stride, panel);
    for (int32_t t = 0; t < x.rows; t += kFewRows) {
      const int32_t n = x.rows - t < kFewRows ? x.rows - t : kFewRows;
      const Activations part{x.values + static_cast<size_t>(t) * x.stride, x.stride, n};
      int64_t* to = acc + static_cast<size_t>(t) * acc_stride;
      switch (n) {
        case 1:
          few<kFourBit, 1>(m, rows, part, to, acc_stride);
          break;
        case 2:
          few<kFourBit, 2>(m, rows, part, to, acc_stride);
          break;
        case 3:
          few<kFourBit, 3>(m, rows, part, to, acc_stride);
          break;
        case 4:
          few<kFourBit, 4>(m, rows, part, to, acc_stride);
          break;
        case 5:
          few<kFourBit, 5>(m, rows, part, to, acc_stride);
          break;
        case 6:
          few<kFourBit, 6>(m, rows, part, to, acc_stride);
          break;
        case 7:
          few<kFourBit, 7>(m, rows, part, to, acc_stride);
          break;
        default:
          few<kFourBit, 8>(m, rows, part, to, acc_stride);
          break;
      }
    }
  }

 public:
  static void products(const WeightRows& weights, int32_t rows, const Activations& x, int64_t* acc,
                       size_t acc_stride, int16_t* panel) {
    for (int32_t t = 0; t < x.rows; ++t) {
      for (int32_t r = 0; r < rows; ++r) acc[static_cast<size_t>(t) * acc_stride + r] = 0;
    }
    if (weights.four_bit) {
      run<true>(weights, rows, x, acc, acc_stride, panel);
    } else {
      run<false>(weights, rows, x, acc, acc_stride, panel);
    }
  }
};

}  // namespace

}  // namespace superslm::kernels
