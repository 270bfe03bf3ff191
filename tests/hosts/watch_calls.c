/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Preloaded into any host: counts what happens inside prefill and decode that must not happen in a frame.
 * Heap calls, locks of a pool's mutex, and threads created are interposed; at exit the counts go to standard
 * error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "superslm/sslm_abi.h"

enum { MAX_POOLS = 16 };

static atomic_int inside; /* calls of prefill and decode in progress, of any thread */
static atomic_long calls, heap_calls, heap_calls_in_all, pool_locks, threads;
static pthread_mutex_t* _Atomic last_locked; /* of this library's callers, while a pool is being asked */
static atomic_int asking;
static pthread_mutex_t* pool_mutexes[MAX_POOLS];
static atomic_int pool_count;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void note_heap_call(void) {
  atomic_fetch_add(&heap_calls_in_all, 1);
  if (atomic_load(&inside) > 0) atomic_fetch_add(&heap_calls, 1);
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
  if (atomic_load(&asking)) atomic_store(&last_locked, mutex);
  if (atomic_load(&inside) > 0) {
    for (int i = 0; i < atomic_load(&pool_count); ++i) {
      if (pool_mutexes[i] == mutex) atomic_fetch_add(&pool_locks, 1);
    }
  }
  return real(mutex);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  if (atomic_load(&inside) > 0) atomic_fetch_add(&threads, 1);
  return REAL(pthread_create)(thread, attributes, start, argument);
}

/* A pool's statistics take its lock and no other: that is how its mutex is found. */
static void learn(sslm_kv_pool pool) {
  sslm_kv_pool_stats_out stats;
  stats.struct_size = sizeof(stats);
  atomic_store(&last_locked, NULL);
  atomic_store(&asking, 1);
  sslm_kv_pool_stats(pool, &stats);
  atomic_store(&asking, 0);
  const int i = atomic_load(&pool_count);
  if (i == MAX_POOLS || atomic_load(&last_locked) == NULL) abort();
  pool_mutexes[i] = atomic_load(&last_locked);
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
  atomic_fetch_add(&inside, 1);
  const sslm_status status = real(model, seqs, n, params, ws, out);
  atomic_fetch_sub(&inside, 1);
  return status;
}

sslm_status sslm_prefill(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t count, int32_t chunk,
                         sslm_span_kind kind, sslm_workspace ws, int32_t* consumed) {
  static __typeof__(&sslm_prefill) real;
  if (real == NULL) real = REAL(sslm_prefill);
  atomic_fetch_add(&calls, 1);
  atomic_fetch_add(&inside, 1);
  const sslm_status status = real(model, seq, tokens, count, chunk, kind, ws, consumed);
  atomic_fetch_sub(&inside, 1);
  return status;
}

__attribute__((destructor)) static void report(void) {
  fprintf(stderr, "watched %ld calls: heap %ld, pool locks %ld, threads %ld (pools %d, heap outside %ld)\n",
          atomic_load(&calls), atomic_load(&heap_calls), atomic_load(&pool_locks), atomic_load(&threads),
          atomic_load(&pool_count), atomic_load(&heap_calls_in_all));
}
