// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Joint decode: entries advance in scratch and are committed one by one, in index order, so that a failure
// leaves the later ones untouched.
#include "decode/decode.h"

#include <cstring>

#include "decode/counts.h"
#include "forward/layer.h"

namespace superslm::decode {

namespace {

using forward::Row;
using forward::Scratch;
using forward::SiteCounts;
using forward::Split;

size_t residual_bytes(const Engine& engine) {
  return static_cast<size_t>(engine.model->hidden) * sizeof(int32_t);
}

// Loads each entry's token into scratch: its resting residual, or the embedding of its pending token.
void place_rows(Engine& engine, const Entry* entries, int32_t count) {
  Scratch& s = engine.scratch;
  for (int32_t i = 0; i < count; ++i) {
    const SequenceState& state = *entries[i].state;
    int32_t* residual = s.residual + static_cast<size_t>(i) * s.residual_stride;
    s.row[i] = Row{residual, state.length, entries[i].kv, entries[i].adapter, {}};
    if (state.layer_index > 0) {
      std::memcpy(residual, state.residual, residual_bytes(engine));
    } else {
      forward::embed(*engine.model, state.pending_token, residual);
    }
    forward::prepare_rotary(engine, i);
  }
}

// Rests an entry at the start of `layer`, or ready when all layers are done.
void commit(const Engine& engine, Entry& entry, const int32_t* residual, const SiteCounts& counts,
            int32_t layer) {
  SequenceState& state = *entry.state;
  std::memcpy(state.residual, residual, residual_bytes(engine));
  add_counts(state.counts, counts);
  state.pending_token = -1;
  state.ready = layer == engine.model->layer_count;
  state.layer_index = state.ready ? 0 : layer;
  if (state.ready) {
    ++state.length;
    state.unfinished = SaturationCounts{};
  } else {
    add_counts(state.unfinished, counts);
  }
}

// Runs layers [begin, end) for all rows. On a hook failure the first entry rests where its last whole layer
// ended.
bool run_layers(Engine& engine, Entry* entries, int32_t count, int32_t begin, int32_t end) {
  Scratch& s = engine.scratch;
  const Split split = engine.parallel.active() && engine.parallel.matvec ? Split::kGroups : Split::kNone;
  const bool may_fail = split != Split::kNone || engine.spreads();
  for (int32_t l = begin; l < end; ++l) {
    const SiteCounts first_counts = s.row[0].counts;
    if (may_fail) std::memcpy(s.first_residual, s.row[0].residual, residual_bytes(engine));
    if (forward::layer(engine, count, 0, l, split)) continue;
    if (l > begin) commit(engine, entries[0], s.first_residual, first_counts, l);
    entries[0].outcome = Outcome::kHookFailed;
    return false;
  }
  return true;
}

// Selection for one entry whose state is ready. Returns whether the batch goes on.
bool choose(const Engine& engine, Entry& entry, const forward::LogitRow& from) {
  SequenceState& state = *entry.state;
  int32_t token = -1;
  uint32_t walk = state.walk_state;
  const LogitRow row{from.logits, engine.scratch.candidate, engine.scratch.candidate_weight,
                     engine.model->vocab, from.best};
  switch (select(entry.choice, state, row, &token, &walk)) {
    case Selected::kToken:
      state.ready = false;
      state.pending_token = token;
      state.walk_state = walk;
      entry.token = token;
      entry.outcome = Outcome::kToken;
      return true;
    case Selected::kDeadEnd:
      entry.outcome = Outcome::kDeadEnd;
      return true;
    case Selected::kRefused:
      entry.outcome = Outcome::kRefused;
      return false;
    case Selected::kNoMemory:
      entry.outcome = Outcome::kNoMemory;
      return false;
  }
  return false;
}

static_assert(forward::Legal::kNone == kNoWalkState);

// What entries from `begin` on need of one logits step: as many as there are rows for. Greedy ones need none.
int32_t want_logits(const Engine& engine, const Entry* entries, int32_t begin, int32_t count,
                    bool from_layers, forward::LogitRow* out) {
  const Scratch& s = engine.scratch;
  int32_t rows = 0, n = 0;
  for (; begin + n < count; ++n) {
    const Entry& entry = entries[begin + n];
    out[n] = forward::LogitRow{};
    out[n].residual = from_layers ? s.row[begin + n].residual : entry.state->residual;
    if (entry.choice.mode == Mode::kGreedy) {
      if (const Automaton* automaton = entry.choice.automaton)
        out[n].legal = forward::Legal{automaton->classes, automaton->moves(entry.state->walk_state)};
      continue;
    }
    if (rows == s.logit_rows) break;
    out[n].logits = s.logit + static_cast<size_t>(rows++) * static_cast<size_t>(engine.model->vocab);
  }
  return n;
}

// Logits of the entries, then commit and selection in index order. `from_layers`: the final residuals are in
// scratch and not committed yet.
int32_t finish(Engine& engine, Entry* entries, int32_t count, bool from_layers) {
  Scratch& s = engine.scratch;
  forward::LogitRow rows[forward::kMaxRows];
  for (int32_t begin = 0; begin < count;) {
    const int32_t n = want_logits(engine, entries, begin, count, from_layers, rows);
    const bool ok = forward::logits(engine, rows, n);
    for (int32_t i = begin; i < begin + n; ++i) {
      if (from_layers)
        commit(engine, entries[i], s.row[i].residual, s.row[i].counts, engine.model->layer_count);
      if (!ok) {
        entries[i].outcome = Outcome::kHookFailed;
        return i;
      }
      if (!choose(engine, entries[i], rows[i - begin])) return i;
    }
    begin += n;
  }
  return count;
}

// One joint pass over entries that fit the scratch.
int32_t joint_pass(Engine& engine, Entry* entries, int32_t count, int32_t layer_budget) {
  if (entries[0].state->ready) return finish(engine, entries, count, false);
  const int32_t begin = entries[0].state->layer_index;
  const int32_t left = engine.model->layer_count - begin;
  const int32_t end = begin + (layer_budget < left ? layer_budget : left);
  place_rows(engine, entries, count);
  if (!run_layers(engine, entries, count, begin, end)) return 0;
  if (end == engine.model->layer_count) return finish(engine, entries, count, true);
  for (int32_t i = 0; i < count; ++i) {
    commit(engine, entries[i], engine.scratch.row[i].residual, engine.scratch.row[i].counts, end);
    entries[i].outcome = Outcome::kUnfinished;
  }
  return count;
}

}  // namespace

int32_t decode_group(Engine& engine, Entry* entries, int32_t count, int32_t layer_budget) {
  const int32_t most = engine.scratch.rows;
  for (int32_t i = 0; i < count; i += most) {
    const int32_t part = count - i < most ? count - i : most;
    const int32_t done = joint_pass(engine, entries + i, part, layer_budget);
    if (done < part) return i + done;
  }
  return count;
}

}  // namespace superslm::decode
