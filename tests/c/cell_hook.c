/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* The host's job hook: any well-behaved one gives the serial bits, and a faulty one costs no state.
 * Artifacts: a model whose every projection group is wide enough to be split. */
#include "blob_fields.h"
#include "check.h"
#include "pages.h"
#include "sslm_test.h"

#if !defined(__wasm__)
#include <pthread.h>
#define HAS_THREADS 1
#else
#define HAS_THREADS 0
#endif

enum { WIDE };

/* ---- Hooks ---- */

enum fault { NO_FAULT, OMITS, REPEATS, INVENTS_HIGH, INVENTS_NEGATIVE, FAULTS };

typedef struct hook {
  int calls;     /* run calls so far */
  int faulty_at; /* the call that misbehaves, -1: none */
  enum fault fault;
  int reversed;
  int32_t most_tasks; /* seen in one call */
} hook;

static void run_tasks(void* context, int32_t count, sslm_task_fn task, void* task_context) {
  hook* h = (hook*)context;
  const int faulty = h->calls++ == h->faulty_at;
  int32_t i;
  if (count > h->most_tasks) h->most_tasks = count;
  for (i = 0; i < count; ++i) {
    const int32_t index = h->reversed ? count - 1 - i : i;
    if (faulty && h->fault == OMITS && index == count - 1) continue;
    task(task_context, index);
    if (faulty && h->fault == REPEATS && index == 0) task(task_context, 0);
  }
  if (faulty && h->fault == INVENTS_HIGH) task(task_context, count);
  if (faulty && h->fault == INVENTS_NEGATIVE) task(task_context, -1);
}

#if HAS_THREADS
typedef struct lane {
  sslm_task_fn task;
  void* context;
  int32_t first, count, step;
} lane;

static void* run_lane(void* argument) {
  const lane* l = (const lane*)argument;
  int32_t i;
  for (i = l->first; i < l->count; i += l->step) l->task(l->context, i);
  return NULL;
}

static void run_threaded(void* context, int32_t count, sslm_task_fn task, void* task_context) {
  enum { LANES = 3 };
  pthread_t threads[LANES];
  lane lanes[LANES];
  int32_t i;
  ++((hook*)context)->calls;
  for (i = 0; i < LANES; ++i) {
    const lane l = {task, task_context, i, count, LANES};
    lanes[i] = l;
    if (pthread_create(&threads[i], NULL, run_lane, &lanes[i]) != 0)
      check_fail(__FILE__, __LINE__, "no thread");
  }
  for (i = 0; i < LANES; ++i) pthread_join(threads[i], NULL);
}
#endif

static hook good_hook(void) {
  const hook h = {0, -1, NO_FAULT, 0, 0};
  return h;
}

static void install(sslm_workspace ws, sslm_run_tasks_fn run, hook* h, int32_t max_tasks, uint32_t bits) {
  sslm_parallel_for pf;
  pf.run = run;
  pf.host_ctx = h;
  pf.max_tasks = max_tasks;
  pf.reserved = bits;
  OK(sslm_workspace_set_parallel_for(ws, &pf));
}

/* ---- Cells ---- */

static void a_bad_hook_is_refused_and_the_old_one_stays(void) {
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_workspace ws = make_workspace(model, 1, 8);
  const sslm_seq seq = make_seq(model, memory.pool);
  hook h = good_hook();
  const sslm_parallel_for bad[] = {{run_tasks, &h, 4, 1},  {run_tasks, &h, 4, 4},   {run_tasks, &h, 4, 6},
                                   {run_tasks, &h, -1, 0}, {run_tasks, &h, 257, 0}, {NULL, &h, 2, 0}};
  const sslm_parallel_for serial[] = {{NULL, NULL, 0, 0}, {NULL, NULL, 1, 2}, {run_tasks, &h, 1, 2}};
  size_t i;
  int calls;
  prefill_run(model, seq, 5, 1, ws);
  install(ws, run_tasks, &h, 4, 0);
  for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    STATUS(INVALID_ARGUMENT, sslm_workspace_set_parallel_for(ws, &bad[i]));
    calls = h.calls;
    decode_token(model, seq, ws);
    CHECK_INT(h.calls, calls + 1); /* the logits of the old hook */
  }
  for (i = 0; i < 3; ++i) {
    OK(sslm_workspace_set_parallel_for(ws, &serial[i]));
    calls = h.calls;
    decode_token(model, seq, ws);
    CHECK_INT(h.calls, calls);
    install(ws, run_tasks, &h, 4, 0);
  }
  OK(sslm_workspace_set_parallel_for(ws, NULL));
  calls = h.calls;
  decode_token(model, seq, ws);
  CHECK_INT(h.calls, calls);
  FINISH(model, memory.pool, ws, seq);
}

static void every_hook_gives_the_serial_tokens_counts_and_blobs(void) {
  enum { COUNT = 6 };
  const sslm_model model = map_artifact(WIDE);
  static const int32_t most[] = {1, 2, 4, 8, 256};
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 1, 16);
  const sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  int32_t expected[COUNT], got[COUNT];
  int m, style, bits;
  prefill_run(model, twin, 9, 1, NULL);
  prefill_run(model, twin, 1, 2, NULL);
  decode_run(model, twin, COUNT, NULL, expected);
  for (m = 0; m < 5; ++m)
    for (style = 0; style < 2 + HAS_THREADS; ++style)
      for (bits = 0; bits <= 2; bits += 2) {
        hook h = good_hook();
        h.reversed = style == 1;
#if HAS_THREADS
        install(ws, style == 2 ? run_threaded : run_tasks, &h, most[m], (uint32_t)bits);
#else
        install(ws, run_tasks, &h, most[m], (uint32_t)bits);
#endif
        OK(sslm_seq_reset(seq));
        prefill_run(model, seq, 9, 1, ws);
        prefill_run(model, seq, 1, 2, ws);
        decode_run(model, seq, COUNT, ws, got);
        CHECK((h.calls > 0) == (most[m] > 1));
        CHECK(h.most_tasks <= most[m]);
        CHECK(memcmp(expected, got, sizeof(got)) == 0);
        CHECK_SAME(seq, twin);
      }
  FINISH(model, memory.pool, ws, seq, twin);
}

static void calls_per_token_follow_the_bit(void) {
  const sslm_model model = map_artifact(WIDE);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_workspace ws = make_workspace(model, 1, 16);
  const sslm_seq seq = make_seq(model, memory.pool);
  hook h = good_hook();
  prefill_run(model, seq, 5, 1, NULL);
  install(ws, run_tasks, &h, 4, 0);
  decode_token(model, seq, ws); /* ready: logits only */
  decode_token(model, seq, ws);
  CHECK_INT(h.calls, 2);
  install(ws, run_tasks, &h, 4, SSLM_PARALLEL_FOR_MATVEC);
  h.calls = 0;
  decode_token(model, seq, ws);
  CHECK_INT(h.calls, 5 * layers + 1);
  FINISH(model, memory.pool, ws, seq);
}

static void a_joint_pass_is_split_once_for_all_its_entries(void) {
  enum { BATCH = 4 };
  const sslm_model model = map_artifact(WIDE);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2 * BATCH);
  const sslm_workspace ws = make_workspace(model, BATCH, 16);
  sslm_seq batch[BATCH], twins[BATCH];
  int32_t out[BATCH], expected[BATCH], i;
  hook h = good_hook();
  install(ws, run_tasks, &h, 4, SSLM_PARALLEL_FOR_MATVEC);
  for (i = 0; i < BATCH; ++i) {
    batch[i] = make_seq(model, memory.pool);
    twins[i] = make_seq(model, memory.pool);
    prefill_run(model, batch[i], 4 + i, (uint32_t)i, NULL);
    prefill_run(model, twins[i], 4 + i, (uint32_t)i, NULL);
    decode_token(model, batch[i], NULL);
    decode_token(model, twins[i], NULL);
  }
  OK(step(model, batch, BATCH, layers, ws, out));
  CHECK_INT(h.calls, 5 * layers + 1);
  for (i = 0; i < BATCH; ++i) {
    expected[i] = decode_token(model, twins[i], NULL);
    CHECK_INT(out[i], expected[i]);
    CHECK_SAME(batch[i], twins[i]);
    OK(sslm_seq_release(batch[i]));
    OK(sslm_seq_release(twins[i]));
  }
  OK(sslm_workspace_destroy(ws));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_prefill_is_split_only_when_it_admits_one_token(void) {
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_workspace ws = make_workspace(model, 1, 16);
  const sslm_seq seq = make_budgeted(model, memory.pool, 1);
  hook h = good_hook();
  int32_t tokens[2] = {1, 2}, consumed = 0;
  install(ws, run_tasks, &h, 4, SSLM_PARALLEL_FOR_MATVEC);
  STATUS(KV_BUDGET_EXCEEDED, sslm_prefill(model, seq, tokens, 2, 2, SSLM_SPAN_PROMPT, ws, &consumed));
  CHECK_INT(consumed, 1); /* q, o, gate, up and down; k and v alone are too small here */
  CHECK_INT(h.calls, 5 * info_of(model).layers);
  OK(sslm_seq_release(seq));
  {
    const sslm_seq two = make_budgeted(model, memory.pool, 2);
    h.calls = 0;
    prefill(model, two, tokens, 2, ws);
    CHECK_INT(h.calls, 0);
    OK(sslm_seq_release(two));
  }
  install(ws, run_tasks, &h, 4, 0);
  {
    const sslm_seq one = make_budgeted(model, memory.pool, 2);
    prefill(model, one, tokens, 1, ws);
    CHECK_INT(h.calls, 0);
    OK(sslm_seq_release(one));
  }
  OK(sslm_workspace_destroy(ws));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static int32_t field(sslm_seq seq, size_t at) {
  const blob state = save(seq);
  int32_t value;
  memcpy(&value, state.bytes + at, 4);
  free(state.bytes);
  return value;
}

static void a_faulty_hook_in_decode_costs_no_state_at_any_group(void) {
  const sslm_model model = map_artifact(WIDE);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 1, 16);
  sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  const int groups = 5 * layers + 1;
  int call, fault;
  prefill_run(model, twin, 9, 1, NULL);
  decode_run(model, twin, 2, NULL, NULL);
  for (call = 0; call < groups; ++call)
    for (fault = OMITS; fault < FAULTS; ++fault) {
      const int layer = call / 5; /* the logits count as layer L */
      hook h = good_hook();
      int32_t out = 77;
      blob before;
      h.faulty_at = call;
      h.fault = (enum fault)fault;
      OK(sslm_seq_reset(seq));
      prefill_run(model, seq, 9, 1, NULL);
      decode_token(model, seq, NULL);
      before = save(seq);
      install(ws, run_tasks, &h, 4, SSLM_PARALLEL_FOR_MATVEC);
      STATUS(INVALID_ARGUMENT, step(model, &seq, 1, layers, ws, &out));
      CHECK_INT(out, 77);
      CHECK_INT(h.calls, call + 1);
      if (layer == 0) {
        CHECK_UNCHANGED(seq, before);
      } else {
        free(before.bytes);
        CHECK_INT(field(seq, AT_LAYER), layer < layers ? layer : 0);
        CHECK_INT(field(seq, AT_READY), layer == layers);
        CHECK_INT(field(seq, AT_PENDING), -1);
      }
      decode_token(model, seq, ws); /* the same hook, behaving again */
      CHECK_SAME(seq, twin);
    }
  FINISH(model, memory.pool, ws, seq, twin);
}

static void a_fault_in_a_joint_pass_stops_its_first_entry_and_leaves_the_others(void) {
  enum { BATCH = 3 };
  const sslm_model model = map_artifact(WIDE);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2 * BATCH);
  const sslm_workspace ws = make_workspace(model, BATCH, 16);
  sslm_seq batch[BATCH], twins[BATCH];
  int32_t out[BATCH], i, call;
  for (i = 0; i < BATCH; ++i) {
    batch[i] = make_seq(model, memory.pool);
    twins[i] = make_seq(model, memory.pool);
    prefill_run(model, twins[i], 4 + i, (uint32_t)i, NULL);
    decode_run(model, twins[i], 2, NULL, NULL);
  }
  for (call = 0; call <= 5 * layers; ++call) {
    hook h = good_hook();
    blob before[BATCH];
    h.faulty_at = call;
    h.fault = OMITS;
    install(ws, run_tasks, &h, 4, SSLM_PARALLEL_FOR_MATVEC);
    for (i = 0; i < BATCH; ++i) {
      OK(sslm_seq_reset(batch[i]));
      prefill_run(model, batch[i], 4 + i, (uint32_t)i, NULL);
      decode_token(model, batch[i], NULL);
      before[i] = save(batch[i]);
      out[i] = 77;
    }
    STATUS(INVALID_ARGUMENT, step(model, batch, BATCH, layers, ws, out));
    for (i = 0; i < BATCH; ++i) {
      CHECK_INT(out[i], 77);
      if (i > 0 || call < 5) CHECK_UNCHANGED(batch[i], before[i]);
    }
    if (call >= 5) CHECK_INT(field(batch[0], AT_LAYER), call / 5 < layers ? call / 5 : 0);
    OK(step(model, batch, BATCH, layers, ws, out));
    for (i = 0; i < BATCH; ++i) CHECK_SAME(batch[i], twins[i]);
  }
  for (i = 0; i < BATCH; ++i) {
    OK(sslm_seq_release(batch[i]));
    OK(sslm_seq_release(twins[i]));
  }
  OK(sslm_workspace_destroy(ws));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_fault_in_a_joint_pass_maps_no_page_for_the_entries_behind_it(void) {
  enum { BATCH = 3, PAGE = 8 };
  sslm_model model;
  pool_memory memory;
  sslm_workspace ws;
  sslm_seq batch[BATCH];
  int32_t out[BATCH], i, call, layers;
  sslm_test_pin_page_positions(PAGE);
  model = map_artifact(WIDE);
  layers = info_of(model).layers;
  memory = make_pool(model, PAGE_POOL, 3 * BATCH);
  ws = make_workspace(model, BATCH, 16);
  for (i = 0; i < BATCH; ++i) batch[i] = make_budgeted(model, memory.pool, 2 * PAGE);
  for (call = 0; call <= 5 * layers; ++call) {
    hook h = good_hook();
    sslm_seq_kv_stats_out before[BATCH], after;
    h.faulty_at = call;
    h.fault = OMITS;
    install(ws, run_tasks, &h, 4, SSLM_PARALLEL_FOR_MATVEC);
    for (i = 0; i < BATCH; ++i) {
      OK(sslm_seq_reset(batch[i]));
      prefill_run(model, batch[i], PAGE, (uint32_t)i, NULL);
      decode_token(model, batch[i], NULL); /* its row will be the first of a page */
      before[i] = kv_stats(batch[i]);
    }
    STATUS(INVALID_ARGUMENT, step(model, batch, BATCH, layers, ws, out));
    for (i = 1; i < BATCH; ++i) {
      after = kv_stats(batch[i]);
      CHECK(memcmp(&after, &before[i], sizeof(after)) == 0);
    }
    OK(step(model, batch, BATCH, layers, ws, out));
    for (i = 0; i < BATCH; ++i) CHECK_INT(kv_stats(batch[i]).mapped_private_pages, 2);
  }
  for (i = 0; i < BATCH; ++i) OK(sslm_seq_release(batch[i]));
  OK(sslm_workspace_destroy(ws));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
  sslm_test_pin_page_positions(0);
}

static void a_faulty_hook_in_a_one_token_prefill_changes_nothing(void) {
  const sslm_model model = map_artifact(WIDE);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 1, 16);
  sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  const int32_t token = 7;
  int call, fault, state;
  for (state = 0; state < 3; ++state) /* ready, pending, mid-token */
    for (call = 0; call < 5 * layers; ++call)
      for (fault = OMITS; fault < FAULTS; ++fault) {
        hook h = good_hook();
        int32_t consumed = 77;
        blob before;
        h.faulty_at = call;
        h.fault = (enum fault)fault;
        OK(sslm_seq_reset(seq));
        OK(sslm_seq_reset(twin));
        prefill_run(model, seq, 9, 1, NULL);
        prefill_run(model, twin, 9, 1, NULL);
        if (state > 0) decode_token(model, seq, NULL);
        if (state > 0) decode_token(model, twin, NULL);
        if (state > 1) rest_mid_token(model, seq, 1, NULL);
        before = save(seq);
        install(ws, run_tasks, &h, 4, SSLM_PARALLEL_FOR_MATVEC);
        STATUS(INVALID_ARGUMENT, sslm_prefill(model, seq, &token, 1, 1, SSLM_SPAN_PROMPT, ws, &consumed));
        CHECK_INT(consumed, 0);
        CHECK_UNCHANGED(seq, before);
        OK(sslm_prefill(model, seq, &token, 1, 1, SSLM_SPAN_PROMPT, ws, &consumed));
        OK(sslm_prefill(model, twin, &token, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
        CHECK_SAME(seq, twin);
      }
  FINISH(model, memory.pool, ws, seq, twin);
}

static sslm_workspace make_spread_workspace(sslm_model model, int32_t chunk, int32_t max_tasks) {
  sslm_config config = {4, chunk, 1, 0};
  sslm_workspace ws = NULL;
  const size_t size = sslm_ext_workspace_size_parallel(model, &config, max_tasks);
  CHECK(size > sslm_workspace_size(model, &config));
  OK(sslm_workspace_create(model, &config, aligned(size), size, &ws));
  return ws;
}

static void a_spread_hook_serves_prefill_and_gives_the_same_bits(void) {
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace roomy = make_spread_workspace(model, 16, 4), tight = make_workspace(model, 1, 16);
  const sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  const sslm_config config = {1, 16, 1, 0};
  int spread;
  CHECK_INT(sslm_ext_workspace_size_parallel(NULL, &config, 4), 0);
  CHECK_INT(sslm_ext_workspace_size_parallel(model, NULL, 4), 0);
  CHECK_INT(sslm_ext_workspace_size_parallel(model, &config, 0), 0);
  CHECK_INT(sslm_ext_workspace_size_parallel(model, &config, 257), 0);
  CHECK_INT(sslm_ext_workspace_size_parallel(model, &config, 1), sslm_workspace_size(model, &config));
  STATUS(INVALID_ARGUMENT, sslm_ext_workspace_set_parallel(NULL, SSLM_EXT_PARALLEL_SPREAD));
  STATUS(INVALID_ARGUMENT, sslm_ext_workspace_set_parallel(roomy, 2));
  prefill_run(model, twin, 13, 1, NULL);
  decode_token(model, twin, NULL);
  for (spread = 0; spread < 2; ++spread) {
    hook h = good_hook();
    h.reversed = 1;
    OK(sslm_ext_workspace_set_parallel(roomy, spread ? SSLM_EXT_PARALLEL_SPREAD : 0));
    OK(sslm_ext_workspace_set_parallel(tight, SSLM_EXT_PARALLEL_SPREAD));
    install(roomy, run_tasks, &h, 4, 0);
    install(tight, run_tasks, &h, 4, 0);
    OK(sslm_seq_reset(seq));
    prefill_run(model, seq, 13, 1, roomy);
    CHECK((h.calls > 0) == spread);
    decode_token(model, seq, roomy);
    CHECK_SAME(seq, twin);
    h.calls = 0;
    OK(sslm_seq_reset(seq));
    prefill_run(model, seq, 13, 1, tight);
    CHECK_INT(h.calls, 0);
    decode_token(model, seq, tight);
    CHECK_SAME(seq, twin);
  }
  OK(sslm_seq_release(seq));
  OK(sslm_seq_release(twin));
  OK(sslm_workspace_destroy(roomy));
  OK(sslm_workspace_destroy(tight));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_faulty_spread_hook_in_a_prefill_changes_nothing(void) {
  const sslm_model model = map_artifact(WIDE);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_workspace ws = make_spread_workspace(model, 16, 4);
  const sslm_seq seq = make_seq(model, memory.pool);
  int32_t* tokens = token_run(model, 12, 5);
  int call;
  hook h = good_hook();
  prefill_run(model, seq, 5, 1, NULL);
  decode_token(model, seq, NULL);
  rest_mid_token(model, seq, 1, NULL);
  OK(sslm_ext_workspace_set_parallel(ws, SSLM_EXT_PARALLEL_SPREAD));
  for (call = 0;; ++call) {
    const blob before = save(seq);
    int32_t consumed = 77;
    sslm_status status;
    h = good_hook();
    h.faulty_at = call;
    h.fault = (enum fault)(OMITS + call % (FAULTS - OMITS));
    install(ws, run_tasks, &h, 4, 0);
    status = sslm_prefill(model, seq, tokens, 12, 12, SSLM_SPAN_PROMPT, ws, &consumed);
    if (status == SSLM_OK) {
      CHECK_INT(h.calls, call);
      free(before.bytes);
      break;
    }
    CHECK_INT(status, SSLM_INVALID_ARGUMENT);
    CHECK_INT(consumed, 0);
    CHECK_UNCHANGED(seq, before);
  }
  CHECK(call > info_of(model).layers);
  free(tokens);
  FINISH(model, memory.pool, ws, seq);
}

static const cell cells[] = {
    CELL(a_bad_hook_is_refused_and_the_old_one_stays),
    CELL(every_hook_gives_the_serial_tokens_counts_and_blobs),
    CELL(calls_per_token_follow_the_bit),
    CELL(a_joint_pass_is_split_once_for_all_its_entries),
    CELL(a_prefill_is_split_only_when_it_admits_one_token),
    CELL(a_faulty_hook_in_decode_costs_no_state_at_any_group),
    CELL(a_fault_in_a_joint_pass_stops_its_first_entry_and_leaves_the_others),
    CELL(a_fault_in_a_joint_pass_maps_no_page_for_the_entries_behind_it),
    CELL(a_faulty_hook_in_a_one_token_prefill_changes_nothing),
    CELL(a_spread_hook_serves_prefill_and_gives_the_same_bits),
    CELL(a_faulty_spread_hook_in_a_prefill_changes_nothing),
};

CELLS(cells)
