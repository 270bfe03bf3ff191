// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Products with a low-rank factor: a lane holds a weight row, so that no lanes are summed. Included by tiers
// after their instruction set is chosen; see kernels/products.h for what an Isa has.
#pragma once

#include <cstring>

#include "kernels/kernels.h"

namespace superslm::kernels {

namespace {

template <typename Isa, void (*kScale)(int64_t* acc, const uint8_t* multipliers, int32_t rows, int32_t shift)>
class LowRank {
  using Vec = typename Isa::Vec;
  static constexpr int kParts = 2 * kLowRankTile / Isa::kLanes;
  static constexpr int32_t kBlockPairs = kBlock / 2;

  // Where the pairs of `dot` are not neighbours, an Isa has dot_pairs too.
  static inline Vec dot_pairs(Vec sum, Vec w, Vec a) {
    if constexpr (requires { Isa::dot_pairs(sum, w, a); }) {
      return Isa::dot_pairs(sum, w, a);
    } else {
      return Isa::dot(sum, w, a);
    }
  }

  // DOT of all rows of a tile. The sum of a block fits int32 even times its sub-scale.
  static inline void tile(const uint8_t* values, const uint8_t* scales, int32_t pairs, const int16_t* b,
                          const uint8_t*& ahead, int64_t* acc) {
    for (int32_t begin = 0; begin < pairs; begin += kBlockPairs, scales += kLowRankTile) {
      const int32_t end = pairs - begin < kBlockPairs ? pairs : begin + kBlockPairs;
      Vec sum[kParts];
      for (int i = 0; i < kParts; ++i) sum[i] = Isa::zero();
      for (int32_t p = begin; ahead != nullptr && p < end; p += 4, ahead += 64) Isa::prefetch(ahead);
      for (int32_t p = begin; p < end; ++p) {
        uint32_t pair;
        std::memcpy(&pair, b + 2 * p, sizeof(pair));
        const Vec a = Isa::spread(pair);
        for (int i = 0; i < kParts; ++i, values += Isa::kLanes)
          sum[i] = dot_pairs(sum[i], Isa::widen(values), a);
      }
      int32_t lanes[kLowRankTile];
      std::memcpy(lanes, sum, sizeof(lanes));
      for (int32_t r = 0; r < kLowRankTile; ++r) acc[r] = (begin == 0 ? 0 : acc[r]) + lanes[r] * scales[r];
    }
  }

 public:
  static void add(const LowRankRows& m, int32_t first, int32_t rows, const int16_t* b, int32_t shift,
                  int64_t* y) {
    int64_t acc[kTileRows + kLowRankTile];
    const int32_t skipped = first % kLowRankTile;
    const size_t pairs = static_cast<size_t>(m.pairs), blocks = (pairs + kBlockPairs - 1) / kBlockPairs;
    size_t t = static_cast<size_t>(first / kLowRankTile);
    const uint8_t* ahead = m.ahead;
    for (int32_t r = 0; r < skipped + rows; r += kLowRankTile, ++t) {
      tile(m.values + t * pairs * 2 * kLowRankTile, m.scales + t * blocks * kLowRankTile, m.pairs, b, ahead,
           acc + r);
    }
    kScale(acc + skipped, m.multipliers + static_cast<size_t>(first) * sizeof(int32_t), rows, shift);
    for (int32_t r = 0; r < rows; ++r) y[r] += acc[skipped + r];
  }
};

}  // namespace

}  // namespace superslm::kernels
