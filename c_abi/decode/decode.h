// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Prefill and decode over plain state. The caller has checked arguments, liveness and bounds, mapped the page
// of every row that will be written, and holds whatever locks there are. Nothing here allocates.
#pragma once

#include <cstdint>

#include "decode/select.h"
#include "decode/sequence_state.h"
#include "forward/engine.h"

namespace superslm::decode {

using forward::Engine;

// Admits tokens (all inside the vocabulary; rows [length, length + count) mapped) and leaves the state Ready:
// length, layer index, ready, pending token, residual and counts are set. Walk, forced count and permissions
// are the caller's. False when the hook failed: state and K/V rows are as before.
bool prefill(Engine& engine, SequenceState& state, const kv::KvView& kv, const artifact::AdapterView* adapter,
             const int32_t* tokens, int32_t count);

enum class Outcome {
  kNotRun,      // untouched
  kUnfinished,  // rests mid-token: -1
  kToken,       // emitted
  kDeadEnd,     // ready, nothing legal: -2
  kHookFailed,
  kRefused,   // numeric step refused, ready
  kNoMemory,  // ready
};

struct Entry {
  SequenceState* state = nullptr;
  kv::KvView kv;
  const artifact::AdapterView* adapter = nullptr;
  Choice choice;
  int32_t token = -1;                  // set with kToken
  Outcome outcome = Outcome::kNotRun;  // set by decode_group
};

// True when the two may advance in one joint pass: both ready, or both at the start of the same layer.
inline bool same_start(const SequenceState& a, const SequenceState& b) {
  return a.ready == b.ready && (a.ready || a.layer_index == b.layer_index);
}

// Advances entries of distinct sequences with the same start by at most layer_budget layers, jointly, and
// finishes those that complete the last layer. At a token boundary the page of row `length` is mapped and
// length is below the limit. Returns the number of leading entries that succeeded; when it is less than
// count, entry [returned] holds the failure and rests as the contract says, and the later ones are as before
// the call.
int32_t decode_group(Engine& engine, Entry* entries, int32_t count, int32_t layer_budget);

}  // namespace superslm::decode
