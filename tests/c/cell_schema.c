/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Schemas: names, binding, spans, masked decode, dead ends, prefixes, blobs.
 * Artifacts: a small model with the schemas of tests/schema_fixtures.py, the same model with other tables
 * under the same names, another model with schemas. chain:  10, then 11, then 12, and nothing more choice:
 * one of 20..29, then 30 parity: even and odd ids in turn, without end */
#include "check.h"

enum { MODEL, OTHER_TABLES, OTHER_MODEL };
enum { SCHEMA_HASH_AT = 40, WALK_STATE_AT = 48, FORCED_COUNT_AT = 100 };

typedef struct scene {
  sslm_model model;
  pool_memory memory;
  sslm_schema chain, choice, parity;
} scene;

static sslm_schema lookup(sslm_model model, const char* name) {
  sslm_schema schema = NULL;
  OK(sslm_schema_lookup(model, name, &schema));
  CHECK(schema != NULL);
  return schema;
}

static scene open_scene(void) {
  scene s;
  s.model = map_artifact(MODEL);
  s.memory = make_pool(s.model, BLOCK_POOL, 4);
  s.chain = lookup(s.model, "chain");
  s.choice = lookup(s.model, "choice");
  s.parity = lookup(s.model, "parity");
  return s;
}

static void close_scene(scene s) {
  OK(sslm_kv_pool_destroy(s.memory.pool));
  OK(sslm_model_unmap(s.model));
}

static sslm_seq bound_seq(scene s, sslm_schema schema) {
  const sslm_seq seq = make_seq(s.model, s.memory.pool);
  OK(sslm_seq_set_schema(seq, schema));
  return seq;
}

static sslm_status force(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t count,
                         int32_t* consumed) {
  return sslm_prefill(model, seq, tokens, count, count > 0 ? count : 1, SSLM_SPAN_SCHEMA_CONTENT, NULL,
                      consumed);
}

static void force_all(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t count) {
  int32_t consumed = -1;
  OK(force(model, seq, tokens, count, &consumed));
  CHECK_INT(consumed, count);
}

static uint32_t walk_of(sslm_seq seq) {
  const blob saved = save(seq);
  uint32_t walk;
  memcpy(&walk, saved.bytes + WALK_STATE_AT, sizeof(walk));
  free(saved.bytes);
  return walk;
}

static sslm_stats_out stats_of(sslm_model model, sslm_seq seq) {
  sslm_stats_out out;
  OK(sslm_stats(model, seq, &out));
  return out;
}

static int32_t decode_once(sslm_model model, sslm_seq seq) {
  int32_t token = -9;
  OK(step(model, &seq, 1, info_of(model).layers, NULL, &token));
  return token;
}

static const int32_t kChain[] = {10, 11, 12};

static void lookup_count_and_name_follow_the_table(void) {
  scene s = open_scene();
  static const char* const names[] = {"chain", "choice", "parity"};
  sslm_schema schema = (sslm_schema)&s;
  char text[16];
  size_t n, i;
  CHECK_INT(sslm_schema_count(s.model), 3);
  CHECK_INT(info_of(s.model).schema_count, 3);
  CHECK_INT(sslm_schema_count(NULL), 0);
  CHECK(lookup(s.model, "chain") == s.chain);
  STATUS(SCHEMA_NOT_FOUND, sslm_schema_lookup(s.model, "Chain", &schema));
  CHECK(schema == NULL);
  STATUS(SCHEMA_NOT_FOUND, sslm_schema_lookup(s.model, "", &schema));
  STATUS(SCHEMA_NOT_FOUND, sslm_schema_lookup(s.model, "chai", &schema));
  STATUS(INVALID_ARGUMENT, sslm_schema_lookup(s.model, NULL, &schema));
  STATUS(INVALID_ARGUMENT, sslm_schema_lookup(NULL, "chain", &schema));
  STATUS(INVALID_ARGUMENT, sslm_schema_lookup(s.model, "chain", NULL));
  for (i = 0; i < 3; ++i) {
    const size_t length = strlen(names[i]);
    n = 0;
    STATUS(BUFFER_TOO_SMALL, sslm_schema_name(s.model, (int32_t)i, NULL, &n));
    CHECK_INT(n, length);
    n = length - 1;
    STATUS(BUFFER_TOO_SMALL, sslm_schema_name(s.model, (int32_t)i, text, &n));
    memset(text, '!', sizeof(text));
    n = sizeof(text);
    OK(sslm_schema_name(s.model, (int32_t)i, text, &n));
    CHECK_INT(n, length);
    CHECK(memcmp(text, names[i], length) == 0 && text[length] == '!');
  }
  n = sizeof(text);
  STATUS(INVALID_ARGUMENT, sslm_schema_name(s.model, -1, text, &n));
  STATUS(INVALID_ARGUMENT, sslm_schema_name(s.model, 3, text, &n));
  STATUS(INVALID_ARGUMENT, sslm_schema_name(s.model, 0, text, NULL));
  STATUS(INVALID_ARGUMENT, sslm_schema_name(NULL, 0, text, &n));
  close_scene(s);
}

static void a_schema_of_another_model_is_refused(void) {
  scene s = open_scene();
  const sslm_model other = map_artifact(OTHER_MODEL);
  const sslm_seq seq = make_seq(s.model, s.memory.pool);
  sslm_prefix prefix = NULL;
  int32_t bound = -1;
  STATUS(INVALID_ARGUMENT, sslm_seq_set_schema(seq, lookup(other, "chain")));
  OK(sslm_seq_schema_bound(seq, &bound));
  CHECK_INT(bound, 0);
  OK(sslm_prefix_begin(s.model, &s.memory.pool, &prefix));
  STATUS(INVALID_ARGUMENT, sslm_prefix_set_schema(prefix, lookup(other, "chain")));
  OK(sslm_prefix_release(prefix));
  OK(sslm_seq_set_schema(seq, s.chain));
  OK(sslm_seq_schema_bound(seq, &bound));
  CHECK_INT(bound, 1);
  OK(sslm_seq_release(seq));
  OK(sslm_model_unmap(other));
  close_scene(s);
}

/* Bind, rebind and unbind are refused and change nothing; after a reset they are accepted. */
static void check_rejected(scene s, sslm_seq seq) {
  const sslm_schema tries[] = {s.chain, s.parity, SSLM_SCHEMA_NONE};
  size_t i;
  for (i = 0; i < 3; ++i) {
    const blob before = save(seq);
    STATUS(SCHEMA_BIND_REJECTED, sslm_seq_set_schema(seq, tries[i]));
    CHECK_UNCHANGED(seq, before);
  }
}

static void binding_is_rejected_after_content_and_accepted_after_reset(void) {
  scene s = open_scene();
  sslm_prefix empty = NULL;
  sslm_seq seq = bound_seq(s, s.chain), restored = NULL;
  blob saved;
  int32_t consumed = -1, bound = -1;
  OK(sslm_seq_set_schema(seq, s.parity)); /* rebinding a fresh one */
  OK(sslm_seq_set_schema(seq, SSLM_SCHEMA_NONE));
  OK(sslm_seq_set_schema(seq, s.chain));
  OK(sslm_prefill(s.model, seq, NULL, 0, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
  check_rejected(s, seq); /* an empty prefill counts */
  OK(sslm_seq_reset(seq));
  OK(sslm_seq_set_schema(seq, s.chain));
  prefill_run(s.model, seq, 5, 1, NULL);
  check_rejected(s, seq); /* prefill */
  CHECK_INT(decode_once(s.model, seq), 10);
  check_rejected(s, seq); /* decode */
  rest_mid_token(s.model, seq, 1, NULL);
  check_rejected(s, seq); /* mid-token */
  CHECK_INT(decode_once(s.model, seq), 11);
  CHECK_INT(decode_once(s.model, seq), 12);
  CHECK_INT(decode_once(s.model, seq), -2);
  check_rejected(s, seq); /* dead end */
  saved = save(seq);
  OK(sslm_seq_restore(s.model, &s.memory.pool, saved.bytes, saved.size, &restored));
  free(saved.bytes);
  check_rejected(s, restored); /* restore */
  OK(sslm_seq_reset(restored));
  OK(sslm_seq_schema_bound(restored, &bound));
  CHECK_INT(bound, 1); /* the binding survives both */
  OK(sslm_seq_set_schema(restored, SSLM_SCHEMA_NONE));
  OK(sslm_seq_reset(seq));
  OK(sslm_prefix_begin_budgeted(s.model, &s.memory.pool, 1, &empty));
  OK(sslm_prefix_freeze(empty));
  OK(sslm_seq_adopt_prefix(seq, empty));
  check_rejected(s, seq); /* adopt, of nothing */
  OK(sslm_seq_reset(seq));
  OK(sslm_seq_set_schema(seq, s.parity));
  OK(sslm_prefix_release(empty));
  OK(sslm_seq_release(restored));
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void schema_content_needs_a_bound_schema(void) {
  scene s = open_scene();
  const sslm_seq seq = make_seq(s.model, s.memory.pool);
  sslm_prefix prefix = NULL;
  int32_t consumed = -1;
  STATUS(SCHEMA_SPAN_UNBOUND, force(s.model, seq, kChain, 3, &consumed));
  CHECK_INT(consumed, 0);
  STATUS(SCHEMA_BIND_REJECTED, sslm_seq_set_schema(seq, s.chain)); /* it is not bindable any more */
  prefill(s.model, seq, kChain, 3, NULL);
  OK(sslm_prefix_begin(s.model, &s.memory.pool, &prefix));
  STATUS(SCHEMA_SPAN_UNBOUND,
         sslm_prefix_prefill(s.model, prefix, kChain, 3, 3, SSLM_SPAN_SCHEMA_CONTENT, NULL, &consumed));
  prefill_prefix(s.model, prefix, 4, 1, NULL);
  OK(sslm_prefix_release(prefix));
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void a_span_illegal_at_its_third_token_consumes_two_and_goes_on_legally(void) {
  scene s = open_scene();
  const sslm_seq seq = bound_seq(s, s.chain), twin = bound_seq(s, s.chain);
  const int32_t wrong[] = {10, 11, 13, 12};
  const int32_t bad_id[] = {10, 11, -1};
  int32_t consumed = -1;
  STATUS(SCHEMA_SPAN_UNREACHABLE, force(s.model, seq, wrong, 4, &consumed));
  CHECK_INT(consumed, 2);
  CHECK_INT(stats_of(s.model, seq).forced_token_count, 2);
  CHECK_INT(stats_of(s.model, seq).schema_accepting, 0);
  force_all(s.model, twin, kChain, 2);
  CHECK_SAME(seq, twin);
  CHECK_INT(decode_once(s.model, seq), 12);
  CHECK_INT(stats_of(s.model, seq).schema_accepting, 1);
  CHECK_INT(stats_of(s.model, seq).forced_token_count, 2);
  OK(sslm_seq_reset(twin));
  STATUS(TOKEN_ID_OUT_OF_RANGE, force(s.model, twin, bad_id, 3, &consumed));
  CHECK_INT(consumed, 2);
  STATUS(SCHEMA_SPAN_UNREACHABLE, force(s.model, twin, wrong, 4, &consumed));
  CHECK_INT(consumed, 0); /* nothing admitted, nothing changed */
  CHECK_INT(walk_of(twin), 2);
  OK(sslm_seq_release(twin));
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void any_cutting_of_a_span_gives_the_same_state(void) {
  scene s = open_scene();
  const sslm_seq whole = bound_seq(s, s.parity), cut = bound_seq(s, s.parity);
  int32_t tokens[12], done = 0, i;
  for (i = 0; i < 12; ++i) tokens[i] = 40 + i;
  prefill_run(s.model, whole, 7, 3, NULL);
  prefill_run(s.model, cut, 7, 3, NULL);
  force_all(s.model, whole, tokens, 12);
  while (done < 12) {
    int32_t consumed = -1;
    OK(sslm_prefill(s.model, cut, tokens + done, 12 - done, 5, SSLM_SPAN_SCHEMA_CONTENT, NULL, &consumed));
    done += consumed;
  }
  CHECK_SAME(whole, cut);
  CHECK_INT(stats_of(s.model, cut).forced_token_count, 12);
  OK(sslm_seq_release(whole));
  OK(sslm_seq_release(cut));
  close_scene(s);
}

static void a_prompt_span_does_not_move_the_walk(void) {
  scene s = open_scene();
  const sslm_seq seq = bound_seq(s, s.chain);
  prefill(s.model, seq, kChain, 3, NULL);
  CHECK_INT(walk_of(seq), 0);
  CHECK_INT(stats_of(s.model, seq).forced_token_count, 0);
  CHECK_INT(decode_once(s.model, seq), 10);
  prefill_run(s.model, seq, 3, 8, NULL);
  CHECK_INT(walk_of(seq), 1);
  CHECK_INT(decode_once(s.model, seq), 11);
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void a_complete_schema_gives_minus_two_again_and_again(void) {
  scene s = open_scene();
  const sslm_seq seq = bound_seq(s, s.chain), fresh = bound_seq(s, s.chain);
  sslm_seq ended = seq;
  sslm_decode_params damped;
  int32_t out = 77;
  blob before;
  int i;
  prefill_run(s.model, seq, 4, 2, NULL);
  force_all(s.model, seq, kChain, 3);
  CHECK_INT(stats_of(s.model, seq).schema_accepting, 1);
  before = save(seq);
  for (i = 0; i < 3; ++i) CHECK_INT(decode_once(s.model, seq), -2);
  OK(sslm_decode_params_init(s.model, SSLM_DECODE_MODE_DAMPED_GREEDY, info_of(s.model).layers, &damped));
  OK(sslm_decode_step_v2(s.model, &ended, 1, &damped, NULL, &out));
  CHECK_INT(out, -2);
  CHECK_UNCHANGED(seq, before);
  CHECK_INT(stats_of(s.model, seq).forced_token_count, 3);
  OK(sslm_seq_set_adapter(seq, NULL));
  OK(sslm_seq_reset(seq));
  CHECK_SAME(seq, fresh);
  prefill_run(s.model, seq, 4, 2, NULL);
  prefill_run(s.model, fresh, 4, 2, NULL);
  CHECK_INT(decode_once(s.model, seq), 10);
  CHECK_INT(decode_once(s.model, fresh), 10);
  CHECK_SAME(seq, fresh);
  OK(sslm_seq_release(fresh));
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void a_dead_end_after_a_pending_token_commits_its_row_and_stays(void) {
  scene s = open_scene();
  const sslm_seq seq = bound_seq(s, s.chain), sliced = bound_seq(s, s.chain);
  const int32_t layers = info_of(s.model).layers;
  blob before;
  int32_t token = -9, i;
  prefill_run(s.model, seq, 4, 2, NULL);
  prefill_run(s.model, sliced, 4, 2, NULL);
  for (i = 0; i < 3; ++i) {
    CHECK_INT(decode_once(s.model, seq), kChain[i]);
    CHECK_INT(decode_once(s.model, sliced), kChain[i]);
  }
  CHECK_INT(decode_once(s.model, seq), -2);
  before = save(seq);
  CHECK_INT(decode_once(s.model, seq), -2);
  CHECK_UNCHANGED(seq, before);
  for (i = 1; i < layers; ++i) rest_mid_token(s.model, sliced, 1, NULL);
  OK(step(s.model, (sslm_seq*)&sliced, 1, 1, NULL, &token));
  CHECK_INT(token, -2);
  CHECK_SAME(seq, sliced);
  OK(sslm_seq_release(sliced));
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void masked_decode_takes_the_best_legal_token(void) {
  scene s = open_scene();
  const int32_t vocab = info_of(s.model).vocab;
  const sslm_seq seq = bound_seq(s, s.parity);
  int32_t* logits = (int32_t*)check_alloc(sizeof(int32_t) * (size_t)vocab);
  int32_t i, t;
  prefill_run(s.model, seq, 6, 4, NULL);
  for (i = 0; i < 40; ++i) {
    size_t n = (size_t)vocab;
    int32_t best = -1, token;
    OK(sslm_ext_seq_logits(s.model, seq, NULL, logits, &n));
    for (t = i % 2; t < vocab; t += 2)
      if (best < 0 || logits[t] > logits[best]) best = t;
    token = decode_once(s.model, seq);
    CHECK_INT(token, best);
    CHECK_INT(walk_of(seq), (i + 1) % 2);
    prefill(s.model, seq, &token, 1, NULL);
  }
  free(logits);
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void sequences_of_one_batch_keep_their_own_schemas(void) {
  scene s = open_scene();
  pool_memory room = make_pool(s.model, BLOCK_POOL, 8);
  const sslm_schema schemas[] = {s.parity, SSLM_SCHEMA_NONE, s.choice, s.chain};
  sslm_seq batch[4], solo[4];
  int32_t out[4];
  int i, round;
  for (i = 0; i < 4; ++i) {
    batch[i] = make_seq(s.model, room.pool);
    solo[i] = make_seq(s.model, room.pool);
    OK(sslm_seq_set_schema(batch[i], schemas[i]));
    OK(sslm_seq_set_schema(solo[i], schemas[i]));
    prefill_run(s.model, batch[i], 3 + i, 5, NULL);
    prefill_run(s.model, solo[i], 3 + i, 5, NULL);
  }
  for (round = 0; round < 6; ++round) {
    OK(step(s.model, batch, 4, info_of(s.model).layers, NULL, out));
    for (i = 0; i < 4; ++i) {
      CHECK_INT(out[i], decode_once(s.model, solo[i]));
      CHECK_SAME(batch[i], solo[i]);
    }
  }
  for (i = 0; i < 4; ++i) {
    OK(sslm_seq_release(batch[i]));
    OK(sslm_seq_release(solo[i]));
  }
  OK(sslm_kv_pool_destroy(room.pool));
  close_scene(s);
}

/* A frozen prefix of a prompt and, where `forced` > 0, the beginning of the chain. */
static sslm_prefix chain_prefix(scene s, sslm_schema schema, int32_t forced) {
  sslm_prefix prefix = NULL;
  int32_t consumed = -1;
  OK(sslm_prefix_begin(s.model, &s.memory.pool, &prefix));
  OK(sslm_prefix_set_schema(prefix, schema));
  prefill_prefix(s.model, prefix, 9, 6, NULL);
  STATUS(INVALID_ARGUMENT, sslm_prefix_set_schema(prefix, schema));
  if (forced > 0)
    OK(sslm_prefix_prefill(s.model, prefix, kChain, forced, forced, SSLM_SPAN_SCHEMA_CONTENT, NULL,
                           &consumed));
  OK(sslm_prefix_freeze(prefix));
  STATUS(INVALID_ARGUMENT, sslm_prefix_set_schema(prefix, schema));
  return prefix;
}

static void a_progressed_prefix_fits_its_own_schema_only(void) {
  scene s = open_scene();
  const sslm_prefix prefix = chain_prefix(s, s.chain, 2);
  const sslm_schema tries[] = {SSLM_SCHEMA_NONE, s.parity};
  sslm_seq seq;
  sslm_prefix child = NULL;
  int i;
  for (i = 0; i < 2; ++i) {
    blob before;
    seq = bound_seq(s, tries[i]);
    before = save(seq);
    STATUS(PREFIX_SCHEMA_MISMATCH, sslm_seq_adopt_prefix(seq, prefix));
    CHECK_UNCHANGED(seq, before);
    STATUS(SCHEMA_BIND_REJECTED, sslm_seq_set_schema(seq, s.chain));
    OK(sslm_seq_release(seq));
  }
  seq = bound_seq(s, s.chain);
  OK(sslm_seq_adopt_prefix(seq, prefix));
  CHECK_INT(walk_of(seq), 2);
  CHECK_INT(stats_of(s.model, seq).forced_token_count, 0);
  CHECK_INT(decode_once(s.model, seq), 12);
  OK(sslm_seq_reset(seq)); /* the walk starts over, the binding stays */
  CHECK_INT(walk_of(seq), 0);
  OK(sslm_prefix_begin_from(prefix, 8, &child));
  {
    int32_t consumed = -1;
    OK(sslm_prefix_prefill(s.model, child, kChain + 2, 1, 1, SSLM_SPAN_SCHEMA_CONTENT, NULL, &consumed));
    CHECK_INT(consumed, 1); /* it goes on from its parent's walk */
  }
  OK(sslm_prefix_freeze(child));
  OK(sslm_seq_adopt_prefix(seq, child));
  CHECK_INT(walk_of(seq), 3);
  OK(sslm_prefix_release(child));
  OK(sslm_prefix_release(prefix));
  OK(sslm_seq_release(seq));
  close_scene(s);
}

static void a_prompt_only_prefix_resets_the_walk(void) {
  scene s = open_scene();
  const sslm_prefix prefix = chain_prefix(s, s.choice, 0);
  const sslm_seq seq = bound_seq(s, s.chain);
  force_all(s.model, seq, kChain, 2);
  CHECK_INT(walk_of(seq), 2);
  OK(sslm_seq_adopt_prefix(seq, prefix));
  CHECK_INT(walk_of(seq), 0);
  CHECK_INT(stats_of(s.model, seq).forced_token_count, 0);
  CHECK_INT(decode_once(s.model, seq), 10); /* the sequence's own schema */
  OK(sslm_prefix_release(prefix));
  OK(sslm_seq_release(seq));
  close_scene(s);
}

/* A saved game may have been edited: the count is the blob's business, the sum must be defined. */
static void a_restored_forced_count_of_any_size_can_be_added_to(void) {
  scene s = open_scene();
  const sslm_seq seq = bound_seq(s, s.chain);
  const int64_t largest = INT64_MAX;
  sslm_seq restored = NULL;
  blob saved;
  force_all(s.model, seq, kChain, 1);
  saved = save(seq);
  memcpy(saved.bytes + FORCED_COUNT_AT, &largest, sizeof(largest));
  OK(sslm_seq_restore(s.model, &s.memory.pool, saved.bytes, saved.size, &restored));
  CHECK(stats_of(s.model, restored).forced_token_count == INT64_MAX);
  force_all(s.model, restored, kChain + 1, 1);
  CHECK(stats_of(s.model, restored).forced_token_count == INT64_MIN);
  OK(sslm_seq_release(restored));
  OK(sslm_seq_release(seq));
  free(saved.bytes);
  close_scene(s);
}

static void save_and_restore_keep_binding_walk_and_forced_count(void) {
  scene s = open_scene();
  const sslm_seq seq = bound_seq(s, s.chain);
  sslm_seq restored = NULL;
  blob saved;
  prefill_run(s.model, seq, 4, 2, NULL);
  force_all(s.model, seq, kChain, 1);
  CHECK_INT(decode_once(s.model, seq), 11);
  saved = save(seq);
  OK(sslm_seq_restore(s.model, &s.memory.pool, saved.bytes, saved.size, &restored));
  CHECK_SAME(seq, restored);
  CHECK_INT(stats_of(s.model, restored).forced_token_count, 1);
  CHECK_INT(decode_once(s.model, restored), 12);
  CHECK_INT(decode_once(s.model, seq), 12);
  CHECK_SAME(seq, restored);
  OK(sslm_seq_release(restored));
  OK(sslm_seq_release(seq));
  free(saved.bytes);
  close_scene(s);
}

static void a_blob_of_other_tables_or_walk_states_is_a_schema_mismatch(void) {
  scene s = open_scene();
  const sslm_model other = map_artifact(OTHER_TABLES);
  pool_memory memory = make_pool(other, BLOCK_POOL, 1);
  const sslm_seq seq = bound_seq(s, s.chain);
  sslm_seq out = NULL;
  blob saved;
  uint32_t walk;
  uint64_t hash = 0;
  int32_t consumed = -1;
  OK(sslm_prefill(s.model, seq, kChain, 1, 1, SSLM_SPAN_SCHEMA_CONTENT, NULL, &consumed));
  saved = save(seq);
  STATUS(RESTORE_SCHEMA_MISMATCH, sslm_seq_restore(other, &memory.pool, saved.bytes, saved.size, &out));
  CHECK(out == NULL); /* the model digest is the same, the schema's is not */
  walk = 4;
  memcpy(saved.bytes + WALK_STATE_AT, &walk, sizeof(walk));
  STATUS(RESTORE_SCHEMA_MISMATCH, sslm_seq_restore(s.model, &s.memory.pool, saved.bytes, saved.size, &out));
  walk = 3;
  memcpy(saved.bytes + WALK_STATE_AT, &walk, sizeof(walk));
  OK(sslm_seq_restore(s.model, &s.memory.pool, saved.bytes, saved.size, &out));
  CHECK_INT(decode_once(s.model, out), -2);
  OK(sslm_seq_release(out));
  memcpy(saved.bytes + SCHEMA_HASH_AT, &hash, sizeof(hash));
  STATUS(RESTORE_SCHEMA_MISMATCH, sslm_seq_restore(s.model, &s.memory.pool, saved.bytes, saved.size, &out));
  walk = 0xFFFFFFFFu;
  memcpy(saved.bytes + WALK_STATE_AT, &walk, sizeof(walk));
  OK(sslm_seq_restore(s.model, &s.memory.pool, saved.bytes, saved.size, &out));
  OK(sslm_seq_release(out));
  OK(sslm_seq_release(seq));
  free(saved.bytes);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(other));
  close_scene(s);
}

static void a_covering_workspace_decodes_within_a_schema_without_allocating(void) {
  scene s = open_scene();
  const check_counter allocations = check_heap_allocations();
  const sslm_workspace ws = make_workspace(s.model, 2, 8);
  sslm_seq batch[2];
  sslm_ext_sample_params params[2];
  int32_t out[2], layers = info_of(s.model).layers;
  uint64_t before;
  int i;
  memset(params, 0, sizeof(params));
  for (i = 0; i < 2; ++i) {
    batch[i] = bound_seq(s, s.parity);
    prefill_run(s.model, batch[i], 5, 3, ws);
    params[i].struct_size = sizeof(params[i]);
    params[i].seed = (uint64_t)i;
    params[i].inverse_temperature = 6196328019u;
    params[i].top_p_q15 = 30000;
  }
  before = allocations();
  for (i = 0; i < 10; ++i) OK(step(s.model, batch, 2, layers, ws, out));
  for (i = 0; i < 10; ++i) OK(sslm_ext_decode_sample(s.model, batch, 2, layers, params, ws, out));
  CHECK_INT(allocations() - before, 0);
  for (i = 0; i < 2; ++i) OK(sslm_seq_release(batch[i]));
  OK(sslm_workspace_destroy(ws));
  close_scene(s);
}

static const cell kCells[] = {
    CELL(lookup_count_and_name_follow_the_table),
    CELL(a_schema_of_another_model_is_refused),
    CELL(binding_is_rejected_after_content_and_accepted_after_reset),
    CELL(schema_content_needs_a_bound_schema),
    CELL(a_span_illegal_at_its_third_token_consumes_two_and_goes_on_legally),
    CELL(any_cutting_of_a_span_gives_the_same_state),
    CELL(a_prompt_span_does_not_move_the_walk),
    CELL(a_complete_schema_gives_minus_two_again_and_again),
    CELL(a_dead_end_after_a_pending_token_commits_its_row_and_stays),
    CELL(masked_decode_takes_the_best_legal_token),
    CELL(sequences_of_one_batch_keep_their_own_schemas),
    CELL(a_progressed_prefix_fits_its_own_schema_only),
    CELL(a_prompt_only_prefix_resets_the_walk),
    CELL(save_and_restore_keep_binding_walk_and_forced_count),
    CELL(a_restored_forced_count_of_any_size_can_be_added_to),
    CELL(a_blob_of_other_tables_or_walk_states_is_a_schema_mismatch),
    CELL(a_covering_workspace_decodes_within_a_schema_without_allocating),
};

CELLS(kCells)
