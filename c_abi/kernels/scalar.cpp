// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The definition of every kernel, in the words of docs/numerics.md.
#include "kernels/scalar.h"

#include "base/fixed_point.h"
#include "base/load.h"

namespace superslm::kernels {

using base::bit_length;
using base::LeArray;
using base::magnitude;
using base::rsh;

namespace scalar {

void expand_block(const WeightRows& w, int32_t row, int32_t block, int16_t* out) {
  const uint8_t* scales = w.scales + static_cast<size_t>(row) * w.scale_stride;
  const uint8_t* values = w.values + static_cast<size_t>(row) * w.value_stride;
  if (w.four_bit) {
    const uint8_t* q = values + static_cast<size_t>(block) * (kBlock / 2);
    const int s = scales[2 * block], offset = 16 * scales[2 * block + 1];
    for (int i = 0; i < kBlock / 2; ++i) {
      out[i] = static_cast<int16_t>(s * (q[i] & 15) - offset);
      out[i + kBlock / 2] = static_cast<int16_t>(s * (q[i] >> 4) - offset);
    }
  } else {
    const uint8_t* v = values + static_cast<size_t>(block) * kBlock;
    const int s = (scales[block >> 1] >> (4 * (block & 1))) & 15;
    for (int i = 0; i < kBlock; ++i) out[i] = static_cast<int16_t>(s * static_cast<int8_t>(v[i]));
  }
}

// 32 products of |w| <= 4080 and |a| <= 16384 stay below 2^31.
static inline int32_t dot_block(const int16_t* w, const int16_t* a) {
  int32_t sum = 0;
  for (int i = 0; i < kBlock; ++i) sum += static_cast<int32_t>(w[i]) * a[i];
  return sum;
}

void products(const WeightRows& weights, int32_t rows, const Activations& x, int64_t* acc, size_t acc_stride,
              int16_t*) {
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t t = 0; t < x.rows; ++t) acc[t * acc_stride + r] = 0;
    for (int32_t b = 0; b < weights.blocks; ++b) {
      int16_t w[kBlock];
      expand_block(weights, r, b, w);
      const int16_t* a = x.values + static_cast<size_t>(b) * kBlock;
      for (int32_t t = 0; t < x.rows; ++t) acc[t * acc_stride + r] += dot_block(w, a + t * x.stride);
    }
  }
}

void scale(int64_t* acc, const uint8_t* multipliers, int32_t rows, int32_t shift) {
  const LeArray<int32_t> w{multipliers};
  for (int32_t r = 0; r < rows; ++r) acc[r] = rsh(rsh(acc[r], 4) * w[r], shift);
}

uint32_t saturate(const int64_t* y, const uint8_t* bias, int32_t rows, int32_t* out) {
  const LeArray<int32_t> b{bias};
  uint64_t clipped = 0;
  for (int32_t r = 0; r < rows; ++r) out[r] = base::sat32(y[r] + (b ? b[r] : 0), clipped);
  return static_cast<uint32_t>(clipped);
}

uint32_t add(const int64_t* y, int32_t rows, int32_t* x) {
  uint64_t clipped = 0;
  for (int32_t r = 0; r < rows; ++r) x[r] = base::sat32(x[r] + y[r], clipped);
  return static_cast<uint32_t>(clipped);
}

void add_low_rank(const LowRankRows& m, int32_t first, int32_t rows, const int16_t* b, int32_t shift,
                  int64_t* y) {
  constexpr int32_t kPairs = kBlock / 2;
  const LeArray<int32_t> multipliers{m.multipliers};
  const size_t pairs = static_cast<size_t>(m.pairs), blocks = (pairs + kPairs - 1) / kPairs;
  for (int32_t r = 0; r < rows; ++r) {
    const size_t row = static_cast<size_t>(first + r), tile = row / kLowRankTile, lane = row % kLowRankTile;
    int64_t acc = 0;
    for (size_t p = 0; p < pairs; ++p) {
      const uint8_t* v = m.values + ((tile * pairs + p) * kLowRankTile + lane) * 2;
      const int32_t s = m.scales[(tile * blocks + p / kPairs) * kLowRankTile + lane];
      acc += s * (static_cast<int8_t>(v[0]) * b[2 * p] + static_cast<int8_t>(v[1]) * b[2 * p + 1]);
    }
    y[r] += rsh(rsh(acc, 4) * multipliers[row], shift);
  }
}

// Exact floor of the square root of v < 2^62, one result bit per turn.
static uint64_t isqrt(uint64_t v) {
  uint64_t root = 0;
  for (uint64_t bit = uint64_t{1} << 60; bit != 0; bit >>= 2) {
    if (v >= root + bit) {
      v -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  return root;
}

static uint32_t largest(const int32_t* x, int32_t n) {
  uint32_t m = 0;
  for (int32_t i = 0; i < n; ++i) m = m > magnitude(x[i]) ? m : magnitude(x[i]);
  return m;
}

NormFactor norm_factor(uint64_t squares, int32_t s, uint64_t epsilon) {
  uint64_t v = squares + (epsilon >> (2 * s));
  if (v == 0) v = 1;
  const int lz = (62 - bit_length(v)) & ~1;
  const uint64_t t = isqrt(v << lz);
  return NormFactor{static_cast<int64_t>((uint64_t{1} << 61) / t), 31 + s - lz / 2};
}

int32_t norm_shift(uint32_t largest_magnitude) {
  const int s = bit_length(largest_magnitude) - 23;
  return s > 0 ? s : 0;
}

void norm(const int32_t* x, const uint8_t* gains, int32_t n, uint64_t epsilon, int32_t* out) {
  const LeArray<int32_t> g{gains};
  const int32_t s = norm_shift(largest(x, n));
  uint64_t squares = 0;
  for (int32_t i = 0; i < n; ++i) {
    const int64_t part = rsh(x[i], s);
    squares += static_cast<uint64_t>(part * part);
  }
  const NormFactor f = norm_factor(squares, s, epsilon);
  for (int32_t i = 0; i < n; ++i) {
    const int64_t unit = rsh(x[i] * f.inverse, f.shift);
    out[i] = static_cast<int32_t>(rsh(unit * g[i], 30));
  }
}

int32_t quantise(const int32_t* y, int32_t n, int16_t* out) {
  const int bits = bit_length(largest(y, n)) - 14;
  const int shift = bits > 0 ? bits : 0;
  for (int32_t i = 0; i < n; ++i) out[i] = static_cast<int16_t>(rsh(y[i], shift));
  return shift;
}

uint32_t rotate(int32_t* x, int32_t heads, int32_t head_dim, const int32_t* cosine, const int32_t* sine) {
  uint64_t clipped = 0;
  const int32_t half = head_dim / 2;
  for (int32_t h = 0; h < heads; ++h, x += head_dim) {
    for (int32_t f = 0; f < half; ++f) {
      const int64_t a = x[f], b = x[f + half];
      x[f] = base::sat32(rsh(a * cosine[f] - b * sine[f], 30), clipped);
      x[f + half] = base::sat32(rsh(b * cosine[f] + a * sine[f], 30), clipped);
    }
  }
  return static_cast<uint32_t>(clipped);
}

uint32_t land(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t shift, int8_t* out) {
  const LeArray<int32_t> m{multipliers};
  uint64_t clipped = 0;
  for (int32_t i = 0; i < n; ++i) {
    out[i] = base::clamp127(rsh(static_cast<int64_t>(x[i]) * m[i], shift), clipped);
  }
  return static_cast<uint32_t>(clipped);
}

void scale_query(const int32_t* x, const uint8_t* multipliers, int32_t n, int32_t* out) {
  const LeArray<int32_t> m{multipliers};
  for (int32_t i = 0; i < n; ++i) out[i] = static_cast<int32_t>(rsh(static_cast<int64_t>(x[i]) * m[i], 31));
}

static inline int64_t silu(int32_t g, LeArray<int32_t> sigmoid) {
  const uint32_t x = magnitude(g);
  int64_t n = 0;
  if (x < 16u * 65536) {
    const uint32_t i = x >> 10, f = x & 1023;
    const uint32_t step = static_cast<uint32_t>(sigmoid[i] - sigmoid[i + 1]);
    n = sigmoid[i] - static_cast<int64_t>((step * f) >> 10);
  }
  const int64_t sg = g < 0 ? n : (int64_t{1} << 30) - n;
  return rsh(g * sg, 30);
}

uint32_t silu_multiply(int32_t* gate, const int32_t* up, int32_t n, const uint8_t* sigmoid, int32_t shift) {
  const LeArray<int32_t> table{sigmoid};
  uint64_t clipped = 0;
  for (int32_t i = 0; i < n; ++i) gate[i] = base::sat32(rsh(silu(gate[i], table) * up[i], shift), clipped);
  return static_cast<uint32_t>(clipped);
}

void scores(const Query* queries, int32_t query_count, const int8_t* keys, const uint8_t* trig, int64_t count,
            int32_t head_dim) {
  for (int64_t j = 0; j < count; ++j, keys += head_dim) {
    const LeArray<int16_t> row{trig ? trig + static_cast<size_t>(j) * head_dim * sizeof(int16_t) : nullptr};
    for (int32_t h = 0; h < query_count; ++h) {
      const Query& q = queries[h];
      int32_t dot = 0;  // at most 2^14 * 2^7 * 512
      for (int32_t c = 0; c < head_dim; ++c) dot += static_cast<int32_t>(q.values[c]) * keys[c];
      q.scores[j] = dot;
      if (q.center == nullptr) continue;
      int32_t high = 0, low = 0;  // at most 2^7 * 2^14 * 512
      for (int32_t c = 0; c < head_dim; ++c) high += static_cast<int32_t>(q.center[c]) * row[c];
      for (int32_t c = 0; c < head_dim; ++c) low += static_cast<int32_t>(q.center[head_dim + c]) * row[c];
      q.scores[j] = rsh(dot, q.shift) + rsh(int64_t{high} * 256 + low, q.center_shift);
    }
  }
}

uint64_t weigh(const int64_t* scores, int64_t count, int32_t exponent, int16_t* high, int16_t* low) {
  int64_t top = scores[0];
  for (int64_t j = 1; j < count; ++j) top = scores[j] > top ? scores[j] : top;
  uint64_t sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    const uint64_t gap = static_cast<uint64_t>(top - scores[j]);
    const uint64_t t = gap < 0xffffffffu ? gap : 0xffffffffu;
    const uint32_t p = exp2_weight(exponent >= 16 ? t >> (exponent - 16) : t << (16 - exponent));
    high[j] = static_cast<int16_t>(p >> 15);
    low[j] = static_cast<int16_t>(p & 32767);
    sum += p;
  }
  return sum;
}

// 256 positions of 15-bit halves keep each half's sum in int32; the halves join in int64.
void values(const ValueSum* sums, int32_t sum_count, const int8_t* rows, int64_t count, int32_t head_dim) {
  for (int32_t h = 0; h < sum_count; ++h) {
    for (int32_t c0 = 0; c0 < head_dim; c0 += 64) {
      const int32_t width = head_dim - c0 < 64 ? head_dim - c0 : 64;
      for (int64_t j0 = 0; j0 < count; j0 += 256) {
        const int64_t end = count - j0 < 256 ? count : j0 + 256;
        int32_t high[64] = {}, low[64] = {};
        for (int64_t j = j0; j < end; ++j) {
          const int16_t ph = sums[h].high[j], pl = sums[h].low[j];
          const int8_t* v = rows + j * head_dim + c0;
          for (int32_t c = 0; c < width; ++c) {
            high[c] += static_cast<int32_t>(ph) * v[c];
            low[c] += static_cast<int32_t>(pl) * v[c];
          }
        }
        for (int32_t c = 0; c < width; ++c) sums[h].sums[c0 + c] += int64_t{high[c]} * 32768 + low[c];
      }
    }
  }
}

int32_t argmax(const int32_t* x, int32_t n) {
  int32_t best = 0;
  for (int32_t i = 1; i < n; ++i) best = x[i] > x[best] ? i : best;
  return best;
}

}  // namespace scalar

const Kernels kScalar = kScalarTable;

}  // namespace superslm::kernels
