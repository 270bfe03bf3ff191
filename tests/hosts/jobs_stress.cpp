// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// Every task of every run exactly once, for pools of several sizes; writes to plain memory let a thread
// checker see that run() returns after all of them.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "job_system/superslm_jobs.hpp"

namespace {

struct Counts {
  int done[256] = {};
};

void count(void* counts, int32_t i) { ++static_cast<Counts*>(counts)->done[i]; }

void check(const sslm_parallel_for& hook, int runs) {
  for (int k = 0; k < runs; ++k) {
    Counts counts;
    const int32_t n = 1 + k * 7 % 256;
    hook.run(hook.host_ctx, n, count, &counts);
    for (int32_t i = 0; i < 256; ++i) {
      if (counts.done[i] == (i < n ? 1 : 0)) continue;
      std::fprintf(stderr, "task %d of %d was run %d times\n", i, n, counts.done[i]);
      std::exit(1);
    }
  }
}

}  // namespace

int main() {
  for (const int workers : {0, 1, 3, 8}) {
    superslm_jobs::Pool pool(workers), parks_at_once(workers, std::chrono::microseconds(0));
    check(pool.hook(), 2000);
    check(parks_at_once.hook(), 500);
  }
  check(sslm_parallel_for{superslm_jobs::run_serially, nullptr, 256, 0}, 300);
  std::printf("every task once\n");
  return 0;
}
