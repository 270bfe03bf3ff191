/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Decode: slices, batches, limits, and outputs that no way of calling changes.
 * Artifacts: a small model of cap 4,096, another small model, a model of cap 40, a model whose logits all
 * tie. */
#include "check.h"

enum { SMALL, OTHER, CAP_40, EQUAL_LOGITS };

static void a_fresh_sequence_is_refused_and_stays_bindable(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  sslm_seq seqs[2];
  int32_t out[2] = {77, 77};
  blob before_fresh, before_ready;
  seqs[0] = make_seq(model, memory.pool);
  seqs[1] = make_seq(model, memory.pool);
  STATUS(INVALID_ARGUMENT, step(model, seqs, 1, 1, NULL, out));
  OK(sslm_seq_set_schema(seqs[0], SSLM_SCHEMA_NONE));
  /* One fresh entry refuses the whole batch, wherever it stands, before any entry is touched. */
  prefill_run(model, seqs[1], 6, 1, NULL);
  before_fresh = save(seqs[0]);
  before_ready = save(seqs[1]);
  STATUS(INVALID_ARGUMENT, step(model, seqs, 2, 1, NULL, out));
  {
    sslm_seq turned[2];
    turned[0] = seqs[1];
    turned[1] = seqs[0];
    STATUS(INVALID_ARGUMENT, step(model, turned, 2, 1, NULL, out));
  }
  CHECK_INT(out[0], 77);
  CHECK_INT(out[1], 77);
  OK(sslm_seq_set_schema(seqs[0], SSLM_SCHEMA_NONE));
  CHECK_UNCHANGED(seqs[0], before_fresh);
  CHECK_UNCHANGED(seqs[1], before_ready);
  FINISH(model, memory.pool, NULL, seqs[0], seqs[1]);
}

/* Decodes `count` tokens in slices: budgets[0], budgets[1], ... around. Checks where -1 appears. */
static void decode_sliced(sslm_model model, sslm_seq seq, const int32_t* budgets, int32_t period,
                          int32_t count, sslm_workspace ws, int32_t* out) {
  const int32_t layers = info_of(model).layers;
  int32_t done = 0, call = 0, left = 0; /* left: layers of the current token; 0: ready */
  while (done < count) {
    const int32_t budget = budgets[call++ % period];
    int32_t token = -9;
    OK(step(model, &seq, 1, budget, ws, &token));
    if (left > budget) {
      CHECK_INT(token, -1);
      left -= budget;
      continue;
    }
    CHECK(token >= 0);
    out[done++] = token;
    left = layers;
  }
}

static void every_layer_budget_gives_the_tokens_of_whole_steps(void) {
  enum { COUNT = 32 };
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_workspace ws = make_workspace(model, 1, 1);
  const sslm_seq whole = make_seq(model, memory.pool), cut = make_seq(model, memory.pool);
  const int32_t mixed[] = {1, 3, 2, layers, 1, 1, 2};
  int32_t expected[COUNT], got[COUNT], budget;
  prefill_run(model, whole, 50, 1, NULL);
  decode_run(model, whole, COUNT, NULL, expected);
  for (budget = 1; budget <= layers + 1; ++budget) {
    OK(sslm_seq_reset(cut));
    prefill_run(model, cut, 50, 1, NULL);
    if (budget <= layers)
      decode_sliced(model, cut, &budget, 1, COUNT, ws, got);
    else
      decode_sliced(model, cut, mixed, 7, COUNT, NULL, got);
    CHECK(memcmp(expected, got, sizeof(got)) == 0);
    CHECK_SAME(cut, whole);
  }
  FINISH(model, memory.pool, ws, whole, cut);
}

/* Tokens a sequence emits before it is refused with the given status. */
static int32_t tokens_until(sslm_model model, sslm_seq seq, sslm_status expected) {
  int32_t count = 0, token = -9;
  sslm_status status;
  while ((status = step(model, &seq, 1, info_of(model).layers, NULL, &token)) == SSLM_OK) {
    CHECK(token >= 0);
    ++count;
  }
  CHECK_INT(status, expected);
  CHECK_INT(token, -1);
  return count;
}

static sslm_prefix frozen_prefix(sslm_model model, sslm_kv_pool pool, int32_t length, uint32_t seed) {
  sslm_prefix prefix = NULL;
  OK(sslm_prefix_begin_budgeted(model, &pool, length > 0 ? length : 1, &prefix));
  prefill_prefix(model, prefix, length, seed, NULL);
  OK(sslm_prefix_freeze(prefix));
  return prefix;
}

static void a_sequence_ready_at_c_under_limit_m_emits_one_plus_m_minus_c_tokens(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 3);
  sslm_seq seq = make_budgeted(model, memory.pool, 40);
  sslm_prefix prefix;
  prefill_run(model, seq, 25, 1, NULL);
  CHECK_INT(tokens_until(model, seq, SSLM_KV_BUDGET_EXCEEDED), 16);
  OK(sslm_seq_reset(seq));
  prefill_run(model, seq, 40, 1, NULL);
  CHECK_INT(tokens_until(model, seq, SSLM_KV_BUDGET_EXCEEDED), 1);
  OK(sslm_seq_release(seq));
  prefix = frozen_prefix(model, memory.pool, 1000, 2);
  seq = make_budgeted(model, memory.pool, 20);
  OK(sslm_seq_adopt_prefix(seq, prefix));
  CHECK_INT(tokens_until(model, seq, SSLM_KV_BUDGET_EXCEEDED), 21);
  OK(sslm_seq_release(seq));
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void an_adopter_emits_one_plus_budget_tokens_at_every_origin_offset(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t page = (int32_t)sslm_kv_page_positions(model);
  const int32_t budgets[] = {1, page - 1, page, page + 1, 512};
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const uint32_t all = free_pages(memory.pool);
  int32_t offset;
  size_t b;
  for (offset = 0; offset < page; ++offset) {
    const sslm_prefix prefix = frozen_prefix(model, memory.pool, page + offset, 3);
    for (b = 0; b < 5; ++b) {
      sslm_seq seq;
      if (b == 4 && offset % 16 != 0) continue; /* the long one at every 16th offset */
      seq = make_budgeted(model, memory.pool, budgets[b]);
      OK(sslm_seq_adopt_prefix(seq, prefix));
      CHECK_INT(tokens_until(model, seq, SSLM_KV_BUDGET_EXCEEDED), 1 + budgets[b]);
      OK(sslm_seq_release(seq));
    }
    OK(sslm_prefix_release(prefix));
    CHECK_INT(free_pages(memory.pool), all);
  }
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_pending_sequence_at_its_limit_is_refused_before_its_row_is_written(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t budgets[] = {1, info_of(model).layers};
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  sslm_seq seq = make_budgeted(model, memory.pool, 40); /* ends in the middle of a page */
  int32_t i;
  for (i = 0; i < 2; ++i) {
    int32_t out = 77;
    unsigned char* copy = (unsigned char*)check_alloc(memory.size);
    blob before;
    OK(sslm_seq_reset(seq));
    prefill_run(model, seq, 40, 1, NULL);
    decode_token(model, seq, NULL);
    before = save(seq);
    memcpy(copy, memory.buffer, memory.size);
    STATUS(KV_BUDGET_EXCEEDED, step(model, &seq, 1, budgets[i], NULL, &out));
    CHECK_INT(out, -1);
    CHECK(memcmp(copy, memory.buffer, memory.size) == 0);
    CHECK_UNCHANGED(seq, before);
    free(copy);
  }
  FINISH(model, memory.pool, NULL, seq);
}

/* Y has room, X rests pending at its limit or cap. */
static void check_refusal_order(sslm_model model, sslm_seq x, sslm_seq y, sslm_status refusal) {
  const int32_t layers = info_of(model).layers;
  sslm_seq batch[2];
  int32_t out[2] = {77, 77};
  blob x_before = save(x), y_before;
  batch[0] = y;
  batch[1] = x;
  CHECK_INT(step(model, batch, 2, layers, NULL, out), refusal);
  CHECK(out[0] >= 0);
  CHECK_INT(out[1], -1);
  CHECK_UNCHANGED(x, x_before);
  x_before = save(x);
  y_before = save(y);
  batch[0] = x;
  batch[1] = y;
  out[0] = out[1] = 77;
  CHECK_INT(step(model, batch, 2, layers, NULL, out), refusal);
  CHECK_INT(out[0], -1);
  CHECK_INT(out[1], 77);
  CHECK_UNCHANGED(x, x_before);
  CHECK_UNCHANGED(y, y_before);
}

static void a_refusal_keeps_the_entries_before_it_and_leaves_those_after_it_untouched(void) {
  const sslm_model small = map_artifact(SMALL), capped = map_artifact(CAP_40);
  pool_memory memory = make_pool(small, BLOCK_POOL, 2), short_memory = make_pool(capped, BLOCK_POOL, 2);
  const sslm_seq x = make_budgeted(small, memory.pool, 30), y = make_seq(small, memory.pool);
  const sslm_seq full = make_seq(capped, short_memory.pool), other = make_seq(capped, short_memory.pool);
  prefill_run(small, x, 30, 1, NULL);
  decode_token(small, x, NULL);
  prefill_run(small, y, 7, 2, NULL);
  check_refusal_order(small, x, y, SSLM_KV_BUDGET_EXCEEDED); /* y is ready, they do not advance jointly */
  check_refusal_order(small, x, y, SSLM_KV_BUDGET_EXCEEDED); /* y is pending as x is */
  prefill_run(capped, full, 40, 1, NULL);
  decode_token(capped, full, NULL);
  prefill_run(capped, other, 7, 2, NULL);
  check_refusal_order(capped, full, other, SSLM_CONTEXT_CAP_EXCEEDED);
  check_refusal_order(capped, full, other, SSLM_CONTEXT_CAP_EXCEEDED);
  OK(sslm_seq_release(x));
  OK(sslm_seq_release(y));
  OK(sslm_seq_release(full));
  OK(sslm_seq_release(other));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(short_memory.pool));
  OK(sslm_model_unmap(small));
  OK(sslm_model_unmap(capped));
}

static void a_batch_over_a_shared_prefix_gives_each_sequence_its_solo_result(void) {
  enum { BATCH = 6 };
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  const int32_t steps = 2 * (int32_t)sslm_kv_page_positions(model);
  pool_memory memory = make_pool(model, BLOCK_POOL, 9);
  const sslm_prefix prefix = frozen_prefix(model, memory.pool, 100, 4);
  sslm_seq seqs[2][BATCH]; /* the batch, and each one's solo twin */
  int32_t i, t, who;
  for (who = 0; who < 2; ++who) {
    for (i = 0; i < BATCH; ++i) {
      const int budgeted = i % 2 == 0;
      seqs[who][i] = budgeted ? make_budgeted(model, memory.pool, 300) : make_seq(model, memory.pool);
      OK(sslm_seq_adopt_prefix(seqs[who][i], prefix));
      prefill_run(model, seqs[who][i], 3 + i, (uint32_t)(10 + i), NULL);
    }
  }
  for (t = 0; t < steps; ++t) {
    int32_t out[BATCH];
    OK(step(model, seqs[0], BATCH, layers, NULL, out));
    for (i = 0; i < BATCH; ++i) CHECK_INT(out[i], decode_token(model, seqs[1][i], NULL));
  }
  for (i = 0; i < BATCH; ++i) {
    CHECK_SAME(seqs[0][i], seqs[1][i]);
    OK(sslm_seq_release(seqs[0][i]));
    OK(sslm_seq_release(seqs[1][i]));
  }
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_batch_of_sequences_at_different_layers_gives_each_its_solo_result(void) {
  enum { BATCH = 4, STEPS = 12 };
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2 * BATCH);
  sslm_seq seqs[2][BATCH]; /* the batch, and each one's solo twin */
  int32_t i, t, who, budget;
  for (budget = 1; budget <= layers; ++budget) {
    for (who = 0; who < 2; ++who) {
      for (i = 0; i < BATCH; ++i) {
        seqs[who][i] = make_seq(model, memory.pool);
        prefill_run(model, seqs[who][i], 3 + i, (uint32_t)i, NULL);
        if (i > 0) decode_token(model, seqs[who][i], NULL);
        if (i > 1) rest_mid_token(model, seqs[who][i], (i - 1) % (layers - 1) + 1, NULL);
      }
    }
    for (t = 0; t < STEPS; ++t) {
      int32_t out[BATCH], alone;
      OK(step(model, seqs[0], BATCH, budget, NULL, out));
      for (i = 0; i < BATCH; ++i) {
        OK(step(model, &seqs[1][i], 1, budget, NULL, &alone));
        CHECK_INT(out[i], alone);
      }
    }
    for (i = 0; i < BATCH; ++i) {
      CHECK_SAME(seqs[0][i], seqs[1][i]);
      OK(sslm_seq_release(seqs[0][i]));
      OK(sslm_seq_release(seqs[1][i]));
    }
  }
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_released_sequence_is_minus_three_also_when_its_memory_is_used_again(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 3);
  const sslm_seq twin = make_seq(model, memory.pool), live = make_seq(model, memory.pool);
  sslm_seq dead = make_seq(model, memory.pool), heir;
  sslm_seq batch[4];
  int32_t out[4], i;
  prefill_run(model, twin, 9, 1, NULL);
  prefill_run(model, live, 9, 1, NULL);
  prefill_run(model, dead, 9, 2, NULL);
  OK(sslm_seq_release(dead));
  heir = make_seq(model, memory.pool); /* takes over slot, pages and very likely the address */
  CHECK(heir != dead);
  batch[0] = dead;
  batch[1] = live;
  batch[2] = dead;
  batch[3] = dead;
  for (i = 0; i < 4; ++i) out[i] = 77;
  OK(step(model, batch, 4, layers, NULL, out));
  CHECK_INT(out[0], -3);
  CHECK_INT(out[1], decode_token(model, twin, NULL));
  CHECK_INT(out[2], -3);
  CHECK_INT(out[3], -3);
  OK(step(model, batch, 1, layers, NULL, out)); /* a batch of nothing but dead entries */
  CHECK_INT(out[0], -3);
  CHECK_SAME(live, twin);
  OK(sslm_seq_set_schema(heir, SSLM_SCHEMA_NONE)); /* the heir was not touched */
  FINISH(model, memory.pool, NULL, heir, live, twin);
}

static void a_sequence_named_twice_takes_two_steps(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  const sslm_seq twin = make_seq(model, memory.pool), other = make_budgeted(model, memory.pool, 100);
  sslm_seq seq = make_budgeted(model, memory.pool, 40);
  sslm_seq batch[5];
  int32_t out[5], expected[3], i;
  prefill_run(model, twin, 9, 1, NULL);
  decode_run(model, twin, 3, NULL, expected);
  prefill_run(model, seq, 9, 1, NULL);
  prefill_run(model, other, 5, 2, NULL);
  batch[0] = batch[2] = batch[3] = seq;
  batch[1] = batch[4] = other;
  OK(step(model, batch, 5, layers, NULL, out));
  CHECK_INT(out[0], expected[0]);
  CHECK_INT(out[2], expected[1]);
  CHECK_INT(out[3], expected[2]);
  /* At the limit the second occurrence is the refused one, and what follows is untouched. */
  OK(sslm_seq_reset(seq));
  prefill_run(model, seq, 40, 1, NULL);
  for (i = 0; i < 5; ++i) out[i] = 77;
  STATUS(KV_BUDGET_EXCEEDED, step(model, batch, 5, layers, NULL, out));
  CHECK(out[0] >= 0 && out[1] >= 0);
  CHECK_INT(out[2], -1);
  CHECK_INT(out[3], 77);
  CHECK_INT(out[4], 77);
  FINISH(model, memory.pool, NULL, seq, other, twin);
}

static void a_batch_of_any_size_is_decoded(void) {
  enum { MOST = 300 };
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  const size_t pages = sslm_kv_pages_for_budget(model, 40);
  pool_memory memory = make_pool(model, PAGE_POOL, (uint32_t)(pages * (MOST + 1)));
  const sslm_seq twin = make_budgeted(model, memory.pool, 40);
  static sslm_seq batch[MOST];
  static int32_t out[MOST];
  const int32_t sizes[] = {65, 129, MOST};
  int32_t i, s;
  for (i = 0; i < MOST; ++i) batch[i] = make_budgeted(model, memory.pool, 40);
  for (s = 0; s < 3; ++s) {
    int32_t expected[2];
    OK(sslm_seq_reset(twin));
    prefill_run(model, twin, 5, 1, NULL);
    decode_run(model, twin, 2, NULL, expected);
    for (i = 0; i < sizes[s]; ++i) {
      OK(sslm_seq_reset(batch[i]));
      prefill_run(model, batch[i], 5, 1, NULL);
    }
    OK(step(model, batch, sizes[s], layers, NULL, out));
    for (i = 0; i < sizes[s]; ++i) CHECK_INT(out[i], expected[0]);
    OK(step(model, batch, sizes[s], 1, NULL, out));
    for (i = 0; i < sizes[s]; ++i) CHECK_INT(out[i], -1);
    OK(step(model, batch, sizes[s], layers, NULL, out));
    for (i = 0; i < sizes[s]; ++i) CHECK_INT(out[i], expected[1]);
    CHECK_SAME(batch[sizes[s] - 1], twin);
  }
  for (i = 0; i < MOST; ++i) OK(sslm_seq_release(batch[i]));
  FINISH(model, memory.pool, NULL, twin);
}

static void no_workspace_a_small_one_and_a_foreign_one_give_the_covering_ones_result(void) {
  enum { BATCH = 5, STEPS = 70 };
  const sslm_model model = map_artifact(SMALL), other = map_artifact(OTHER);
  const int32_t layers = info_of(model).layers;
  pool_memory memory = make_pool(model, PAGE_POOL, 200);
  sslm_workspace workspaces[4];
  sslm_seq batch[BATCH], reference[BATCH];
  int32_t out[BATCH], expected[BATCH], i, w, t;
  workspaces[0] = make_workspace(model, BATCH, 60);
  workspaces[1] = NULL;
  workspaces[2] = make_workspace(model, 1, 1);
  workspaces[3] = make_workspace(other, BATCH, 60);
  for (i = 0; i < BATCH; ++i) {
    reference[i] = make_budgeted(model, memory.pool, 200);
    batch[i] = make_budgeted(model, memory.pool, 200);
  }
  for (w = 1; w < 4; ++w) {
    for (i = 0; i < BATCH; ++i) {
      OK(sslm_seq_reset(reference[i]));
      OK(sslm_seq_reset(batch[i]));
      prefill_run(model, reference[i], 60 - i, (uint32_t)i, workspaces[0]);
      prefill_run(model, batch[i], 60 - i, (uint32_t)i, workspaces[w]);
    }
    for (t = 0; t < STEPS; ++t) {
      OK(step(model, reference, BATCH, layers, workspaces[0], expected));
      OK(step(model, batch, BATCH, layers, workspaces[w], out));
      CHECK(memcmp(out, expected, sizeof(out)) == 0);
    }
    for (i = 0; i < BATCH; ++i) CHECK_SAME(batch[i], reference[i]);
  }
  for (i = 0; i < BATCH; ++i) {
    OK(sslm_seq_release(batch[i]));
    OK(sslm_seq_release(reference[i]));
  }
  OK(sslm_workspace_destroy(workspaces[0]));
  OK(sslm_workspace_destroy(workspaces[2]));
  OK(sslm_workspace_destroy(workspaces[3]));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

static void a_covering_workspace_means_no_heap_allocation_and_no_pool_lock(void) {
  enum { BATCH = 4 };
  const sslm_model model = map_artifact(SMALL);
  const int32_t layers = info_of(model).layers;
  const int32_t page = (int32_t)sslm_kv_page_positions(model);
  const check_counter counted = check_heap_allocations();
  int kind;
  for (kind = 0; kind < POOL_KINDS; ++kind) {
    pool_memory memory = make_pool(model, kind, kind == PAGE_POOL ? 60 : 5);
    const sslm_workspace ws = make_workspace(model, BATCH, 2 * page);
    int32_t* tokens = token_run(model, 2 * page, 1);
    sslm_seq batch[BATCH + 1];
    sslm_prefix prefix = NULL;
    int32_t out[BATCH + 1], i, t, consumed;
    uint64_t allocations, locks;
    for (i = 0; i < BATCH; ++i) batch[i] = make_budgeted(model, memory.pool, 6 * page);
    batch[BATCH] = batch[0];
    OK(sslm_prefix_begin_budgeted(model, &memory.pool, 3 * page, &prefix));
    allocations = counted();
    locks = sslm_test_pool_lock_count();
    OK(sslm_prefix_prefill(model, prefix, tokens, 2 * page, 2 * page, SSLM_SPAN_PROMPT, ws, &consumed));
    for (i = 0; i < BATCH; ++i)
      OK(sslm_prefill(model, batch[i], tokens, page + i, 2 * page, SSLM_SPAN_PROMPT, ws, &consumed));
    for (t = 0; t < page; ++t) { /* whole tokens, jointly, over a page boundary */
      OK(step(model, batch, BATCH, layers, ws, out));
    }
    for (t = 0; t < 3 * layers; ++t) OK(step(model, batch, BATCH, 1, ws, out)); /* sliced */
    OK(step(model, batch + 1, BATCH, layers, ws, out));                         /* another order */
    OK(sslm_prefill(model, batch[0], tokens, 1, 1, SSLM_SPAN_PROMPT, ws, &consumed));
    CHECK_INT(counted() - allocations, 0);
    CHECK_INT(sslm_test_pool_lock_count() - locks, 0);
    for (i = 0; i < BATCH; ++i) OK(sslm_seq_release(batch[i]));
    OK(sslm_prefix_release(prefix));
    OK(sslm_workspace_destroy(ws));
    OK(sslm_kv_pool_destroy(memory.pool));
  }
  OK(sslm_model_unmap(model));
}

static void equal_logits_choose_the_lowest_id(void) {
  const sslm_model model = map_artifact(EQUAL_LOGITS);
  const int32_t vocab = info_of(model).vocab;
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  int32_t* logits = (int32_t*)check_alloc(sizeof(int32_t) * (size_t)vocab);
  size_t n = (size_t)vocab;
  int32_t i;
  prefill_run(model, seq, 9, 1, NULL);
  OK(sslm_ext_seq_logits(model, seq, NULL, logits, &n));
  for (i = 1; i < vocab; ++i) CHECK_INT(logits[i], logits[0]);
  CHECK_INT(decode_token(model, seq, NULL), 0);
  FINISH(model, memory.pool, NULL, seq);
}

static void taking_logits_changes_nothing_and_predicts_the_next_token(void) {
  const sslm_model model = map_artifact(SMALL);
  const int32_t vocab = info_of(model).vocab;
  pool_memory memory = make_pool(model, BLOCK_POOL, 1);
  const sslm_seq seq = make_seq(model, memory.pool);
  int32_t* logits = (int32_t*)check_alloc(sizeof(int32_t) * (size_t)vocab);
  size_t n = 0;
  int32_t i, best = 0;
  blob before;
  STATUS(INVALID_ARGUMENT, sslm_ext_seq_logits(model, seq, NULL, logits, &n)); /* fresh */
  prefill_run(model, seq, 30, 7, NULL);
  before = save(seq);
  STATUS(BUFFER_TOO_SMALL, sslm_ext_seq_logits(model, seq, NULL, NULL, &n));
  CHECK_INT(n, vocab);
  OK(sslm_ext_seq_logits(model, seq, NULL, logits, &n));
  CHECK_UNCHANGED(seq, before);
  for (i = 1; i < vocab; ++i)
    if (logits[i] > logits[best]) best = i;
  CHECK_INT(decode_token(model, seq, NULL), best);
  STATUS(INVALID_ARGUMENT, sslm_ext_seq_logits(model, seq, NULL, logits, &n)); /* pending */
  rest_mid_token(model, seq, 1, NULL);
  STATUS(INVALID_ARGUMENT, sslm_ext_seq_logits(model, seq, NULL, logits, &n)); /* mid-token */
  FINISH(model, memory.pool, NULL, seq);
}

static const cell cells[] = {
    CELL(a_fresh_sequence_is_refused_and_stays_bindable),
    CELL(every_layer_budget_gives_the_tokens_of_whole_steps),
    CELL(a_sequence_ready_at_c_under_limit_m_emits_one_plus_m_minus_c_tokens),
    CELL(an_adopter_emits_one_plus_budget_tokens_at_every_origin_offset),
    CELL(a_pending_sequence_at_its_limit_is_refused_before_its_row_is_written),
    CELL(a_refusal_keeps_the_entries_before_it_and_leaves_those_after_it_untouched),
    CELL(a_batch_over_a_shared_prefix_gives_each_sequence_its_solo_result),
    CELL(a_batch_of_sequences_at_different_layers_gives_each_its_solo_result),
    CELL(a_released_sequence_is_minus_three_also_when_its_memory_is_used_again),
    CELL(a_sequence_named_twice_takes_two_steps),
    CELL(a_batch_of_any_size_is_decoded),
    CELL(no_workspace_a_small_one_and_a_foreign_one_give_the_covering_ones_result),
    CELL(a_covering_workspace_means_no_heap_allocation_and_no_pool_lock),
    CELL(equal_logits_choose_the_lowest_id),
    CELL(taking_logits_changes_nothing_and_predicts_the_next_token),
};

CELLS(cells)
