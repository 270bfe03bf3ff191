/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Memory that runs out at every allocation of every verb: ALLOCATION_FAILED, a null handle, nothing changed,
 * and the same call succeeds afterwards. tests/test_faults.py proves that the table has every verb of the
 * headers.
 *
 *   cell_allocation MODEL.sslm ADAPTER.sslm     the model has a tokenizer, schemas and a record */
#include "check.h"

enum { MODEL = 0, ADAPTER = 1, MOST = 64, PROMPT = 9, BUDGET = 24 };

static struct world {
  sslm_model model;
  sslm_kv_pool pool;
  sslm_workspace ws;
  sslm_schema schema;
  sslm_adapter adapter;
  sslm_seq seq, empty; /* ready after a prompt; fresh */
  sslm_prefix open, frozen;
  blob saved, saved_prefix;
  void* buffer; /* for a pool or workspace of its own */
  size_t buffer_size;
  void* out; /* the last call's handle */
} w;

static sslm_config config(void) {
  sslm_config c;
  c.max_batch = 1;
  c.max_chunk_budget = 8;
  c.max_layer_budget = info_of(w.model).layers;
  c.reserved = 0;
  return c;
}

/* Ends what a successful call made, and passes its status on. */
#define ENDING(call, end, type)                \
  do {                                         \
    type made = (type)(uintptr_t)0x40;         \
    const sslm_status made_status = (call);    \
    w.out = (void*)made;                       \
    if (made_status == SSLM_OK) OK(end(made)); \
    return made_status;                        \
  } while (0)

#define SAME(value, expected) \
  return (long long)(value) == (long long)(expected) ? SSLM_OK : SSLM_INVALID_ARGUMENT

/* ---- Model, workspace, pools ---- */

static sslm_status model_map(void) {
  ENDING(sslm_model_map(check_artifacts[MODEL].data, check_artifacts[MODEL].size, &made), sslm_model_unmap,
         sslm_model);
}
static sslm_status model_unmap(void) { SAME(sslm_model_unmap(w.model), SSLM_MODEL_HAS_LIVE_SEQUENCES); }
static sslm_status workspace_size(void) {
  const sslm_config c = config();
  SAME(sslm_workspace_size(w.model, &c) > 0, 1);
}
static sslm_status workspace_create(void) {
  const sslm_config c = config();
  ENDING(sslm_workspace_create(w.model, &c, w.buffer, w.buffer_size, &made), sslm_workspace_destroy,
         sslm_workspace);
}
static sslm_status workspace_destroy(void) { SAME(sslm_workspace_destroy(NULL), SSLM_INVALID_ARGUMENT); }
static void run_tasks(void* host, int32_t count, sslm_task_fn task, void* context) {
  int32_t i;
  (void)host;
  for (i = 0; i < count; ++i) task(context, i);
}
static sslm_status workspace_set_parallel_for(void) {
  const sslm_parallel_for hook = {run_tasks, NULL, 4, SSLM_PARALLEL_FOR_MATVEC};
  return sslm_workspace_set_parallel_for(w.ws, &hook);
}
static sslm_status kv_block_size(void) { SAME(sslm_kv_block_size(w.model) > 0, 1); }
static sslm_status kv_pool_overhead_size(void) { SAME(sslm_kv_pool_overhead_size(w.model, 1) > 0, 1); }
static sslm_status kv_pool_create(void) {
  ENDING(sslm_kv_pool_create(w.model, w.buffer, w.buffer_size, 1, &made), sslm_kv_pool_destroy, sslm_kv_pool);
}
static sslm_status kv_page_positions(void) { SAME(sslm_kv_page_positions(w.model) > 0, 1); }
static sslm_status kv_page_size(void) { SAME(sslm_kv_page_size(w.model) > 0, 1); }
static sslm_status kv_pages_for_budget(void) { SAME(sslm_kv_pages_for_budget(w.model, 1) > 0, 1); }
static sslm_status kv_page_pool_overhead_size(void) { SAME(sslm_kv_page_pool_overhead_size(w.model, 1), 40); }
static sslm_status kv_page_pool_create(void) {
  ENDING(sslm_kv_page_pool_create(w.model, w.buffer, w.buffer_size, 1, &made), sslm_kv_pool_destroy,
         sslm_kv_pool);
}
static sslm_status kv_pool_contiguous_size(void) { SAME(sslm_kv_pool_contiguous_size(w.model, 1) > 0, 1); }
static sslm_status kv_pool_create_contiguous(void) {
  ENDING(sslm_kv_pool_create_contiguous(w.model, w.buffer, w.buffer_size, 1, &made), sslm_kv_pool_destroy,
         sslm_kv_pool);
}
static sslm_status kv_pool_destroy(void) { SAME(sslm_kv_pool_destroy(w.pool), SSLM_POOL_HAS_LIVE_HANDLES); }
static sslm_status kv_pool_stats(void) { SAME(free_pages(w.pool) > 0, 1); }

/* ---- Sequences ---- */

static sslm_status seq_state_size(void) { SAME(sslm_seq_state_size(w.model) > 0, 1); }
static sslm_status seq_create(void) {
  ENDING(sslm_seq_create(w.model, &w.pool, &made), sslm_seq_release, sslm_seq);
}
static sslm_status seq_create_budgeted(void) {
  ENDING(sslm_seq_create_budgeted(w.model, &w.pool, BUDGET, &made), sslm_seq_release, sslm_seq);
}
static sslm_status seq_release(void) { SAME(sslm_seq_release(NULL), SSLM_INVALID_ARGUMENT); }
static sslm_status seq_reset(void) { return sslm_seq_reset(w.empty); }
static sslm_status seq_adopt_prefix(void) {
  OK(sslm_seq_adopt_prefix(w.empty, w.frozen));
  return sslm_seq_reset(w.empty);
}
static sslm_status seq_save(void) {
  size_t n = w.saved.size;
  return sslm_seq_save(w.seq, w.saved.bytes, &n);
}
static sslm_status seq_restore(void) {
  ENDING(sslm_seq_restore(w.model, &w.pool, w.saved.bytes, w.saved.size, &made), sslm_seq_release, sslm_seq);
}
static sslm_status seq_restore_shared(void) {
  uint32_t shared = 0;
  ENDING(sslm_seq_restore_shared(w.model, &w.pool, w.saved.bytes, w.saved.size, w.frozen, &made, &shared),
         sslm_seq_release, sslm_seq);
}
static sslm_status seq_set_adapter(void) {
  OK(sslm_seq_set_adapter(w.empty, w.adapter));
  return sslm_seq_set_adapter(w.empty, NULL);
}
static sslm_status seq_set_schema(void) {
  OK(sslm_seq_set_schema(w.empty, w.schema));
  return sslm_seq_set_schema(w.empty, SSLM_SCHEMA_NONE);
}
static sslm_status seq_schema_bound(void) {
  int32_t bound = 7;
  return sslm_seq_schema_bound(w.seq, &bound);
}
static sslm_status seq_kv_stats(void) {
  sslm_seq_kv_stats_out stats;
  stats.struct_size = sizeof(stats);
  return sslm_seq_kv_stats(w.seq, &stats);
}

/* ---- Prefixes and adapters ---- */

static sslm_status prefix_begin(void) {
  ENDING(sslm_prefix_begin(w.model, &w.pool, &made), sslm_prefix_release, sslm_prefix);
}
static sslm_status prefix_begin_budgeted(void) {
  ENDING(sslm_prefix_begin_budgeted(w.model, &w.pool, BUDGET, &made), sslm_prefix_release, sslm_prefix);
}
static sslm_status prefix_begin_from(void) {
  ENDING(sslm_prefix_begin_from(w.frozen, BUDGET, &made), sslm_prefix_release, sslm_prefix);
}
static sslm_status prefix_prefill(void) {
  const int32_t tokens[2] = {1, 2};
  int32_t consumed = -1;
  const sslm_status status =
      sslm_prefix_prefill(w.model, w.open, tokens, 2, 2, SSLM_SPAN_PROMPT, NULL, &consumed);
  CHECK_INT(consumed, status == SSLM_OK ? 2 : 0);
  return status;
}
static sslm_status prefix_freeze(void) { return sslm_prefix_freeze(w.frozen); }
static sslm_status prefix_release(void) { SAME(sslm_prefix_release(NULL), SSLM_INVALID_ARGUMENT); }
static sslm_status prefix_set_schema(void) {
  SAME(sslm_prefix_set_schema(w.frozen, w.schema), SSLM_INVALID_ARGUMENT);
}
static sslm_status adapter_map(void) {
  ENDING(sslm_adapter_map(check_artifacts[ADAPTER].data, check_artifacts[ADAPTER].size, w.model, &made),
         sslm_adapter_release, sslm_adapter);
}
static sslm_status adapter_release(void) { SAME(sslm_adapter_release(NULL), SSLM_INVALID_ARGUMENT); }
static sslm_status adapter_residency(void) {
  SAME(sslm_adapter_residency(w.adapter), check_artifacts[ADAPTER].size);
}

/* ---- Tokens ---- */

static sslm_status prefill_once(void) {
  const int32_t tokens[2] = {1, 2};
  int32_t consumed = -1;
  const sslm_status status = sslm_prefill(w.model, w.seq, tokens, 2, 2, SSLM_SPAN_PROMPT, NULL, &consumed);
  CHECK_INT(consumed, status == SSLM_OK ? 2 : 0);
  return status;
}
static sslm_status decode_step(void) {
  int32_t out = -9;
  const sslm_status status = step(w.model, &w.seq, 1, 1, NULL, &out);
  if (status != SSLM_OK) CHECK_INT(out, -9);
  return status;
}
static sslm_status decode_step_v2(void) { /* damped, so that the history is needed too */
  sslm_decode_params params;
  sslm_seq batch[2];
  int32_t out[2] = {-9, -9};
  sslm_status status;
  OK(sslm_decode_params_init(w.model, SSLM_DECODE_MODE_DAMPED_GREEDY, info_of(w.model).layers, &params));
  batch[0] = batch[1] = w.seq;
  status = sslm_decode_step_v2(w.model, batch, 1, &params, NULL, out);
  if (status != SSLM_OK) CHECK_INT(out[0], -9);
  return status;
}
static sslm_status decode_params_init(void) {
  sslm_decode_params params;
  return sslm_decode_params_init(w.model, SSLM_DECODE_MODE_DAMPED_GREEDY, 1, &params);
}
static sslm_status stats(void) {
  sslm_stats_out out;
  return sslm_stats(w.model, w.seq, &out);
}

/* ---- Text and schemas ---- */

static const char text[] =
    "hello sp\xc3\xa4te the \xcc\x81 worlds, <tool>s and a longwordthatisinnovocabulary";

static sslm_status tokenize(void) {
  int32_t ids[256], n = 256;
  const sslm_status status = sslm_tokenize(w.model, text, ids, &n);
  if (status != SSLM_OK) CHECK_INT(n, 0);
  return status;
}
static sslm_status detokenize_stream(void) {
  const int32_t ids[3] = {104, 105, 260};
  sslm_detok_state state = {{0, 0, 0}, 0};
  char out[64];
  int32_t n = sizeof(out);
  return sslm_detokenize_stream(w.model, &state, ids, 3, out, &n);
}
static sslm_status schema_lookup(void) {
  sslm_schema schema = NULL;
  return sslm_schema_lookup(w.model, "parity", &schema);
}
static sslm_status schema_count(void) { SAME(sslm_schema_count(w.model), info_of(w.model).schema_count); }
static sslm_status schema_name(void) {
  char name[64];
  size_t n = sizeof(name);
  return sslm_schema_name(w.model, 0, name, &n);
}

/* ---- Drafts ---- */

static sslm_status ext_version(void) { SAME(sslm_ext_version(), SSLM_EXT_VERSION); }
static sslm_status ext_status_name(void) { SAME(sslm_ext_status_name(SSLM_OK) != NULL, 1); }
static sslm_status ext_kernel_tier(void) { SAME(sslm_ext_kernel_tier() != NULL, 1); }
static sslm_status ext_model_info(void) { SAME(info_of(w.model).layers > 0, 1); }
static sslm_status ext_model_check(void) {
  return sslm_ext_model_check(check_artifacts[MODEL].data, check_artifacts[MODEL].size, NULL, NULL);
}
static sslm_status ext_adapter_check(void) {
  return sslm_ext_adapter_check(w.model, check_artifacts[ADAPTER].data, check_artifacts[ADAPTER].size, NULL,
                                NULL);
}
static sslm_status ext_self_check(void) {
  sslm_ext_self_check_out out;
  memset(&out, 0, sizeof(out));
  out.struct_size = sizeof(out);
  return sslm_ext_self_check(w.model, NULL, &out);
}
static sslm_status ext_workspace_size_parallel(void) {
  const sslm_config c = config();
  SAME(sslm_ext_workspace_size_parallel(w.model, &c, 4) > 0, 1);
}
static sslm_status ext_workspace_set_parallel(void) {
  return sslm_ext_workspace_set_parallel(w.ws, SSLM_EXT_PARALLEL_SPREAD);
}
static sslm_status ext_seq_logits(void) {
  size_t n = (size_t)info_of(w.model).vocab;
  int32_t* logits = (int32_t*)check_alloc(n * sizeof(int32_t));
  const sslm_status status = sslm_ext_seq_logits(w.model, w.seq, NULL, logits, &n);
  free(logits);
  return status;
}
static sslm_status ext_tokenize(void) {
  int32_t ids[256];
  size_t n = 256;
  return sslm_ext_tokenize(w.model, text, sizeof(text) - 1, 0, ids, &n);
}
static sslm_status ext_chat_ids(void) {
  int32_t ids[64];
  size_t n = 64;
  return sslm_ext_chat_ids(w.model, SSLM_EXT_CHAT_USER, SSLM_EXT_CHAT_PREFIX, ids, &n);
}
static sslm_status ext_score(void) {
  const int32_t tokens[2] = {1, 2};
  int32_t out[2], consumed = -1;
  const sslm_status status = sslm_ext_score(w.model, w.seq, tokens, 2, NULL, out, &consumed);
  CHECK_INT(consumed, status == SSLM_OK ? 2 : 0);
  return status;
}
static sslm_status ext_decode_sample(void) {
  sslm_ext_sample_params params;
  int32_t out = -9;
  sslm_status status;
  memset(&params, 0, sizeof(params));
  params.struct_size = sizeof(params);
  params.inverse_temperature = (uint64_t)1 << 32;
  params.top_p_q15 = 32768;
  status = sslm_ext_decode_sample(w.model, &w.seq, 1, info_of(w.model).layers, &params, NULL, &out);
  if (status != SSLM_OK) CHECK_INT(out, -9);
  return status;
}
static sslm_status ext_prefix_save(void) {
  size_t n = w.saved_prefix.size;
  return sslm_ext_prefix_save(w.frozen, w.saved_prefix.bytes, &n);
}
static sslm_status ext_prefix_restore(void) {
  ENDING(sslm_ext_prefix_restore(w.model, &w.pool, w.saved_prefix.bytes, w.saved_prefix.size, NULL, &made),
         sslm_prefix_release, sslm_prefix);
}

/* ---- The table: a verb, its call, whether it takes memory from the heap ---- */

#define VERB(name, allocates) {"sslm_" #name, name, allocates}

static const struct verb {
  const char* name;
  sslm_status (*call)(void);
  int allocates;
} verbs[] = {
    VERB(model_map, 1),
    VERB(model_unmap, 0),
    VERB(workspace_size, 0),
    VERB(workspace_create, 1),
    VERB(workspace_destroy, 0),
    VERB(workspace_set_parallel_for, 0),
    VERB(kv_block_size, 0),
    VERB(kv_pool_overhead_size, 0),
    VERB(kv_pool_create, 1),
    VERB(kv_page_positions, 0),
    VERB(kv_page_size, 0),
    VERB(kv_pages_for_budget, 0),
    VERB(kv_page_pool_overhead_size, 0),
    VERB(kv_page_pool_create, 1),
    VERB(kv_pool_contiguous_size, 0),
    VERB(kv_pool_create_contiguous, 1),
    VERB(kv_pool_destroy, 0),
    VERB(kv_pool_stats, 0),
    VERB(seq_state_size, 0),
    VERB(seq_create, 1),
    VERB(seq_create_budgeted, 1),
    VERB(seq_release, 0),
    VERB(seq_reset, 0),
    VERB(seq_adopt_prefix, 0),
    VERB(seq_save, 0),
    VERB(seq_restore, 1),
    VERB(seq_restore_shared, 1),
    VERB(seq_set_adapter, 0),
    VERB(seq_set_schema, 0),
    VERB(seq_schema_bound, 0),
    VERB(seq_kv_stats, 0),
    VERB(prefix_begin, 1),
    VERB(prefix_begin_budgeted, 1),
    VERB(prefix_begin_from, 1),
    VERB(prefix_prefill, 1),
    VERB(prefix_freeze, 0),
    VERB(prefix_release, 0),
    VERB(prefix_set_schema, 0),
    VERB(adapter_map, 1),
    VERB(adapter_release, 0),
    VERB(adapter_residency, 0),
    {"sslm_prefill", prefill_once, 1}, /* check.h has a function of that name */
    VERB(decode_step, 1),
    VERB(decode_step_v2, 1),
    VERB(decode_params_init, 0),
    VERB(stats, 0),
    VERB(tokenize, 1),
    VERB(detokenize_stream, 0),
    VERB(schema_lookup, 0),
    VERB(schema_count, 0),
    VERB(schema_name, 0),
    VERB(ext_version, 0),
    VERB(ext_status_name, 0),
    VERB(ext_kernel_tier, 0),
    VERB(ext_model_info, 0),
    VERB(ext_model_check, 1),
    VERB(ext_adapter_check, 1),
    VERB(ext_self_check, 1),
    VERB(ext_workspace_size_parallel, 0),
    VERB(ext_workspace_set_parallel, 0),
    VERB(ext_seq_logits, 1),
    VERB(ext_tokenize, 1),
    VERB(ext_chat_ids, 0),
    VERB(ext_score, 1),
    VERB(ext_decode_sample, 1),
    VERB(ext_prefix_save, 0),
    VERB(ext_prefix_restore, 1),
};

static void make_world(void) {
  pool_memory memory;
  w.model = map_artifact(MODEL);
  memory = make_pool(w.model, PAGE_POOL, 64);
  w.pool = memory.pool;
  w.ws = make_workspace(w.model, 1, 8);
  OK(sslm_schema_lookup(w.model, "parity", &w.schema));
  OK(sslm_adapter_map(check_artifacts[ADAPTER].data, check_artifacts[ADAPTER].size, w.model, &w.adapter));
  w.seq = make_budgeted(w.model, w.pool, BUDGET);
  w.empty = make_budgeted(w.model, w.pool, BUDGET);
  OK(sslm_prefix_begin_budgeted(w.model, &w.pool, BUDGET, &w.frozen));
  OK(sslm_prefix_begin_budgeted(w.model, &w.pool, BUDGET, &w.open));
  prefill_prefix(w.model, w.frozen, PROMPT, 3, w.ws);
  OK(sslm_prefix_freeze(w.frozen));
  STATUS(BUFFER_TOO_SMALL, sslm_ext_prefix_save(w.frozen, NULL, &w.saved_prefix.size));
  w.saved_prefix.bytes = (unsigned char*)check_alloc(w.saved_prefix.size);
  OK(sslm_ext_prefix_save(w.frozen, w.saved_prefix.bytes, &w.saved_prefix.size));
  w.buffer_size = 4 * sslm_kv_pool_contiguous_size(w.model, 1) + ((size_t)1 << 20);
  w.buffer = aligned(w.buffer_size);
}

/* The state every call begins from. A damped step makes the blob to restore carry a history. */
static void rest_ready(void) {
  sslm_decode_params params;
  int32_t out;
  OK(sslm_seq_reset(w.seq));
  prefill_run(w.model, w.seq, PROMPT, 1, w.ws);
  OK(sslm_decode_params_init(w.model, SSLM_DECODE_MODE_DAMPED_GREEDY, info_of(w.model).layers, &params));
  OK(sslm_decode_step_v2(w.model, &w.seq, 1, &params, w.ws, &out));
  w.saved = save(w.seq);
  OK(sslm_seq_reset(w.seq));
  prefill_run(w.model, w.seq, PROMPT, 1, w.ws);
}

static void memory_that_runs_out_anywhere_in_any_verb_changes_nothing(void) {
  size_t v;
  make_world();
  for (v = 0; v < sizeof(verbs) / sizeof(verbs[0]); ++v) {
    int64_t failures;
    rest_ready();
    for (failures = 0;; ++failures) {
      const blob before = save(w.seq), before_empty = save(w.empty);
      const uint32_t pages = free_pages(w.pool);
      sslm_status status;
      if (failures == MOST) check_fail(__FILE__, __LINE__, "%s never succeeds", verbs[v].name);
      w.out = NULL;
      sslm_test_fail_allocation_after(failures);
      status = verbs[v].call();
      sslm_test_fail_allocation_after(-1);
      if (status == SSLM_OK) break;
      if (status != SSLM_ALLOCATION_FAILED || w.out != NULL)
        check_fail(__FILE__, __LINE__, "%s with %d allocations: %s, handle %p", verbs[v].name, (int)failures,
                   sslm_ext_status_name(status), w.out);
      CHECK_INT(free_pages(w.pool), pages);
      CHECK_UNCHANGED(w.seq, before);
      CHECK_UNCHANGED(w.empty, before_empty);
    }
    if ((failures > 0) != verbs[v].allocates)
      check_fail(__FILE__, __LINE__, "%s takes %d blocks", verbs[v].name, (int)failures);
    printf("%-36s %d blocks\n", verbs[v].name, (int)failures);
  }
}

static const cell cells[] = {CELL(memory_that_runs_out_anywhere_in_any_verb_changes_nothing)};

CELLS(cells)
