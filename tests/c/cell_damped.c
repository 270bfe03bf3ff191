/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Damped greedy: availability, the domain of its parameters, its history across save, reset and refusals.
 * Artifacts: a small model with the schemas of tests/schema_fixtures.py, a model without a logit scale. */
#include "check.h"

enum { MODEL, WITHOUT_SCALE };
enum { HISTORY_ORDER_AT = 108, HISTORY_LENGTH_AT = 112 };

static sslm_decode_params damped(sslm_model model) {
  sslm_decode_params params;
  OK(sslm_decode_params_init(model, SSLM_DECODE_MODE_DAMPED_GREEDY, info_of(model).layers, &params));
  return params;
}

static sslm_status damped_step(sslm_model model, sslm_seq seq, const sslm_decode_params* params,
                               int32_t* out) {
  return sslm_decode_step_v2(model, &seq, 1, params, NULL, out);
}

static int32_t damped_token(sslm_model model, sslm_seq seq, const sslm_decode_params* params) {
  int32_t token = -9;
  OK(damped_step(model, seq, params, &token));
  return token;
}

static void check_history(sslm_seq seq, int32_t order, uint64_t length) {
  const blob saved = save(seq);
  int32_t got_order;
  uint64_t got_length;
  memcpy(&got_order, saved.bytes + HISTORY_ORDER_AT, sizeof(got_order));
  memcpy(&got_length, saved.bytes + HISTORY_LENGTH_AT, sizeof(got_length));
  CHECK_INT(got_order, order);
  CHECK_INT(got_length, length);
  free(saved.bytes);
}

static void a_model_without_a_logit_scale_refuses_damped_mode_only(void) {
  const sslm_model model = map_artifact(WITHOUT_SCALE), good = map_artifact(MODEL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  sslm_decode_params params = damped(good), untouched;
  blob before;
  int32_t out = 77;
  memset(&untouched, 0x5A, sizeof(untouched));
  STATUS(ARTIFACT_REJECTED, sslm_decode_params_init(model, SSLM_DECODE_MODE_DAMPED_GREEDY, 1, &untouched));
  CHECK_INT(untouched.layer_budget, 0x5A5A5A5A);
  prefill_run(model, seq, 5, 1, NULL);
  before = save(seq);
  params.layer_budget = info_of(model).layers;
  STATUS(ARTIFACT_REJECTED, damped_step(model, seq, &params, &out));
  CHECK_INT(out, 77);
  CHECK_UNCHANGED(seq, before);
  params.mode = SSLM_DECODE_MODE_GREEDY;
  OK(damped_step(model, seq, &params, &out));
  CHECK(out >= 0);
  OK(sslm_seq_release(seq));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(good));
  OK(sslm_model_unmap(model));
}

static void parameters_outside_their_range_are_refused_and_the_ends_accepted(void) {
  const sslm_model model = map_artifact(MODEL);
  const int32_t vocab = info_of(model).vocab;
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  sslm_decode_params bad[10], good = damped(model);
  int32_t out = 77, i;
  blob before;
  prefill_run(model, seq, 5, 1, NULL);
  before = save(seq);
  for (i = 0; i < 10; ++i) bad[i] = good;
  bad[0].alpha_q15 = -1;
  bad[1].alpha_q15 = 1 << 20;
  bad[2].anti_lm_max_order = 0;
  bad[3].anti_lm_max_order = 83;
  bad[4].top_k = 0;
  bad[5].top_k = vocab + 1;
  bad[6].mode = 2;
  bad[7].layer_budget = 0;
  bad[8].struct_size = 40;
  bad[9].mode = -1;
  for (i = 0; i < 10; ++i) STATUS(INVALID_ARGUMENT, damped_step(model, seq, &bad[i], &out));
  CHECK_INT(out, 77);
  CHECK_UNCHANGED(seq, before);
  good.alpha_q15 = (1 << 20) - 1;
  good.anti_lm_max_order = 82;
  good.top_k = vocab;
  CHECK(damped_token(model, seq, &good) >= 0);
  for (i = 0; i < 10; ++i) {
    if (i == 6 || i == 7 || i == 8 || i == 9) continue;
    bad[i].mode = SSLM_DECODE_MODE_GREEDY; /* the damped fields are ignored there */
    CHECK(damped_token(model, seq, &bad[i]) >= 0);
  }
  FINISH(model, memory.pool, NULL, seq);
}

static void constants_outside_their_domain_are_refused_before_any_state_moves(void) {
  static const struct {
    int64_t q_ln2, q_b, q_c;
  } cases[] = {{0, 88670, 4121251740},
               {-1, 88670, 4121251740},
               {INT64_MAX / 30 + 1, 88670, 4121251740},
               {INT64_MAX, 88670, 4121251740},
               {45426, 0, 0},
               {45426, 11863283, INT64_C(4121251740)},
               {45426, 88670, INT64_MAX},
               {45426, INT64_MIN, 0},
               {45426, INT64_MAX, INT64_MIN},
               {45426, 1, -2},
               {45426, 0, (INT64_C(1) << 47) + 1}};
  const sslm_model model = map_artifact(MODEL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  sslm_decode_params params = damped(model);
  blob before;
  int32_t out = 77;
  size_t i;
  CHECK_INT(params.alpha_q15, 65536);
  CHECK_INT(params.anti_lm_max_order, 2);
  CHECK_INT(params.top_k, 6);
  CHECK_INT(params.struct_size, sizeof(params));
  prefill_run(model, seq, 5, 1, NULL);
  before = save(seq);
  for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    params.q_ln2 = cases[i].q_ln2;
    params.q_b = cases[i].q_b;
    params.q_c = cases[i].q_c;
    STATUS(INVALID_ARGUMENT, damped_step(model, seq, &params, &out));
  }
  CHECK_INT(out, 77);
  CHECK_UNCHANGED(seq, before);
  FINISH(model, memory.pool, NULL, seq);
}

static void the_history_is_saved_emptied_and_started_over(void) {
  const sslm_model model = map_artifact(MODEL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 4);
  const sslm_seq seq = make_seq(model, memory.pool);
  sslm_seq restored = NULL;
  sslm_prefix empty = NULL;
  sslm_decode_params params = damped(model), longer = params;
  blob saved;
  int i;
  longer.anti_lm_max_order = 5;
  prefill_run(model, seq, 5, 1, NULL);
  check_history(seq, 0, 0);
  for (i = 0; i < 20; ++i) CHECK(damped_token(model, seq, &params) >= 0);
  check_history(seq, 2, 20);
  decode_run(model, seq, 3, NULL, NULL); /* greedy tokens do not enter */
  prefill_run(model, seq, 3, 2, NULL);   /* nor do prefilled ones */
  check_history(seq, 2, 20);
  saved = save(seq);
  OK(sslm_seq_restore(model, &memory.pool, saved.bytes, saved.size, &restored));
  for (i = 0; i < 20; ++i)
    CHECK_INT(damped_token(model, restored, &params), damped_token(model, seq, &params));
  CHECK_SAME(restored, seq);
  CHECK(damped_token(model, seq, &longer) >= 0);
  check_history(seq, 5, 1);
  OK(sslm_seq_reset(seq));
  check_history(seq, 0, 0);
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 1, &empty));
  OK(sslm_prefix_freeze(empty));
  OK(sslm_seq_adopt_prefix(restored, empty));
  check_history(restored, 0, 0);
  OK(sslm_prefix_release(empty));
  OK(sslm_seq_release(restored));
  OK(sslm_seq_release(seq));
  free(saved.bytes);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_numeric_refusal_leaves_no_trace_for_the_retry(void) {
  const sslm_model model = map_artifact(MODEL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  const sslm_decode_params params = damped(model);
  sslm_decode_params refused = params;
  blob before;
  int32_t out = 77;
  int i;
  refused.q_ln2 = 1 << 30; /* the polynomial rises again far below zero */
  refused.q_b = 1;
  refused.q_c = 0;
  refused.anti_lm_max_order = 4;
  prefill_run(model, seq, 5, 1, NULL);
  prefill_run(model, twin, 5, 1, NULL);
  for (i = 0; i < 6; ++i) CHECK_INT(damped_token(model, seq, &params), damped_token(model, twin, &params));
  STATUS(NUMERIC_STEP_REFUSED, damped_step(model, seq, &refused, &out));
  CHECK_INT(out, 77);
  before = save(seq);
  STATUS(NUMERIC_STEP_REFUSED, damped_step(model, seq, &refused, &out));
  CHECK_UNCHANGED(seq, before);
  for (i = 0; i < 6; ++i) CHECK_INT(damped_token(model, seq, &params), damped_token(model, twin, &params));
  CHECK_SAME(seq, twin);
  FINISH(model, memory.pool, NULL, twin, seq);
}

static void exhausted_memory_at_the_first_damped_step_can_be_retried(void) {
  const sslm_model model = map_artifact(MODEL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 1, 8);
  sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  const sslm_decode_params params = damped(model);
  int32_t out = 77, i;
  prefill_run(model, seq, 5, 1, ws);
  prefill_run(model, twin, 5, 1, ws);
  sslm_test_fail_allocation_after(0);
  STATUS(ALLOCATION_FAILED, sslm_decode_step_v2(model, &seq, 1, &params, ws, &out));
  sslm_test_fail_allocation_after(-1);
  CHECK_SAME(seq, twin);
  for (i = 0; i < 20; ++i) {
    const uint64_t before = sslm_test_allocation_count();
    int32_t token = -9;
    OK(sslm_decode_step_v2(model, &seq, 1, &params, ws, &token));
    CHECK_INT(sslm_test_allocation_count() - before, i == 0); /* it reserves once */
    CHECK_INT(damped_token(model, twin, &params), token);
  }
  CHECK_SAME(seq, twin);
  FINISH(model, memory.pool, ws, seq, twin);
}

static void damped_decode_stays_inside_a_schema_and_ends_with_it(void) {
  const sslm_model model = map_artifact(MODEL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  const sslm_decode_params params = damped(model);
  sslm_schema schema = NULL;
  blob before;
  int32_t token, i;
  OK(sslm_schema_lookup(model, "parity", &schema));
  OK(sslm_seq_set_schema(seq, schema));
  prefill_run(model, seq, 5, 1, NULL);
  for (i = 0; i < 30; ++i) CHECK_INT(damped_token(model, seq, &params) % 2, i % 2);
  OK(sslm_seq_reset(seq));
  OK(sslm_schema_lookup(model, "choice", &schema));
  OK(sslm_seq_set_schema(seq, schema));
  prefill_run(model, seq, 5, 1, NULL);
  token = damped_token(model, seq, &params);
  CHECK(token >= 20 && token < 30);
  CHECK_INT(damped_token(model, seq, &params), 30);
  CHECK_INT(damped_token(model, seq, &params), -2);
  check_history(seq, 2, 2);
  before = save(seq);
  CHECK_INT(damped_token(model, seq, &params), -2);
  CHECK_UNCHANGED(seq, before);
  FINISH(model, memory.pool, NULL, seq);
}

static const cell kCells[] = {
    CELL(a_model_without_a_logit_scale_refuses_damped_mode_only),
    CELL(parameters_outside_their_range_are_refused_and_the_ends_accepted),
    CELL(constants_outside_their_domain_are_refused_before_any_state_moves),
    CELL(the_history_is_saved_emptied_and_started_over),
    CELL(a_numeric_refusal_leaves_no_trace_for_the_retry),
    CELL(exhausted_memory_at_the_first_damped_step_can_be_retried),
    CELL(damped_decode_stays_inside_a_schema_and_ends_with_it),
};

CELLS(kCells)
