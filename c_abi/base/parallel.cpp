// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "base/parallel.h"

#include <atomic>

namespace superslm::base {

namespace {

struct Ledger {
  TaskFn task;
  void* context;
  int32_t count;
  std::atomic<bool> misused;
  std::atomic<uint8_t> claimed[kMaxTasks];
};

// The task handed to the host: the first claim of an index does its work, anything else only leaves a mark.
void claim_and_run(void* ledger_pointer, int32_t index) {
  Ledger& ledger = *static_cast<Ledger*>(ledger_pointer);
  if (index < 0 || index >= ledger.count || ledger.claimed[index].exchange(1) != 0) {
    ledger.misused.store(true);
    return;
  }
  ledger.task(ledger.context, index);
}

}  // namespace

bool run_tasks(const Parallel& parallel, int32_t count, TaskFn task, void* context) {
  Ledger ledger;
  ledger.task = task;
  ledger.context = context;
  ledger.count = count;
  ledger.misused.store(false, std::memory_order_relaxed);
  for (int32_t i = 0; i < count; ++i) ledger.claimed[i].store(0, std::memory_order_relaxed);
  parallel.run(parallel.host_ctx, count, claim_and_run, &ledger);
  for (int32_t i = 0; i < count; ++i) {
    if (ledger.claimed[i].load() == 0) return false;
  }
  return !ledger.misused.load();
}

}  // namespace superslm::base
