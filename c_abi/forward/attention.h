// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Steps 3 to 7 of a layer in docs/numerics.md: what happens to K and V, and attention over them.
#pragma once

#include "forward/engine.h"

namespace superslm::forward {

// Stores a row's rotated keys and its values as int8 at its position; counts the clamps.
void land(const Engine& engine, Row& row, int32_t layer_index, const int32_t* keys, const int32_t* values);

// Attention of one row over positions [0, row.position] for the query heads of one KV head: rotated queries
// [heads][head_dim] become outputs in Q_ESV in their place.
void attend(const Engine& engine, const Row& row, int32_t layer_index, int32_t kv_head, int32_t* heads,
            const TaskScratch& task);

}  // namespace superslm::forward
