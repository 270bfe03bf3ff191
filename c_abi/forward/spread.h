// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Work on many like items, over the host's tasks where the engine spreads it.
#pragma once

#include <initializer_list>

#include "forward/engine.h"

namespace superslm::forward {

// Input bytes, or operations of that weight, that make a task worth its call.
constexpr int64_t kWorkPerTask = 262144;

// Calls f(item, task scratch) for each item in [0, count); `work` is that of all items. False when the hook
// failed.
template <typename F>
bool for_each(Engine& engine, int32_t count, int64_t work, F f) {
  int64_t tasks = engine.spreads() ? work / kWorkPerTask : 1;
  for (int64_t most : {int64_t{engine.scratch.tasks}, int64_t{engine.parallel.max_tasks}, int64_t{count}}) {
    tasks = tasks < most ? tasks : most;
  }
  if (tasks < 2) {
    for (int32_t i = 0; i < count; ++i) f(i, engine.scratch.task[0]);
    return true;
  }
  struct Context {
    const Scratch& scratch;
    F& f;
    int64_t count, tasks;
  } context{engine.scratch, f, count, tasks};
  const auto run = [](void* pointer, int32_t index) {
    Context& c = *static_cast<Context*>(pointer);
    const int32_t end = static_cast<int32_t>((index + 1) * c.count / c.tasks);
    for (int32_t i = static_cast<int32_t>(index * c.count / c.tasks); i < end; ++i)
      c.f(i, c.scratch.task[index]);
  };
  return base::run_tasks(engine.parallel, static_cast<int32_t>(tasks), run, &context);
}

}  // namespace superslm::forward
