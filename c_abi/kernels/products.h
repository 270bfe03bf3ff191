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
#include "kernels/nibble_rows.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC cannot see that a chunk has at least one block, and its AVX-512 intrinsics pass undefined vectors
// about.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace superslm::kernels {

namespace {

// How an Isa without its own way spreads sub-scales.
struct PlainScales {
  // Each nibble, low first, into both halves of a dword.
  static void spread_nibbles(const uint8_t* nibbles, int32_t bytes, uint32_t* out) {
    for (int32_t i = 0; i < bytes; ++i) {
      out[2 * i] = (nibbles[i] & 15) * 0x10001u;
      out[2 * i + 1] = (nibbles[i] >> 4) * 0x10001u;
    }
  }
  // Bytes s, u of each block: s and 16 * u into both halves of a dword.
  static void spread_bytes(const uint8_t* pairs, int32_t blocks, uint32_t* scale, uint32_t* offset) {
    for (int32_t i = 0; i < blocks; ++i) {
      scale[i] = pairs[2 * i] * 0x10001u;
      offset[i] = pairs[2 * i + 1] * 0x100010u;
    }
  }
  // The sum of 16 * u times each block's sum of activations.
  static int64_t offset_sum(const uint8_t* pairs, int32_t blocks, const int32_t* block_sums) {
    int64_t sum = 0;
    for (int32_t i = 0; i < blocks; ++i) sum += int64_t{block_sums[i]} * (16 * pairs[2 * i + 1]);
    return sum;
  }
  static int32_t sum_block(const int16_t* a) {
    int32_t sum = 0;
    for (int32_t i = 0; i < kBlock; ++i) sum += a[i];
    return sum;
  }
};

template <typename Isa>
class Products {
  using Vec = typename Isa::Vec;
  static constexpr int kParts = kBlock / Isa::kLanes;
  static constexpr int kPanelRows = 16;
  static constexpr int kPanelFrom = 24;  // activation rows beyond which expanding a panel pays
  static constexpr int kMaxChunk = 32;
  // Blocks that a few activation rows go through for all weight rows of a call: as many as stay in the first
  // cache level.
  static constexpr int32_t kSpan = 32;
  static constexpr int kMostBlocks = 2048;  // of 65 536 inputs

  // Blocks after which a lane must go to int64: 32 pair sums at 8 bits, 16 at 4 bits.
  static constexpr int chunk_blocks(bool four_bit) { return four_bit ? Isa::kLanes / 2 : Isa::kLanes; }

  // The sub-scales of one row's chunk, doubled into int16 pairs; 16 * u beside them at 4 bits.
  struct Scales {
    uint32_t scale[kMaxChunk];
    uint32_t offset[kMaxChunk];
  };

  template <bool kFourBit>
  static inline void spread_scales(const WeightRows& m, int32_t row, int32_t begin, int32_t blocks,
                                   Scales& out) {
    const uint8_t* scales = m.scales + static_cast<size_t>(row) * m.scale_stride;
    Isa::prefetch(scales + (kFourBit ? 2 * begin : begin / 2) + kWeightsAhead / (kFourBit ? 8 : 32));
    if constexpr (kFourBit) {
      Isa::spread_bytes(scales + 2 * begin, blocks, out.scale, out.offset);
    } else {
      Isa::spread_nibbles(scales + begin / 2, (blocks + 1) / 2, out.scale);
    }
  }

  // Where block `begin` of a row starts.
  template <bool kFourBit>
  static inline const uint8_t* row_values(const WeightRows& m, int32_t row, int32_t begin) {
    return m.values + static_cast<size_t>(row) * m.value_stride +
           static_cast<size_t>(begin) * (kFourBit ? 16 : 32);
  }

  // Block i from `values` on, times its sub-scale.
  template <bool kFourBit, bool kWithOffset = true>
  static inline void expand(const uint8_t* values, const Scales& scales, size_t i, Vec* w) {
    const Vec s = Isa::spread(scales.scale[i]);
    if constexpr (kFourBit) {
      Isa::nibbles(values + i * 16, w);
      for (int p = 0; p < kParts; ++p) {
        w[p] = Isa::mul(w[p], s);
        if constexpr (kWithOffset) w[p] = Isa::sub(w[p], Isa::spread(scales.offset[i]));
      }
    } else {
      for (int p = 0; p < kParts; ++p) w[p] = Isa::mul(Isa::widen(values + i * kBlock + p * Isa::kLanes), s);
    }
  }

  // Lanes of one row against one activation row, over one chunk, without the offsets of 4-bit blocks. The
  // partial vectors together hold no more steps than one lane may, so they are added in int32.
  template <bool kFourBit>
  static inline Vec row_lanes(const WeightRows& m, int32_t row, int32_t begin, int32_t blocks,
                              const int16_t* a) {
    Scales scales;
    spread_scales<kFourBit>(m, row, begin, blocks, scales);
    const uint8_t* values = row_values<kFourBit>(m, row, begin);
    Vec sum[4] = {Isa::zero(), Isa::zero(), Isa::zero(), Isa::zero()};
    const auto step = [&](size_t i, Vec& to) {
      Vec w[kParts];
      expand<kFourBit, false>(values, scales, i, w);
      for (int p = 0; p < kParts; ++p) to = Isa::dot(to, w[p], Isa::load(a + i * kBlock + p * Isa::kLanes));
    };
    const size_t n = static_cast<size_t>(blocks);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
      Isa::prefetch(values + i * (kFourBit ? 16 : 32) + kWeightsAhead);
      if (!kFourBit) Isa::prefetch(values + i * 32 + 64 + kWeightsAhead);
      for (size_t u = 0; u < 4; ++u) step(i + u, sum[u]);
    }
    for (; i < n; ++i) step(i, sum[0]);
    return Isa::add32(Isa::add32(sum[0], sum[1]), Isa::add32(sum[2], sum[3]));
  }

  // All rows against one activation row. Rows are read one after the other, a single stream of memory; four
  // at a time share the sum of their lanes. The offsets of 4-bit blocks meet the blocks' sums of activations.
  template <bool kFourBit>
  static void one(const WeightRows& m, int32_t rows, const int16_t* a, int64_t* acc) {
    constexpr int kChunk = chunk_blocks(kFourBit);
    int32_t block_sums[kFourBit ? kMostBlocks : 1];
    for (int32_t b = 0; kFourBit && b < m.blocks; ++b) {
      block_sums[b] = Isa::sum_block(a + static_cast<size_t>(b) * kBlock);
    }
    for (int32_t row = 0; row < rows; row += 4) {
      const int32_t n = rows - row < 4 ? rows - row : 4;
      Vec wide[4] = {Isa::zero(), Isa::zero(), Isa::zero(), Isa::zero()};
      int64_t sums[4] = {};
      for (int32_t r = 0; r < n; ++r) {
        for (int32_t b = 0; b < m.blocks; b += kChunk) {
          const int32_t blocks = m.blocks - b < kChunk ? m.blocks - b : kChunk;
          const Vec lanes = row_lanes<kFourBit>(m, row + r, b, blocks, a + static_cast<size_t>(b) * kBlock);
          wide[r] = Isa::add64(wide[r], Isa::widen_sum(lanes));
          if constexpr (kFourBit) {
            const uint8_t* scales = m.scales + static_cast<size_t>(row + r) * m.scale_stride;
            sums[r] -= Isa::offset_sum(scales + 2 * b, blocks, block_sums + b);
          }
        }
      }
      Isa::add_sums(wide[0], wide[1], wide[2], wide[3], sums);
      for (int32_t r = 0; r < n; ++r) acc[row + r] = sums[r];
    }
  }

  // Adds the sums of lanes to every `stride`-th int64; four at a time share the work.
  template <int N>
  static inline void add_each(const Vec* lanes, int64_t* to, size_t stride) {
    int i = 0;
    for (; i + 4 <= N; i += 4) {
      int64_t sums[4] = {};
      Isa::add_sums(Isa::widen_sum(lanes[i]), Isa::widen_sum(lanes[i + 1]), Isa::widen_sum(lanes[i + 2]),
                    Isa::widen_sum(lanes[i + 3]), sums);
      for (int u = 0; u < 4; ++u) to[static_cast<size_t>(i + u) * stride] += sums[u];
    }
    for (; i < N; ++i) to[static_cast<size_t>(i) * stride] += Isa::sum(Isa::widen_sum(lanes[i]));
  }

  // R rows against T activation rows, over one chunk, weights expanded in registers. `ahead`: how far in
  // front of a row's values memory is asked for.
  template <bool kFourBit, int R, int T>
  static inline void tile(const WeightRows& m, int32_t row, int32_t begin, int32_t blocks, ptrdiff_t ahead,
                          const Activations& x, int64_t* acc, size_t acc_stride) {
    Scales scales[R];
    const uint8_t* values[R];
    Vec sum[R][T];
    for (int r = 0; r < R; ++r) {
      values[r] = row_values<kFourBit>(m, row + r, begin);
      spread_scales<kFourBit>(m, row + r, begin, blocks, scales[r]);
      for (int t = 0; t < T; ++t) sum[r][t] = Isa::zero();
    }
    const int16_t* a = x.values + static_cast<size_t>(begin) * kBlock;
    for (size_t i = 0; i < static_cast<size_t>(blocks); ++i, a += kBlock) {
      Vec w[R][kParts];
      for (int r = 0; r < R; ++r) {
        Isa::prefetch(values[r] + ahead + i * (kFourBit ? 16 : 32));
        expand<kFourBit>(values[r], scales[r], i, w[r]);
      }
      for (int p = 0; p < kParts; ++p) {
        for (int t = 0; t < T; ++t) {
          const Vec in = Isa::load(a + static_cast<size_t>(t) * x.stride + p * Isa::kLanes);
          for (int r = 0; r < R; ++r) sum[r][t] = Isa::dot(sum[r][t], w[r][p], in);
        }
      }
    }
    for (int r = 0; r < R; ++r) add_each<T>(sum[r], acc + row + r, acc_stride);
  }

  // How far from span b of a row the values lie that are multiplied some rows later: that span of a row
  // below, or the next span of the first rows.
  template <bool kFourBit>
  static inline ptrdiff_t rows_ahead(const WeightRows& m, int32_t rows, int32_t row, int32_t b) {
    constexpr int32_t kRowsAhead = 8;
    const bool below = row + kRowsAhead < rows || b + kSpan >= m.blocks;
    const int64_t down = below ? kRowsAhead : kRowsAhead - rows;
    const int64_t right = below ? 0 : kSpan * (kFourBit ? 16 : 32);
    return static_cast<ptrdiff_t>(down * static_cast<int64_t>(m.value_stride) + right);
  }

  // R rows from `row` on against T activation rows, over the chunks of one span.
  template <bool kFourBit, int R, int T>
  static inline void span_tile(const WeightRows& m, int32_t rows, int32_t row, int32_t begin,
                               const Activations& x, int64_t* acc, size_t acc_stride) {
    constexpr int kChunk = chunk_blocks(kFourBit);
    const ptrdiff_t ahead = rows_ahead<kFourBit>(m, rows, row, begin);
    const int32_t end = m.blocks - begin < kSpan ? m.blocks : begin + kSpan;
    for (int32_t b = begin; b < end; b += kChunk) {
      tile<kFourBit, R, T>(m, row, b, end - b < kChunk ? end - b : kChunk, ahead, x, acc, acc_stride);
    }
  }

  // All rows against T activation rows, R at a time.
  template <bool kFourBit, int R, int T>
  static void tiles(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc,
                    size_t acc_stride) {
    for (int32_t b = 0; b < m.blocks; b += kSpan) {
      int32_t row = 0;
      for (; row + R <= rows; row += R) span_tile<kFourBit, R, T>(m, rows, row, b, x, acc, acc_stride);
      for (; row < rows; ++row) span_tile<kFourBit, 1, T>(m, rows, row, b, x, acc, acc_stride);
    }
  }

  template <bool kFourBit, int T>
  static void few(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride) {
    constexpr int kFit = Isa::kAccumulators / T > 1 ? Isa::kAccumulators / T : 1;
    return tiles < kFourBit, kFit<4 ? kFit : 4, T>(m, rows, x, acc, acc_stride);
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
        Isa::add_sums(Isa::widen_sum(sum[0][t]), Isa::widen_sum(sum[1][t]), Isa::widen_sum(sum[2][t]),
                      Isa::widen_sum(sum[3][t]), to);
      } else {
        for (int r = 0; r < R; ++r) to[r] += Isa::sum(Isa::widen_sum(sum[r][t]));
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

  // Fewer activation rows than a tile has, T at most.
  template <int T>
  static void last_rows(int32_t count, const int16_t* panel, size_t width, int32_t rows, const int16_t* a,
                        size_t stride, int64_t* acc, size_t acc_stride) {
    if constexpr (T > 0) {
      if (count < T) return last_rows<T - 1>(count, panel, width, rows, a, stride, acc, acc_stride);
      panel_rows<T>(panel, width, rows, a, stride, acc, acc_stride);
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
        last_rows<Isa::kTokens - 1>(x.rows - t, panel, width, n, a + static_cast<size_t>(t) * x.stride,
                                    x.stride, acc + static_cast<size_t>(t) * acc_stride + row, acc_stride);
      }
    }
  }

  template <bool kFourBit>
  static inline void expand_row(const WeightRows& m, int32_t row, int32_t begin, int32_t blocks,
                                int16_t* out) {
    Scales scales;
    const uint8_t* values = row_values<kFourBit>(m, row, begin);
    spread_scales<kFourBit>(m, row, begin, blocks, scales);
    for (size_t i = 0; i < static_cast<size_t>(blocks); ++i, out += kBlock) {
      Vec w[kParts];
      // The same block of the next panel, far from here in time.
      Isa::prefetch(values + i * (kFourBit ? 16 : 32) + kPanelRows * m.value_stride);
      expand<kFourBit>(values, scales, i, w);
      for (int p = 0; p < kParts; ++p) Isa::store(out + p * Isa::kLanes, w[p]);
    }
  }

  template <bool kFourBit>
  static void run(const WeightRows& m, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride,
                  int16_t* panel) {
    if (panel != nullptr && x.rows > kPanelFrom) return many<kFourBit>(m, rows, x, acc, acc_stride, panel);
    for (int32_t t = 0, n = 0; t < x.rows; t += n) {
      const int32_t left = x.rows - t, parts = (left + kFewRows - 1) / kFewRows;
      n = (left + parts - 1) / parts;
      const Activations part{x.values + static_cast<size_t>(t) * x.stride, x.stride, n};
      int64_t* to = acc + static_cast<size_t>(t) * acc_stride;
      switch (n) {
        case 1:
          if constexpr (kFourBit && requires { Isa::kBytes; }) {
            NibbleRows<Isa>::add(m, rows, part.values, to);
          } else {
            one<kFourBit>(m, rows, part.values, to);
          }
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
