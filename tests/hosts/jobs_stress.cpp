// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// Every task of every run exactly once, for pools of several sizes; writes to plain memory let a thread
// checker see that run() returns after all of them.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "job_system/superslm_jobs.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Run {
  int done[256] = {};
  std::thread::id by[256];
};

void note(void* run, int32_t i) {
  ++static_cast<Run*>(run)->done[i];
  static_cast<Run*>(run)->by[i] = std::this_thread::get_id();
}

// Goes on until workers have helped with `shared` runs, where they can: a pool whose workers lose their
// processor does without them for a while.
void check(const sslm_parallel_for& hook, int runs, int shared) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(2);
  int helped = 0;
  for (int k = 0; k < runs || (helped < shared && Clock::now() < end); ++k) {
    Run run;
    const int32_t n = 1 + k * 7 % 256;
    hook.run(hook.host_ctx, n, note, &run);
    bool alone = true;
    for (int32_t i = 0; i < 256; ++i) {
      alone = alone && (i >= n || run.by[i] == std::this_thread::get_id());
      if (run.done[i] == (i < n ? 1 : 0)) continue;
      std::fprintf(stderr, "task %d of %d was run %d times\n", i, n, run.done[i]);
      std::exit(1);
    }
    if (!alone) ++helped;
  }
  std::printf("%d runs with help\n", helped);
}

// A worker that sleeps in its task stands for one that lost its processor there.
struct Late {
  std::thread::id caller;
  bool helped = false;
};

void be_late(void* late, int32_t) {
  const bool helper = std::this_thread::get_id() != static_cast<Late*>(late)->caller;
  std::this_thread::sleep_for(std::chrono::milliseconds(helper ? 60 : 10));
  if (helper) static_cast<Late*>(late)->helped = true;
}

bool helped(const sslm_parallel_for& hook) {
  Late late{std::this_thread::get_id()};
  hook.run(hook.host_ctx, 2, be_late, &late);
  return late.helped;
}

// Help that costs time is done without for a while, and then tried again. On a busy machine the caller may be
// late itself, so that help does not cost, or the worker never come: then once more. Tries are counted and
// not seconds, in which a machine may stand still.
void check_late_help() {
  superslm_jobs::Pool pool(1);
  const sslm_parallel_for hook = pool.hook();
  int times = 0;
  bool alone = false;
  for (int tries = 0; (times < 2 || !alone) && tries < 5000; ++tries) {
    if (!helped(hook)) continue;
    ++times;
    alone = alone || !helped(hook);
  }
  if (alone && times >= 2) return;
  std::fprintf(stderr, "helped %d times; %s\n", times, alone ? "alone after that" : "never alone after that");
  std::exit(1);
}

}  // namespace

int main() {
  for (const int workers : {0, 1, 3, 8}) {
    superslm_jobs::Pool pool(workers), parks_at_once(workers, std::chrono::microseconds(0));
    check(pool.hook(), 2000, workers > 0 ? 500 : 0);
    check(parks_at_once.hook(), 500, 0);
  }
  check(sslm_parallel_for{superslm_jobs::run_serially, nullptr, 256, 0}, 300, 0);
  check_late_help();
  std::printf("every task once\n");
  return 0;
}
