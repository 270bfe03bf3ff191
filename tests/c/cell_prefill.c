/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Prefill: partial consumption, its causes, and that no way of cutting the work changes a bit.
 * Artifacts: a small model of cap 4,096, a model of cap 40, one whose gates clamp. */
#include "check.h"

enum { SMALL, CAP_40, CLAMPING };

static void chunks_of_eight_consume_eight_eight_four_and_equal_one_call(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 1, 20);
  const sslm_seq whole = make_seq(model, memory.pool), cut = make_seq(model, memory.pool);
  int32_t* tokens = token_run(model, 20, 1);
  const int32_t expected[] = {8, 8, 4};
  int32_t done = 0, i;
  prefill(model, whole, tokens, 20, ws);
  for (i = 0; i < 3; ++i) {
    int32_t consumed = -1;
    OK(sslm_prefill(model, cut, tokens + done, 20 - done, 8, SSLM_SPAN_PROMPT, ws, &consumed));
    CHECK_INT(consumed, expected[i]);
    done += consumed;
  }
  CHECK_SAME(cut, whole);
  FINISH(model, memory.pool, ws, whole, cut);
}

static void any_chunking_gives_the_same_state_and_the_same_next_tokens(void) {
  enum { COUNT = 150, NEXT = 6 };
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq whole = make_seq(model, memory.pool), cut = make_seq(model, memory.pool);
  const int32_t chunks[] = {1, 2, 3, 7, 16, 31, 63, 64, 65, 128, 149};
  int32_t* tokens = token_run(model, COUNT, 5);
  int32_t expected[NEXT], got[NEXT];
  size_t c;
  for (c = 0; c < sizeof(chunks) / sizeof(chunks[0]); ++c) {
    const sslm_workspace ws = c % 2 ? make_workspace(model, 1, chunks[c]) : NULL;
    int32_t done = 0;
    OK(sslm_seq_reset(whole));
    OK(sslm_seq_reset(cut));
    prefill(model, whole, tokens, COUNT, NULL);
    while (done < COUNT) {
      int32_t consumed = -1;
      OK(sslm_prefill(model, cut, tokens + done, COUNT - done, chunks[c], SSLM_SPAN_PROMPT, ws, &consumed));
      CHECK(consumed > 0);
      done += consumed;
    }
    CHECK_SAME(cut, whole);
    decode_run(model, whole, NEXT, NULL, expected);
    decode_run(model, cut, NEXT, ws, got);
    CHECK(memcmp(expected, got, sizeof(got)) == 0);
    CHECK_SAME(cut, whole);
    if (ws != NULL) OK(sslm_workspace_destroy(ws));
  }
  FINISH(model, memory.pool, NULL, whole, cut);
}

static void a_bad_id_and_the_budget_stop_in_the_documented_order(void) {
  static const struct {
    int32_t bad_at;
    sslm_status status;
    int32_t consumed;
  } cases[] = {{50, SSLM_TOKEN_ID_OUT_OF_RANGE, 50},
               {120, SSLM_KV_BUDGET_EXCEEDED, 100},
               {0, SSLM_TOKEN_ID_OUT_OF_RANGE, 0},
               {100, SSLM_TOKEN_ID_OUT_OF_RANGE, 100},
               {101, SSLM_KV_BUDGET_EXCEEDED, 100}};
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq seq = make_budgeted(model, memory.pool, 100), twin = make_budgeted(model, memory.pool, 100);
  const int32_t bad_ids[] = {-1, info_of(model).vocab, INT32_MIN, INT32_MAX};
  size_t i, j;
  for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    for (j = 0; j < 4; ++j) {
      int32_t* tokens = token_run(model, 150, 9);
      int32_t consumed = -1;
      sslm_status status;
      tokens[cases[i].bad_at] = bad_ids[j];
      OK(sslm_seq_reset(seq));
      OK(sslm_seq_reset(twin));
      status = sslm_prefill(model, seq, tokens, 150, 150, SSLM_SPAN_PROMPT, NULL, &consumed);
      CHECK_INT(status, cases[i].status);
      CHECK_INT(consumed, cases[i].consumed);
      prefill(model, twin, tokens, cases[i].consumed, NULL);
      CHECK_SAME(seq, twin);
      STATUS(SCHEMA_BIND_REJECTED, sslm_seq_set_schema(seq, SSLM_SCHEMA_NONE));
      free(tokens);
    }
  }
  FINISH(model, memory.pool, NULL, seq, twin);
}

static void a_budget_of_100_admits_100_of_150_and_one_token_more_is_decoded(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  sslm_seq seq = make_budgeted(model, memory.pool, 100), twin = make_budgeted(model, memory.pool, 100);
  int32_t* tokens = token_run(model, 150, 3);
  const int32_t chunks[] = {150, 64, 7};
  int i;
  for (i = 0; i < 3; ++i) {
    int32_t done = 0, consumed = -1, out = 77;
    sslm_status status;
    OK(sslm_seq_reset(seq));
    OK(sslm_seq_reset(twin));
    do {
      status =
          sslm_prefill(model, seq, tokens + done, 150 - done, chunks[i], SSLM_SPAN_PROMPT, NULL, &consumed);
      done += consumed;
    } while (status == SSLM_OK);
    CHECK_INT(status, SSLM_KV_BUDGET_EXCEEDED);
    CHECK_INT(done, 100);
    prefill(model, twin, tokens, 100, NULL);
    CHECK_SAME(seq, twin);
    CHECK_INT(decode_token(model, seq, NULL), decode_token(model, twin, NULL));
    STATUS(KV_BUDGET_EXCEEDED, step(model, &seq, 1, layers, NULL, &out));
    CHECK_INT(out, -1);
  }
  FINISH(model, memory.pool, NULL, seq, twin);
}

/* Writes one position too many and expects the cap's status from prefill and decode. */
static void expect_the_cap(sslm_model model, sslm_seq seq, int32_t room) {
  int32_t* tokens = token_run(model, room + 1, 4);
  int32_t consumed = -1, out = 77;
  STATUS(CONTEXT_CAP_EXCEEDED,
         sslm_prefill(model, seq, tokens, room + 1, room + 1, SSLM_SPAN_PROMPT, NULL, &consumed));
  CHECK_INT(consumed, room);
  decode_token(model, seq, NULL);
  STATUS(CONTEXT_CAP_EXCEEDED, step(model, &seq, 1, info_of(model).layers, NULL, &out));
  CHECK_INT(out, -1);
  free(tokens);
}

static void a_limit_equal_to_the_cap_reports_the_cap_and_never_the_budget(void) {
  const sslm_model model = map_artifact(CAP_40);
  const int32_t cap = info_of(model).cap;
  pool_memory memory = make_pool(model, BLOCK_POOL, 4);
  const sslm_seq plain = make_seq(model, memory.pool), full = make_budgeted(model, memory.pool, cap);
  sslm_prefix prefix = NULL;
  int32_t delta;
  expect_the_cap(model, plain, cap);
  expect_the_cap(model, full, cap);
  OK(sslm_seq_release(plain));
  OK(sslm_seq_release(full));
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 10, &prefix));
  prefill_prefix(model, prefix, 10, 6, NULL);
  OK(sslm_prefix_freeze(prefix));
  for (delta = 0; delta <= 5; ++delta) {
    const sslm_seq seq = make_budgeted(model, memory.pool, cap - 10 + delta);
    OK(sslm_seq_adopt_prefix(seq, prefix));
    expect_the_cap(model, seq, cap - 10);
    OK(sslm_seq_release(seq));
  }
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_prefill_that_admits_nothing_changes_nothing(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_budgeted(model, memory.pool, 20);
  const int32_t bad = -1, good = 1;
  int32_t consumed = -1, state;
  /* fresh, ready, pending, mid-token, and at the limit */
  for (state = 0; state < 5; ++state) {
    blob before;
    OK(sslm_seq_reset(seq));
    if (state > 0) prefill_run(model, seq, state == 4 ? 20 : 12, 8, NULL);
    if (state == 2 || state == 3) decode_token(model, seq, NULL);
    if (state == 3) rest_mid_token(model, seq, 1, NULL);
    before = save(seq);
    STATUS(TOKEN_ID_OUT_OF_RANGE, sslm_prefill(model, seq, &bad, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
    CHECK_INT(consumed, 0);
    STATUS(SCHEMA_SPAN_UNBOUND,
           sslm_prefill(model, seq, &good, 1, 1, SSLM_SPAN_SCHEMA_CONTENT, NULL, &consumed));
    CHECK_INT(consumed, 0);
    if (state == 4) {
      STATUS(KV_BUDGET_EXCEEDED, sslm_prefill(model, seq, &good, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
      CHECK_INT(consumed, 0);
    } else {
      sslm_test_fail_allocation_after(0);
      STATUS(ALLOCATION_FAILED, sslm_prefill(model, seq, &good, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
      sslm_test_fail_allocation_after(-1);
      CHECK_INT(consumed, 0);
    }
    CHECK_UNCHANGED(seq, before);
  }
  FINISH(model, memory.pool, NULL, seq);
}

static void a_count_of_zero_is_ok_and_ends_the_permission_to_bind(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  blob before = save(seq);
  int32_t consumed = 7;
  OK(sslm_seq_set_schema(seq, SSLM_SCHEMA_NONE));
  OK(sslm_prefill(model, seq, NULL, 0, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
  CHECK_INT(consumed, 0);
  STATUS(SCHEMA_BIND_REJECTED, sslm_seq_set_schema(seq, SSLM_SCHEMA_NONE));
  CHECK_UNCHANGED(seq, before);
  OK(sslm_seq_reset(seq));
  OK(sslm_seq_set_schema(seq, SSLM_SCHEMA_NONE));
  FINISH(model, memory.pool, NULL, seq);
}

static void tokens_after_a_pending_one_are_appended_without_it(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  prefill_run(model, seq, 10, 1, NULL);
  decode_token(model, seq, NULL);
  prefill_run(model, seq, 5, 2, NULL);
  prefill_run(model, twin, 10, 1, NULL);
  prefill_run(model, twin, 5, 2, NULL);
  CHECK_SAME(seq, twin);
  FINISH(model, memory.pool, NULL, seq, twin);
}

static void check_abandoned_token(sslm_model model) {
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq seq = make_seq(model, memory.pool), twin = make_seq(model, memory.pool);
  const int32_t start = info_of(model).cap > 64 ? 63 : 31; /* 63: the unfinished row ends its page */
  int32_t layer;
  for (layer = 1; layer < layers; ++layer) {
    OK(sslm_seq_reset(seq));
    OK(sslm_seq_reset(twin));
    prefill_run(model, seq, start, 1, NULL);
    prefill_run(model, twin, start, 1, NULL);
    decode_token(model, seq, NULL);
    rest_mid_token(model, seq, layer, NULL);
    decode_token(model, twin, NULL);
    prefill_run(model, seq, 5, 2, NULL);
    prefill_run(model, twin, 5, 2, NULL);
    CHECK_SAME(seq, twin);
    CHECK_INT(decode_token(model, seq, NULL), decode_token(model, twin, NULL));
  }
  FINISH(model, memory.pool, NULL, seq, twin);
}

static void a_prefill_abandons_an_unfinished_token_as_if_it_never_began(void) {
  check_abandoned_token(map_artifact(SMALL));
  check_abandoned_token(map_artifact(CLAMPING)); /* nor does the abandoned token's count stay */
}

static const cell cells[] = {
    CELL(chunks_of_eight_consume_eight_eight_four_and_equal_one_call),
    CELL(any_chunking_gives_the_same_state_and_the_same_next_tokens),
    CELL(a_bad_id_and_the_budget_stop_in_the_documented_order),
    CELL(a_budget_of_100_admits_100_of_150_and_one_token_more_is_decoded),
    CELL(a_limit_equal_to_the_cap_reports_the_cap_and_never_the_budget),
    CELL(a_prefill_that_admits_nothing_changes_nothing),
    CELL(a_count_of_zero_is_ok_and_ends_the_permission_to_bind),
    CELL(tokens_after_a_pending_one_are_appended_without_it),
    CELL(a_prefill_abandons_an_unfinished_token_as_if_it_never_began),
};

CELLS(cells)
