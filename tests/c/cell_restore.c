/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Saves of sequences with a schema and a damped history: everything wrong at once and repaired check by
 * check, every walk state, exhausted memory; and ties of logits inside a schema.
 * Artifacts: two models of one shape and a model of equal logits, each with the schemas of
 * tests/schema_fixtures.py. */
#include "blob_fields.h"
#include "pages.h"

enum { MODEL, OTHER_MODEL, EQUAL_LOGITS };
enum { PREFIX = 70, BUDGET = 100, HISTORY = 3 };

static blob copy_of(blob original, size_t size) {
  blob copy;
  copy.size = size;
  copy.bytes = (unsigned char*)check_alloc(size);
  memset(copy.bytes, 0, size);
  memcpy(copy.bytes, original.bytes, size < original.size ? size : original.size);
  return copy;
}

/* A sequence over a prefix, bound to a schema of two states, with a history of damped tokens; pending. */
static sslm_seq make_steered(sslm_model model, sslm_kv_pool pool) {
  const sslm_prefix prefix = frozen_root(model, pool, PREFIX, PREFIX, 1);
  sslm_seq seq = make_budgeted(model, pool, BUDGET);
  sslm_schema parity = NULL;
  sslm_decode_params params;
  int i;
  OK(sslm_schema_lookup(model, "parity", &parity));
  OK(sslm_seq_set_schema(seq, parity));
  OK(sslm_seq_adopt_prefix(seq, prefix));
  OK(sslm_prefix_release(prefix));
  OK(sslm_decode_params_init(model, SSLM_DECODE_MODE_DAMPED_GREEDY, info_of(model).layers, &params));
  for (i = 0; i < HISTORY; ++i) {
    int32_t token = -9;
    OK(sslm_decode_step_v2(model, &seq, 1, &params, NULL, &token));
    CHECK(token >= 0);
  }
  return seq;
}

typedef struct defect {
  size_t at;
  size_t size;
  int64_t value; /* little-endian, as this library's blobs and, so far, its hosts */
  sslm_status status;
} defect;

static sslm_status restore(sslm_model model, sslm_kv_pool pool, blob b, sslm_seq* out) {
  uint32_t shared = 9;
  const sslm_status status = sslm_seq_restore_shared(model, &pool, b.bytes, b.size, NULL, out, &shared);
  CHECK_INT(shared, 0);
  if (status != SSLM_OK) CHECK(*out == NULL);
  return status;
}

static void expect(sslm_model model, sslm_kv_pool pool, blob b, sslm_status wanted, const char* what) {
  const uint32_t before = free_pages(pool);
  sslm_seq out = (sslm_seq)(uintptr_t)8;
  const sslm_status status = restore(model, pool, b, &out);
  if (status != wanted)
    check_fail(__FILE__, __LINE__, "%s: %s, expected %s", what, sslm_ext_status_name(status),
               sslm_ext_status_name(wanted));
  CHECK_INT(free_pages(pool), before);
}

static void repaired_check_by_check_a_save_is_refused_in_the_documented_order(void) {
  const sslm_model model = map_artifact(MODEL), other = map_artifact(OTHER_MODEL);
  const sslm_ext_model_info_out info = info_of(model);
  pool_memory memory = make_pool(model, PAGE_POOL, 12), tight = make_pool(model, PAGE_POOL, 3),
              foreign = make_pool(other, PAGE_POOL, 12);
  sslm_seq seq = make_steered(model, memory.pool), out = NULL;
  const blob good = save(seq);
  const size_t tokens_at = SSB6_FIXED + 4u * (size_t)info.hidden, count_at = tokens_at + 4 * HISTORY;
  const defect defects[] = {
      {3, 1, '1', SSLM_INVALID_ARGUMENT},
      {AT_DIGEST, 1, good.bytes[AT_DIGEST] ^ 1, SSLM_RESTORE_MODEL_MISMATCH},
      {AT_PRECISION, 4, 1, SSLM_RESTORE_KV_MISMATCH},
      {AT_SCHEMA, 8, 12345, SSLM_RESTORE_SCHEMA_MISMATCH},
      {AT_WALK, 4, 2, SSLM_RESTORE_SCHEMA_MISMATCH},
      {AT_ORDER, 4, 83, SSLM_INVALID_ARGUMENT},
      {AT_LENGTH, 8, (int64_t)info.cap + 1, SSLM_INVALID_ARGUMENT},
      {AT_LAYER, 4, info.layers, SSLM_INVALID_ARGUMENT},
      {AT_HISTORY_LENGTH, 8, PREFIX + BUDGET, SSLM_INVALID_ARGUMENT},
      {AT_MODE, 4, 2, SSLM_INVALID_ARGUMENT},
      {AT_BUDGET, 4, 0, SSLM_INVALID_ARGUMENT},
      {AT_ORIGIN, 8, -1, SSLM_INVALID_ARGUMENT},
      {count_at, 8, 9, SSLM_INVALID_ARGUMENT},
      {AT_SCALE, 8, 0, SSLM_INVALID_ARGUMENT},
      {AT_READY, 4, 1, SSLM_INVALID_ARGUMENT},
      {tokens_at, 4, info.vocab, SSLM_INVALID_ARGUMENT},
  };
  const int count = (int)(sizeof(defects) / sizeof(defects[0]));
  blob bad = copy_of(good, good.size), longer;
  int i;
  uint32_t shared = 9;
  for (i = 0; i < count; ++i) memcpy(bad.bytes + defects[i].at, &defects[i].value, defects[i].size);
  STATUS(INVALID_ARGUMENT,
         sslm_seq_restore_shared(model, &foreign.pool, bad.bytes, bad.size, NULL, NULL, &shared));
  CHECK_INT(shared, 0);
  for (i = 0; i < count; ++i) { /* one byte too long, and a pool of another model, from here on */
    char what[32];
    sprintf(what, "defect %d", i);
    longer = copy_of(bad, bad.size + 1);
    expect(model, foreign.pool, longer, defects[i].status, what);
    expect(model, foreign.pool, bad, defects[i].status, what);
    free(longer.bytes);
    memcpy(bad.bytes + defects[i].at, good.bytes + defects[i].at, defects[i].size);
  }
  longer = copy_of(bad, bad.size + 1);
  expect(model, memory.pool, longer, SSLM_INVALID_ARGUMENT, "one byte too long");
  expect(model, foreign.pool, bad, SSLM_INVALID_ARGUMENT, "a pool of another model");
  sslm_test_fail_allocation_after(0);
  expect(model, tight.pool, bad, SSLM_KV_POOL_EXHAUSTED, "too few pages");
  expect(model, memory.pool, bad, SSLM_ALLOCATION_FAILED, "no heap");
  sslm_test_fail_allocation_after(-1);
  OK(restore(model, memory.pool, bad, &out));
  CHECK_SAME(seq, out);
  free(longer.bytes);
  free(bad.bytes);
  free(good.bytes);
  OK(sslm_seq_release(seq));
  OK(sslm_seq_release(out));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(tight.pool));
  OK(sslm_kv_pool_destroy(foreign.pool));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

/* SSB3 had no ready flag and no residual at a token boundary: that state alone cannot be continued. */
static void an_older_save_at_a_boundary_is_lost_only_after_the_checks_before_it(void) {
  const sslm_model model = map_artifact(MODEL), other = map_artifact(OTHER_MODEL);
  pool_memory memory = make_pool(model, PAGE_POOL, 70), foreign = make_pool(other, PAGE_POOL, 70);
  sslm_seq seq = make_seq(model, memory.pool);
  const int64_t too_long = (int64_t)info_of(model).cap + 1;
  const int32_t pending = 5;
  blob saved, old;
  prefill_run(model, seq, 9, 1, NULL);
  saved = save(seq);
  old = copy_of(saved, SSB3_FIXED + 4);
  old.bytes[3] = '3';
  memcpy(old.bytes + AT_LENGTH, &too_long, sizeof(too_long));
  old.bytes[AT_DIGEST] ^= 1;
  expect(model, foreign.pool, old, SSLM_RESTORE_MODEL_MISMATCH, "another model's");
  old.bytes[AT_DIGEST] ^= 1;
  expect(model, foreign.pool, old, SSLM_INVALID_ARGUMENT, "a length past the cap");
  memcpy(old.bytes + AT_LENGTH, saved.bytes + AT_LENGTH, sizeof(too_long));
  expect(model, foreign.pool, old, SSLM_RESTORE_RESIDUAL_LOST, "ready, without the rows");
  memcpy(old.bytes + AT_PENDING, &pending, sizeof(pending));
  expect(model, foreign.pool, old, SSLM_INVALID_ARGUMENT, "pending, without the rows");
  free(old.bytes);
  free(saved.bytes);
  OK(sslm_seq_release(seq));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(foreign.pool));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

static void every_walk_state_of_a_bound_schema_is_restored_and_no_other(void) {
  static const struct {
    const char* schema;
    uint32_t states;
  } rows[] = {{"chain", 4}, {"choice", 3}, {"parity", 2}};
  static const uint32_t never[] = {100, 0x80000000u, 0xFFFFFFFEu, 0xFFFFFFFFu};
  const sslm_model model = map_artifact(MODEL);
  pool_memory memory = make_pool(model, PAGE_POOL, 12);
  size_t r, i;
  for (r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
    sslm_seq seq = make_budgeted(model, memory.pool, 20), out = NULL;
    sslm_schema schema = NULL;
    uint32_t walk;
    blob saved;
    OK(sslm_schema_lookup(model, rows[r].schema, &schema));
    OK(sslm_seq_set_schema(seq, schema));
    prefill_run(model, seq, 5, 2, NULL);
    saved = save(seq);
    for (walk = 0; walk < rows[r].states; ++walk) {
      blob copy = copy_of(saved, saved.size);
      memcpy(copy.bytes + AT_WALK, &walk, sizeof(walk));
      OK(restore(model, memory.pool, copy, &out));
      CHECK_UNCHANGED(out, copy);
      OK(sslm_seq_release(out));
    }
    memcpy(saved.bytes + AT_WALK, &walk, sizeof(walk));
    expect(model, memory.pool, saved, SSLM_RESTORE_SCHEMA_MISMATCH, rows[r].schema);
    for (i = 0; i < sizeof(never) / sizeof(never[0]); ++i) {
      memcpy(saved.bytes + AT_WALK, &never[i], sizeof(walk));
      expect(model, memory.pool, saved, SSLM_RESTORE_SCHEMA_MISMATCH, rows[r].schema);
    }
    free(saved.bytes);
    OK(sslm_seq_release(seq));
  }
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void exhausted_memory_gives_back_what_a_restore_with_a_history_drew(void) {
  const sslm_model model = map_artifact(MODEL);
  pool_memory memory = make_pool(model, PAGE_POOL, 12);
  sslm_seq seq = make_steered(model, memory.pool), out = NULL;
  const blob saved = save(seq);
  const uint32_t before = free_pages(memory.pool);
  int64_t failures;
  for (failures = 0;; ++failures) {
    sslm_status status;
    CHECK(failures < 100);
    sslm_test_fail_allocation_after(failures);
    status = restore(model, memory.pool, saved, &out);
    sslm_test_fail_allocation_after(-1);
    if (status == SSLM_OK) break;
    CHECK_INT(status, SSLM_ALLOCATION_FAILED);
    CHECK_INT(free_pages(memory.pool), before);
  }
  CHECK(failures >= 3); /* page table, sequence, history */
  CHECK_SAME(seq, out);
  free(saved.bytes);
  OK(sslm_seq_release(out));
  OK(sslm_seq_release(seq));
  CHECK_INT(used_pages(memory.pool), 0);
  OK(sslm_kv_pool_destroy(memory.pool)); /* no live holder was left behind */
  OK(sslm_model_unmap(model));
}

static void equal_logits_inside_a_schema_choose_the_lowest_legal_id(void) {
  static const int32_t lowest[] = {20, 30}; /* of choice: one of 20..29, then 30 */
  const sslm_model model = map_artifact(EQUAL_LOGITS);
  pool_memory memory = make_pool(model, PAGE_POOL, 4);
  sslm_seq seq = make_budgeted(model, memory.pool, 20);
  sslm_schema choice = NULL;
  int i;
  OK(sslm_schema_lookup(model, "choice", &choice));
  OK(sslm_seq_set_schema(seq, choice));
  prefill_run(model, seq, 3, 1, NULL);
  for (i = 0; i < 2; ++i) {
    int32_t token = -9;
    OK(step(model, &seq, 1, info_of(model).layers, NULL, &token));
    CHECK_INT(token, lowest[i]);
  }
  FINISH(model, memory.pool, NULL, seq);
}

static void equal_logits_choose_the_lowest_id_in_damped_mode_too(void) {
  const sslm_model model = map_artifact(EQUAL_LOGITS);
  pool_memory memory = make_pool(model, PAGE_POOL, 4);
  sslm_seq seq = make_budgeted(model, memory.pool, 20);
  sslm_decode_params params;
  int32_t i, token = -9;
  OK(sslm_decode_params_init(model, SSLM_DECODE_MODE_DAMPED_GREEDY, info_of(model).layers, &params));
  prefill_run(model, seq, 3, 1, NULL);
  params.alpha_q15 = 0;
  for (i = 0; i < 3; ++i) {
    OK(sslm_decode_step_v2(model, &seq, 1, &params, NULL, &token));
    CHECK_INT(token, 0);
  }
  params.alpha_q15 = SSLM_DAMPED_GREEDY_DEFAULT_ALPHA_Q15; /* 0 has been said too often */
  OK(sslm_decode_step_v2(model, &seq, 1, &params, NULL, &token));
  CHECK_INT(token, 1);
  FINISH(model, memory.pool, NULL, seq);
}

static const cell cells[] = {
    CELL(repaired_check_by_check_a_save_is_refused_in_the_documented_order),
    CELL(an_older_save_at_a_boundary_is_lost_only_after_the_checks_before_it),
    CELL(every_walk_state_of_a_bound_schema_is_restored_and_no_other),
    CELL(exhausted_memory_gives_back_what_a_restore_with_a_history_drew),
    CELL(equal_logits_inside_a_schema_choose_the_lowest_legal_id),
    CELL(equal_logits_choose_the_lowest_id_in_damped_mode_too),
};

CELLS(cells)
