// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A frozen prefix as a blob, SSP1. A nested one carries its own rows only and names its parent by a digest of
// the parent's rows, so that both share pages again after a restore.
//
// clang-format off
//   0    156  as SSB5: no pending token, layer 0, no history, ready unless empty
//   156   16  mode, budget, origin, as SSB6; a nested one has a budget
//   172   32  SHA-256 of rows [0, origin) as [layer][K, V][kv head][position][element]; zeros when origin is 0
//   204   RB  residual
//   then   8  number of rows, u64: length - origin
//   then      rows [origin, length): [layer][K, V][kv head][position][element]
// clang-format on
#pragma once

#include "blob/blob.h"

namespace superslm::blob {

// Exact size of a frozen prefix's blob, 0 when it cannot be represented. content has no history.
size_t saved_prefix_size(const ModelFacts& facts, const Content& content);
void write_prefix(const ModelFacts& facts, const Content& content, uint8_t* out);

struct ParsedPrefix {
  Parsed common;  // rows begin at the origin
  const uint8_t* parent_digest = nullptr;

  bool nested() const { return common.origin > 0; }
  // Whether this holder of the same model is frozen, of this length, and has the rows the blob's own build
  // on.
  bool names(const kv::Holder& parent, int64_t parent_length) const;
  kv::FrozenRequest request(const kv::Holder* parent) const;
};

// The checks of SSB6, in the same order; any history, or any state but a prefix's, is kInvalid.
Status parse_prefix(const ModelFacts& facts, const uint8_t* bytes, size_t size, ParsedPrefix* out);

}  // namespace superslm::blob
