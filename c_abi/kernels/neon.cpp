// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What every 64-bit ARM processor has: products of int16 into int32 lanes.
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_ARM64)

#include "kernels/neon.h"

namespace superslm::kernels {

namespace {

// Keys widened to int16, a query's values as they are.
template <int N>
class WideKeyDots {
 public:
  WideKeyDots(const Query* queries, int32_t) {
    for (int h = 0; h < N; ++h) query_[h] = queries[h].values;
  }
  void operator()(const int8_t* key, int32_t head_dim, int32_t* out) const {
    int16x8_t sum[N];
    for (int h = 0; h < N; ++h) sum[h] = NeonIsa::zero();
    for (int32_t c = 0; c < head_dim; c += 16) {
      const int8x16_t k = vld1q_s8(key + c);
      const int16x8_t low = vmovl_s8(vget_low_s8(k)), high = vmovl_high_s8(k);
      for (int h = 0; h < N; ++h) {
        sum[h] = NeonIsa::dot(sum[h], low, vld1q_s16(query_[h] + c));
        sum[h] = NeonIsa::dot(sum[h], high, vld1q_s16(query_[h] + c + 8));
      }
    }
    for (int h = 0; h < N; ++h) out[h] = vaddvq_s32(NeonIsa::wide(sum[h]));
  }

 private:
  const int16_t* query_[N];
};

constexpr Kernels table() {
  Kernels k = neon_table("neon");
  k.products = Products<NeonIsa>::products;
  k.scores = neon_scores<WideKeyDots>;
  return k;
}

}  // namespace

const Kernels kNeon = table();

}  // namespace superslm::kernels

#endif
