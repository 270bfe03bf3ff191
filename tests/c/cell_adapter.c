/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Adapters: what they keep alive, when they may change, and that a mixed batch gives each its own reply.
 * Artifacts: a model whose every projection group is wide enough to be split, another model, four adapters of
 * the first one. */
#include "check.h"

#if !defined(__wasm__)
#include <pthread.h>
#define HAS_THREADS 1
#else
#define HAS_THREADS 0
#endif

enum { WIDE, OTHER, FIRST_ADAPTER, ADAPTERS = 4 };

static sslm_adapter map_adapter(sslm_model base, int number) {
  sslm_adapter adapter = NULL;
  const int index = FIRST_ADAPTER + number;
  OK(sslm_adapter_map(check_artifacts[index].data, check_artifacts[index].size, base, &adapter));
  CHECK(adapter != NULL);
  return adapter;
}

/* ---- Lifecycle ---- */

static void a_bound_adapter_cannot_be_released_and_a_sequence_release_drops_the_binding(void) {
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq a = make_seq(model, memory.pool), b = make_seq(model, memory.pool);
  const sslm_adapter adapter = map_adapter(model, 0);
  OK(sslm_seq_set_adapter(a, adapter));
  STATUS(ADAPTER_HAS_LIVE_SEQUENCES, sslm_adapter_release(adapter));
  OK(sslm_seq_set_adapter(a, adapter)); /* again: still one binding */
  OK(sslm_seq_set_adapter(b, adapter));
  OK(sslm_seq_release(a));
  STATUS(ADAPTER_HAS_LIVE_SEQUENCES, sslm_adapter_release(adapter));
  OK(sslm_seq_set_adapter(b, NULL));
  OK(sslm_seq_set_adapter(b, NULL));
  OK(sslm_adapter_release(adapter));
  FINISH(model, memory.pool, NULL, b);
}

static void a_live_adapter_keeps_its_model_mapped_and_usable(void) {
  const sslm_model model = map_artifact(WIDE);
  const sslm_adapter adapter = map_adapter(model, 0);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  sslm_seq seq;
  STATUS(MODEL_HAS_LIVE_SEQUENCES, sslm_model_unmap(model));
  seq = make_seq(model, memory.pool);
  OK(sslm_seq_set_adapter(seq, adapter));
  prefill_run(model, seq, 5, 1, NULL);
  decode_token(model, seq, NULL);
  OK(sslm_seq_release(seq));
  STATUS(MODEL_HAS_LIVE_SEQUENCES, sslm_model_unmap(model));
  OK(sslm_adapter_release(adapter));
  OK(sslm_model_unmap(model));
  OK(sslm_kv_pool_destroy(memory.pool));
}

static void an_adapter_of_another_base_is_refused_and_so_is_anything_cut_short(void) {
  const sslm_model model = map_artifact(WIDE), other = map_artifact(OTHER);
  const unsigned char* data = (const unsigned char*)check_artifacts[FIRST_ADAPTER].data;
  const size_t size = check_artifacts[FIRST_ADAPTER].size;
  sslm_adapter adapter = (sslm_adapter)1;
  char why[256];
  size_t n = sizeof(why), cut;
  STATUS(ADAPTER_MODEL_MISMATCH, sslm_adapter_map(data, size, other, &adapter));
  CHECK(adapter == NULL);
  STATUS(ADAPTER_MODEL_MISMATCH, sslm_ext_adapter_check(other, data, size, why, &n));
  CHECK(strstr(why, "another base") != NULL && strlen(why) == n);
  for (cut = 0; cut < size; cut = cut < 2048 ? cut + 61 : cut + size / 19) {
    adapter = (sslm_adapter)1;
    STATUS(ARTIFACT_REJECTED, sslm_adapter_map(data, cut, model, &adapter));
    CHECK(adapter == NULL);
  }
  STATUS(ARTIFACT_REJECTED,
         sslm_adapter_map(check_artifacts[WIDE].data, check_artifacts[WIDE].size, model, &adapter));
  STATUS(ARTIFACT_REJECTED, sslm_model_map(data, size, (sslm_model*)&adapter));
  CHECK_INT(sslm_adapter_residency(NULL), 0);
  adapter = map_adapter(model, 0);
  CHECK_INT(sslm_adapter_residency(adapter), size);
  OK(sslm_adapter_release(adapter));
  OK(sslm_model_unmap(other));
  OK(sslm_model_unmap(model));
}

static void an_adapter_of_another_model_cannot_be_bound(void) {
  const sslm_model model = map_artifact(WIDE), twin = map_artifact(WIDE);
  const sslm_adapter adapter = map_adapter(twin, 0);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  STATUS(ADAPTER_MODEL_MISMATCH, sslm_seq_set_adapter(seq, adapter));
  OK(sslm_adapter_release(adapter));
  OK(sslm_seq_release(seq));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(twin));
  OK(sslm_model_unmap(model));
}

static void the_heap_that_a_failed_map_drew_is_given_back(void) {
  const sslm_model model = map_artifact(WIDE);
  int64_t failing;
  for (failing = 0; failing < 2; ++failing) {
    sslm_adapter adapter = (sslm_adapter)1;
    sslm_test_fail_allocation_after(failing);
    STATUS(ALLOCATION_FAILED, sslm_adapter_map(check_artifacts[FIRST_ADAPTER].data,
                                               check_artifacts[FIRST_ADAPTER].size, model, &adapter));
    sslm_test_fail_allocation_after(-1);
    CHECK(adapter == NULL);
  }
  OK(sslm_model_unmap(model)); /* nothing counts as live */
}

/* ---- Swaps ---- */

static void an_adapter_changes_only_at_a_token_boundary(void) {
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  const sslm_adapter a = map_adapter(model, 0), b = map_adapter(model, 1);
  blob before;
  OK(sslm_seq_set_adapter(seq, a));
  prefill_run(model, seq, 6, 1, NULL);
  decode_token(model, seq, NULL);
  rest_mid_token(model, seq, 1, NULL);
  before = save(seq);
  STATUS(ADAPTER_SWAP_MIDTOKEN_REJECTED, sslm_seq_set_adapter(seq, b));
  STATUS(ADAPTER_SWAP_MIDTOKEN_REJECTED, sslm_seq_set_adapter(seq, a));
  STATUS(ADAPTER_SWAP_MIDTOKEN_REJECTED, sslm_seq_set_adapter(seq, NULL));
  CHECK_UNCHANGED(seq, before);
  STATUS(ADAPTER_HAS_LIVE_SEQUENCES, sslm_adapter_release(a));
  OK(sslm_adapter_release(b)); /* the refused one was not bound */
  OK(sslm_seq_reset(seq));
  OK(sslm_seq_set_adapter(seq, NULL));
  OK(sslm_adapter_release(a));
  FINISH(model, memory.pool, NULL, seq);
}

static void a_swap_between_tokens_equals_a_sequence_that_was_restored_to_it(void) {
  enum { COUNT = 5 };
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq seq = make_seq(model, memory.pool);
  sslm_adapter adapters[ADAPTERS];
  int32_t got[COUNT], expected[COUNT];
  int i;
  for (i = 0; i < ADAPTERS; ++i) adapters[i] = map_adapter(model, i);
  prefill_run(model, seq, 8, 2, NULL);
  decode_token(model, seq, NULL);
  for (i = 0; i <= ADAPTERS; ++i) {
    const sslm_adapter adapter = i < ADAPTERS ? adapters[i] : NULL;
    const blob here = save(seq);
    sslm_kv_pool pool = memory.pool;
    sslm_seq twin = NULL;
    OK(sslm_seq_restore(model, &pool, here.bytes, here.size, &twin)); /* without an adapter */
    OK(sslm_seq_set_adapter(seq, adapter));
    OK(sslm_seq_set_adapter(twin, adapter));
    decode_run(model, seq, COUNT, NULL, got);
    decode_run(model, twin, COUNT, NULL, expected);
    CHECK(memcmp(got, expected, sizeof(got)) == 0);
    CHECK_SAME(seq, twin);
    OK(sslm_seq_release(twin));
    free(here.bytes);
  }
  OK(sslm_seq_release(seq));
  for (i = 0; i < ADAPTERS; ++i) OK(sslm_adapter_release(adapters[i]));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_binding_survives_reset_and_adopt_and_shapes_no_prefix(void) {
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 4);
  const sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  const sslm_adapter adapter = map_adapter(model, 0);
  sslm_prefix prefix = NULL;
  OK(sslm_prefix_begin(model, &memory.pool, &prefix));
  prefill_prefix(model, prefix, 7, 3, NULL);
  OK(sslm_prefix_freeze(prefix));
  OK(sslm_seq_set_adapter(seq, adapter));
  OK(sslm_seq_adopt_prefix(seq, prefix));
  prefill_run(model, twin, 7, 3, NULL);
  CHECK_SAME(seq, twin); /* the prefix holds the base's rows */
  OK(sslm_seq_set_adapter(twin, adapter));
  decode_run(model, seq, 3, NULL, NULL);
  decode_run(model, twin, 3, NULL, NULL);
  CHECK_SAME(seq, twin);
  OK(sslm_seq_reset(seq));
  OK(sslm_seq_reset(twin));
  OK(sslm_seq_set_adapter(twin, NULL));
  prefill_run(model, seq, 7, 3, NULL);
  prefill_run(model, twin, 7, 3, NULL);
  {
    const blob shaped = save(seq), plain = save(twin);
    CHECK(!equal_blobs(shaped, plain));
    free(shaped.bytes);
    free(plain.bytes);
  }
  OK(sslm_seq_release(seq));
  OK(sslm_seq_release(twin));
  OK(sslm_prefix_release(prefix));
  OK(sslm_adapter_release(adapter));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

/* ---- Mixed batches ---- */

enum { BATCH = 8, TOKENS = 6 };

/* Sequence i of the batch: two have no adapter, the other six share four. */
static int adapter_of(int i) { return i == 2 || i == 5 ? -1 : i % ADAPTERS; }

static void start(sslm_model model, sslm_seq seq, sslm_adapter* adapters, int i, sslm_workspace ws) {
  OK(sslm_seq_set_adapter(seq, adapter_of(i) < 0 ? NULL : adapters[adapter_of(i)]));
  prefill_run(model, seq, 4 + i, (uint32_t)(30 + i % 3), ws);
}

#if HAS_THREADS
typedef struct lane {
  sslm_task_fn task;
  void* context;
  int32_t first, count;
} lane;

enum { LANES = 3 };

static void* run_lane(void* argument) {
  const lane* l = (const lane*)argument;
  int32_t i;
  for (i = l->first; i < l->count; i += LANES) l->task(l->context, i);
  return NULL;
}

static void run_threaded(void* context, int32_t count, sslm_task_fn task, void* task_context) {
  pthread_t threads[LANES];
  lane lanes[LANES];
  int32_t i;
  ++*(int*)context;
  for (i = 0; i < LANES; ++i) {
    const lane l = {task, task_context, i, count};
    lanes[i] = l;
    if (pthread_create(&threads[i], NULL, run_lane, &lanes[i]) != 0)
      check_fail(__FILE__, __LINE__, "no thread");
  }
  for (i = 0; i < LANES; ++i) pthread_join(threads[i], NULL);
}
#endif

static void run_backwards(void* context, int32_t count, sslm_task_fn task, void* task_context) {
  ++*(int*)context;
  while (count > 0) task(task_context, --count);
}

static void a_batch_of_eight_gives_each_its_solo_tokens_and_blob(void) {
  const sslm_model model = map_artifact(WIDE);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2 * BATCH);
  const sslm_workspace ws = make_workspace(model, BATCH, 16);
  sslm_adapter adapters[ADAPTERS];
  sslm_seq solo[BATCH], batch[BATCH];
  int32_t expected[BATCH][TOKENS];
  int i, style, sliced, distinct = 0;
  for (i = 0; i < ADAPTERS; ++i) adapters[i] = map_adapter(model, i);
  for (i = 0; i < BATCH; ++i) {
    solo[i] = make_seq(model, memory.pool);
    batch[i] = make_seq(model, memory.pool);
    start(model, solo[i], adapters, i, NULL);
    decode_run(model, solo[i], TOKENS, NULL, expected[i]);
    distinct += i > 0 && memcmp(expected[i], expected[0], sizeof(expected[i])) != 0;
  }
  CHECK(distinct > 0);
  for (style = 0; style < 2 + HAS_THREADS; ++style) {
    for (sliced = 0; sliced < 2; ++sliced) {
      int calls = 0, done = 0;
      sslm_parallel_for pf = {NULL, &calls, 8, SSLM_PARALLEL_FOR_MATVEC};
      if (style == 1) pf.run = run_backwards;
#if HAS_THREADS
      if (style == 2) pf.run = run_threaded;
#endif
      OK(sslm_workspace_set_parallel_for(ws, pf.run == NULL ? NULL : &pf));
      for (i = 0; i < BATCH; ++i) {
        OK(sslm_seq_reset(batch[i]));
        start(model, batch[i], adapters, i, ws);
      }
      while (done < TOKENS) {
        int32_t out[BATCH];
        OK(step(model, batch, BATCH, sliced ? 1 : layers, ws, out));
        for (i = 0; i < BATCH; ++i) CHECK_INT(out[i], out[0] < 0 ? -1 : expected[i][done]);
        done += out[0] >= 0;
      }
      CHECK((calls > 0) == (style > 0));
      for (i = 0; i < BATCH; ++i) CHECK_SAME(batch[i], solo[i]);
    }
  }
  for (i = 0; i < BATCH; ++i) {
    OK(sslm_seq_release(solo[i]));
    OK(sslm_seq_release(batch[i]));
  }
  for (i = 0; i < ADAPTERS; ++i) OK(sslm_adapter_release(adapters[i]));
  OK(sslm_workspace_destroy(ws));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_covering_workspace_leaves_the_heap_alone_with_adapters_too(void) {
  const sslm_model model = map_artifact(WIDE);
  const check_counter allocations = check_heap_allocations();
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 2, 16);
  sslm_adapter adapters[2];
  sslm_seq seqs[2];
  int32_t out[2], *tokens = token_run(model, 12, 7), consumed;
  uint64_t before;
  int i;
  for (i = 0; i < 2; ++i) {
    adapters[i] = map_adapter(model, i);
    seqs[i] = make_seq(model, memory.pool);
    OK(sslm_seq_set_adapter(seqs[i], adapters[i]));
  }
  before = allocations();
  for (i = 0; i < 2; ++i) OK(sslm_prefill(model, seqs[i], tokens, 12, 12, SSLM_SPAN_PROMPT, ws, &consumed));
  for (i = 0; i < 4; ++i) {
    sslm_decode_params params = {0};
    params.layer_budget = info_of(model).layers;
    OK(sslm_decode_step(model, seqs, 2, &params, ws, out));
    OK(sslm_seq_set_adapter(seqs[i % 2], i < 2 ? NULL : adapters[i % 2]));
  }
  CHECK_INT(allocations() - before, 0);
  free(tokens);
  for (i = 0; i < 2; ++i) OK(sslm_seq_release(seqs[i]));
  for (i = 0; i < 2; ++i) OK(sslm_adapter_release(adapters[i]));
  OK(sslm_workspace_destroy(ws));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static const cell cells[] = {
    CELL(a_bound_adapter_cannot_be_released_and_a_sequence_release_drops_the_binding),
    CELL(a_live_adapter_keeps_its_model_mapped_and_usable),
    CELL(an_adapter_of_another_base_is_refused_and_so_is_anything_cut_short),
    CELL(an_adapter_of_another_model_cannot_be_bound),
    CELL(the_heap_that_a_failed_map_drew_is_given_back),
    CELL(an_adapter_changes_only_at_a_token_boundary),
    CELL(a_swap_between_tokens_equals_a_sequence_that_was_restored_to_it),
    CELL(a_binding_survives_reset_and_adopt_and_shapes_no_prefix),
    CELL(a_batch_of_eight_gives_each_its_solo_tokens_and_blob),
    CELL(a_covering_workspace_leaves_the_heap_alone_with_adapters_too),
};

CELLS(cells)
