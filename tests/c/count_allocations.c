/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* A preloaded allocator that counts what passes through it, for cells that promise a number of allocations.
 *   cc -shared -fPIC count_allocations.c -o count_allocations.so -ldl;  LD_PRELOAD=./count_allocations.so ...
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static _Atomic uint64_t allocations;
static _Atomic int64_t live_bytes;

/* dlsym may itself allocate while the first symbol is looked up; that comes from here and is never freed. */
static char early[4096];
static size_t early_used;

static void* take_early(size_t bytes) {
  char* block = early + early_used;
  early_used += (bytes + 15) / 16 * 16;
  return early_used <= sizeof(early) ? block : NULL;
}

static int is_early(const void* block) {
  return (const char*)block >= early && (const char*)block < early + sizeof(early);
}

static void* counted(void* block) {
  atomic_fetch_add(&allocations, 1);
  if (block != NULL) atomic_fetch_add(&live_bytes, (int64_t)malloc_usable_size(block));
  return block;
}

static void forget(void* block) {
  if (block != NULL) atomic_fetch_sub(&live_bytes, (int64_t)malloc_usable_size(block));
}

void* malloc(size_t bytes) {
  static void* (*real)(size_t);
  static int looking;
  if (real == NULL) {
    if (looking) return take_early(bytes);
    looking = 1;
    *(void**)&real = dlsym(RTLD_NEXT, "malloc");
    looking = 0;
  }
  return counted(real(bytes));
}

void* calloc(size_t count, size_t bytes) {
  static void* (*real)(size_t, size_t);
  static int looking;
  if (real == NULL) {
    if (looking) return take_early(count * bytes);
    looking = 1;
    *(void**)&real = dlsym(RTLD_NEXT, "calloc");
    looking = 0;
  }
  return counted(real(count, bytes));
}

void* realloc(void* block, size_t bytes) {
  static void* (*real)(void*, size_t);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "realloc");
  if (is_early(block)) {
    void* moved = malloc(bytes);
    const size_t left = (size_t)(early + sizeof(early) - (char*)block);
    if (moved != NULL) memcpy(moved, block, bytes < left ? bytes : left);
    return moved;
  }
  forget(block);
  return counted(real(block, bytes));
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  static void* (*real)(size_t, size_t);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "aligned_alloc");
  return counted(real(alignment, bytes));
}

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  static int (*real)(void**, size_t, size_t);
  int result;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "posix_memalign");
  result = real(out, alignment, bytes);
  if (result == 0) counted(*out);
  return result;
}

void free(void* block) {
  static void (*real)(void*);
  if (is_early(block)) return;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "free");
  forget(block);
  real(block);
}

uint64_t heap_allocations(void) { return atomic_load(&allocations); }
int64_t heap_live_bytes(void) { return atomic_load(&live_bytes); }
