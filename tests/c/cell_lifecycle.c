/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Lifecycle: what keeps what alive, and that a failed or repeated start leaves no trace.
 * Artifacts: a small model of cap 4,096. */
#define _DEFAULT_SOURCE /* mmap */
#include "check.h"

#if !defined(_WIN32) && !defined(__wasm__)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#define HAS_FILE_MAPPING 1
#else
#define HAS_FILE_MAPPING 0
#endif

enum { SMALL };

static void layouts_ordinals_and_constants_are_those_of_the_contract(void) {
  enum {
#define COUNT(name) name##_POSITION,
    SSLM_STATUS_ENUM_LIST(COUNT) STATUS_COUNT
#undef COUNT
  };
#define SAME_ORDINAL(name) CHECK_INT(name##_POSITION, name);
  SSLM_STATUS_ENUM_LIST(SAME_ORDINAL)
#undef SAME_ORDINAL
  CHECK_INT(STATUS_COUNT, 30);
  CHECK_INT(SSLM_STATUS_NEXT_FREE, 30);
  CHECK_INT(SSLM_ABI_ALIGNMENT_BYTES, 64);
  CHECK_INT(SSLM_PARALLEL_FOR_MATVEC, 2);
  CHECK_INT(SSLM_PARALLEL_FOR_MAX_TASKS, 256);
  CHECK_INT(SSLM_DAMPED_GREEDY_DEFAULT_ALPHA_Q15, 65536);
  CHECK_INT(SSLM_DAMPED_GREEDY_DEFAULT_ANTI_LM_ORDER, 2);
  CHECK_INT(SSLM_DAMPED_GREEDY_DEFAULT_TOP_K, 6);
  CHECK_INT(sizeof(sslm_config), 16);
  CHECK_INT(sizeof(sslm_detok_state), 4);
  CHECK_INT(sizeof(sslm_decode_params), 48);
  CHECK_INT(offsetof(sslm_decode_params, q_ln2), 24);
  CHECK_INT(sizeof(sslm_stats_out), 32);
  CHECK_INT(sizeof(sslm_kv_pool_stats_out), 24);
  CHECK_INT(sizeof(sslm_seq_kv_stats_out), 56);
  CHECK_INT(offsetof(sslm_seq_kv_stats_out, mapped_private_pages), 40);
  CHECK_INT(sizeof(sslm_parallel_for), 8 + 2 * sizeof(void*));
  CHECK(strcmp(sslm_ext_status_name(SSLM_KV_BUDGET_EXCEEDED), "SSLM_KV_BUDGET_EXCEEDED") == 0);
  CHECK(strcmp(sslm_ext_status_name((sslm_status)30), "unknown status") == 0);
  CHECK(strcmp(sslm_ext_status_name((sslm_status)-1), "unknown status") == 0);
}

static void a_live_sequence_or_prefix_keeps_its_model_mapped_and_usable(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq seq = make_seq(model, memory.pool);
  sslm_prefix prefix = NULL;
  STATUS(MODEL_HAS_LIVE_SEQUENCES, sslm_model_unmap(model));
  prefill_run(model, seq, 5, 1, NULL);
  decode_token(model, seq, NULL);
  OK(sslm_prefix_begin(model, &memory.pool, &prefix));
  OK(sslm_seq_release(seq));
  STATUS(MODEL_HAS_LIVE_SEQUENCES, sslm_model_unmap(model));
  OK(sslm_prefix_freeze(prefix));
  STATUS(MODEL_HAS_LIVE_SEQUENCES, sslm_model_unmap(model));
  OK(sslm_prefix_release(prefix));
  OK(sslm_model_unmap(model)); /* pools and workspaces do not count */
  OK(sslm_kv_pool_destroy(memory.pool));
}

static void pools_and_workspaces_outlive_their_model(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory block = make_pool(model, BLOCK_POOL, 1), page = make_pool(model, PAGE_POOL, 3);
  pool_memory contiguous = make_pool(model, CONTIGUOUS_POOL, 1);
  const sslm_workspace ws = make_workspace(model, 2, 8);
  const uint32_t pages = free_pages(page.pool);
  const sslm_seq seq = make_seq(model, block.pool);
  prefill_run(model, seq, 5, 1, ws);
  OK(sslm_seq_release(seq));
  OK(sslm_model_unmap(model));
  CHECK_INT(free_pages(page.pool), pages);
  OK(sslm_kv_pool_destroy(block.pool));
  OK(sslm_kv_pool_destroy(page.pool));
  OK(sslm_kv_pool_destroy(contiguous.pool));
  OK(sslm_workspace_destroy(ws));
}

static void no_later_model_takes_the_pool_of_an_unmapped_one(void) {
  sslm_model model = map_artifact(SMALL);
  const sslm_model first = model;
  pool_memory memory = make_pool(model, PAGE_POOL, 100);
  int tries, same = 0;
  for (tries = 0; tries < 8; ++tries) { /* the heap gives the same address again, sooner or later */
    sslm_seq seq;
    sslm_prefix prefix;
    OK(sslm_model_unmap(model));
    model = map_artifact(SMALL);
    same += model == first;
    STATUS(INVALID_ARGUMENT, sslm_seq_create(model, &memory.pool, &seq));
    STATUS(INVALID_ARGUMENT, sslm_seq_create_budgeted(model, &memory.pool, 10, &seq));
    STATUS(INVALID_ARGUMENT, sslm_prefix_begin(model, &memory.pool, &prefix));
    STATUS(INVALID_ARGUMENT, sslm_prefix_begin_budgeted(model, &memory.pool, 10, &prefix));
  }
  printf("note: %d of %d models had the address of the first\n", same, tries);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_live_holder_keeps_its_pool(void) {
  const sslm_model model = map_artifact(SMALL);
  int kind;
  for (kind = 0; kind < POOL_KINDS; ++kind) {
    pool_memory memory = make_pool(model, kind, kind == PAGE_POOL ? 100 : 2);
    const sslm_seq seq = make_seq(model, memory.pool);
    sslm_prefix prefix = NULL;
    STATUS(POOL_HAS_LIVE_HANDLES, sslm_kv_pool_destroy(memory.pool));
    OK(sslm_prefix_begin_budgeted(model, &memory.pool, 10, &prefix));
    OK(sslm_seq_release(seq));
    STATUS(POOL_HAS_LIVE_HANDLES, sslm_kv_pool_destroy(memory.pool));
    OK(sslm_prefix_freeze(prefix)); /* an empty frozen prefix holds no page, but lives */
    STATUS(POOL_HAS_LIVE_HANDLES, sslm_kv_pool_destroy(memory.pool));
    OK(sslm_prefix_release(prefix));
    OK(sslm_kv_pool_destroy(memory.pool));
  }
  OK(sslm_model_unmap(model));
}

static void talk(sslm_model model, int32_t* out, int32_t count) {
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  prefill_run(model, seq, 40, 1, NULL);
  decode_run(model, seq, count, NULL, out);
  OK(sslm_seq_release(seq));
  OK(sslm_kv_pool_destroy(memory.pool));
}

/* The artifact's file as a read-only mapping: a write would end the program. */
static const void* map_file(void) {
#if HAS_FILE_MAPPING
  const int file = open(check_artifacts[SMALL].path, O_RDONLY);
  const void* data = mmap(NULL, check_artifacts[SMALL].size, PROT_READ, MAP_PRIVATE, file, 0);
  CHECK(file >= 0 && data != MAP_FAILED);
  close(file);
  return data;
#else
  printf("note: no file mappings here; the bytes are plain memory\n");
  return check_artifacts[SMALL].data;
#endif
}

static void a_read_only_mapping_costs_little_heap_and_an_unaligned_copy_talks_the_same(void) {
  enum { COUNT = 12 };
  const size_t size = check_artifacts[SMALL].size;
  const void* data = map_file();
  unsigned char* copy = (unsigned char*)aligned(size + 64);
  int32_t expected[COUNT], got[COUNT], offset;
  sslm_model model = NULL;
  int64_t before = 0, after = 0;
#if CHECK_CAN_COUNT_HEAP
  if (CHECK_HAS_COUNTING_ALLOCATOR) before = heap_live_bytes();
#endif
  OK(sslm_model_map(data, size, &model));
#if CHECK_CAN_COUNT_HEAP
  if (CHECK_HAS_COUNTING_ALLOCATOR) after = heap_live_bytes();
#endif
  CHECK(after - before <= (1 << 20) + 8192 * (int64_t)info_of(model).layers);
  talk(model, expected, COUNT);
  OK(sslm_model_unmap(model));
  for (offset = 1; offset <= 9; offset += 4) {
    memcpy(copy + offset, data, size);
    OK(sslm_model_map(copy + offset, size, &model));
    talk(model, got, COUNT);
    CHECK(memcmp(expected, got, sizeof(got)) == 0);
    OK(sslm_model_unmap(model));
  }
}

static void a_reset_sequence_is_a_fresh_one_whatever_its_state_was(void) {
  enum { STATES = 4, COUNT = 20 };
  const sslm_model model = map_artifact(SMALL);
  int budgeted, state;
  for (budgeted = 0; budgeted < 2; ++budgeted) {
    pool_memory memory = make_pool(model, BLOCK_POOL, 2);
    const sslm_seq seq = budgeted ? make_budgeted(model, memory.pool, 200) : make_seq(model, memory.pool);
    const sslm_seq twin = budgeted ? make_budgeted(model, memory.pool, 200) : make_seq(model, memory.pool);
    for (state = 0; state < STATES; ++state) {
      int32_t expected[COUNT], got[COUNT];
      if (state >= 1) prefill_run(model, seq, 70, 5, NULL); /* ready */
      if (state >= 2) decode_token(model, seq, NULL);       /* pending */
      if (state >= 3) rest_mid_token(model, seq, 2, NULL);  /* mid-token */
      OK(sslm_seq_reset(seq));
      OK(sslm_seq_reset(twin));
      OK(sslm_seq_set_schema(seq, SSLM_SCHEMA_NONE)); /* bindable again */
      CHECK_SAME(seq, twin);
      prefill_run(model, seq, 60, 6, NULL);
      prefill_run(model, twin, 60, 6, NULL);
      decode_run(model, seq, COUNT, NULL, got);
      decode_run(model, twin, COUNT, NULL, expected);
      CHECK(memcmp(expected, got, sizeof(got)) == 0);
      CHECK_SAME(seq, twin);
      OK(sslm_seq_reset(seq));
    }
    OK(sslm_seq_release(seq));
    OK(sslm_seq_release(twin));
    OK(sslm_kv_pool_destroy(memory.pool));
  }
  OK(sslm_model_unmap(model));
}

/* Everything a creating verb may need, for the failing calls below. */
typedef struct world {
  sslm_model model;
  sslm_kv_pool pool;
  sslm_prefix frozen;
  blob saved, saved_plain; /* sequences with a budget and without */
  blob saved_child;        /* a prefix nested in `frozen` */
  void* buffer;
  size_t buffer_size;
} world;

typedef sslm_status (*creating_verb)(const world* w, void** out);

static sslm_status do_map(const world* w, void** out) {
  (void)w;
  return sslm_model_map(check_artifacts[SMALL].data, check_artifacts[SMALL].size, (sslm_model*)out);
}
static sslm_status do_workspace(const world* w, void** out) {
  const sslm_config config = {1, 1, 1, 0};
  return sslm_workspace_create(w->model, &config, w->buffer, w->buffer_size, (sslm_workspace*)out);
}
static sslm_status do_block_pool(const world* w, void** out) {
  return sslm_kv_pool_create(w->model, w->buffer, w->buffer_size, 1, (sslm_kv_pool*)out);
}
static sslm_status do_page_pool(const world* w, void** out) {
  return sslm_kv_page_pool_create(w->model, w->buffer, w->buffer_size, 1, (sslm_kv_pool*)out);
}
static sslm_status do_contiguous(const world* w, void** out) {
  return sslm_kv_pool_create_contiguous(w->model, w->buffer, w->buffer_size, 1, (sslm_kv_pool*)out);
}
static sslm_status do_seq(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  return sslm_seq_create(w->model, &pool, (sslm_seq*)out);
}
static sslm_status do_budgeted(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  return sslm_seq_create_budgeted(w->model, &pool, 100, (sslm_seq*)out);
}
static sslm_status do_prefix(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  return sslm_prefix_begin(w->model, &pool, (sslm_prefix*)out);
}
static sslm_status do_prefix_budgeted(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  return sslm_prefix_begin_budgeted(w->model, &pool, 100, (sslm_prefix*)out);
}
static sslm_status do_begin_from(const world* w, void** out) {
  return sslm_prefix_begin_from(w->frozen, 100, (sslm_prefix*)out);
}
static sslm_status do_restore(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  return sslm_seq_restore(w->model, &pool, w->saved.bytes, w->saved.size, (sslm_seq*)out);
}
static sslm_status do_restore_shared(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  uint32_t shared = 77;
  const sslm_status status = sslm_seq_restore_shared(w->model, &pool, w->saved.bytes, w->saved.size,
                                                     w->frozen, (sslm_seq*)out, &shared);
  CHECK_INT(shared, status == SSLM_OK ? 1 : 0);
  return status;
}

static sslm_status do_restore_plain(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  return sslm_seq_restore(w->model, &pool, w->saved_plain.bytes, w->saved_plain.size, (sslm_seq*)out);
}
static sslm_status do_restore_child(const world* w, void** out) {
  sslm_kv_pool pool = w->pool;
  return sslm_ext_prefix_restore(w->model, &pool, w->saved_child.bytes, w->saved_child.size, w->frozen,
                                 (sslm_prefix*)out);
}

static sslm_status end_model(void* handle) { return sslm_model_unmap((sslm_model)handle); }
static sslm_status end_workspace(void* handle) { return sslm_workspace_destroy((sslm_workspace)handle); }
static sslm_status end_pool(void* handle) { return sslm_kv_pool_destroy((sslm_kv_pool)handle); }
static sslm_status end_seq(void* handle) { return sslm_seq_release((sslm_seq)handle); }
static sslm_status end_prefix(void* handle) { return sslm_prefix_release((sslm_prefix)handle); }

static const struct {
  creating_verb create;
  sslm_status (*end)(void*);
} creating_verbs[] = {
    {do_map, end_model},         {do_workspace, end_workspace},  {do_block_pool, end_pool},
    {do_page_pool, end_pool},    {do_contiguous, end_pool},      {do_seq, end_seq},
    {do_budgeted, end_seq},      {do_prefix, end_prefix},        {do_prefix_budgeted, end_prefix},
    {do_begin_from, end_prefix}, {do_restore, end_seq},          {do_restore_shared, end_seq},
    {do_restore_plain, end_seq}, {do_restore_child, end_prefix},
};

static blob save_child(const world* w) {
  sslm_prefix child = NULL;
  blob out = {NULL, 0};
  OK(sslm_prefix_begin_from(w->frozen, 20, &child));
  prefill_prefix(w->model, child, 20, 5, NULL);
  OK(sslm_prefix_freeze(child));
  STATUS(BUFFER_TOO_SMALL, sslm_ext_prefix_save(child, NULL, &out.size));
  out.bytes = (unsigned char*)check_alloc(out.size);
  OK(sslm_ext_prefix_save(child, out.bytes, &out.size));
  OK(sslm_prefix_release(child));
  return out;
}

static world make_world(void) {
  world w;
  sslm_seq seq;
  w.model = map_artifact(SMALL);
  w.pool = make_pool(w.model, BLOCK_POOL, 4).pool;
  OK(sslm_prefix_begin_budgeted(w.model, &w.pool, 70, &w.frozen));
  prefill_prefix(w.model, w.frozen, 70, 3, NULL);
  OK(sslm_prefix_freeze(w.frozen));
  seq = make_budgeted(w.model, w.pool, 100);
  OK(sslm_seq_adopt_prefix(seq, w.frozen));
  decode_run(w.model, seq, 3, NULL, NULL);
  w.saved = save(seq);
  OK(sslm_seq_release(seq));
  seq = make_seq(w.model, w.pool);
  prefill_run(w.model, seq, 30, 4, NULL);
  w.saved_plain = save(seq);
  OK(sslm_seq_release(seq));
  w.saved_child = save_child(&w);
  w.buffer_size = pool_bytes(w.model, BLOCK_POOL, 1) + (4u << 20);
  w.buffer = aligned(w.buffer_size);
  return w;
}

static void exhausted_memory_gives_back_everything_that_was_drawn(void) {
  enum { FULL_SLOTS = 64 };
  const world w = make_world();
  sslm_kv_pool crowd_pool = make_pool(w.model, PAGE_POOL, 2 * FULL_SLOTS).pool;
  sslm_seq crowd[FULL_SLOTS];
  const uint32_t pages = free_pages(w.pool);
  size_t v;
  int i;
  /* A crowd of live sequences makes the registry grow for the next one. */
  for (i = 0; i < FULL_SLOTS; ++i) crowd[i] = make_budgeted(w.model, crowd_pool, 1);
  for (v = 0; v < sizeof(creating_verbs) / sizeof(creating_verbs[0]); ++v) {
    int64_t failures;
    for (failures = 0;; ++failures) {
      void* out = (void*)(uintptr_t)0x40;
      sslm_status status;
      CHECK(failures < 1000);
      sslm_test_fail_allocation_after(failures);
      status = creating_verbs[v].create(&w, &out);
      sslm_test_fail_allocation_after(-1);
      if (status == SSLM_OK) {
        CHECK(failures > 0); /* every creating verb allocates */
        OK(creating_verbs[v].end(out));
        break;
      }
      CHECK_INT(status, SSLM_ALLOCATION_FAILED);
      CHECK(out == NULL);
      CHECK_INT(free_pages(w.pool), pages);
    }
    CHECK_INT(free_pages(w.pool), pages);
  }
  for (i = 0; i < FULL_SLOTS; ++i) OK(sslm_seq_release(crowd[i]));
  OK(sslm_kv_pool_destroy(crowd_pool));
  OK(sslm_prefix_release(w.frozen));
  OK(sslm_kv_pool_destroy(w.pool)); /* no live handle was left behind */
  OK(sslm_model_unmap(w.model));
}

static void a_decode_that_cannot_get_scratch_changes_nothing(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  sslm_seq seq = make_seq(model, memory.pool);
  int32_t out = 77;
  blob before;
  prefill_run(model, seq, 9, 1, NULL);
  before = save(seq);
  sslm_test_fail_allocation_after(0);
  STATUS(ALLOCATION_FAILED, step(model, &seq, 1, 1, NULL, &out));
  sslm_test_fail_allocation_after(-1);
  CHECK_INT(out, 77);
  CHECK_UNCHANGED(seq, before);
  FINISH(model, memory.pool, NULL, seq);
}

static void a_prefill_that_cannot_get_scratch_changes_nothing(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 24);
  const sslm_seq seq = make_budgeted(model, memory.pool, 100), twin = make_budgeted(model, memory.pool, 100);
  sslm_prefix prefix = NULL, other = NULL;
  int32_t* tokens = token_run(model, 20, 7);
  int32_t consumed = -1;
  blob before;
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 100, &prefix));
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 100, &other));
  prefill_run(model, seq, 9, 1, NULL);
  before = save(seq);
  sslm_test_fail_allocation_after(0);
  STATUS(ALLOCATION_FAILED, sslm_prefill(model, seq, tokens, 20, 20, SSLM_SPAN_PROMPT, NULL, &consumed));
  CHECK_INT(consumed, 0);
  consumed = -1;
  STATUS(ALLOCATION_FAILED,
         sslm_prefix_prefill(model, prefix, tokens, 20, 20, SSLM_SPAN_PROMPT, NULL, &consumed));
  CHECK_INT(consumed, 0);
  sslm_test_fail_allocation_after(-1);
  CHECK_UNCHANGED(seq, before);
  prefill_prefix(model, prefix, 20, 7, NULL); /* a retry gives what a first try gives */
  prefill_prefix(model, other, 20, 7, NULL);
  OK(sslm_prefix_freeze(prefix));
  OK(sslm_prefix_freeze(other));
  OK(sslm_seq_adopt_prefix(seq, prefix));
  OK(sslm_seq_adopt_prefix(twin, other));
  CHECK_SAME(seq, twin);
  free(tokens);
  OK(sslm_seq_release(seq));
  OK(sslm_seq_release(twin));
  OK(sslm_prefix_release(prefix));
  OK(sslm_prefix_release(other));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static const cell cells[] = {
    CELL(layouts_ordinals_and_constants_are_those_of_the_contract),
    CELL(a_live_sequence_or_prefix_keeps_its_model_mapped_and_usable),
    CELL(pools_and_workspaces_outlive_their_model),
    CELL(no_later_model_takes_the_pool_of_an_unmapped_one),
    CELL(a_live_holder_keeps_its_pool),
    CELL(a_read_only_mapping_costs_little_heap_and_an_unaligned_copy_talks_the_same),
    CELL(a_reset_sequence_is_a_fresh_one_whatever_its_state_was),
    CELL(exhausted_memory_gives_back_everything_that_was_drawn),
    CELL(a_decode_that_cannot_get_scratch_changes_nothing),
    CELL(a_prefill_that_cannot_get_scratch_changes_nothing),
};

CELLS(cells)
