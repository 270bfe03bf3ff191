// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The scalar kernels by name: tiers use them for what they do not speed up, and for tails.
#pragma once

#include "kernels/kernels.h"

namespace superslm::kernels {

// Internal linkage: a tier must not lend its compilation of an inline function to code for lesser processors.
// EXP2N: 2^-f in Q16 for f in 0 .. 32767 (Q15).
static inline uint32_t exp2_fraction(uint32_t f) {
  return 65535 - ((f * (45324 - ((f * (15149 - ((f * 2596) >> 15))) >> 15))) >> 15);
}

// The softmax weight 2^-z, Q30, of a distance z in Q16.
static inline uint32_t exp2_weight(uint64_t z) {
  if (z >= uint64_t{31} * 65536) return 0;
  const uint32_t distance = static_cast<uint32_t>(z);
  return (exp2_fraction((distance >> 1) & 32767) << 14) >> (distance >> 16);
}

namespace scalar {

// One block of 32 weights times their sub-scale; |w| <= 4080.
void expand_block(const WeightRows& w, int32_t row, int32_t block, int16_t* out);

// The normalising factor of NORM: unit = rsh(x * inverse, shift), Q30.
struct NormFactor {
  int64_t inverse;
  int32_t shift;
};
int32_t norm_shift(uint32_t largest_magnitude);
NormFactor norm_factor(uint64_t squares, int32_t shift, uint64_t epsilon);

void products(const WeightRows& weights, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride,
              int16_t* panel);
void scale(int64_t* acc, const uint8_t* multipliers, int32_t rows, int32_t shift);
uint32_t saturate(const int64_t* y, const uint8_t* bias, int32_t rows, int32_t* out);
uint32_t add(const int64_t* y, int32_t rows, int32_t* x);
void add_low_rank(const LowRankRows& weights, int32_t first, int32_t rows, const int16_t* b, int32_t shift,
                  int64_t* y);
void norm(const int32_t* x, const uint8_t* gains, int32_t n, uint64_t epsilon, int32_t* out);
int32_t quantise(const int32_t* y, int32_t n, int16_t* out);
uint32_t rotate(int32_t* x, int32_t heads, int32_t head_dim, const int32_t* cosine, const int32_t* sine);
uint32_t land(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t shift, int8_t* out);
void scale_query(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t* out);
uint32_t silu_multiply(int32_t* gate, const int32_t* up, int32_t n, const uint8_t* sigmoid, int32_t shift);
void scores(const Query* queries, int32_t query_count, const int8_t* keys, const uint8_t* trig, int64_t count,
            int32_t head_dim);
uint64_t weigh(const int64_t* scores, int64_t count, int32_t exponent, int16_t* high, int16_t* low);
void values(const ValueSum* sums, int32_t sum_count, const int8_t* rows, int64_t count, int32_t head_dim);
int32_t argmax(const int32_t* x, int32_t n);

}  // namespace scalar

// What a tier starts from.
constexpr Kernels kScalarTable = {
    "scalar",       scalar::products,     scalar::scale,       scalar::saturate,
    scalar::add,    scalar::add_low_rank, scalar::norm,        scalar::quantise,
    scalar::rotate, scalar::land,         scalar::scale_query, scalar::silu_multiply,
    scalar::scores, scalar::weigh,        scalar::values,      scalar::argmax,
};

}  // namespace superslm::kernels
