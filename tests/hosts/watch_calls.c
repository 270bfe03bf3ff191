/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Preloaded into any host: counts what happens inside prefill and decode that must not happen in a frame.
 * Heap calls, locks of a pool's mutex, and threads created are interposed; at exit the counts go to standard
 * error. What other threads of the host do meanwhile is their own affair: only a thread inside a call, or
 * inside a task that the call gave to the host's job system, is watched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "superslm/sslm_abi.h"

enum { MAX_POOLS = 16, MAX_HOOKS = 16 };

static _Thread_local int inside; /* prefill, decode and tasks of theirs in progress on this thread */
static atomic_long calls, heap_calls, heap_calls_in_all, pool_locks, threads;
static _Thread_local pthread_mutex_t*
    last_locked; /* of this library's callers, while a pool is being asked */
static _Thread_local int asking;
static pthread_mutex_t* pool_mutexes[MAX_POOLS];
static atomic_int pool_count;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void note_heap_call(void) {
  atomic_fetch_add(&heap_calls_in_all, 1);
  if (inside > 0) atomic_fetch_add(&heap_calls, 1);
}

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* block, size_t size);
extern void __libc_free(void* block);
extern void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  note_heap_call();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note_heap_call();
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) {
  note_heap_call();
  return __libc_realloc(block, size);
}
void free(void* block) {
  if (block != NULL) note_heap_call();
  __libc_free(block);
}
void* aligned_alloc(size_t alignment, size_t size) {
  note_heap_call();
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  note_heap_call();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  note_heap_call();
  *out = __libc_memalign(alignment, size);
  return *out == NULL ? 12 : 0;
}
void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  note_heap_call();
  return REAL(mmap)(address, length, protection, flags, file, offset);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static __typeof__(&pthread_mutex_lock) real;
  if (real == NULL) real = REAL(pthread_mutex_lock);
  if (asking) last_locked = mutex;
  if (inside > 0) {
    for (int i = 0; i < atomic_load(&pool_count); ++i) {
      if (pool_mutexes[i] == mutex) atomic_fetch_add(&pool_locks, 1);
    }
  }
  return real(mutex);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  if (inside > 0) atomic_fetch_add(&threads, 1);
  return REAL(pthread_create)(thread, attributes, start, argument);
}

/* A pool's statistics take its lock and no other: that is how its mutex is found. */
static void learn(sslm_kv_pool pool) {
  sslm_kv_pool_stats_out stats;
  stats.struct_size = sizeof(stats);
  last_locked = NULL;
  asking = 1;
  sslm_kv_pool_stats(pool, &stats);
  asking = 0;
  const int i = atomic_load(&pool_count);
  if (i == MAX_POOLS || last_locked == NULL) abort();
  pool_mutexes[i] = last_locked;
  atomic_store(&pool_count, i + 1);
}

sslm_status sslm_kv_page_pool_create(sslm_model model, void* buf, size_t size, uint32_t pages,
                                     sslm_kv_pool* out) {
  const sslm_status status = REAL(sslm_kv_page_pool_create)(model, buf, size, pages, out);
  if (status == SSLM_OK) learn(*out);
  return status;
}

sslm_status sslm_decode_step(sslm_model model, sslm_seq* seqs, int32_t n, const sslm_decode_params* params,
                             sslm_workspace ws, int32_t* out) {
  static __typeof__(&sslm_decode_step) real;
  if (real == NULL) real = REAL(sslm_decode_step);
  atomic_fetch_add(&calls, 1);
  ++inside;
  const sslm_status status = real(model, seqs, n, params, ws, out);
  --inside;
  return status;
}

sslm_status sslm_prefill(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t count, int32_t chunk,
                         sslm_span_kind kind, sslm_workspace ws, int32_t* consumed) {
  static __typeof__(&sslm_prefill) real;
  if (real == NULL) real = REAL(sslm_prefill);
  atomic_fetch_add(&calls, 1);
  ++inside;
  const sslm_status status = real(model, seq, tokens, count, chunk, kind, ws, consumed);
  --inside;
  return status;
}

/* The host's hook and a task it was given, each behind one that watches the threads it runs on. */
static struct {
  sslm_run_tasks_fn run;
  void* host_ctx;
} hooks[MAX_HOOKS];
static atomic_int hook_count;

struct watched_task {
  sslm_task_fn task;
  void* task_ctx;
};

static void run_watched_task(void* watched, int32_t index) {
  const struct watched_task* task = watched;
  ++inside;
  task->task(task->task_ctx, index);
  --inside;
}

static void run_watched_hook(void* hook, int32_t count, sslm_task_fn task, void* task_ctx) {
  const __typeof__(hooks[0])* host = hook;
  struct watched_task watched = {task, task_ctx};
  host->run(host->host_ctx, count, run_watched_task, &watched);
}

sslm_status sslm_workspace_set_parallel_for(sslm_workspace ws, const sslm_parallel_for* pf) {
  if (pf == NULL || pf->run == NULL) return REAL(sslm_workspace_set_parallel_for)(ws, pf);
  const int i = atomic_fetch_add(&hook_count, 1);
  if (i >= MAX_HOOKS) abort();
  hooks[i].run = pf->run;
  hooks[i].host_ctx = pf->host_ctx;
  sslm_parallel_for watched = *pf;
  watched.run = run_watched_hook;
  watched.host_ctx = &hooks[i];
  return REAL(sslm_workspace_set_parallel_for)(ws, &watched);
}

__attribute__((destructor)) static void report(void) {
  fprintf(stderr, "watched %ld calls: heap %ld, pool locks %ld, threads %ld (pools %d, heap outside %ld)\n",
          atomic_load(&calls), atomic_load(&heap_calls), atomic_load(&pool_locks), atomic_load(&threads),
          atomic_load(&pool_count), atomic_load(&heap_calls_in_all));
}
