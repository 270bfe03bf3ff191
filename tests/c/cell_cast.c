/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* A cast in one page pool, counted by admissions alone: a world of 1,000 tokens, ten personas of 200 on top
 * of it, fifty speakers of budget 512, five to a persona. Artifact: the K/V geometry of the model to be
 * planned for, small in all else. -DCAST_TALKING=n lets n speakers (five, if not said) talk to their limit;
 * all fifty are admitted. */
#include "pages.h"

#ifndef CAST_TALKING
#define CAST_TALKING 5
#endif

enum {
  WORLD = 1000,
  PERSONA = 200,
  BUDGET = 512,
  PERSONAS = 10,
  SPEAKERS = 50,
  TALKING = CAST_TALKING,
  TOKENS = BUDGET + 1,
  FIRST_PART = 257, /* tokens after which the length is 1,456 */
  CAST_PAGES = 505,
  PRIVATE_PAGES = 1405
};

typedef struct cast {
  sslm_model model;
  void* block; /* the pool's memory */
  sslm_kv_pool pool;
  sslm_prefix personas[PERSONAS];
  sslm_seq speakers[SPEAKERS];
  int admitted;
} cast;

static void* first_aligned(void* block) { return (char*)block + (64 - (uintptr_t)block % 64) % 64; }

static blob baked_world,
    baked_personas[PERSONAS]; /* prefilled once, restored wherever the cast plays again */

static blob bake(sslm_prefix prefix) {
  blob out;
  out.size = 0;
  STATUS(BUFFER_TOO_SMALL, sslm_ext_prefix_save(prefix, NULL, &out.size));
  out.bytes = (unsigned char*)check_alloc(out.size);
  OK(sslm_ext_prefix_save(prefix, out.bytes, &out.size));
  return out;
}

static sslm_prefix prefill_the_cast(cast* c, sslm_workspace ws) {
  sslm_prefix world = NULL;
  int p;
  OK(sslm_prefix_begin_budgeted(c->model, &c->pool, WORLD, &world));
  prefill_prefix(c->model, world, WORLD, 1, ws);
  OK(sslm_prefix_freeze(world));
  baked_world = bake(world);
  for (p = 0; p < PERSONAS; ++p) {
    OK(sslm_prefix_begin_from(world, PERSONA, &c->personas[p]));
    prefill_prefix(c->model, c->personas[p], PERSONA, 100 + (uint32_t)p, ws);
    OK(sslm_prefix_freeze(c->personas[p]));
    baked_personas[p] = bake(c->personas[p]);
  }
  return world;
}

static sslm_prefix restore_the_cast(cast* c) {
  sslm_prefix world = NULL;
  int p;
  OK(sslm_ext_prefix_restore(c->model, &c->pool, baked_world.bytes, baked_world.size, NULL, &world));
  for (p = 0; p < PERSONAS; ++p)
    OK(sslm_ext_prefix_restore(c->model, &c->pool, baked_personas[p].bytes, baked_personas[p].size, world,
                               &c->personas[p]));
  return world;
}

/* The pool, world and personas; the world is released again. */
static void begin_cast(cast* c, sslm_model model, uint32_t pages, sslm_workspace ws) {
  sslm_prefix world;
  memset(c, 0, sizeof(*c));
  c->model = model;
  c->block = check_alloc(pool_bytes(model, PAGE_POOL, pages) + 64);
  OK(sslm_kv_page_pool_create(model, first_aligned(c->block), pool_bytes(model, PAGE_POOL, pages), pages,
                              &c->pool));
  world = baked_world.bytes == NULL ? prefill_the_cast(c, ws) : restore_the_cast(c);
  OK(sslm_prefix_release(world));
  CHECK_INT(used_pages(c->pool), 55);
}

static void admit(cast* c) {
  for (c->admitted = 0; c->admitted < SPEAKERS; ++c->admitted) {
    sslm_seq* seq = &c->speakers[c->admitted];
    const sslm_status status = sslm_seq_create_budgeted(c->model, &c->pool, BUDGET, seq);
    if (status != SSLM_OK) {
      CHECK_INT(status, SSLM_KV_POOL_EXHAUSTED);
      CHECK(*seq == NULL);
      return;
    }
    OK(sslm_seq_adopt_prefix(*seq, c->personas[c->admitted % PERSONAS]));
  }
}

static void end_cast(cast* c) {
  int i;
  for (i = 0; i < c->admitted; ++i) OK(sslm_seq_release(c->speakers[i]));
  for (i = 0; i < PERSONAS; ++i) OK(sslm_prefix_release(c->personas[i]));
  CHECK_INT(used_pages(c->pool), 0);
  OK(sslm_kv_pool_destroy(c->pool));
  free(c->block);
}

/* The talking speakers go from token `from` to token `to`; tokens[speaker][step] is written or compared. */
static void talk(cast* c, int from, int to, int32_t tokens[TALKING][TOKENS], int compare, sslm_workspace ws) {
  int32_t out[TALKING];
  int n = c->admitted < TALKING ? c->admitted : TALKING, t, i;
  for (t = from; t < to; ++t) {
    OK(step(c->model, c->speakers, n, info_of(c->model).layers, ws, out));
    for (i = 0; i < n; ++i) {
      CHECK(out[i] >= 0);
      if (compare) CHECK_INT(out[i], tokens[i][t]);
      tokens[i][t] = out[i];
    }
  }
}

static void expect_the_limit(cast* c, sslm_workspace ws) {
  int i;
  for (i = 0; i < TALKING && i < c->admitted; ++i) {
    int32_t out = -9;
    STATUS(KV_BUDGET_EXCEEDED, step(c->model, &c->speakers[i], 1, info_of(c->model).layers, ws, &out));
    CHECK_INT(kv_stats(c->speakers[i]).context_length, WORLD + PERSONA + BUDGET);
  }
}

/* The same prompt in one piece, without a prefix, in a pool that shares nothing. */
static void check_against_a_lone_twin(cast* c, int speaker, const int32_t* tokens, sslm_workspace ws) {
  const sslm_ext_model_info_out info = info_of(c->model);
  const size_t bytes = pool_bytes(c->model, CONTIGUOUS_POOL, 1);
  void* block = check_alloc(bytes + 64);
  sslm_kv_pool pool = NULL;
  sslm_seq twin;
  int8_t* a = (int8_t*)check_alloc((size_t)info.head_dim);
  int8_t* b = (int8_t*)check_alloc((size_t)info.head_dim);
  int32_t layer, kind, head, position, t;
  OK(sslm_kv_pool_create_contiguous(c->model, first_aligned(block), bytes, 1, &pool));
  twin = make_seq(c->model, pool);
  prefill_run(c->model, twin, WORLD, 1, ws);
  prefill_run(c->model, twin, PERSONA, 100 + (uint32_t)(speaker % PERSONAS), ws);
  for (t = 0; t < TOKENS; ++t) CHECK_INT(decode_token(c->model, twin, ws), tokens[t]);
  for (layer = 0; layer < info.layers; ++layer)
    for (kind = 0; kind < 2; ++kind)
      for (head = 0; head < info.kv_heads; ++head)
        for (position = 0; position < WORLD + PERSONA + BUDGET; ++position) {
          OK(sslm_test_seq_kv_row(twin, layer, kind, head, position, a));
          OK(sslm_test_seq_kv_row(c->speakers[speaker], layer, kind, head, position, b));
          if (memcmp(a, b, (size_t)info.head_dim) != 0)
            check_fail(__FILE__, __LINE__, "speaker %d: layer %d %s head %d position %d differs", speaker,
                       layer, kind ? "V" : "K", head, position);
        }
  free(a);
  free(b);
  OK(sslm_seq_release(twin));
  OK(sslm_kv_pool_destroy(pool));
  free(block);
}

/* The cast as it was saved, restored into a fresh pool that may be one page short. */
static void restore_cast(cast* c, const blob* saves, int with_handles) {
  for (c->admitted = 0; c->admitted < SPEAKERS; ++c->admitted) {
    const int i = c->admitted;
    uint32_t shared = 9;
    const sslm_status status =
        sslm_seq_restore_shared(c->model, &c->pool, saves[i].bytes, saves[i].size,
                                with_handles ? c->personas[i % PERSONAS] : NULL, &c->speakers[i], &shared);
    CHECK_INT(shared, with_handles && status == SSLM_OK ? 18 : 0);
    if (status != SSLM_OK) {
      CHECK_INT(status, SSLM_KV_POOL_EXHAUSTED);
      return;
    }
  }
}

static void reset_and_count_further_creates(cast* c) {
  sslm_seq more[101];
  sslm_status status = SSLM_OK;
  int i, n = 0;
  for (i = 0; i < SPEAKERS; ++i) {
    OK(sslm_seq_reset(c->speakers[i]));
    OK(sslm_seq_adopt_prefix(c->speakers[i], c->personas[i % PERSONAS]));
  }
  while (n < 101 && (status = sslm_seq_create_budgeted(c->model, &c->pool, BUDGET, &more[n])) == SSLM_OK) ++n;
  CHECK_INT(n, 100);
  CHECK_INT(status, SSLM_KV_POOL_EXHAUSTED);
  while (n > 0) OK(sslm_seq_release(more[--n]));
}

static void check_restores(sslm_model model, const blob* saves, int spoken, int32_t tokens[TALKING][TOKENS],
                           sslm_workspace ws) {
  static const struct {
    int with_handles;
    uint32_t pages;
    int admitted;
  } rows[] = {
      {1, CAST_PAGES, 50}, {1, CAST_PAGES - 1, 49}, {0, PRIVATE_PAGES, 50}, {0, PRIVATE_PAGES - 1, 49}};
  size_t r;
  for (r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
    cast c;
    begin_cast(&c, model, rows[r].pages, ws);
    restore_cast(&c, saves, rows[r].with_handles);
    CHECK_INT(c.admitted, rows[r].admitted);
    if (rows[r].admitted == SPEAKERS) {
      talk(&c, spoken, TOKENS, tokens, 1, ws);
      expect_the_limit(&c, ws);
      if (!rows[r].with_handles) reset_and_count_further_creates(&c);
    }
    end_cast(&c);
  }
}

static void save_cast(cast* c, blob* saves) {
  int i;
  for (i = 0; i < SPEAKERS; ++i) saves[i] = save(c->speakers[i]);
}

static void fifty_speakers_fit_505_pages_and_restore_into_505_or_1405(void) {
  static int32_t tokens[TALKING][TOKENS];
  const sslm_model model = map_artifact(0);
  const sslm_workspace ws = make_workspace(model, SPEAKERS, WORLD);
  blob half[SPEAKERS], whole[SPEAKERS];
  cast c;
  int i;
  begin_cast(&c, model, CAST_PAGES - 1, ws);
  admit(&c);
  CHECK_INT(c.admitted, SPEAKERS - 1);
  end_cast(&c);

  begin_cast(&c, model, CAST_PAGES, ws);
  admit(&c);
  CHECK_INT(c.admitted, SPEAKERS);
  CHECK_INT(free_pages(c.pool), 0);
  talk(&c, 0, FIRST_PART, tokens, 0, ws);
  CHECK_INT(kv_stats(c.speakers[0]).context_length, 1456);
  save_cast(&c, half);
  talk(&c, FIRST_PART, TOKENS, tokens, 0, ws);
  expect_the_limit(&c, ws);
  save_cast(&c, whole);
  for (i = 0; i < TALKING; ++i) check_against_a_lone_twin(&c, i, tokens[i], ws);
  end_cast(&c);

  check_restores(model, half, FIRST_PART, tokens, ws);
  check_restores(model, whole, TOKENS, tokens, ws);
  for (i = 0; i < SPEAKERS; ++i) {
    free(half[i].bytes);
    free(whole[i].bytes);
  }
  OK(sslm_workspace_destroy(ws));
  OK(sslm_model_unmap(model));
}

static void the_same_bytes_hold_seven_blocks(void) {
  const sslm_model model = map_artifact(0);
  const size_t page = sslm_kv_page_size(model);
  const size_t bytes = CAST_PAGES * page + sslm_kv_page_pool_overhead_size(model, CAST_PAGES);
  const uint32_t blocks = (uint32_t)(CAST_PAGES * page / sslm_kv_block_size(model));
  void* block = check_alloc(bytes + 64);
  void* buffer = first_aligned(block);
  sslm_kv_pool pool = NULL;
  sslm_seq seqs[8] = {NULL};
  uint32_t i;
  STATUS(BUFFER_TOO_SMALL, sslm_kv_pool_create(model, buffer, bytes, blocks + 1, &pool));
  if (info_of(model).cap == 4096) {
    CHECK_INT(page, 384 * 1024);
    CHECK_INT(CAST_PAGES * page, 193920 * 1024);
    CHECK_INT(sslm_kv_block_size(model) * 60, (size_t)1440 << 20);
    CHECK_INT(blocks, 7);
    OK(sslm_kv_pool_create(model, buffer, bytes, blocks, &pool));
    for (i = 0; i < blocks; ++i) seqs[i] = make_seq(model, pool);
    STATUS(KV_POOL_EXHAUSTED, sslm_seq_create(model, &pool, &seqs[blocks]));
    for (i = 0; i < blocks; ++i) OK(sslm_seq_release(seqs[i]));
    OK(sslm_kv_pool_destroy(pool));
  }
  free(block);
  OK(sslm_model_unmap(model));
}

static const cell cells[] = {
    CELL(fifty_speakers_fit_505_pages_and_restore_into_505_or_1405),
    CELL(the_same_bytes_hold_seven_blocks),
};

CELLS(cells)
