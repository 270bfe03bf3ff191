// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// LIN over a batch: projection groups and their split over the host's tasks.
#pragma once

#include "forward/engine.h"

namespace superslm::forward {

struct LogitRow;

// One matrix of a group and where its rows go.
struct Target {
  const artifact::Matrix* matrix = nullptr;
  artifact::Projection projection = artifact::kQ;  // its adapter pair; kProjectionCount: none
  const uint8_t* bias = nullptr;
  int32_t out_exponent = 0;              // Qout
  bool adds = false;                     // out = sat32(out + y), else out = sat32(y + bias)
  int32_t* out = nullptr;                // of scratch row 0
  size_t out_stride = 0;                 // elements from row to row
  const LogitRow* logit_rows = nullptr;  // of the logits step, in place of out; see scratch.best
};

// Matrices of the same input, computed together.
struct Group {
  Target targets[2];
  int32_t target_count = 1;
  int32_t in_exponent = 0;  // Qin
  int32_t first_row = 0;    // scratch rows [first_row, end_row)
  int32_t end_row = 0;
};

// The token that the logits step found best for a row, -1 when none was legal.
int32_t best_token(const Scratch& scratch, int32_t row);

// How a group uses the host's hook. The logits step calls it for any number of tasks, a projection for two or
// more.
// The rows of a prefill are so much work that every group is split as far as there is scratch for its tasks.
enum class Hook { kUnused, kProjection, kPrefill, kLogits };

// Products of the quantised activations of the scratch rows with every matrix of the group; the clamps of
// each row are in scratch.clipped afterwards. False when the hook failed.
bool project(Engine& engine, const Group& group, int32_t layer_index, Hook hook);

// The rows of a matrix from `row` on, as kernels see them.
kernels::WeightRows weight_rows(const artifact::Matrix& matrix, int32_t row);

// Rows of each task of a product of `rows` outputs by the rule of the hook, for at most max_tasks; the task
// count by division.
int32_t rows_per_task(int32_t max_tasks, int64_t rows, int64_t cols, Hook hook);

}  // namespace superslm::forward
