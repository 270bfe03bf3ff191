// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// 4-bit rows against one activation row, without widening the weights: the 15-bit activations are held as two
// planes of bytes, a = 256 * high + low, and nibbles meet them byte by byte. Pair sums of a few blocks fit
// int16; a block's sub-scale then multiplies its pair sums into int32 lanes.
//
// Beside what Products asks for, an Isa has: kBytes (of a Vec), load_nibbles (of some blocks, zero beyond),
// low_nibbles, high_nibbles, add_bytes (pair sums of unsigned times signed bytes, in int16), add16,
// group_scales (each block's s in the lanes of its nibbles), load_offsets (u of up to kLanes blocks as int16,
// zero beyond), split (a block to its planes) and shift_left_8 (of int64 lanes).
#pragma once

#include "kernels/kernels.h"

namespace superslm::kernels {

namespace {

template <typename Isa>
class NibbleRows {
  using Vec = typename Isa::Vec;
  static constexpr int32_t kGroup = Isa::kLanes / 8;  // blocks whose nibbles fill a vector
  // Blocks held at once. A lane takes at most 2 * 2 * 15 * 128 * 2 * 255 from a group of the low plane, half
  // of it from one of the high plane, and 2 * 255 * 32767 from each vector of offsets: below 1.3 * 2^30 even
  // where a group is one block.
  static constexpr int32_t kHeldBlocks = 320;
  static constexpr int32_t kHalf = kBlock / 2;

  struct Held {
    int8_t low[kHeldBlocks * kBlock], high[kHeldBlocks * kBlock];  // by groups: all first halves, all second
    // -16 * (the sum of a block's activations) is 256 * sum_high + sum_low.
    int16_t sum_low[kHeldBlocks], sum_high[kHeldBlocks];
  };

  static void hold(const int16_t* a, int32_t blocks, Held& out) {
    static constexpr int16_t kNone[kBlock] = {};
    const int32_t end = (blocks + Isa::kLanes - 1) / Isa::kLanes * Isa::kLanes;
    for (int32_t b = 0; b < end; ++b) {
      const int16_t* from = b < blocks ? a + b * kBlock : kNone;
      const int32_t to = b / kGroup * kGroup * kBlock + b % kGroup * kHalf;
      Isa::split(from, out.low + to, out.high + to, kGroup * kHalf);
      const int32_t sum = Isa::sum_block(from);
      const int32_t part = sum >> 4, most = INT16_MAX;
      const int32_t high = part > most ? most : part < -most ? -most : part;
      out.sum_high[b] = static_cast<int16_t>(-high);
      out.sum_low[b] = static_cast<int16_t>(-16 * (sum - 16 * high));
    }
  }

  struct Sums {
    Vec low = Isa::zero(), high = Isa::zero();
  };

  static inline void add_group(Vec packed, Vec scales, const int8_t* low, const int8_t* high, Sums& to) {
    const Vec first = Isa::low_nibbles(packed), second = Isa::high_nibbles(packed);
    const auto pairs = [&](const int8_t* plane) {
      return Isa::add16(Isa::add_bytes(first, Isa::load_plane(plane)),
                        Isa::add_bytes(second, Isa::load_plane(plane + Isa::kBytes)));
    };
    to.low = Isa::dot(to.low, pairs(low), scales);
    to.high = Isa::dot(to.high, pairs(high), scales);
  }

  // The sums of one row as int64 lanes.
  static inline Vec row_lanes(const uint8_t* values, const uint8_t* scales, int32_t blocks, const Held& x) {
    Sums sums;
    int32_t b = 0;
    for (; b + kGroup <= blocks; b += kGroup) {
      const uint8_t* at = values + b * kHalf;
      Isa::prefetch(at + kWeightsAhead);
      add_group(Isa::load_nibbles(at, kGroup), Isa::group_scales(scales + 2 * b, kGroup), x.low + b * kBlock,
                x.high + b * kBlock, sums);
    }
    if (b < blocks) {
      add_group(Isa::load_nibbles(values + b * kHalf, blocks - b),
                Isa::group_scales(scales + 2 * b, blocks - b), x.low + b * kBlock, x.high + b * kBlock, sums);
    }
    for (b = 0; b < blocks; b += Isa::kLanes) {
      const Vec u = Isa::load_offsets(scales + 2 * b, blocks - b);
      sums.low = Isa::dot(sums.low, u, Isa::load(x.sum_low + b));
      sums.high = Isa::dot(sums.high, u, Isa::load(x.sum_high + b));
    }
    return Isa::add64(Isa::widen_sum(sums.low), Isa::shift_left_8(Isa::widen_sum(sums.high)));
  }

 public:
  // acc[r] += DOT(a, row r).
  static void add(const WeightRows& m, int32_t rows, const int16_t* a, int64_t* acc) {
    Held held;
    for (int32_t begin = 0; begin < m.blocks; begin += kHeldBlocks) {
      const int32_t blocks = m.blocks - begin < kHeldBlocks ? m.blocks - begin : kHeldBlocks;
      hold(a + static_cast<size_t>(begin) * kBlock, blocks, held);
      const uint8_t* values = m.values + static_cast<size_t>(begin) * kHalf;
      const uint8_t* scales = m.scales + static_cast<size_t>(begin) * 2;
      for (int32_t row = 0; row < rows; row += 4) {
        Vec lanes[4] = {Isa::zero(), Isa::zero(), Isa::zero(), Isa::zero()};
        const int32_t n = rows - row < 4 ? rows - row : 4;
        for (int32_t r = 0; r < n; ++r) {
          const size_t at = static_cast<size_t>(row + r);
          Isa::prefetch(scales + at * m.scale_stride + kWeightsAhead / 8);
          lanes[r] = row_lanes(values + at * m.value_stride, scales + at * m.scale_stride, blocks, held);
        }
        int64_t sums[4] = {};
        Isa::add_sums(lanes[0], lanes[1], lanes[2], lanes[3], sums);
        for (int32_t r = 0; r < n; ++r) acc[row + r] += sums[r];
      }
    }
  }
};

}  // namespace

}  // namespace superslm::kernels
