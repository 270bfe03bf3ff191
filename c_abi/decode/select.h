// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// From a logit row to the next token: greedy, damped greedy or sampled, within a schema.
#pragma once

#include <cstdint>

#include "base/damped_constants.h"
#include "base/load.h"
#include "decode/history.h"
#include "decode/sequence_state.h"

namespace superslm::decode {

// A schema in token-class form, read in place; checked when the model was mapped.
struct Automaton {
  base::LeArray<uint16_t> classes;  // [vocab]
  base::LeArray<uint32_t> next;     // [states][class_count], kNoWalkState: none
  int32_t class_count = 0;

  // The next states of one state, by class.
  base::LeArray<uint32_t> moves(uint32_t state) const {
    return next.from(static_cast<size_t>(state) * static_cast<size_t>(class_count));
  }
  uint32_t step(uint32_t state, int32_t token) const {
    return moves(state)[classes[static_cast<size_t>(token)]];
  }
  bool legal(uint32_t state, int32_t token) const { return step(state, token) != kNoWalkState; }
};

// Damped greedy: the softmax of the best candidates less alpha times how much each repeats the history.
struct Damped {
  int32_t alpha = 0;  // Q15
  int32_t order = 0;  // longest n-gram
  int32_t top_k = 0;
  base::DampedConstants constants;
  EmittedHistory* history = nullptr;
  size_t most_tokens = 0;  // the history can grow to
};

// Parameters of a draw, docs/numerics.md section 12; token ids lie inside the vocabulary.
struct Sampling {
  uint64_t seed = 0;
  uint64_t inverse_temperature = 0;  // log2(e) / T, Q32
  int32_t top_k = 0;                 // 0: all
  int32_t top_p = 0;                 // Q15
  int32_t min_p = 0;                 // Q15
  const int32_t* banned = nullptr;
  int32_t banned_count = 0;
  const int32_t* bias_tokens = nullptr;
  const int32_t* bias = nullptr;  // Q16
  int32_t bias_count = 0;
  const int32_t* penalty_tokens = nullptr;
  const int32_t* penalty_counts = nullptr;
  int32_t penalty_count = 0;
  int32_t frequency = 0;  // Q16, per count
  int32_t presence = 0;   // Q16, once
};

enum class Mode { kGreedy, kDamped, kSampled };

// How one entry takes its next token.
struct Choice {
  const Automaton* automaton = nullptr;  // legal tokens at the walk state; null: every token
  Mode mode = Mode::kGreedy;
  Damped damped;
  Sampling sampling;
};

// A row of logits, which selection may overwrite, and working memory. Greedy selection needs only `best`.
struct LogitRow {
  int32_t* logits;      // [vocab]
  int32_t* candidates;  // [vocab]
  uint32_t* weights;    // [vocab]
  int32_t vocab;
  int32_t best;  // legal token of the largest logit, the lowest on a tie; -1: none
};

enum class Selected { kToken, kDeadEnd, kRefused, kNoMemory };

// Chooses a token for a sequence that rests ready. On kToken, *token and the walk state after it.
Selected select(const Choice& choice, const SequenceState& state, const LogitRow& row, int32_t* token,
                uint32_t* next_walk_state);

// The parts of select: each gives the chosen token, legal or not. `automaton` may be null.
// False: a value left the domain of the integer exponential.
bool damped_greedy(const Damped& damped, const Automaton* automaton, uint32_t walk_state, const LogitRow& row,
                   int32_t* token);
// -1 when nothing is left to draw from.
int32_t sample(const Sampling& sampling, const Automaton* automaton, const SequenceState& state,
               const LogitRow& row);

// Log-probability of a token in Q16 nats (docs/numerics.md section 12), at most 0 up to its rounding.
int64_t log_probability(const int32_t* logits, int32_t vocab, int32_t token);

}  // namespace superslm::decode
