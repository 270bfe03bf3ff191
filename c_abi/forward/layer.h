// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// One transformer layer over a batch of rows, and what stands before the first and after the last.
#pragma once

#include "base/load.h"
#include "forward/engine.h"

namespace superslm::forward {

// How projections use the host's hook.
enum class Split {
  kNone,     // not at all
  kGroups,   // decode: q; k+v; o; gate+up; down
  kSingles,  // one-token prefill: each projection by itself
  kPrefill,  // many rows, where the engine spreads: every group over all tasks
};

// The embedding of a token, Q_R.
void embed(const artifact::ModelView& model, int32_t token, int32_t* residual);

// Fills the cosines and sines of scratch row `index` for its position; once per token, before layer 0.
void prepare_rotary(Engine& engine, int32_t index);

// The tokens that an automaton allows in one of its states: those whose class has a next state.
struct Legal {
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  base::LeArray<uint16_t> classes;  // [vocab]; null: every token
  base::LeArray<uint32_t> next;     // [classes]

  explicit operator bool() const { return static_cast<bool>(classes); }
  bool operator()(int32_t token) const { return next[classes[static_cast<size_t>(token)]] != kNone; }
};

// One row of the logits step: all of its logits, or only the best token.
struct LogitRow {
  const int32_t* residual = nullptr;
  int32_t* logits = nullptr;  // [vocab], or null: `best` is enough
  Legal legal;                // what `best` may be
  int32_t best = -1;  // set when logits is null: of the legal tokens the largest logit, the lowest id on a
                      // tie; -1: none is legal
};

// Runs one layer over scratch rows [0, count). Keys and values of all rows land; rows from `first_live` on
// also attend and update their residual. False when the hook failed: residuals and counts are then worthless.
bool layer(Engine& engine, int32_t count, int32_t first_live, int32_t layer_index, Split split);

// Final norm and logits (Q16 nats) of `count` rows, at most scratch.rows; the logits step of the hook. False
// when the hook failed.
bool logits(Engine& engine, LogitRow* rows, int32_t count);

}  // namespace superslm::forward
