// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/projections.h"

namespace superslm::artifact {

ProjectionShape projection_shape(const ModelView& m, const LayerView& layer, Projection projection) {
  constexpr int32_t kState = 16;  // q, k, v, gate and up are Q16
  const int32_t query = m.heads * m.head_dim, key = m.kv_heads * m.head_dim;
  const int32_t n1 = layer.attention_norm.exponent, n2 = layer.mlp_norm.exponent;
  switch (projection) {
    case kQ:
      return {query, m.hidden, n1, kState};
    case kK:
    case kV:
      return {key, m.hidden, n1, kState};
    case kO:
      return {m.hidden, query, layer.value_exponent, m.residual_exponent};
    case kGate:
    case kUp:
      return {m.mlp, m.hidden, n2, kState};
    default:
      return {m.hidden, m.mlp, layer.mlp_exponent, m.residual_exponent};
  }
}

bool check_shift(int32_t exponent, int32_t in_exponent, int32_t out_exponent, Site site, base::Message* why) {
  const int64_t offset = int64_t{in_exponent} - out_exponent - 4;
  return in_range(why, site, "exponent E", exponent, 17 - offset, 62 - offset);
}

}  // namespace superslm::artifact
