/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* What every cell program shares: checks that name the call that failed, artifacts from the command line, and
 * the few lines it takes to make a pool, a workspace or a conversation.
 *
 *   program ARTIFACT... [CELL...]      runs the named cells, or all of them; exits 1 at the first failure. */
#ifndef SUPERSLM_TESTS_CHECK_H
#define SUPERSLM_TESTS_CHECK_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "sslm_test.h"
#include "superslm/sslm_abi.h"
#include "superslm/sslm_ext.h"

/* ---- Checks ---- */

static const char* check_cell = "(start)";

static inline void check_fail(const char* file, int line, const char* format, ...) {
  va_list arguments;
  fprintf(stderr, "%s:%d: cell %s: ", file, line, check_cell);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fprintf(stderr, "\n");
  exit(1);
}

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) check_fail(__FILE__, __LINE__, "expected %s", #condition); \
  } while (0)

#define CHECK_INT(expression, expected)                                                                \
  do {                                                                                                 \
    const long long check_got = (long long)(expression);                                               \
    const long long check_want = (long long)(expected);                                                \
    if (check_got != check_want)                                                                       \
      check_fail(__FILE__, __LINE__, "%s is %lld, expected %lld", #expression, check_got, check_want); \
  } while (0)

/* The call returns exactly this status; STATUS(KV_POOL_EXHAUSTED, sslm_seq_create(...)). */
#define STATUS(name, call)                                                 \
  do {                                                                     \
    const sslm_status check_status = (call);                               \
    if (check_status != SSLM_##name)                                       \
      check_fail(__FILE__, __LINE__, "%s returned %s, expected %s", #call, \
                 sslm_ext_status_name(check_status), "SSLM_" #name);       \
  } while (0)

#define OK(call) STATUS(OK, call)

/* ---- Memory ---- */

static inline void* check_alloc(size_t bytes) {
  void* block = malloc(bytes ? bytes : 1);
  if (block == NULL) check_fail(__FILE__, __LINE__, "out of memory for %lu bytes", (unsigned long)bytes);
  return block;
}

/* Memory at a multiple of 64, plus an offset for misalignment tests; never freed one by one. */
static inline void* aligned(size_t bytes) {
  char* block = (char*)check_alloc(bytes + 2 * SSLM_ABI_ALIGNMENT_BYTES);
  const uintptr_t past = (uintptr_t)block % SSLM_ABI_ALIGNMENT_BYTES;
  return block + (past ? SSLM_ABI_ALIGNMENT_BYTES - past : 0);
}

/* ---- Artifacts ---- */

enum { CHECK_MAX_ARTIFACTS = 8 };
static struct {
  const char* path;
  void* data;
  size_t size;
} check_artifacts[CHECK_MAX_ARTIFACTS];
static int check_artifact_count = 0;

/* With CHECK_READ_ONLY (POSIX) an artifact lies in memory that nobody may write, as in a read-only file
 * mapping. */
#ifdef CHECK_READ_ONLY
#include <sys/mman.h>

static inline void* check_room(size_t size) {
  void* room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) check_fail(__FILE__, __LINE__, "no mapping of %lu bytes", (unsigned long)size);
  return room;
}
static inline void check_seal(void* room, size_t size) {
  if (mprotect(room, size, PROT_READ) != 0) check_fail(__FILE__, __LINE__, "the mapping stays writable");
}
#else
static inline void* check_room(size_t size) { return aligned(size); }
static inline void check_seal(void* room, size_t size) { (void)room, (void)size; }
#endif

static inline void check_load(const char* path) {
  FILE* file = fopen(path, "rb");
  long size;
  if (file == NULL) check_fail(__FILE__, __LINE__, "cannot open %s", path);
  if (check_artifact_count == CHECK_MAX_ARTIFACTS) check_fail(__FILE__, __LINE__, "too many artifacts");
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  fseek(file, 0, SEEK_SET);
  check_artifacts[check_artifact_count].path = path;
  check_artifacts[check_artifact_count].size = (size_t)size;
  check_artifacts[check_artifact_count].data = check_room((size_t)size);
  if (fread(check_artifacts[check_artifact_count].data, 1, (size_t)size, file) != (size_t)size)
    check_fail(__FILE__, __LINE__, "cannot read %s", path);
  fclose(file);
  check_seal(check_artifacts[check_artifact_count].data, (size_t)size);
  ++check_artifact_count;
}

/* A model of the n-th artifact of the command line. */
static inline sslm_model map_artifact(int index) {
  sslm_model model = NULL;
  if (index >= check_artifact_count)
    check_fail(__FILE__, __LINE__, "this cell needs %d artifacts on the command line", index + 1);
  OK(sslm_model_map(check_artifacts[index].data, check_artifacts[index].size, &model));
  CHECK(model != NULL);
  return model;
}

static inline sslm_ext_model_info_out info_of(sslm_model model) {
  sslm_ext_model_info_out info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  OK(sslm_ext_model_info(model, &info));
  return info;
}

/* ---- Pools and workspaces; the byte every pool buffer is filled with shows what nobody wrote ---- */

enum { CHECK_FILL = 0x5A };

typedef struct pool_memory {
  sslm_kv_pool pool;
  unsigned char* buffer;
  size_t size;
} pool_memory;

enum { BLOCK_POOL = 0, PAGE_POOL = 1, CONTIGUOUS_POOL = 2, POOL_KINDS = 3 };

static inline size_t pool_bytes(sslm_model model, int kind, uint32_t count) {
  if (kind == BLOCK_POOL) return count * sslm_kv_block_size(model) + sslm_kv_pool_overhead_size(model, count);
  if (kind == PAGE_POOL)
    return count * sslm_kv_page_size(model) + sslm_kv_page_pool_overhead_size(model, count);
  return sslm_kv_pool_contiguous_size(model, count);
}

static inline sslm_status create_pool(int kind, sslm_model model, void* buffer, size_t size, uint32_t count,
                                      sslm_kv_pool* out) {
  if (kind == BLOCK_POOL) return sslm_kv_pool_create(model, buffer, size, count, out);
  if (kind == PAGE_POOL) return sslm_kv_page_pool_create(model, buffer, size, count, out);
  return sslm_kv_pool_create_contiguous(model, buffer, size, count, out);
}

/* With CHECK_POOL_KIND every pool is of that kind, with room for as many holders, up to 200. */
#ifdef CHECK_POOL_KIND
static inline uint32_t count_of_kind(sslm_model model, int kind, uint32_t count) {
  const uint32_t pages = (uint32_t)sslm_kv_pages_for_budget(model, info_of(model).cap); /* of a context */
  if (kind == CHECK_POOL_KIND) return count;
  if (CHECK_POOL_KIND == PAGE_POOL) return count * pages;
  if (CHECK_POOL_KIND == BLOCK_POOL) return kind == PAGE_POOL ? (count + pages - 1) / pages : count;
  return count < 192 ? count + 8 : 200; /* a holder takes a context of its own */
}
#endif

static inline pool_memory make_pool(sslm_model model, int kind, uint32_t count) {
  pool_memory memory;
#ifdef CHECK_POOL_KIND
  count = count_of_kind(model, kind, count);
  kind = CHECK_POOL_KIND;
#endif
  memory.size = pool_bytes(model, kind, count);
  memory.buffer = (unsigned char*)aligned(memory.size);
  memset(memory.buffer, CHECK_FILL, memory.size);
  OK(create_pool(kind, model, memory.buffer, memory.size, count, &memory.pool));
  CHECK(memory.pool != NULL);
  return memory;
}

static inline uint32_t free_pages(sslm_kv_pool pool) {
  sslm_kv_pool_stats_out stats;
  memset(&stats, 0, sizeof(stats));
  stats.struct_size = sizeof(stats);
  OK(sslm_kv_pool_stats(pool, &stats));
  return stats.free_pages;
}

/* A workspace for calls of up to `batch` sequences and `chunk` tokens. */
static inline sslm_workspace make_workspace(sslm_model model, int32_t batch, int32_t chunk) {
  sslm_config config;
  sslm_workspace ws = NULL;
  size_t size;
  config.max_batch = batch;
  config.max_chunk_budget = chunk;
  config.max_layer_budget = info_of(model).layers;
  config.reserved = 0;
  size = sslm_workspace_size(model, &config);
  CHECK(size > 0);
  OK(sslm_workspace_create(model, &config, aligned(size), size, &ws));
  return ws;
}

/* ---- Sequences ---- */

static inline sslm_seq make_seq(sslm_model model, sslm_kv_pool pool) {
  sslm_seq seq = NULL;
  OK(sslm_seq_create(model, &pool, &seq));
  CHECK(seq != NULL);
  return seq;
}

static inline sslm_seq make_budgeted(sslm_model model, sslm_kv_pool pool, int32_t budget) {
  sslm_seq seq = NULL;
  OK(sslm_seq_create_budgeted(model, &pool, budget, &seq));
  CHECK(seq != NULL);
  return seq;
}

/* A deterministic run of token ids; different seeds differ. */
static inline int32_t* token_run(sslm_model model, int32_t count, uint32_t seed) {
  const uint32_t vocab = (uint32_t)info_of(model).vocab;
  int32_t* tokens = (int32_t*)check_alloc(sizeof(int32_t) * (size_t)(count + 1));
  uint32_t x = seed * 2654435761u + 12345u;
  int32_t i;
  for (i = 0; i < count; ++i) {
    x = x * 1664525u + 1013904223u;
    tokens[i] = (int32_t)((x >> 8) % vocab);
  }
  return tokens;
}

/* Prefills all tokens in one call. */
static inline void prefill(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t count,
                           sslm_workspace ws) {
  int32_t consumed = -7;
  OK(sslm_prefill(model, seq, tokens, count, count > 0 ? count : 1, SSLM_SPAN_PROMPT, ws, &consumed));
  CHECK_INT(consumed, count);
}

static inline void prefill_run(sslm_model model, sslm_seq seq, int32_t count, uint32_t seed,
                               sslm_workspace ws) {
  int32_t* tokens = token_run(model, count, seed);
  prefill(model, seq, tokens, count, ws);
  free(tokens);
}

static inline void prefill_prefix(sslm_model model, sslm_prefix prefix, int32_t count, uint32_t seed,
                                  sslm_workspace ws) {
  int32_t* tokens = token_run(model, count, seed);
  int32_t consumed = -7;
  OK(sslm_prefix_prefill(model, prefix, tokens, count, count > 0 ? count : 1, SSLM_SPAN_PROMPT, ws,
                         &consumed));
  CHECK_INT(consumed, count);
  free(tokens);
}

/* One greedy call of the first release's verb. */
static inline sslm_status step(sslm_model model, sslm_seq* seqs, int32_t n, int32_t layer_budget,
                               sslm_workspace ws, int32_t* out) {
  sslm_decode_params params;
  memset(&params, 0, sizeof(params));
  params.layer_budget = layer_budget;
  return sslm_decode_step(model, seqs, n, &params, ws, out);
}

/* One whole token of one sequence. */
static inline int32_t decode_token(sslm_model model, sslm_seq seq, sslm_workspace ws) {
  int32_t token = -9;
  OK(step(model, &seq, 1, info_of(model).layers, ws, &token));
  CHECK(token >= 0);
  return token;
}

static inline void decode_run(sslm_model model, sslm_seq seq, int32_t count, sslm_workspace ws,
                              int32_t* out) {
  int32_t i;
  for (i = 0; i < count; ++i) {
    const int32_t token = decode_token(model, seq, ws);
    if (out != NULL) out[i] = token;
  }
}

/* Leaves a sequence with a pending token unfinished after `layers` layers. */
static inline void rest_mid_token(sslm_model model, sslm_seq seq, int32_t layers, sslm_workspace ws) {
  int32_t token = -9;
  OK(step(model, &seq, 1, layers, ws, &token));
  CHECK_INT(token, -1);
}

/* ---- Blobs: a sequence's whole state, so the witness of "unchanged" and "equal" ---- */

typedef struct blob {
  unsigned char* bytes;
  size_t size;
} blob;

static inline blob save(sslm_seq seq) {
  blob out;
  out.size = 0;
  STATUS(BUFFER_TOO_SMALL, sslm_seq_save(seq, NULL, &out.size));
  out.bytes = (unsigned char*)check_alloc(out.size);
  OK(sslm_seq_save(seq, out.bytes, &out.size));
  return out;
}

static inline int equal_blobs(blob a, blob b) {
  return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

static inline void check_blobs(const char* file, int line, const char* what, blob got, blob want) {
  size_t i;
  if (got.size != want.size)
    check_fail(file, line, "%s: %lu bytes, expected %lu", what, (unsigned long)got.size,
               (unsigned long)want.size);
  for (i = 0; i < got.size; ++i)
    if (got.bytes[i] != want.bytes[i])
      check_fail(file, line, "%s: blobs differ first at byte %lu (%d, expected %d)", what, (unsigned long)i,
                 got.bytes[i], want.bytes[i]);
  free(got.bytes);
  free(want.bytes);
}

/* Both sequences hold the same state: residual, counts, rows, everything a save carries. */
#define CHECK_SAME(seq_a, seq_b) \
  check_blobs(__FILE__, __LINE__, #seq_a " against " #seq_b, save(seq_a), save(seq_b))

/* The sequence still holds the state of a blob taken before; frees the blob. */
#define CHECK_UNCHANGED(seq, before) check_blobs(__FILE__, __LINE__, #seq " changed", save(seq), before)

/* ---- Heap ---- */

/* Of the preloaded allocator of count_allocations.c, where there is one. */
#if defined(__GNUC__) && !defined(_WIN32) && !defined(__wasm__)
#define CHECK_CAN_COUNT_HEAP 1
extern uint64_t heap_allocations(void) __attribute__((weak));
extern int64_t heap_live_bytes(void) __attribute__((weak));
#define CHECK_HAS_COUNTING_ALLOCATOR (heap_allocations != NULL)
#else
#define CHECK_CAN_COUNT_HEAP 0
#endif

typedef uint64_t (*check_counter)(void);

/* Counts the process's heap allocations, or those of the library's own door where nothing is preloaded. */
static inline check_counter check_heap_allocations(void) {
#if CHECK_CAN_COUNT_HEAP
  if (CHECK_HAS_COUNTING_ALLOCATOR) return heap_allocations;
#endif
  printf("note: counted at the library's own allocation function; nothing is preloaded\n");
  return sslm_test_allocation_count;
}

/* The end of a cell: releases its sequences, then destroys its workspace (NULL: it has none), pool and model.
 */
#define FINISH(model, pool, ws, ...)                                                   \
  do {                                                                                 \
    const sslm_seq check_seqs[] = {__VA_ARGS__};                                       \
    const sslm_workspace check_ws = (ws);                                              \
    size_t check_i;                                                                    \
    for (check_i = 0; check_i < sizeof(check_seqs) / sizeof(check_seqs[0]); ++check_i) \
      OK(sslm_seq_release(check_seqs[check_i]));                                       \
    if (check_ws != NULL) OK(sslm_workspace_destroy(check_ws));                        \
    OK(sslm_kv_pool_destroy(pool));                                                    \
    OK(sslm_model_unmap(model));                                                       \
  } while (0)

/* ---- The program ---- */

typedef struct cell {
  const char* name;
  void (*run)(void);
} cell;

/* A row of a program's table: the function's name is the promise. */
#define CELL(function) {#function, function}

static inline int run_cells(int argc, char** argv, const cell* cells, int count) {
  int named = 0, found = 0, i, j;
  printf("tier %s\n", sslm_ext_kernel_tier());
  for (i = 1; i < argc; ++i) {
    const size_t length = strlen(argv[i]);
    if (length > 5 && strcmp(argv[i] + length - 5, ".sslm") == 0)
      check_load(argv[i]);
    else
      ++named;
  }
  for (j = 0; j < count; ++j) {
    int wanted = named == 0;
    for (i = 1; i < argc; ++i) wanted |= strcmp(argv[i], cells[j].name) == 0;
    if (!wanted) continue;
    ++found;
    check_cell = cells[j].name;
    cells[j].run();
    printf("ok %s\n", cells[j].name);
    fflush(stdout);
  }
  if (found < named) {
    fprintf(stderr, "%d of the named cells are not in this program\n", named - found);
    return 2;
  }
  return 0;
}

/* With CHECK_STACK_BYTES (POSIX) the cells run in a thread that has no more stack than that. */
#ifdef CHECK_STACK_BYTES
#include <pthread.h>

static struct {
  int argc;
  char** argv;
  const cell* cells;
  int count, result;
} check_run;

static inline void* check_thread(void* unused) {
  check_run.result = run_cells(check_run.argc, check_run.argv, check_run.cells, check_run.count);
  return unused;
}
static inline int start_cells(int argc, char** argv, const cell* cells, int count) {
  pthread_attr_t attributes;
  pthread_t thread;
  check_run.argc = argc, check_run.argv = argv, check_run.cells = cells, check_run.count = count;
  if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, CHECK_STACK_BYTES) != 0 ||
      pthread_create(&thread, &attributes, check_thread, NULL) != 0 || pthread_join(thread, NULL) != 0)
    check_fail(__FILE__, __LINE__, "no thread with %d bytes of stack", CHECK_STACK_BYTES);
  return check_run.result;
}
#else
static inline int start_cells(int argc, char** argv, const cell* cells, int count) {
  return run_cells(argc, argv, cells, count);
}
#endif

#define CELLS(table)                                                                \
  int main(int argc, char** argv) {                                                 \
    return start_cells(argc, argv, table, (int)(sizeof(table) / sizeof(table[0]))); \
  }

#endif /* SUPERSLM_TESTS_CHECK_H */
