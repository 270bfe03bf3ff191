// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A short run over a checked model, without handles: prefill, then greedy tokens.
#pragma once

#include <cstdint>
#include <cstring>

#include "artifact/model_view.h"
#include "base/checked.h"
#include "base/memory.h"
#include "decode/decode.h"

namespace superslm::test {

// False when the model is too large for a quick run (its cap or shape was mutated) or the run did not end
// well.
inline bool run_forward(const artifact::ModelView& model, const artifact::AdapterView* adapter = nullptr) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  constexpr int32_t kPrompt = 3, kSteps = 2;
  kv::Geometry geometry{model.layer_count, model.kv_heads, model.head_dim, 1, model.cap, model.cap};
  const forward::Shape shape{1, kPrompt};
  const size_t scratch = forward::scratch_size(model, shape);
  const base::CheckedSize rows =
      base::CheckedSize(static_cast<uint64_t>(model.cap)) * static_cast<uint64_t>(geometry.position_bytes());
  if (model.cap < kPrompt + kSteps || scratch == 0 || scratch > kMostBytes || rows.saturated() > kMostBytes)
    return false;

  auto* memory = static_cast<uint8_t*>(base::allocate(scratch + 64 + rows.saturated()));
  auto* residual = static_cast<int32_t*>(base::allocate(sizeof(int32_t) * static_cast<size_t>(model.hidden)));
  std::memset(residual, 0, sizeof(int32_t) * static_cast<size_t>(model.hidden));
  const size_t skew = (64 - reinterpret_cast<uintptr_t>(memory) % 64) % 64;
  uint8_t* pages = memory + scratch + 64;
  std::memset(pages, 0, rows.saturated());
  forward::Engine engine = forward::make_engine(model, shape, memory + skew, base::Parallel{});

  const uint32_t first_page = 0;
  const kv::KvView view{pages, &first_page, &geometry};
  decode::SequenceState state;
  state.residual = residual;
  const int32_t prompt[kPrompt] = {0, model.vocab / 2, model.vocab - 1};
  bool ok = decode::prefill(engine, state, view, adapter, prompt, kPrompt);
  for (int32_t i = 0; ok && i < kSteps; ++i) {
    decode::Entry entry;
    entry.state = &state;
    entry.kv = view;
    entry.adapter = adapter;
    ok = decode::decode_group(engine, &entry, 1, model.layer_count) == 1 &&
         entry.outcome == decode::Outcome::kToken;
  }
  base::deallocate(residual);
  base::deallocate(memory);
  return ok;
}

}  // namespace superslm::test
