/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Arguments: what each verb refuses, in which order, and that a refusal writes nothing.
 * Artifacts: a small model, another small model, a small model of cap 32,768 with head_dim 64, one with
 * head_dim 128, one whose cap its page size does not divide. */
#define _DEFAULT_SOURCE /* mmap with anonymous memory */
#include "check.h"

#if !defined(_WIN32) && !defined(__wasm__)
#include <sys/mman.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <windows.h>
#endif

enum { SMALL, OTHER, LONG_64, LONG_128, UNEVEN };

/* A handle that points nowhere: refusals must replace it by null. */
#define PRESET(type) ((type)(uintptr_t)0x40)

/* Every field of the artifact's bytes is wrong: the first refusal after the argument checks. */
static const char garbage[256] = "not an artifact";

#define OUT_IS_NULL(type, status, call_with_out) \
  do {                                           \
    type out = PRESET(type);                     \
    STATUS(status, call_with_out);               \
    CHECK(out == NULL);                          \
  } while (0)

static void every_refusal_leaves_the_out_handle_null(void) {
  const sslm_model model = map_artifact(SMALL), other = map_artifact(OTHER);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1), full = make_pool(model, PAGE_POOL, 1);
  sslm_kv_pool foreign = make_pool(other, BLOCK_POOL, 1).pool, none = NULL;
  const int32_t cap = info_of(model).cap;
  const size_t bytes = pool_bytes(model, BLOCK_POOL, 1);
  char* buffer = (char*)aligned(bytes + 1);
  sslm_config config = {1, 1, 1, 0}, bad = {1, 1, 1, 1};
  const size_t ws_size = sslm_workspace_size(model, &config);
  char* scratch = (char*)aligned(ws_size + 1);
  sslm_prefix open = NULL, frozen = NULL;
  unsigned char blob_bytes[4] = {'S', 'S', 'B', '9'};

  OUT_IS_NULL(sslm_model, INVALID_ARGUMENT, sslm_model_map(NULL, 1, &out));
  OUT_IS_NULL(sslm_model, ARTIFACT_REJECTED, sslm_model_map(garbage, 0, &out));
  OUT_IS_NULL(sslm_model, ARTIFACT_REJECTED, sslm_model_map(garbage, sizeof(garbage), &out));

  OUT_IS_NULL(sslm_workspace, INVALID_ARGUMENT, sslm_workspace_create(NULL, &config, scratch, ws_size, &out));
  OUT_IS_NULL(sslm_workspace, INVALID_ARGUMENT, sslm_workspace_create(model, &bad, scratch, ws_size, &out));
  OUT_IS_NULL(sslm_workspace, INVALID_ARGUMENT, sslm_workspace_create(model, &config, NULL, ws_size, &out));
  OUT_IS_NULL(sslm_workspace, BUFFER_TOO_SMALL,
              sslm_workspace_create(model, &config, scratch, ws_size - 1, &out));
  OUT_IS_NULL(sslm_workspace, MISALIGNED_BUFFER,
              sslm_workspace_create(model, &config, scratch + 1, ws_size, &out));

  OUT_IS_NULL(sslm_kv_pool, INVALID_ARGUMENT, sslm_kv_pool_create(NULL, buffer, bytes, 1, &out));
  OUT_IS_NULL(sslm_kv_pool, BUFFER_TOO_SMALL, sslm_kv_pool_create(model, buffer, bytes - 1, 1, &out));
  OUT_IS_NULL(sslm_kv_pool, MISALIGNED_BUFFER, sslm_kv_pool_create(model, buffer + 1, bytes, 1, &out));
  OUT_IS_NULL(sslm_kv_pool, INVALID_ARGUMENT, sslm_kv_page_pool_create(model, buffer, bytes, 0, &out));
  OUT_IS_NULL(sslm_kv_pool, BUFFER_TOO_SMALL, sslm_kv_page_pool_create(model, buffer, 8, 1, &out));
  OUT_IS_NULL(sslm_kv_pool, INVALID_ARGUMENT, sslm_kv_pool_create_contiguous(model, buffer, bytes, 0, &out));
  OUT_IS_NULL(sslm_kv_pool, BUFFER_TOO_SMALL, sslm_kv_pool_create_contiguous(model, buffer, 8, 1, &out));

  OUT_IS_NULL(sslm_seq, INVALID_ARGUMENT, sslm_seq_create(NULL, &memory.pool, &out));
  OUT_IS_NULL(sslm_seq, INVALID_ARGUMENT, sslm_seq_create(model, &none, &out));
  OUT_IS_NULL(sslm_seq, INVALID_ARGUMENT, sslm_seq_create(model, &foreign, &out));
  OUT_IS_NULL(sslm_seq, KV_POOL_EXHAUSTED, sslm_seq_create(model, &full.pool, &out));
  OUT_IS_NULL(sslm_seq, INVALID_ARGUMENT, sslm_seq_create_budgeted(model, &memory.pool, 0, &out));
  OUT_IS_NULL(sslm_seq, KV_POOL_EXHAUSTED, sslm_seq_create_budgeted(model, &full.pool, cap, &out));
  OUT_IS_NULL(sslm_seq, INVALID_ARGUMENT, sslm_seq_restore(model, &memory.pool, blob_bytes, 4, &out));
  OUT_IS_NULL(sslm_seq, INVALID_ARGUMENT,
              sslm_seq_restore_shared(model, &memory.pool, NULL, 4, NULL, &out, NULL));

  OUT_IS_NULL(sslm_prefix, INVALID_ARGUMENT, sslm_prefix_begin(model, &foreign, &out));
  OUT_IS_NULL(sslm_prefix, KV_POOL_EXHAUSTED, sslm_prefix_begin(model, &full.pool, &out));
  OUT_IS_NULL(sslm_prefix, INVALID_ARGUMENT, sslm_prefix_begin_budgeted(model, &memory.pool, cap + 1, &out));
  OUT_IS_NULL(sslm_prefix, KV_POOL_EXHAUSTED, sslm_prefix_begin_budgeted(model, &full.pool, cap, &out));
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 1, &open));
  OUT_IS_NULL(sslm_prefix, INVALID_ARGUMENT, sslm_prefix_begin_from(NULL, 1, &out));
  OUT_IS_NULL(sslm_prefix, INVALID_ARGUMENT, sslm_prefix_begin_from(open, 1, &out));
  OK(sslm_prefix_freeze(open));
  frozen = open;
  OUT_IS_NULL(sslm_prefix, INVALID_ARGUMENT, sslm_prefix_begin_from(frozen, 0, &out));
  {
    sslm_seq rest = NULL; /* takes every page that is left */
    OK(sslm_seq_create(model, &memory.pool, &rest));
    OUT_IS_NULL(sslm_prefix, KV_POOL_EXHAUSTED, sslm_prefix_begin_from(frozen, 1, &out));
    OK(sslm_seq_release(rest));
  }

  OUT_IS_NULL(sslm_adapter, INVALID_ARGUMENT, sslm_adapter_map(NULL, 1, model, &out));
  OUT_IS_NULL(sslm_adapter, ARTIFACT_REJECTED, sslm_adapter_map(garbage, sizeof(garbage), model, &out));
  OUT_IS_NULL(sslm_schema, SCHEMA_NOT_FOUND, sslm_schema_lookup(model, "no schema of this name", &out));
  OUT_IS_NULL(sslm_schema, INVALID_ARGUMENT, sslm_schema_lookup(model, NULL, &out));

  OK(sslm_prefix_release(frozen));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(full.pool));
  OK(sslm_kv_pool_destroy(foreign));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

static void null_out_handles_are_refused(sslm_model model, sslm_kv_pool* pool, sslm_prefix frozen) {
  sslm_config config = {1, 1, 1, 0};
  char* buffer = (char*)aligned(64);
  STATUS(INVALID_ARGUMENT, sslm_model_map(garbage, sizeof(garbage), NULL));
  STATUS(INVALID_ARGUMENT, sslm_workspace_create(model, &config, buffer, SIZE_MAX, NULL));
  STATUS(INVALID_ARGUMENT, sslm_kv_pool_create(model, buffer, SIZE_MAX, 1, NULL));
  STATUS(INVALID_ARGUMENT, sslm_kv_page_pool_create(model, buffer, SIZE_MAX, 1, NULL));
  STATUS(INVALID_ARGUMENT, sslm_kv_pool_create_contiguous(model, buffer, SIZE_MAX, 1, NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_create(model, pool, NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_create_budgeted(model, pool, 1, NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_restore(model, pool, garbage, sizeof(garbage), NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_restore_shared(model, pool, garbage, sizeof(garbage), NULL, NULL, NULL));
  STATUS(INVALID_ARGUMENT, sslm_prefix_begin(model, pool, NULL));
  STATUS(INVALID_ARGUMENT, sslm_prefix_begin_budgeted(model, pool, 1, NULL));
  STATUS(INVALID_ARGUMENT, sslm_prefix_begin_from(frozen, 1, NULL));
  STATUS(INVALID_ARGUMENT, sslm_adapter_map(garbage, sizeof(garbage), model, NULL));
  STATUS(INVALID_ARGUMENT, sslm_schema_lookup(model, "name", NULL));
}

static void null_handles_are_refused(void) {
  STATUS(INVALID_ARGUMENT, sslm_model_unmap(NULL));
  STATUS(INVALID_ARGUMENT, sslm_workspace_destroy(NULL));
  STATUS(INVALID_ARGUMENT, sslm_workspace_set_parallel_for(NULL, NULL));
  STATUS(INVALID_ARGUMENT, sslm_kv_pool_destroy(NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_release(NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_reset(NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_set_adapter(NULL, NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_set_schema(NULL, SSLM_SCHEMA_NONE));
  STATUS(INVALID_ARGUMENT, sslm_prefix_freeze(NULL));
  STATUS(INVALID_ARGUMENT, sslm_prefix_release(NULL));
  STATUS(INVALID_ARGUMENT, sslm_prefix_set_schema(NULL, SSLM_SCHEMA_NONE));
  STATUS(INVALID_ARGUMENT, sslm_adapter_release(NULL));
}

static void sizing_verbs_give_zero_for_null(sslm_model model) {
  sslm_config config = {1, 1, 1, 0};
  CHECK_INT(sslm_workspace_size(NULL, &config), 0);
  CHECK_INT(sslm_workspace_size(model, NULL), 0);
  CHECK_INT(sslm_kv_block_size(NULL), 0);
  CHECK_INT(sslm_kv_pool_overhead_size(NULL, 1), 0);
  CHECK_INT(sslm_kv_page_positions(NULL), 0);
  CHECK_INT(sslm_kv_page_size(NULL), 0);
  CHECK_INT(sslm_kv_pages_for_budget(NULL, 1), 0);
  CHECK_INT(sslm_kv_page_pool_overhead_size(NULL, 1), 0);
  CHECK_INT(sslm_kv_pool_contiguous_size(NULL, 1), 0);
  CHECK_INT(sslm_seq_state_size(NULL), 0);
  CHECK_INT(sslm_adapter_residency(NULL), 0);
  CHECK_INT(sslm_schema_count(NULL), 0);
}

static void null_data_pointers_are_refused_and_write_nothing(sslm_model model, sslm_seq seq,
                                                             sslm_prefix open) {
  int32_t tokens[2] = {1, 1}, consumed = 77, flag = 77, out = 77, n = 77;
  size_t size = 77;
  char text[8] = "text";
  sslm_detok_state state = {{0, 0, 0}, 0};
  sslm_decode_params params;
  sslm_stats_out stats, untouched;
  sslm_kv_pool_stats_out pool_stats;
  sslm_seq_kv_stats_out kv_stats;
  const sslm_span_kind prompt = SSLM_SPAN_PROMPT;

  OK(sslm_decode_params_init(model, SSLM_DECODE_MODE_GREEDY, 1, &params));
  memset(&stats, 0x33, sizeof(stats));
  untouched = stats;
  memset(&pool_stats, 0, sizeof(pool_stats));
  memset(&kv_stats, 0, sizeof(kv_stats));
  STATUS(INVALID_ARGUMENT, sslm_kv_pool_stats(NULL, &pool_stats));
  STATUS(INVALID_ARGUMENT, sslm_seq_kv_stats(NULL, &kv_stats));
  STATUS(INVALID_ARGUMENT, sslm_seq_kv_stats(seq, NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_adopt_prefix(NULL, open));
  STATUS(INVALID_ARGUMENT, sslm_seq_adopt_prefix(seq, NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_save(seq, text, NULL));
  STATUS(INVALID_ARGUMENT, sslm_seq_save(NULL, text, &size));
  CHECK_INT(size, 77);
  STATUS(INVALID_ARGUMENT, sslm_seq_schema_bound(NULL, &flag));
  STATUS(INVALID_ARGUMENT, sslm_seq_schema_bound(seq, NULL));
  CHECK_INT(flag, 77);

  STATUS(INVALID_ARGUMENT, sslm_prefill(model, seq, tokens, 2, 2, prompt, NULL, NULL));
  STATUS(INVALID_ARGUMENT, sslm_prefill(NULL, seq, tokens, 2, 2, prompt, NULL, &consumed));
  CHECK_INT(consumed, 0);
  consumed = 77;
  STATUS(INVALID_ARGUMENT, sslm_prefill(model, NULL, tokens, 2, 2, prompt, NULL, &consumed));
  CHECK_INT(consumed, 0);
  STATUS(INVALID_ARGUMENT, sslm_prefill(model, seq, NULL, 2, 2, prompt, NULL, &consumed));
  STATUS(INVALID_ARGUMENT, sslm_prefill(model, seq, tokens, -1, 2, prompt, NULL, &consumed));
  STATUS(INVALID_ARGUMENT, sslm_prefill(model, seq, tokens, 2, 0, prompt, NULL, &consumed));
  STATUS(INVALID_ARGUMENT, sslm_prefill(model, seq, tokens, 2, 2, (sslm_span_kind)2, NULL, &consumed));
  STATUS(INVALID_ARGUMENT, sslm_prefix_prefill(model, open, tokens, 2, 2, prompt, NULL, NULL));
  consumed = 77;
  STATUS(INVALID_ARGUMENT, sslm_prefix_prefill(NULL, open, tokens, 2, 2, prompt, NULL, &consumed));
  CHECK_INT(consumed, 0);
  STATUS(INVALID_ARGUMENT, sslm_prefix_prefill(model, NULL, tokens, 2, 2, prompt, NULL, &consumed));
  STATUS(INVALID_ARGUMENT, sslm_prefix_prefill(model, open, NULL, 2, 2, prompt, NULL, &consumed));

  STATUS(INVALID_ARGUMENT, sslm_decode_step(model, &seq, 1, NULL, NULL, &out));
  STATUS(INVALID_ARGUMENT, sslm_decode_step_v2(NULL, &seq, 1, &params, NULL, &out));
  STATUS(INVALID_ARGUMENT, sslm_decode_step_v2(model, NULL, 1, &params, NULL, &out));
  STATUS(INVALID_ARGUMENT, sslm_decode_step_v2(model, &seq, 1, NULL, NULL, &out));
  STATUS(INVALID_ARGUMENT, sslm_decode_step_v2(model, &seq, 1, &params, NULL, NULL));
  STATUS(INVALID_ARGUMENT, sslm_decode_step_v2(model, &seq, 0, &params, NULL, &out));
  {
    sslm_seq nobody = NULL;
    STATUS(INVALID_ARGUMENT, sslm_decode_step_v2(model, &nobody, 1, &params, NULL, &out));
  }
  CHECK_INT(out, 77);
  STATUS(INVALID_ARGUMENT, sslm_decode_params_init(NULL, 0, 1, &params));
  STATUS(INVALID_ARGUMENT, sslm_decode_params_init(model, 0, 1, NULL));
  STATUS(INVALID_ARGUMENT, sslm_stats(model, seq, NULL));
  STATUS(INVALID_ARGUMENT, sslm_stats(NULL, seq, &stats));
  STATUS(INVALID_ARGUMENT, sslm_stats(model, NULL, &stats));
  CHECK(memcmp(&stats, &untouched, sizeof(stats)) == 0);

  STATUS(INVALID_ARGUMENT, sslm_tokenize(model, text, tokens, NULL));
  STATUS(INVALID_ARGUMENT, sslm_tokenize(NULL, text, tokens, &n));
  CHECK_INT(n, 0);
  n = 2;
  STATUS(INVALID_ARGUMENT, sslm_tokenize(model, NULL, tokens, &n));
  CHECK_INT(n, 0);
  STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(model, &state, tokens, 1, text, NULL));
  n = 8;
  STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(NULL, &state, tokens, 1, text, &n));
  CHECK_INT(n, 0);
  n = 8;
  STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(model, NULL, tokens, 1, text, &n));
  n = 8;
  STATUS(INVALID_ARGUMENT, sslm_detokenize_stream(model, &state, NULL, 1, text, &n));
  CHECK_INT(n, 0);
  STATUS(INVALID_ARGUMENT, sslm_schema_name(model, 0, text, NULL));
  STATUS(INVALID_ARGUMENT, sslm_schema_name(NULL, 0, text, &size));
  CHECK_INT(size, 77);
  CHECK(strcmp(text, "text") == 0);
}

static void every_null_pointer_is_refused_and_nothing_is_written(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 3);
  const sslm_seq seq = make_seq(model, memory.pool);
  sslm_prefix open = NULL, frozen = NULL;
  blob before = save(seq);
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 8, &open));
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 8, &frozen));
  OK(sslm_prefix_freeze(frozen));
  null_out_handles_are_refused(model, &memory.pool, frozen);
  null_handles_are_refused();
  sizing_verbs_give_zero_for_null(model);
  null_data_pointers_are_refused_and_write_nothing(model, seq, open);
  CHECK_UNCHANGED(seq, before);
  OK(sslm_prefix_release(open));
  OK(sslm_prefix_release(frozen));
  FINISH(model, memory.pool, NULL, seq);
}

static void a_config_with_one_bad_field_has_size_zero_and_is_refused(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  const sslm_config good = {2, 8, layers, 0};
  const size_t size = sslm_workspace_size(model, &good);
  void* buffer = aligned(size);
  const sslm_config bad[] = {{0, 8, 1, 0},  {-1, 8, 1, 0},         {2, 0, 1, 0}, {2, -1, 1, 0}, {2, 8, 0, 0},
                             {2, 8, -1, 0}, {2, 8, layers + 1, 0}, {2, 8, 1, 1}, {0, 0, 0, 0}};
  size_t i;
  CHECK(size > 0);
  for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    sslm_workspace ws = PRESET(sslm_workspace);
    CHECK_INT(sslm_workspace_size(model, &bad[i]), 0);
    STATUS(INVALID_ARGUMENT, sslm_workspace_create(model, &bad[i], buffer, size, &ws));
    CHECK(ws == NULL);
  }
  OK(sslm_model_unmap(model));
}

static void a_workspace_buffer_one_byte_short_or_misaligned_is_refused_in_that_order(void) {
  const sslm_model model = map_artifact(SMALL);
  const sslm_config config = {2, 8, 1, 0};
  const size_t size = sslm_workspace_size(model, &config);
  char* buffer = (char*)aligned(size + 1);
  sslm_workspace ws = NULL;
  STATUS(BUFFER_TOO_SMALL, sslm_workspace_create(model, &config, buffer, size - 1, &ws));
  STATUS(MISALIGNED_BUFFER, sslm_workspace_create(model, &config, buffer + 1, size, &ws));
  STATUS(BUFFER_TOO_SMALL, sslm_workspace_create(model, &config, buffer + 1, size - 1, &ws));
  OK(sslm_workspace_create(model, &config, buffer, size, &ws));
  OK(sslm_workspace_destroy(ws));
  OK(sslm_model_unmap(model));
}

static void an_odd_chunk_budget_serves_prefill_and_decode(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 3, 7);
  const sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  prefill_run(model, seq, 7, 1, ws);
  decode_run(model, seq, 3, ws, NULL);
  prefill_run(model, twin, 7, 1, NULL);
  decode_run(model, twin, 3, NULL, NULL);
  CHECK_SAME(seq, twin);
  FINISH(model, memory.pool, ws, seq, twin);
}

static void pools_of_all_kinds_refuse_in_the_same_order(void) {
  const sslm_model model = map_artifact(SMALL);
  int kind;
  for (kind = 0; kind < POOL_KINDS; ++kind) {
    const size_t size = pool_bytes(model, kind, 2);
    char* buffer = (char*)aligned(size + 1);
    sslm_kv_pool pool = PRESET(sslm_kv_pool);
    STATUS(INVALID_ARGUMENT, create_pool(kind, model, buffer, 0, 0, &pool));
    STATUS(INVALID_ARGUMENT, create_pool(kind, model, buffer + 1, 0, 0, &pool));
    CHECK(pool == NULL);
    /* UINT32_MAX pages are counted, not sized, so a page pool refuses them only after its buffer. */
    if (kind != PAGE_POOL)
      STATUS(INVALID_ARGUMENT, create_pool(kind, model, buffer + 1, 0, UINT32_MAX, &pool));
    STATUS(BUFFER_TOO_SMALL, create_pool(kind, model, buffer, size - 1, 2, &pool));
    STATUS(MISALIGNED_BUFFER, create_pool(kind, model, buffer + 1, size, 2, &pool));
    STATUS(BUFFER_TOO_SMALL, create_pool(kind, model, buffer + 1, size - 1, 2, &pool));
    OK(create_pool(kind, model, buffer, size, 2, &pool));
    OK(sslm_kv_pool_destroy(pool));
  }
  OK(sslm_model_unmap(model));
}

static void a_page_total_of_uint32_max_is_refused_and_one_block_fewer_is_sized(void) {
  static const struct {
    int artifact;
    int64_t positions;
    uint32_t blocks;
  } cases[] = {{LONG_128, 64, 8388608u}, {LONG_64, 128, 16777216u}};
  size_t i;
  for (i = 0; i < 2; ++i) {
    const sslm_model model = map_artifact(cases[i].artifact);
    void* buffer = aligned(64);
    sslm_kv_pool pool = PRESET(sslm_kv_pool);
    CHECK_INT(info_of(model).cap, 32768);
    CHECK_INT(sslm_kv_page_positions(model), cases[i].positions);
    STATUS(INVALID_ARGUMENT, sslm_kv_pool_create(model, buffer, 64, cases[i].blocks, &pool));
    if (sizeof(size_t) >= 8)
      STATUS(BUFFER_TOO_SMALL, sslm_kv_pool_create(model, buffer, 64, cases[i].blocks - 1, &pool));
    else /* its bytes cannot be counted */
      STATUS(INVALID_ARGUMENT, sslm_kv_pool_create(model, buffer, 64, cases[i].blocks - 1, &pool));
    CHECK(sslm_kv_pool_overhead_size(model, cases[i].blocks) == SIZE_MAX);
    OK(sslm_model_unmap(model));
  }
}

static void a_page_count_of_uint32_max_is_refused_last(void) {
  const sslm_model model = map_artifact(SMALL);
  void* buffer = aligned(64);
  sslm_kv_pool pool = PRESET(sslm_kv_pool);
  const size_t overhead = sslm_kv_page_pool_overhead_size(model, UINT32_MAX);
  if (sizeof(size_t) < 8) {
    printf("skipped: the sizes of this cell need 64 bits\n");
    OK(sslm_model_unmap(model));
    return;
  }
  CHECK(overhead == 32 + 8 * (size_t)UINT32_MAX);
  {
    const size_t size = (size_t)UINT32_MAX * sslm_kv_page_size(model) + overhead;
    STATUS(BUFFER_TOO_SMALL, sslm_kv_page_pool_create(model, buffer, size - 1, UINT32_MAX, &pool));
    STATUS(MISALIGNED_BUFFER, sslm_kv_page_pool_create(model, (char*)buffer + 1, size, UINT32_MAX, &pool));
    STATUS(INVALID_ARGUMENT, sslm_kv_page_pool_create(model, buffer, size, UINT32_MAX, &pool));
  }
  CHECK(pool == NULL);
  OK(sslm_model_unmap(model));
}

static void a_cap_the_page_does_not_divide_costs_overhead_and_no_block_bytes(void) {
  const sslm_model model = map_artifact(UNEVEN);
  const int64_t cap = info_of(model).cap, positions = sslm_kv_page_positions(model);
  const int64_t pages = (cap + positions - 1) / positions;
  const size_t per_position = sslm_kv_page_size(model) / (size_t)positions;
  uint32_t count;
  CHECK(cap % positions != 0 && cap > positions);
  CHECK_INT(sslm_kv_block_size(model), (size_t)cap * per_position);
  for (count = 1; count < 4; ++count)
    CHECK_INT(sslm_kv_pool_overhead_size(model, count),
              32 + 8 * count + count * (size_t)(pages * positions - cap) * per_position);
  OK(sslm_model_unmap(model));
}

static void budgets_outside_one_to_the_cap_are_refused(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t cap = info_of(model).cap;
  const int32_t bad[] = {0, -1, INT32_MIN, cap + 1, INT32_MAX};
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const uint32_t all = free_pages(memory.pool);
  sslm_prefix parent = NULL, child = NULL;
  sslm_seq seq = NULL;
  size_t i;
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 1, &parent));
  OK(sslm_prefix_freeze(parent));
  CHECK_INT(free_pages(memory.pool), all);
  for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    STATUS(INVALID_ARGUMENT, sslm_seq_create_budgeted(model, &memory.pool, bad[i], &seq));
    STATUS(INVALID_ARGUMENT, sslm_prefix_begin_budgeted(model, &memory.pool, bad[i], &child));
    STATUS(INVALID_ARGUMENT, sslm_prefix_begin_from(parent, bad[i], &child));
    CHECK_INT(sslm_kv_pages_for_budget(model, bad[i]), 0);
    CHECK_INT(free_pages(memory.pool), all);
  }
  for (i = 0; i < 2; ++i) {
    const int32_t budget = i == 0 ? 1 : cap;
    const size_t pages = sslm_kv_pages_for_budget(model, budget);
    OK(sslm_seq_create_budgeted(model, &memory.pool, budget, &seq));
    CHECK_INT(free_pages(memory.pool), all - pages);
    OK(sslm_seq_release(seq));
    OK(sslm_prefix_begin_budgeted(model, &memory.pool, budget, &child));
    OK(sslm_prefix_release(child));
    OK(sslm_prefix_begin_from(parent, budget, &child));
    CHECK_INT(free_pages(memory.pool), all - pages);
    OK(sslm_prefix_release(child));
  }
  OK(sslm_prefix_release(parent));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_pool_of_another_model_is_refused_and_nothing_is_drawn(void) {
  const sslm_model model = map_artifact(SMALL), other = map_artifact(OTHER);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1), home = make_pool(other, BLOCK_POOL, 1);
  const uint32_t all = free_pages(memory.pool);
  const sslm_seq native = make_seq(other, home.pool);
  const blob state = save(native);
  sslm_seq seq = NULL;
  sslm_prefix prefix = NULL;
  STATUS(INVALID_ARGUMENT, sslm_seq_create(other, &memory.pool, &seq));
  STATUS(INVALID_ARGUMENT, sslm_seq_create_budgeted(other, &memory.pool, 1, &seq));
  STATUS(INVALID_ARGUMENT, sslm_prefix_begin(other, &memory.pool, &prefix));
  STATUS(INVALID_ARGUMENT, sslm_prefix_begin_budgeted(other, &memory.pool, 1, &prefix));
  STATUS(INVALID_ARGUMENT, sslm_seq_restore(other, &memory.pool, state.bytes, state.size, &seq));
  CHECK_INT(free_pages(memory.pool), all);
  OK(sslm_seq_release(native));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(home.pool));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

static void verbs_that_name_another_model_refuse_the_sequence(void) {
  const sslm_model model = map_artifact(SMALL), other = map_artifact(OTHER);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  sslm_seq seq = make_seq(model, memory.pool);
  sslm_prefix prefix = NULL;
  int32_t token = 1, consumed = 7, out = 7;
  sslm_stats_out stats;
  blob before;
  OK(sslm_prefix_begin(model, &memory.pool, &prefix));
  STATUS(INVALID_ARGUMENT, sslm_prefill(other, seq, &token, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
  CHECK_INT(consumed, 0);
  OK(sslm_seq_set_schema(seq, SSLM_SCHEMA_NONE)); /* still bindable */
  prefill_run(model, seq, 5, 3, NULL);
  before = save(seq);
  STATUS(INVALID_ARGUMENT, sslm_prefill(other, seq, &token, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
  STATUS(INVALID_ARGUMENT,
         sslm_prefix_prefill(other, prefix, &token, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
  STATUS(INVALID_ARGUMENT, step(other, &seq, 1, 1, NULL, &out));
  CHECK_INT(out, 7);
  STATUS(INVALID_ARGUMENT, sslm_stats(other, seq, &stats));
  CHECK_UNCHANGED(seq, before);
  OK(sslm_seq_release(seq));
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

static void a_struct_size_off_by_one_is_refused_and_the_output_untouched(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  sslm_seq seq = make_seq(model, memory.pool);
  int delta;
  prefill_run(model, seq, 4, 2, NULL);
  for (delta = -1; delta <= 1; delta += 2) {
    sslm_kv_pool_stats_out pool_stats, pool_before;
    sslm_seq_kv_stats_out seq_stats, seq_before;
    sslm_decode_params params;
    int32_t out = 77;
    blob before = save(seq);
    memset(&pool_stats, 0x33, sizeof(pool_stats));
    memset(&seq_stats, 0x33, sizeof(seq_stats));
    pool_stats.struct_size = (uint32_t)((int)sizeof(pool_stats) + delta);
    seq_stats.struct_size = (uint32_t)((int)sizeof(seq_stats) + delta);
    pool_before = pool_stats;
    seq_before = seq_stats;
    STATUS(INVALID_ARGUMENT, sslm_kv_pool_stats(memory.pool, &pool_stats));
    STATUS(INVALID_ARGUMENT, sslm_seq_kv_stats(seq, &seq_stats));
    CHECK(memcmp(&pool_stats, &pool_before, sizeof(pool_stats)) == 0);
    CHECK(memcmp(&seq_stats, &seq_before, sizeof(seq_stats)) == 0);
    OK(sslm_decode_params_init(model, SSLM_DECODE_MODE_GREEDY, 1, &params));
    params.struct_size = (uint32_t)((int)sizeof(params) + delta);
    STATUS(INVALID_ARGUMENT, sslm_decode_step_v2(model, &seq, 1, &params, NULL, &out));
    CHECK_INT(out, 77);
    CHECK_UNCHANGED(seq, before);
  }
  FINISH(model, memory.pool, NULL, seq);
}

/* Four bytes that end where readable memory ends; null where pages cannot be protected. */
static int32_t* last_four_bytes(void) {
#if defined(_WIN32)
  DWORD old;
  char* pages = (char*)VirtualAlloc(NULL, 2 * 65536, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (pages == NULL || !VirtualProtect(pages + 65536, 65536, PAGE_NOACCESS, &old)) return NULL;
  return (int32_t*)(pages + 65536 - 4);
#elif defined(__wasm__)
  return NULL;
#else
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* pages = (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == (char*)MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) return NULL;
  return (int32_t*)(pages + page - 4);
#endif
}

static void decode_step_reads_only_the_four_bytes_of_the_first_release(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  sslm_seq seq = make_seq(model, memory.pool);
  int32_t* layer_budget = last_four_bytes();
  int32_t out = -9;
  if (layer_budget == NULL) {
    printf("skipped: no page protection on this platform\n");
    return;
  }
  prefill_run(model, seq, 4, 2, NULL);
  *layer_budget = 1;
  OK(sslm_decode_step(model, &seq, 1, (const sslm_decode_params*)layer_budget, NULL, &out));
  CHECK(out >= 0);
  *layer_budget = info_of(model).layers + 1;
  STATUS(INVALID_ARGUMENT,
         sslm_decode_step(model, &seq, 1, (const sslm_decode_params*)layer_budget, NULL, &out));
  FINISH(model, memory.pool, NULL, seq);
}

static const cell cells[] = {
    CELL(every_refusal_leaves_the_out_handle_null),
    CELL(every_null_pointer_is_refused_and_nothing_is_written),
    CELL(a_config_with_one_bad_field_has_size_zero_and_is_refused),
    CELL(a_workspace_buffer_one_byte_short_or_misaligned_is_refused_in_that_order),
    CELL(an_odd_chunk_budget_serves_prefill_and_decode),
    CELL(pools_of_all_kinds_refuse_in_the_same_order),
    CELL(a_page_total_of_uint32_max_is_refused_and_one_block_fewer_is_sized),
    CELL(a_page_count_of_uint32_max_is_refused_last),
    CELL(a_cap_the_page_does_not_divide_costs_overhead_and_no_block_bytes),
    CELL(budgets_outside_one_to_the_cap_are_refused),
    CELL(a_pool_of_another_model_is_refused_and_nothing_is_drawn),
    CELL(verbs_that_name_another_model_refuse_the_sequence),
    CELL(a_struct_size_off_by_one_is_refused_and_the_output_untouched),
    CELL(decode_step_reads_only_the_four_bytes_of_the_first_release),
};

CELLS(cells)
