// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What every pass through a model needs: the model, the kernels, the host's hook and lent memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "artifact/model_view.h"
#include "base/parallel.h"
#include "kernels/kernels.h"
#include "kv/kv_view.h"

namespace superslm::forward {

// Most rows (tokens of one prompt, or sequences of one batch) that go through a layer together.
constexpr int32_t kMaxRows = 128;
constexpr int32_t kMaxRank = artifact::kMaxAdapterRank;
// Most query heads that share one pass over the keys and values of their KV head.
constexpr int32_t kSharedHeads = 8;
// Logit rows that lie in scratch together; a call that needs more takes them in turns.
constexpr int32_t kMaxLogitRows = 8;
constexpr size_t kScratchAlignment = 64;

// The call shape that scratch is laid out for.
struct Shape {
  int32_t max_batch = 1;  // entries of one decode call
  int32_t max_chunk = 1;  // tokens admitted by one prefill call
  int32_t max_tasks = 1;  // of steps beyond the contract's that are split too, see Engine::spread
};

// Values changed by a clamp, per site of docs/numerics.md section 4.
struct SiteCounts {
  uint64_t residual = 0, qkv = 0, rotary_query = 0, rotary_key = 0;
  uint64_t key_landing = 0, value_landing = 0, gate_up = 0, mlp = 0;
};

// One token at one position: what enters a layer and is changed by it.
struct Row {
  int32_t* residual = nullptr;  // [hidden] Q_R, in scratch
  int64_t position = 0;
  kv::KvView kv;
  const artifact::AdapterView* adapter = nullptr;
  SiteCounts counts;
};

// Working memory of one task; the calling thread's is the first.
struct TaskScratch {
  int32_t* line = nullptr;        // the widest int32 vector
  int64_t* product = nullptr;     // [rows][kTileRows] products of one tile of weight rows
  int16_t* panel = nullptr;       // one panel of expanded weights
  int64_t* score = nullptr;       // [shared heads][cap]
  int16_t* weight = nullptr;      // [shared heads][high, low][cap]
  int16_t* head_query = nullptr;  // [shared heads][query, center's high and low][head_dim]
  int64_t* head_sum = nullptr;    // [shared heads][head_dim]
};

// Working memory carved out of one buffer; every array holds `rows` rows unless it says otherwise.
struct Scratch {
  int32_t rows = 0;
  int32_t logit_rows = 0;
  int32_t tasks = 0;
  TaskScratch* task = nullptr;  // [tasks]
  Row* row = nullptr;
  int32_t* residual = nullptr;               // [residual_stride]
  int32_t* rotary = nullptr;                 // [head_dim]: cosines, then sines, Q30
  int16_t* activation = nullptr;             // [activation_stride] 15-bit inputs of the next product
  int32_t* activation_shift = nullptr;       // [1]
  int32_t* wide = nullptr;                   // [wide_stride]: q, k, v; later gate, up
  int16_t* low_rank = nullptr;               // [2][kMaxRank] 15-bit adapter activations
  int32_t* low_rank_shift = nullptr;         // [2]
  std::atomic<uint32_t>* clipped = nullptr;  // [1] clamps of the running projection group
  std::atomic<uint64_t>* best =
      nullptr;  // [1] the best token of the running logits step: see offer in linear.cpp
  int32_t* first_residual = nullptr;     // one row: the first entry at the start of a layer
  uint8_t* saved_row = nullptr;          // K/V bytes of one position
  int32_t* logit = nullptr;              // [logit_rows][vocab]
  int32_t* candidate = nullptr;          // [vocab] token ids under selection
  uint32_t* candidate_weight = nullptr;  // [vocab]
  int32_t activation_stride = 0;
  int32_t wide_stride = 0;
  int32_t residual_stride = 0;
};

// Bytes of scratch for a call shape; 0 when they cannot be represented.
size_t scratch_size(const artifact::ModelView& model, const Shape& shape);

// Carves `buffer` (kScratchAlignment-aligned, scratch_size bytes). Cheap: pointer arithmetic only.
Scratch carve(const artifact::ModelView& model, const Shape& shape, void* buffer);

struct Engine {
  const artifact::ModelView* model = nullptr;
  const kernels::Kernels* kernels = nullptr;
  base::Parallel parallel;
  Scratch scratch;
  // An installed hook is also used by prefill of two or more tokens, by attention and by the work on rows.
  // The same bits; scratch of fewer than two tasks leaves these steps on the calling thread.
  bool spread = false;

  bool spreads() const { return spread && parallel.active() && scratch.tasks > 1; }
};

inline Engine make_engine(const artifact::ModelView& model, const Shape& shape, void* buffer,
                          const base::Parallel& parallel) {
  return Engine{&model, &kernels::active(), parallel, carve(model, shape, buffer)};
}

}  // namespace superslm::forward
