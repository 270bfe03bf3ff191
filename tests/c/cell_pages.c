/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Pages and prefixes: what is drawn, shared, copied and given back, in pools of every kind.
 * Artifacts: caps 4,096 (head_dim 64), 64, 65, 40, 32,768 (head_dim 32), 32,768 (head_dim 128). */
#include "pages.h"

enum { SMALL, CAP64, CAP65, CAP40, WIDE, WIDE128 };

static void page_size_and_reservation_follow_the_table(void) {
  static const struct {
    int artifact;
    int64_t positions, pages, budget_pages;
  } rows[] = {{SMALL, 64, 64, 9}, {CAP64, 64, 1, 0},   {CAP65, 64, 2, 0},
              {CAP40, 40, 1, 0},  {WIDE, 128, 256, 5}, {WIDE128, 64, 512, 9}};
  size_t i;
  for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    const sslm_model model = map_artifact(rows[i].artifact);
    const sslm_ext_model_info_out info = info_of(model);
    const size_t bpt = (size_t)2 * info.layers * info.kv_heads * info.head_dim;
    CHECK_INT(sslm_kv_page_positions(model), rows[i].positions);
    CHECK_INT(sslm_kv_page_size(model), (size_t)rows[i].positions * bpt);
    CHECK_INT(sslm_kv_block_size(model), (size_t)info.cap * bpt);
    CHECK_INT(sslm_kv_pages_for_budget(model, info.cap), rows[i].pages);
    CHECK_INT(sslm_kv_pages_for_budget(model, 1), rows[i].pages < 2 ? rows[i].pages : 2);
    if (rows[i].budget_pages) CHECK_INT(sslm_kv_pages_for_budget(model, 512), rows[i].budget_pages);
    CHECK_INT(sslm_seq_state_size(model) - sslm_kv_block_size(model) - 4u * (size_t)info.hidden -
                  4u * (size_t)info.cap,
              180);
    OK(sslm_model_unmap(model));
  }
}

static void n_blocks_admit_n_handles_of_any_mixture(void) {
  const sslm_model model = map_artifact(SMALL);
  int kind;
  for (kind = 0; kind < POOL_KINDS; ++kind) {
    pool_memory memory = make_pool(model, kind, kind == PAGE_POOL ? 4 * 64 : 4);
    sslm_seq out = NULL, a, b, copy;
    sslm_prefix open = NULL, frozen, late = NULL;
    OK(sslm_prefix_begin(model, &memory.pool, &open));
    frozen = frozen_root(model, memory.pool, 700, 0, 1);
    a = make_seq(model, memory.pool);
    copy = make_seq(model, memory.pool);
    STATUS(KV_POOL_EXHAUSTED, sslm_prefix_begin(model, &memory.pool, &late));
    OK(sslm_seq_adopt_prefix(copy, frozen));
    OK(sslm_prefix_release(frozen)); /* its copy-adopter lives on */
    b = make_seq(model, memory.pool);
    STATUS(KV_POOL_EXHAUSTED, sslm_seq_create(model, &memory.pool, &out));
    CHECK(out == NULL);
    decode_run(model, copy, 3, NULL, NULL);
    OK(sslm_prefix_release(open));
    OK(sslm_seq_release(a));
    OK(sslm_seq_release(b));
    OK(sslm_seq_release(copy));
    OK(sslm_kv_pool_destroy(memory.pool));
  }
  OK(sslm_model_unmap(model));
}

static void an_exhausted_pool_refuses_every_drawing_verb_and_still_adopts(void) {
  const sslm_model model = map_artifact(SMALL);
  int kind;
  for (kind = 0; kind < POOL_KINDS; ++kind) {
    pool_memory memory = make_pool(model, kind, kind == PAGE_POOL ? 80 : kind == BLOCK_POOL ? 1 : 2);
    sslm_prefix prefix = frozen_root(model, memory.pool, 200, 200, 1), no_prefix = (sslm_prefix)(uintptr_t)8;
    sslm_seq seq = make_budgeted(model, memory.pool, 300), no_seq = (sslm_seq)(uintptr_t)8;
    sslm_seq fill[128];
    int fills = 0;
    uint32_t shared = 9, left;
    blob saved;
    prefill_run(model, seq, 5, 4, NULL);
    saved = save(seq);
    while (fills < 128 && sslm_seq_create_budgeted(model, &memory.pool, 1, &fill[fills]) == SSLM_OK) ++fills;
    CHECK(fills < 128);
    left = free_pages(memory.pool);
    CHECK(left < 2);
    STATUS(KV_POOL_EXHAUSTED, sslm_seq_create(model, &memory.pool, &no_seq));
    CHECK(no_seq == NULL);
    no_seq = (sslm_seq)(uintptr_t)8;
    STATUS(KV_POOL_EXHAUSTED, sslm_seq_create_budgeted(model, &memory.pool, 1, &no_seq));
    CHECK(no_seq == NULL);
    STATUS(KV_POOL_EXHAUSTED, sslm_prefix_begin(model, &memory.pool, &no_prefix));
    CHECK(no_prefix == NULL);
    no_prefix = (sslm_prefix)(uintptr_t)8;
    STATUS(KV_POOL_EXHAUSTED, sslm_prefix_begin_budgeted(model, &memory.pool, 1, &no_prefix));
    CHECK(no_prefix == NULL);
    no_prefix = (sslm_prefix)(uintptr_t)8;
    STATUS(KV_POOL_EXHAUSTED, sslm_prefix_begin_from(prefix, 1, &no_prefix));
    CHECK(no_prefix == NULL);
    no_seq = (sslm_seq)(uintptr_t)8;
    STATUS(KV_POOL_EXHAUSTED, sslm_seq_restore(model, &memory.pool, saved.bytes, saved.size, &no_seq));
    CHECK(no_seq == NULL);
    no_seq = (sslm_seq)(uintptr_t)8;
    STATUS(KV_POOL_EXHAUSTED,
           sslm_seq_restore_shared(model, &memory.pool, saved.bytes, saved.size, prefix, &no_seq, &shared));
    CHECK(no_seq == NULL);
    CHECK_INT(shared, 0);
    CHECK_INT(free_pages(memory.pool), left);
    OK(sslm_seq_adopt_prefix(seq, prefix));
    CHECK_INT(TOKENS_UNTIL(KV_BUDGET_EXCEEDED, model, seq, NULL), 301);
    free(saved.bytes);
    while (fills > 0) OK(sslm_seq_release(fill[--fills]));
    OK(sslm_seq_release(seq));
    OK(sslm_prefix_release(prefix));
    CHECK_INT(used_pages(memory.pool), 0);
    OK(sslm_kv_pool_destroy(memory.pool));
  }
  OK(sslm_model_unmap(model));
}

static void freezing_returns_what_the_content_does_not_need(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 40);
  sslm_prefix prefix = NULL;
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 1008, &prefix));
  CHECK_INT(used_pages(memory.pool), 17);
  prefill_prefix(model, prefix, 1000, 1, NULL);
  CHECK_INT(used_pages(memory.pool), 17);
  OK(sslm_prefix_freeze(prefix));
  CHECK_INT(used_pages(memory.pool), 16);
  OK(sslm_prefix_freeze(prefix));
  CHECK_INT(used_pages(memory.pool), 16);
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void statistics_of_a_nested_cast_are_those_of_the_contract(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 80);
  sslm_prefix world = frozen_root(model, memory.pool, 1000, 1000, 1), persona;
  sslm_seq adopters[3];
  sslm_seq_kv_stats_out stats;
  int i;
  CHECK_INT(used_pages(memory.pool), 16);
  CHECK_INT(pool_stats(memory.pool).shared_pages, 0);
  persona = frozen_child(model, world, 200, 200, 2);
  CHECK_INT(used_pages(memory.pool), 20);
  CHECK_INT(pool_stats(memory.pool).shared_pages, 15);
  for (i = 0; i < 3; ++i) {
    adopters[i] = make_budgeted(model, memory.pool, 512);
    OK(sslm_seq_adopt_prefix(adopters[i], persona));
    CHECK_PAGES(adopters[i], 1, 18, 8, 0);
  }
  CHECK_INT(used_pages(memory.pool), 47);
  CHECK_INT(pool_stats(memory.pool).shared_pages, 18);
  CHECK_INT(pool_stats(memory.pool).page_positions, 64);
  decode_run(model, adopters[0], 20, NULL, NULL);
  CHECK_PAGES(adopters[0], 2, 18, 7, 0);
  stats = kv_stats(adopters[0]);
  CHECK_INT(stats.context_length, 1219);
  CHECK_INT(stats.mode, 1);
  CHECK_INT(stats.origin, 1200);
  CHECK_INT(stats.budget, 512);
  CHECK_INT(stats.limit, 1712);
  OK(sslm_prefix_release(world));
  CHECK_INT(used_pages(memory.pool), 46);
  OK(sslm_prefix_release(persona));
  CHECK_INT(used_pages(memory.pool), 45);
  for (i = 0; i < 3; ++i) OK(sslm_seq_release(adopters[i]));
  CHECK_INT(used_pages(memory.pool), 0);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void sharers_keep_a_released_prefix_until_the_last_of_them(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 80);
  sslm_prefix prefix = frozen_root(model, memory.pool, 150, 0, 1);
  sslm_seq a = make_budgeted(model, memory.pool, 200), b = make_budgeted(model, memory.pool, 200);
  sslm_seq flat = make_seq(model, make_pool(model, CONTIGUOUS_POOL, 1).pool);
  uint32_t used;
  OK(sslm_seq_adopt_prefix(a, prefix));
  OK(sslm_seq_adopt_prefix(b, prefix));
  OK(sslm_seq_adopt_prefix(flat, prefix));
  used = used_pages(memory.pool);
  OK(sslm_seq_reset(a)); /* the last sharer goes, or the last but one: the prefix keeps its pages */
  OK(sslm_seq_reset(b));
  CHECK_INT(used_pages(memory.pool), used);
  CHECK_INT(pool_stats(memory.pool).shared_pages, 0);
  OK(sslm_seq_adopt_prefix(a, prefix));
  OK(sslm_seq_adopt_prefix(b, prefix));
  OK(sslm_prefix_release(prefix));
  CHECK_INT(used_pages(memory.pool), used - 1);
  {
    int32_t i;
    for (i = 0; i < 30; ++i) CHECK_INT(decode_token(model, a, NULL), decode_token(model, flat, NULL));
  }
  OK(sslm_seq_reset(a));
  CHECK_INT(used_pages(memory.pool), used - 1);
  CHECK_INT(pool_stats(memory.pool).shared_pages, 2);
  decode_run(model, b, 3, NULL, NULL);
  OK(sslm_seq_release(b));
  CHECK_INT(used_pages(memory.pool), 5);
  CHECK_INT(pool_stats(memory.pool).shared_pages, 0);
  OK(sslm_seq_release(a));
  CHECK_INT(used_pages(memory.pool), 0);
  FINISH(model, memory.pool, NULL, flat);
}

static void adopting_again_keeps_the_last_sharers_pages(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 70);
  sslm_prefix prefix = frozen_root(model, memory.pool, 150, 0, 1), child;
  sslm_seq seq = make_budgeted(model, memory.pool, 100), twin = make_budgeted(model, memory.pool, 100);
  OK(sslm_seq_adopt_prefix(seq, prefix));
  decode_run(model, seq, 5, NULL, NULL);
  OK(sslm_seq_adopt_prefix(seq, prefix));
  OK(sslm_seq_adopt_prefix(twin, prefix));
  check_twins(model, seq, twin, 5, NULL);
  child = frozen_child(model, prefix, 10, 20, 3);
  OK(sslm_prefix_release(prefix));
  OK(sslm_seq_adopt_prefix(seq, child));
  OK(sslm_seq_release(twin));
  OK(sslm_prefix_release(child));
  decode_run(model, seq, 50, NULL, NULL);
  OK(sslm_seq_release(seq));
  CHECK_INT(used_pages(memory.pool), 0);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_budget_sequence_refuses_another_pool_and_a_plain_one_copies_from_any(void) {
  const sslm_model model = map_artifact(SMALL);
  int from, to;
  for (from = 0; from < POOL_KINDS; ++from) {
    pool_memory source = make_pool(model, from, from == PAGE_POOL ? 64 : 1);
    sslm_prefix prefix = frozen_root(model, source.pool, 130, 0, 1);
    for (to = 0; to < POOL_KINDS; ++to) {
      pool_memory target = make_pool(model, to, to == PAGE_POOL ? 128 : 2);
      sslm_seq budget = make_budgeted(model, target.pool, 100), plain = make_seq(model, target.pool);
      blob before = save(budget);
      STATUS(INVALID_ARGUMENT, sslm_seq_adopt_prefix(budget, prefix));
      CHECK_UNCHANGED(budget, before);
      OK(sslm_seq_set_schema(budget, SSLM_SCHEMA_NONE)); /* still bindable */
      OK(sslm_seq_release(budget));
      OK(sslm_seq_adopt_prefix(plain, prefix));
      budget = make_seq(model, target.pool);
      prefill_run(model, budget, 130, 1, NULL);
      check_twins(model, plain, budget, 5, NULL);
      OK(sslm_seq_release(plain));
      OK(sslm_seq_release(budget));
      OK(sslm_kv_pool_destroy(target.pool));
    }
    OK(sslm_prefix_release(prefix));
    OK(sslm_kv_pool_destroy(source.pool));
  }
  OK(sslm_model_unmap(model));
}

static void one_page_contexts_copy_and_two_page_contexts_share(void) {
  static const int32_t lengths[] = {0, 1, 63, 64};
  int artifact, i;
  for (artifact = CAP64; artifact <= CAP65; ++artifact) {
    const sslm_model model = map_artifact(artifact);
    for (i = 0; i < 4; ++i) {
      pool_memory memory = make_pool(model, PAGE_POOL, 10), plain = make_pool(model, CONTIGUOUS_POOL, 1);
      sslm_prefix prefix = frozen_root(model, memory.pool, lengths[i], 0, 1), child = NULL;
      sslm_seq seq = make_budgeted(model, memory.pool, info_of(model).cap),
               flat = make_seq(model, plain.pool);
      const uint32_t shared = artifact == CAP65 && lengths[i] == 64;
      OK(sslm_seq_adopt_prefix(seq, prefix));
      CHECK_INT(kv_stats(seq).shared_pages, shared);
      CHECK_INT(pool_stats(memory.pool).shared_pages, shared);
      OK(sslm_prefix_begin_from(prefix, 1, &child));
      CHECK_INT(pool_stats(memory.pool).shared_pages, shared);
      OK(sslm_prefix_release(child));
      OK(sslm_prefix_release(prefix));
      prefill_run(model, flat, lengths[i], 1, NULL);
      if (lengths[i] == 0) {
        prefill_run(model, seq, 2, 5, NULL);
        prefill_run(model, flat, 2, 5, NULL);
      }
      for (;;) {
        int32_t a = -9, b = -9;
        const sslm_status status = step(model, &seq, 1, info_of(model).layers, NULL, &a);
        CHECK_INT(step(model, &flat, 1, info_of(model).layers, NULL, &b), status);
        CHECK_INT(a, b);
        if (status != SSLM_OK) {
          CHECK_INT(status, SSLM_CONTEXT_CAP_EXCEEDED);
          break;
        }
      }
      OK(sslm_seq_release(seq));
      OK(sslm_seq_release(flat));
      OK(sslm_kv_pool_destroy(memory.pool));
      OK(sslm_kv_pool_destroy(plain.pool));
    }
    OK(sslm_model_unmap(model));
  }
}

static void a_contiguous_pool_holds_one_page_a_holder_with_the_same_tokens_and_blobs(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory flat = make_pool(model, CONTIGUOUS_POOL, 4), paged = make_pool(model, PAGE_POOL, 160);
  sslm_prefix worlds[2], personas[2];
  sslm_seq seqs[2];
  sslm_kv_pool pools[2];
  int i;
  pools[0] = flat.pool;
  pools[1] = paged.pool;
  for (i = 0; i < 2; ++i) {
    worlds[i] = frozen_root(model, pools[i], 300, 300, 1);
    personas[i] = frozen_child(model, worlds[i], 100, 100, 2);
    seqs[i] = make_budgeted(model, pools[i], 150);
    OK(sslm_seq_adopt_prefix(seqs[i], personas[i]));
  }
  CHECK_INT(used_pages(flat.pool), 3);
  CHECK_INT(pool_stats(flat.pool).shared_pages, 0);
  CHECK_INT(pool_stats(flat.pool).page_positions, info_of(model).cap);
  CHECK_PAGES(seqs[0], 1, 0, 0, 0);
  check_twins(model, seqs[0], seqs[1], 151, NULL);
  for (i = 0; i < 2; ++i) {
    int32_t token;
    STATUS(KV_BUDGET_EXCEEDED, step(model, &seqs[i], 1, 1, NULL, &token));
    OK(sslm_prefix_release(worlds[i]));
    OK(sslm_prefix_release(personas[i]));
    OK(sslm_seq_release(seqs[i]));
    CHECK_INT(used_pages(pools[i]), 0);
    OK(sslm_kv_pool_destroy(pools[i]));
  }
  OK(sslm_model_unmap(model));
}

static void a_child_needs_a_frozen_parent_and_inherits_its_content(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 80);
  sslm_prefix open = NULL, child = (sslm_prefix)(uintptr_t)8;
  sslm_seq seq;
  STATUS(INVALID_ARGUMENT, sslm_prefix_begin_from(NULL, 10, &child));
  CHECK(child == NULL);
  OK(sslm_prefix_begin(model, &memory.pool, &open));
  STATUS(INVALID_ARGUMENT, sslm_prefix_begin_from(open, 10, &child));
  OK(sslm_prefix_set_schema(open, SSLM_SCHEMA_NONE));
  prefill_prefix(model, open, 100, 1, NULL);
  STATUS(INVALID_ARGUMENT, sslm_prefix_set_schema(open, SSLM_SCHEMA_NONE));
  seq = make_budgeted(model, memory.pool, 10);
  STATUS(INVALID_ARGUMENT, sslm_seq_adopt_prefix(seq, open));
  OK(sslm_prefix_freeze(open));
  OK(sslm_prefix_begin_from(open, 10, &child));
  STATUS(INVALID_ARGUMENT, sslm_prefix_set_schema(child, SSLM_SCHEMA_NONE));
  STATUS(INVALID_ARGUMENT, sslm_seq_adopt_prefix(seq, child));
  OK(sslm_prefix_freeze(child)); /* empty of its own: the parent's content again */
  OK(sslm_seq_adopt_prefix(seq, child));
  {
    sslm_seq twin = make_budgeted(model, memory.pool, 10);
    OK(sslm_seq_adopt_prefix(twin, open));
    check_twins(model, seq, twin, 5, NULL);
    OK(sslm_seq_release(twin));
  }
  OK(sslm_seq_release(seq));
  OK(sslm_prefix_release(child));
  OK(sslm_prefix_release(open));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_prefix_stops_at_its_budget_and_nested_ones_at_their_own(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 80);
  sslm_prefix world = frozen_root(model, memory.pool, 100, 0, 1), child = NULL;
  int32_t* tokens = token_run(model, 60, 3);
  int32_t consumed = -7;
  OK(sslm_prefix_begin_from(world, 50, &child));
  STATUS(KV_BUDGET_EXCEEDED,
         sslm_prefix_prefill(model, child, tokens, 60, 60, SSLM_SPAN_PROMPT, NULL, &consumed));
  CHECK_INT(consumed, 50);
  OK(sslm_prefix_freeze(child));
  STATUS(PREFIX_FROZEN_REJECTED,
         sslm_prefix_prefill(model, child, tokens, 1, 1, SSLM_SPAN_PROMPT, NULL, &consumed));
  CHECK_INT(consumed, 0);
  free(tokens);
  OK(sslm_prefix_release(child));
  OK(sslm_prefix_release(world));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_reset_adopter_has_its_whole_budget_from_position_zero(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 80);
  const sslm_prefix prefix = frozen_root(model, memory.pool, 150, 0, 1);
  sslm_seq seq = make_budgeted(model, memory.pool, 100), twin = make_budgeted(model, memory.pool, 100);
  OK(sslm_seq_adopt_prefix(seq, prefix));
  CHECK_INT(kv_stats(seq).limit, 250);
  OK(sslm_seq_reset(seq));
  CHECK_INT(kv_stats(seq).origin, 0);
  CHECK_INT(kv_stats(seq).limit, 100);
  prefill_run(model, seq, 80, 2, NULL);
  prefill_run(model, twin, 80, 2, NULL);
  CHECK_SAME(seq, twin);
  CHECK_INT(TOKENS_UNTIL(KV_BUDGET_EXCEEDED, model, seq, NULL), 21);
  OK(sslm_seq_release(seq));
  OK(sslm_seq_release(twin));
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_shared_prefix_of_4000_holds_its_pages_until_the_sharer_resets(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2);
  sslm_prefix prefix = frozen_root(model, memory.pool, 4000, 0, 1);
  sslm_seq sharer = make_budgeted(model, memory.pool, info_of(model).cap), out = NULL;
  OK(sslm_seq_adopt_prefix(sharer, prefix));
  OK(sslm_prefix_release(prefix));
  CHECK_INT(free_pages(memory.pool), 2);
  STATUS(KV_POOL_EXHAUSTED, sslm_seq_create(model, &memory.pool, &out));
  CHECK_INT(free_pages(memory.pool), 2);
  OK(sslm_seq_reset(sharer));
  OK(sslm_seq_create(model, &memory.pool, &out));
  FINISH(model, memory.pool, NULL, out, sharer);
}

static void released_pages_hold_poison_where_they_were_written_and_nowhere_else(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 20);
  const size_t page = sslm_kv_page_size(model);
  sslm_prefix prefix = frozen_root(model, memory.pool, 130, 200, 1);
  sslm_seq seq = make_budgeted(model, memory.pool, 300);
  int poisoned = 0, untouched = 0, i;
  OK(sslm_seq_adopt_prefix(seq, prefix));
  decode_run(model, seq, 3, NULL, NULL);
  OK(sslm_seq_reset(seq));
  prefill_run(model, seq, 70, 1, NULL);
  OK(sslm_seq_release(seq));
  OK(sslm_prefix_release(prefix));
  for (i = 0; i < 20; ++i) {
    const unsigned char* bytes = memory.buffer + (size_t)i * page;
    size_t k;
    for (k = 1; k < page; ++k) CHECK_INT(bytes[k], bytes[0]);
    poisoned += bytes[0] == 0xCD;
    untouched += bytes[0] == CHECK_FILL;
  }
  CHECK_INT(poisoned, 3 + 2);
  CHECK_INT(untouched, 20 - 5);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void page_order_and_page_size_change_no_token(void) {
  const int64_t pins[] = {0, 1, 7, 64, 4096};
  blob reference = {NULL, 0};
  size_t p;
  for (p = 0; p < sizeof(pins) / sizeof(pins[0]); ++p) {
    sslm_model model;
    pool_memory memory;
    sslm_seq seq, noise[4];
    blob saved;
    int i;
    sslm_test_pin_page_positions(pins[p]);
    model = map_artifact(SMALL);
    memory = make_pool(model, BLOCK_POOL, 5);
    for (i = 0; i < 4; ++i) noise[i] = make_budgeted(model, memory.pool, 100 + 40 * i);
    OK(sslm_seq_release(noise[2])); /* the free list is out of order now */
    OK(sslm_seq_release(noise[0]));
    seq = make_seq(model, memory.pool);
    prefill_run(model, seq, 150, 1, NULL);
    decode_run(model, seq, 60, NULL, NULL);
    saved = save(seq);
    if (reference.bytes == NULL)
      reference = saved;
    else {
      CHECK(equal_blobs(saved, reference));
      free(saved.bytes);
    }
    OK(sslm_seq_release(noise[1]));
    OK(sslm_seq_release(noise[3]));
    OK(sslm_seq_release(seq));
    CHECK_INT(used_pages(memory.pool), 0);
    OK(sslm_kv_pool_destroy(memory.pool));
    OK(sslm_model_unmap(model));
  }
  sslm_test_pin_page_positions(0);
  free(reference.bytes);
}

static const cell cells[] = {
    CELL(page_size_and_reservation_follow_the_table),
    CELL(n_blocks_admit_n_handles_of_any_mixture),
    CELL(an_exhausted_pool_refuses_every_drawing_verb_and_still_adopts),
    CELL(freezing_returns_what_the_content_does_not_need),
    CELL(statistics_of_a_nested_cast_are_those_of_the_contract),
    CELL(sharers_keep_a_released_prefix_until_the_last_of_them),
    CELL(adopting_again_keeps_the_last_sharers_pages),
    CELL(a_budget_sequence_refuses_another_pool_and_a_plain_one_copies_from_any),
    CELL(one_page_contexts_copy_and_two_page_contexts_share),
    CELL(a_contiguous_pool_holds_one_page_a_holder_with_the_same_tokens_and_blobs),
    CELL(a_child_needs_a_frozen_parent_and_inherits_its_content),
    CELL(a_prefix_stops_at_its_budget_and_nested_ones_at_their_own),
    CELL(a_reset_adopter_has_its_whole_budget_from_position_zero),
    CELL(a_shared_prefix_of_4000_holds_its_pages_until_the_sharer_resets),
    CELL(released_pages_hold_poison_where_they_were_written_and_nowhere_else),
    CELL(page_order_and_page_size_change_no_token),
};

CELLS(cells)
