// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// From a logit row to the next token.
#pragma once

#include <cstdint>

#include "base/load.h"
#include "decode/sequence_state.h"

namespace superslm::decode {

// A schema in token-class form, read in place; checked when the model was mapped.
struct Automaton {
  base::LeArray<uint16_t> classes;  // [vocab]
  base::LeArray<uint32_t> next;     // [states][class_count], kNoWalkState: none
  int32_t class_count = 0;

  uint32_t step(uint32_t state, int32_t token) const {
    return next[static_cast<size_t>(state) * class_count + classes[token]];
  }
};

// How one entry takes its next token.
struct Choice {
  const Automaton* automaton = nullptr;  // legal tokens at the walk state; null: every token
};

enum class Selected { kToken, kDeadEnd, kRefused, kNoMemory };

// Chooses from logits [vocab], which it may overwrite. On kToken, *token and the walk state after it.
Selected select(const Choice& choice, uint32_t walk_state, int32_t* logits, int32_t vocab, int32_t* token,
                uint32_t* next_walk_state);

// Log-probability of a token in Q16 nats (docs/numerics.md section 12), at most 0 up to its rounding.
int64_t log_probability(const int32_t* logits, int32_t vocab, int32_t token);

}  // namespace superslm::decode
