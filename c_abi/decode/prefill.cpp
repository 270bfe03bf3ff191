// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <cstring>
#include <initializer_list>

#include "decode/counts.h"
#include "decode/decode.h"
#include "forward/layer.h"

namespace superslm::decode {

namespace {

using forward::Row;
using forward::Scratch;
using forward::Split;

// The K/V bytes of one position across layers, heads and kinds; copies out of the pages or back into them.
void copy_row(const kv::KvView& kv, int64_t position, uint8_t* saved, bool restore) {
  const kv::Geometry& g = *kv.geometry;
  for (int32_t l = 0; l < g.layers; ++l) {
    for (kv::Kind kind : {kv::kKey, kv::kValue}) {
      for (int32_t h = 0; h < g.kv_heads; ++h, saved += g.row_bytes()) {
        int8_t* row = kv.row(l, kind, h, position);
        std::memcpy(restore ? static_cast<void*>(row) : saved, restore ? saved : static_cast<void*>(row),
                    g.row_bytes());
      }
    }
  }
}

void place_rows(Engine& engine, int64_t position, const kv::KvView& kv, const artifact::AdapterView* adapter,
                const int32_t* tokens, int32_t count) {
  Scratch& s = engine.scratch;
  for (int32_t i = 0; i < count; ++i) {
    int32_t* residual = s.residual + static_cast<size_t>(i) * s.residual_stride;
    s.row[i] = Row{residual, position + i, kv, adapter, {}};
    forward::embed(*engine.model, tokens[i], residual);
    forward::prepare_rotary(engine, i);
  }
}

// Takes rows [0, count) through all layers; of the last one, only what later tokens or the logits need.
bool run_layers(Engine& engine, int32_t count, bool is_final, Split split) {
  const int32_t layers = engine.model->layer_count;
  for (int32_t l = 0; l < layers; ++l) {
    const int32_t last_live = is_final ? count - 1 : count;
    if (!forward::layer(engine, count, l + 1 < layers ? 0 : last_live, l, split)) return false;
  }
  return true;
}

}  // namespace

bool prefill(Engine& engine, SequenceState& state, const kv::KvView& kv, const artifact::AdapterView* adapter,
             const int32_t* tokens, int32_t count) {
  Scratch& s = engine.scratch;
  if (count < 1) return true;
  const bool one = count == 1 && engine.parallel.active() && engine.parallel.matvec;
  const bool many = count > 1 && engine.spreads();
  const Split split = one ? Split::kSingles : many ? Split::kPrefill : Split::kNone;
  const bool save_row = (one || engine.spreads()) && state.layer_index > 0;
  if (save_row) copy_row(kv, state.length, s.saved_row, false);
  SaturationCounts counts = state.counts;
  subtract_counts(counts, state.unfinished);  // an abandoned token leaves no trace
  for (int32_t done = 0; done < count;) {
    const int32_t chunk = count - done < s.rows ? count - done : s.rows;
    const bool is_final = done + chunk == count;
    place_rows(engine, state.length + done, kv, adapter, tokens + done, chunk);
    if (!run_layers(engine, chunk, is_final, split)) {
      if (save_row) copy_row(kv, state.length, s.saved_row, true);
      return false;
    }
    for (int32_t i = 0; i < chunk; ++i) add_counts(counts, s.row[i].counts);
    done += chunk;
    if (!is_final) continue;
    std::memcpy(state.residual, s.row[chunk - 1].residual,
                static_cast<size_t>(engine.model->hidden) * sizeof(int32_t));
  }
  state.counts = counts;
  state.unfinished = SaturationCounts{};
  state.length += count;
  state.layer_index = 0;
  state.ready = true;
  state.pending_token = -1;
  return true;
}

}  // namespace superslm::decode
