// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Scores and values for tiers with 128-bit and 256-bit vectors. Beyond what products.h asks of an Isa:
// store_sums (of the int32 lanes of four vectors, as consecutive int32), zip_low, zip_high (interleave int16
// within 128-bit lanes) and add_planes (adds 2^15 * high + low of int32 lanes to int64, the four lanes of the
// n-th 128 bits to those from out + 8n on).
#pragma once

#include <cstring>

#include "kernels/ahead.h"
#include "kernels/products.h"
#include "kernels/scalar.h"

namespace superslm::kernels {

namespace {

template <typename Isa>
class Attention {
  using Vec = typename Isa::Vec;
  static constexpr int kMostChannels = 512;

  static constexpr int kTogether = 4;  // positions whose sums are formed together

  // Rounding shift right, 0 <= shift <= 62.
  struct Rounding {
    int64_t half;
    int32_t shift;
    explicit Rounding(int32_t s) : half(s > 0 ? int64_t{1} << (s - 1) : 0), shift(s) {}
    int64_t operator()(int64_t x) const { return (x + half) >> shift; }
  };

  // Dot products of one vector with four rows, in int32.
  static inline void dot4(const int16_t* a, const int16_t* const* rows, int32_t n, int32_t* out) {
    Vec sum[kTogether] = {Isa::zero(), Isa::zero(), Isa::zero(), Isa::zero()};
    for (int32_t i = 0; i < n; i += Isa::kLanes) {
      const Vec in = Isa::load(a + i);
      for (int p = 0; p < kTogether; ++p) sum[p] = Isa::dot(sum[p], in, Isa::load(rows[p] + i));
    }
    Isa::store_sums(sum[0], sum[1], sum[2], sum[3], out);
  }

  static void row_scores(const Query* queries, int32_t query_count, const int8_t* keys, const uint8_t* trig,
                         int64_t count, int32_t head_dim) {
    int16_t key[kTogether][kMostChannels];
    const size_t hd = static_cast<size_t>(head_dim);
    Ahead<Isa> ahead(queries[0].next_keys, static_cast<size_t>(count) * hd);
    const size_t share = ahead.share(static_cast<size_t>((count + kTogether - 1) / kTogether));
    for (int64_t j = 0; j < count; j += kTogether) {
      ahead.ask(share);
      const int64_t n = count - j < kTogether ? count - j : kTogether;
      const int16_t *key_rows[kTogether], *trig_rows[kTogether];
      for (int p = 0; p < kTogether; ++p) {  // the last one again where there are fewer
        const size_t at = static_cast<size_t>(p < n ? j + p : count - 1) * hd;
        key_rows[p] = key[p];
        trig_rows[p] = trig ? reinterpret_cast<const int16_t*>(trig + at * 2) : nullptr;
        for (size_t c = 0; c < hd; c += Isa::kLanes) {
          Isa::store(key[p] + c, Isa::widen(reinterpret_cast<const uint8_t*>(keys) + at + c));
        }
      }
      for (int32_t h = 0; h < query_count; ++h) {
        int32_t score[kTogether], high[kTogether], low[kTogether];
        int64_t* out = queries[h].scores + j;
        dot4(queries[h].values, key_rows, head_dim, score);
        if (trig == nullptr) {
          for (int64_t p = 0; p < n; ++p) out[p] = score[p];
          continue;
        }
        dot4(queries[h].center, trig_rows, head_dim, high);
        dot4(queries[h].center + head_dim, trig_rows, head_dim, low);
        const Rounding shift(queries[h].shift), center(queries[h].center_shift);
        for (int64_t p = 0; p < n; ++p) out[p] = shift(score[p]) + center(int64_t{high[p]} * 256 + low[p]);
      }
    }
  }

  // kLanes channels from c on, of one head, over at most 512 positions.
  static inline void value_tile(const ValueSum& sum, int64_t offset, const int8_t* values, int64_t count,
                                int32_t head_dim, int32_t c) {
    Vec high[2] = {Isa::zero(), Isa::zero()}, low[2] = {Isa::zero(), Isa::zero()};
    const auto add = [&](Vec a, Vec b, uint32_t wh, uint32_t wl) {
      const Vec first = Isa::zip_low(a, b), second = Isa::zip_high(a, b);
      const Vec ph = Isa::spread(wh), pl = Isa::spread(wl);
      high[0] = Isa::dot(high[0], first, ph);
      high[1] = Isa::dot(high[1], second, ph);
      low[0] = Isa::dot(low[0], first, pl);
      low[1] = Isa::dot(low[1], second, pl);
    };
    const int16_t *wh = sum.high + offset, *wl = sum.low + offset;  // never negative
    const uint8_t* v = reinterpret_cast<const uint8_t*>(values) + c;
    const auto add_two = [&](int64_t j) {
      uint32_t pair_high, pair_low;
      std::memcpy(&pair_high, wh + j, sizeof(pair_high));
      std::memcpy(&pair_low, wl + j, sizeof(pair_low));
      add(Isa::widen(v), Isa::widen(v + head_dim), pair_high, pair_low);
      v += 2 * head_dim;
    };
    int64_t j = 0;
    for (; j + 8 <= count; j += 8) {  // so few turns per page that the processor foresees the last
      add_two(j);
      add_two(j + 2);
      add_two(j + 4);
      add_two(j + 6);
    }
    for (; j + 2 <= count; j += 2) add_two(j);
    if (j < count) {
      add(Isa::widen(v), Isa::zero(), static_cast<uint32_t>(wh[j]), static_cast<uint32_t>(wl[j]));
    }
    // Of each eight channels the first four are in the first vector.
    Isa::add_planes(sum.sums + c, high[0], low[0]);
    Isa::add_planes(sum.sums + c + 4, high[1], low[1]);
  }

 public:
  static void scores(const Query* queries, int32_t query_count, const int8_t* keys, const uint8_t* trig,
                     int64_t count, int32_t head_dim) {
    if (head_dim % Isa::kLanes != 0) return scalar::scores(queries, query_count, keys, trig, count, head_dim);
    if (queries[0].center == nullptr) trig = nullptr;
    row_scores(queries, query_count, keys, trig, count, head_dim);
  }

  static void values(const ValueSum* sums, int32_t sum_count, const int8_t* values, int64_t count,
                     int32_t head_dim) {
    if (head_dim % Isa::kLanes != 0) return scalar::values(sums, sum_count, values, count, head_dim);
    Ahead<Isa> ahead(sums[0].next_values, static_cast<size_t>(count) * static_cast<size_t>(head_dim));
    const size_t share =
        ahead.share(static_cast<size_t>(sum_count) * static_cast<size_t>(head_dim / Isa::kLanes));
    for (int64_t j = 0; j < count; j += 512) {  // an int32 lane holds 512 positions
      const int64_t n = count - j < 512 ? count - j : 512;
      for (int32_t h = 0; h < sum_count; ++h) {
        for (int32_t c = 0; c < head_dim; c += Isa::kLanes) {
          ahead.ask(share);
          value_tile(sums[h], j, values + j * head_dim, n, head_dim, c);
        }
      }
    }
  }
};

}  // namespace

}  // namespace superslm::kernels
