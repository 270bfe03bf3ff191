// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Runs tasks through the host's hook and proves that each ran exactly once. Allocates nothing.
#pragma once

#include <cstdint>

namespace superslm::base {

constexpr int32_t kMaxTasks = 256;

// A copy of the host's sslm_parallel_for; run == nullptr means serial.
struct Parallel {
  void (*run)(void* host_ctx, int32_t task_count, void (*task)(void*, int32_t), void* task_ctx) = nullptr;
  void* host_ctx = nullptr;
  int32_t max_tasks = 0;
  bool matvec = false;  // one-row projections are split too (SSLM_PARALLEL_FOR_MATVEC)

  bool active() const { return run != nullptr && max_tasks >= 2; }
};

using TaskFn = void (*)(void* context, int32_t index);

// Calls task(context, i) for each i in [0, count), through the hook. False when the hook omitted, repeated or
// invented an index; a repeat or stray call does no work.
bool run_tasks(const Parallel& parallel, int32_t count, TaskFn task, void* context);

}  // namespace superslm::base
