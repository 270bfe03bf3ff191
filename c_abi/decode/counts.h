// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include "decode/sequence_state.h"
#include "forward/engine.h"

namespace superslm::decode {

// The five counts of a sequence from the eight sites of a row.
inline void add_counts(SaturationCounts& to, const forward::SiteCounts& c) {
  to.total += c.residual + c.qkv + c.rotary_query + c.rotary_key + c.key_landing + c.value_landing +
              c.gate_up + c.mlp;
  to.value_landing += c.value_landing;
  to.key_landing += c.key_landing;
  to.rotary_query += c.rotary_query;
  to.rotary_key += c.rotary_key;
}

inline void subtract_counts(SaturationCounts& from, const SaturationCounts& part) {
  from.total -= part.total;
  from.value_landing -= part.value_landing;
  from.key_landing -= part.key_landing;
  from.rotary_query -= part.rotary_query;
  from.rotary_key -= part.rotary_key;
}

}  // namespace superslm::decode
