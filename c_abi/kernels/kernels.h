// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The table of integer kernels. scalar.cpp is the definition; every tier gives the same bits.
// Byte pointers into a model may lie at any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace superslm::kernels {

constexpr int32_t kBlock = 32;     // inputs of one weight block
constexpr int32_t kTileRows = 64;  // weight rows of one call of `products`, at most
constexpr int32_t kFewRows = 8;    // activation rows up to which products needs no panel
constexpr size_t kPanelElements = size_t{32} * 1024;
// Bytes; how far ahead of a row's values products asks for memory; the rows of a matrix follow each other.
constexpr int32_t kWeightsAhead = 8192;

// Consecutive rows of a weight matrix; the format is that of artifact::Matrix.
struct WeightRows {
  const uint8_t* values;
  const uint8_t* scales;
  size_t value_stride;  // bytes from row to row
  size_t scale_stride;
  int32_t blocks;  // of kBlock inputs
  bool four_bit;
};

constexpr int32_t kLowRankTile = 16;  // weight rows side by side in a low-rank factor

// The factor B of an adapter; the format is that of artifact::TiledMatrix.
struct LowRankRows {
  const uint8_t* values;  // int8 [tiles][pairs][kLowRankTile][2]
  const uint8_t* scales;  // [tiles][blocks][kLowRankTile]
  const uint8_t* multipliers;
  int32_t pairs;                   // of inputs
  const uint8_t* ahead = nullptr;  // memory to ask for meanwhile, a line for four pairs of a tile
};

// 15-bit activation rows, zero-padded to whole blocks.
struct Activations {
  const int16_t* values;
  size_t stride;  // elements from row to row
  int32_t rows;
};

// One query head against the keys: its 15-bit query and, in a centred layer, the add-back of section 9.
struct Query {
  const int16_t* values;  // [head_dim]
  // The centre or null: [high, low][head_dim], 256 * high + low with low -128 .. 127. Sums of both fit int32.
  const int16_t* center;
  int32_t shift;         // of the score: F - Fm
  int32_t center_shift;  // of the add-back: FD - Fm
  int64_t* scores;       // one per position
  // Of the first query: the keys of the next call, or null. A hint.
  const int8_t* next_keys = nullptr;
};

// Softmax weights 0 .. 2^30 in two planes of 15 bits, high * 2^15 + low, and the sums they go to.
struct ValueSum {
  const int16_t* high;  // one per position
  const int16_t* low;
  int64_t* sums;  // [head_dim], added to
  // Of the first sum: the values of the next call, or null. A hint.
  const int8_t* next_values = nullptr;
};

struct Kernels {
  const char* name;

  // acc[t * acc_stride + r] = DOT(activation row t, weight row r) for rows <= kTileRows. panel:
  // kPanelElements of working memory, may be null.
  void (*products)(const WeightRows& weights, int32_t rows, const Activations& activations, int64_t* acc,
                   size_t acc_stride, int16_t* panel);
  // acc[r] = rsh(rsh(acc[r], 4) * W[r], shift), 0 <= shift <= 62.
  void (*scale)(int64_t* acc, const uint8_t* multipliers, int32_t rows, int32_t shift);
  // out[r] = sat32(y[r] + bias[r]), bias may be null; returns the clamps.
  uint32_t (*saturate)(const int64_t* y, const uint8_t* bias, int32_t rows, int32_t* out);
  // x[r] = sat32(x[r] + y[r]); returns the clamps.
  uint32_t (*add)(const int64_t* y, int32_t rows, int32_t* x);

  // y[r] += rsh(rsh(DOT(b, weight row first + r), 4) * W[first + r], shift) for rows <= kTileRows.
  void (*add_low_rank)(const LowRankRows& weights, int32_t first, int32_t rows, const int16_t* b,
                       int32_t shift, int64_t* y);

  // NORM; n is a multiple of nothing, out may equal x.
  void (*norm)(const int32_t* x, const uint8_t* gains, int32_t n, uint64_t epsilon, int32_t* out);
  // QUANT15; returns the shift.
  int32_t (*quantise)(const int32_t* y, int32_t n, int16_t* out);
  // Rotates the head_dim channels of each head by cosines and sines [head_dim / 2], Q30; returns the clamps.
  uint32_t (*rotate)(int32_t* x, int32_t heads, int32_t head_dim, const int32_t* cosine, const int32_t* sine);
  // out[i] = clamp127(rsh(x[i] * M[i], shift)); returns the clamps.
  uint32_t (*land)(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t shift, int8_t* out);
  // out[i] = rsh(x[i] * M[i], 31).
  void (*scale_query)(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t* out);
  // gate[i] = sat32(rsh(SILU(gate[i]) * up[i], shift)); returns the clamps.
  uint32_t (*silu_multiply)(int32_t* gate, const int32_t* up, int32_t n, const uint8_t* sigmoid,
                            int32_t shift);

  // Scores of `count` consecutive keys for all queries; trig: rows of T, null without a centre.
  void (*scores)(const Query* queries, int32_t query_count, const int8_t* keys, const uint8_t* trig,
                 int64_t count, int32_t head_dim);
  // Weights of a score row in Q(exponent), -64 < exponent <= 60, in two planes; returns their sum.
  uint64_t (*weigh)(const int64_t* scores, int64_t count, int32_t exponent, int16_t* high, int16_t* low);
  // Adds weights times values of `count` consecutive positions.
  void (*values)(const ValueSum* sums, int32_t sum_count, const int8_t* values, int64_t count,
                 int32_t head_dim);

  // Index of the largest, the lowest on a tie.
  int32_t (*argmax)(const int32_t* x, int32_t n);
};

// The best tier of this processor, chosen once.
const Kernels& active();

// A tier that is built in. For tests.
struct Tier {
  const char* name;
  const Kernels* kernels;  // null: this processor lacks it
};
constexpr int32_t kMostTiers = 8;

// Writes all tiers, best last; returns their number.
int32_t tiers(Tier* out);

extern const Kernels kScalar;

}  // namespace superslm::kernels
