/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */
#ifndef SUPERSLM_PARALLEL_FOR_H
#define SUPERSLM_PARALLEL_FOR_H

/* The host's job system, lent to the library through a workspace. The library creates no thread: inside a
 * call that was given the workspace it hands `run` a number of independent tasks, on the calling thread, and
 * waits. Results are the same bits for every task count, every order and every `run`. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A bit of sslm_parallel_for.reserved: one-row matrix products use the hook too, not only decode's logits. */
#define SSLM_PARALLEL_FOR_MATVEC 0x2u

/* Largest sslm_parallel_for.max_tasks, and so the largest task_count of one run. */
#define SSLM_PARALLEL_FOR_MAX_TASKS 256

/* One task. Tasks do not block on each other and do not call the library. */
typedef void (*sslm_task_fn)(void* task_ctx, int32_t task_index);

/* Calls `task(task_ctx, i)` exactly once for each i in [0, task_count), 1 <= task_count <= max_tasks, on any
 * thread and in any order, and returns when all calls have returned. Calling every task in a loop is correct.
 * An index that is omitted, repeated or out of range fails the library's call with SSLM_INVALID_ARGUMENT; the
 * sequence keeps a state from which the call can be repeated. Returning early is undefined. */
typedef void (*sslm_run_tasks_fn)(void* host_ctx, int32_t task_count, sslm_task_fn task, void* task_ctx);

/* All-zero means serial. Copied when installed; whatever host_ctx points to must outlive the installation. */
typedef struct sslm_parallel_for {
  sslm_run_tasks_fn run; /* null: serial, and max_tasks must then be 0 or 1 */
  void* host_ctx;        /* handed back to run unchanged */
  int32_t max_tasks;     /* most tasks of one run, 0..256; 0 and 1 mean serial */
  uint32_t reserved;     /* 0 or SSLM_PARALLEL_FOR_MATVEC */
} sslm_parallel_for;

#ifdef __cplusplus
}
#endif

#endif /* SUPERSLM_PARALLEL_FOR_H */
