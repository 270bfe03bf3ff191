// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The resting state of a sequence or prefix, without its pages: plain data shared by decode/, blob/ and abi/.
#pragma once

#include <cstdint>

namespace superslm::decode {

// The five saturation counts of docs/numerics.md section 4, in blob order.
struct SaturationCounts {
  uint64_t total = 0;
  uint64_t value_landing = 0;  // the blob's "K/V landing"
  uint64_t key_landing = 0;    // the blob's "K channel landing"
  uint64_t rotary_query = 0;
  uint64_t rotary_key = 0;
};

constexpr uint32_t kNoWalkState = 0xFFFFFFFFu;

struct SequenceState {
  int64_t length = 0;           // committed K/V positions
  int32_t layer_index = 0;      // 1 .. L-1 while mid-token, else 0
  bool ready = false;           // logits can be taken without layer work
  int32_t pending_token = -1;   // emitted and not embedded yet; -1 unless the state is Pending
  int32_t* residual = nullptr;  // [hidden] Q_R, after the last layer that ran; zeros when fresh
  SaturationCounts counts;
  SaturationCounts unfinished;  // the part of counts that an unfinished token added; not saved
  int64_t forced_token_count = 0;
  int32_t schema = -1;  // index of the bound schema, -1: none
  uint32_t walk_state = kNoWalkState;
};

}  // namespace superslm::decode
