/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* Save and restore: layouts, round trips in every state and pool kind, refusals in order, shared restores,
 * and prefixes as blobs. Artifacts: cells and another model of that shape, both of cap 4,096. */
#include "blob_fields.h"
#include "pages.h"

enum { SMALL, OTHER };

static size_t position_bytes(sslm_model model) {
  const sslm_ext_model_info_out info = info_of(model);
  return (size_t)2 * info.layers * info.kv_heads * info.head_dim;
}
static size_t residual_bytes(sslm_model model) { return 4u * (size_t)info_of(model).hidden; }

static blob copy_of(blob original) {
  blob copy;
  copy.size = original.size;
  copy.bytes = (unsigned char*)check_alloc(original.size);
  memcpy(copy.bytes, original.bytes, original.size);
  return copy;
}

/* ---- Resting states ---- */

enum { FRESH, READY, PENDING, MID_FIRST, MID_LAST, STATES };

static void rest(sslm_model model, sslm_seq seq, int state) {
  if (state == FRESH) return;
  prefill_run(model, seq, 70, 5, NULL);
  if (state == READY) return;
  decode_run(model, seq, 3, NULL, NULL);
  if (state == MID_FIRST) rest_mid_token(model, seq, 1, NULL);
  if (state == MID_LAST) rest_mid_token(model, seq, info_of(model).layers - 1, NULL);
}

enum { PLAIN, BUDGET, ADOPTED, NESTED, HOLDERS };

/* A sequence in one state, its pages held in one of four ways; prefixes it needed are released. */
static sslm_seq make_resting(sslm_model model, sslm_kv_pool pool, int holder, int state) {
  sslm_seq seq = holder == PLAIN ? make_seq(model, pool) : make_budgeted(model, pool, 300);
  if (holder >= ADOPTED) {
    sslm_prefix world = frozen_root(model, pool, 130, 130, 1), from = world;
    if (holder == NESTED) {
      from = frozen_child(model, world, 50, 60, 2);
      OK(sslm_prefix_release(world));
    }
    OK(sslm_seq_adopt_prefix(seq, from));
    OK(sslm_prefix_release(from));
  }
  rest(model, seq, state);
  return seq;
}

static void check_continuation(sslm_model model, sslm_seq a, sslm_seq b) {
  int32_t i, layers = info_of(model).layers;
  if (kv_stats(a).context_length == 0) {
    prefill_run(model, a, 9, 8, NULL);
    prefill_run(model, b, 9, 8, NULL);
  }
  for (i = 0; i < 8; ++i) {
    int32_t x = -9, y = -9;
    OK(step(model, &a, 1, layers - i % 2, NULL, &x));
    OK(step(model, &b, 1, layers - i % 2, NULL, &y));
    CHECK_INT(x, y);
  }
  CHECK_SAME(a, b);
}

static void every_state_survives_a_save_in_every_pool_kind(void) {
  const sslm_model model = map_artifact(SMALL);
  int from, to, holder, state;
  for (from = 0; from < POOL_KINDS; ++from) {
    pool_memory source = make_pool(model, from, from == PAGE_POOL ? 80 : 4);
    for (to = 0; to < POOL_KINDS; ++to) {
      pool_memory target = make_pool(model, to, to == PAGE_POOL ? 64 : 1);
      for (holder = 0; holder < HOLDERS; ++holder) {
        for (state = 0; state < STATES; ++state) {
          sslm_seq seq = make_resting(model, source.pool, holder, state), restored = NULL;
          blob saved = save(seq);
          const int64_t rows = kv_stats(seq).context_length + (state >= MID_FIRST);
          CHECK(saved.size <= sslm_seq_state_size(model));
          CHECK_INT(memcmp(saved.bytes, holder == PLAIN ? "SSB5" : "SSB6", 4), 0);
          CHECK_INT(saved.size, holder == PLAIN
                                    ? 160 + residual_bytes(model) + sslm_kv_block_size(model)
                                    : 180 + residual_bytes(model) + (size_t)rows * position_bytes(model));
          OK(sslm_seq_restore(model, &target.pool, saved.bytes, saved.size, &restored));
          CHECK_UNCHANGED(restored, saved);
          STATUS(SCHEMA_BIND_REJECTED, sslm_seq_set_schema(restored, SSLM_SCHEMA_NONE));
          CHECK_INT(kv_stats(restored).limit, kv_stats(seq).limit);
          check_continuation(model, seq, restored);
          OK(sslm_seq_release(restored));
          OK(sslm_seq_release(seq));
          CHECK_INT(used_pages(target.pool), 0);
        }
      }
      OK(sslm_kv_pool_destroy(target.pool));
    }
    CHECK_INT(used_pages(source.pool), 0);
    OK(sslm_kv_pool_destroy(source.pool));
  }
  OK(sslm_model_unmap(model));
}

static void check_zero(const unsigned char* bytes, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) CHECK_INT(bytes[i], 0);
}

static void a_budget_save_has_its_exact_size_and_zeros_in_unrun_layers(void) {
  static const int32_t lengths[] = {0, 1, 64, 1000};
  const sslm_model model = map_artifact(SMALL);
  const sslm_ext_model_info_out info = info_of(model);
  const size_t header = 180 + residual_bytes(model);
  pool_memory memory = make_pool(model, PAGE_POOL, 20);
  int i;
  int32_t ran;
  for (i = 0; i < 4; ++i) {
    sslm_seq seq = make_budgeted(model, memory.pool, 1000);
    blob saved;
    prefill_run(model, seq, lengths[i], 1, NULL);
    saved = save(seq);
    CHECK_INT(saved.size, header + (size_t)lengths[i] * position_bytes(model));
    free(saved.bytes);
    OK(sslm_seq_release(seq));
  }
  for (ran = 1; ran < info.layers; ++ran) {
    sslm_seq seq = make_budgeted(model, memory.pool, 100);
    blob saved;
    int32_t plane, layer, token;
    memset(memory.buffer, 0x5A, sslm_kv_page_size(model) * 20);
    prefill_run(model, seq, 20, 1, NULL);
    token = decode_token(model, seq, NULL);
    (void)token;
    rest_mid_token(model, seq, ran, NULL);
    saved = save(seq);
    CHECK_INT(saved.size, header + 21 * position_bytes(model));
    for (plane = 0; plane < 2 * info.layers * info.kv_heads; ++plane) {
      const unsigned char* row = saved.bytes + header + ((size_t)plane * 21 + 20) * (size_t)info.head_dim;
      layer = plane / (2 * info.kv_heads);
      if (layer >= ran) check_zero(row, (size_t)info.head_dim);
    }
    free(saved.bytes);
    OK(sslm_seq_release(seq));
  }
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_model_unmap(model));
}

static void a_plain_save_is_zero_past_its_rows_and_equal_to_a_fresh_twins(void) {
  static const int32_t lengths[] = {1, 63, 64, 65, 500};
  const sslm_model model = map_artifact(SMALL);
  const sslm_ext_model_info_out info = info_of(model);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2), fresh = make_pool(model, BLOCK_POOL, 1);
  sslm_seq used = make_seq(model, memory.pool), other = make_budgeted(model, memory.pool, 700);
  int i;
  prefill_run(model, used, 900, 77, NULL);
  prefill_run(model, other, 700, 78, NULL);
  OK(sslm_seq_release(other));
  for (i = 0; i < 5; ++i) {
    sslm_seq twin = make_seq(model, fresh.pool);
    int32_t plane;
    blob saved;
    OK(sslm_seq_reset(used));
    prefill_run(model, used, lengths[i], 3, NULL);
    prefill_run(model, twin, lengths[i], 3, NULL);
    saved = save(used);
    for (plane = 0; plane < 2 * info.layers * info.kv_heads; ++plane) {
      const size_t row = (size_t)info.head_dim, cap = (size_t)info.cap, n = (size_t)lengths[i];
      check_zero(saved.bytes + 160 + residual_bytes(model) + ((size_t)plane * cap + n) * row,
                 (cap - n) * row);
    }
    CHECK_UNCHANGED(twin, saved);
    OK(sslm_seq_release(twin));
  }
  OK(sslm_seq_release(used));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(fresh.pool));
  OK(sslm_model_unmap(model));
}

/* ---- Refusals ---- */

typedef struct restore_site {
  sslm_model model;
  sslm_kv_pool pool;
  sslm_prefix prefix;
} restore_site;

#define REFUSED(name, site, bytes, size) check_refused(__FILE__, __LINE__, SSLM_##name, site, bytes, size)
static void check_refused(const char* file, int line, sslm_status expected, const restore_site* site,
                          const unsigned char* bytes, size_t size) {
  const uint32_t before = free_pages(site->pool);
  int with;
  for (with = 0; with < 2; ++with) {
    sslm_seq out = (sslm_seq)(uintptr_t)8;
    sslm_kv_pool pool = site->pool;
    uint32_t shared = 9;
    const sslm_status status =
        sslm_seq_restore_shared(site->model, &pool, bytes, size, with ? site->prefix : NULL, &out, &shared);
    if (status != expected)
      check_fail(file, line, "%s, expected %s", sslm_ext_status_name(status), sslm_ext_status_name(expected));
    CHECK(out == NULL);
    CHECK_INT(shared, 0);
    CHECK_INT(free_pages(site->pool), before);
  }
}

/* One field of a good blob replaced. */
#define REFUSED_WITH(name, site, good, at, type, value) \
  do {                                                  \
    blob bad = copy_of(good);                           \
    const type field = (type)(value);                   \
    memcpy(bad.bytes + (at), &field, sizeof(field));    \
    REFUSED(name, site, bad.bytes, bad.size);           \
    free(bad.bytes);                                    \
  } while (0)

static void each_bad_field_has_its_status_and_draws_nothing(void) {
  restore_site s;
  blob ssb5, ssb6;
  sslm_seq plain, budget;
  size_t count_at;
  int32_t cap;
  s.model = map_artifact(SMALL);
  cap = info_of(s.model).cap;
  s.pool = make_pool(s.model, PAGE_POOL, 160).pool;
  s.prefix = frozen_root(s.model, s.pool, 130, 0, 1);
  plain = make_seq(s.model, s.pool);
  budget = make_budgeted(s.model, s.pool, 100);
  OK(sslm_seq_adopt_prefix(budget, s.prefix));
  prefill_run(s.model, budget, 20, 2, NULL);
  prefill_run(s.model, plain, 150, 2, NULL);
  ssb5 = save(plain);
  ssb6 = save(budget);
  count_at = SSB6_FIXED + residual_bytes(s.model);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, AT_MODE, uint32_t, 2);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, AT_MODE, uint32_t, 0);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, AT_BUDGET, int32_t, 0);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, AT_BUDGET, int32_t, cap + 1);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, AT_BUDGET, int32_t, 19);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, AT_ORIGIN, int64_t, -1);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, AT_ORIGIN, int64_t, 151);
  REFUSED_WITH(INVALID_ARGUMENT, &s, ssb6, count_at, uint64_t, 151);
  REFUSED(INVALID_ARGUMENT, &s, ssb6.bytes, ssb6.size - 1);
  {
    blob longer = {(unsigned char*)check_alloc(ssb6.size + 1), ssb6.size + 1};
    memcpy(longer.bytes, ssb6.bytes, ssb6.size);
    longer.bytes[ssb6.size] = 0;
    REFUSED(INVALID_ARGUMENT, &s, longer.bytes, longer.size);
    free(longer.bytes);
  }
  {
    const blob* both[2];
    int i;
    both[0] = &ssb5;
    both[1] = &ssb6;
    for (i = 0; i < 2; ++i) {
      const blob good = *both[i];
      REFUSED(INVALID_ARGUMENT, &s, good.bytes, 3);
      REFUSED(INVALID_ARGUMENT, &s, good.bytes, 100);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, 3, uint8_t, '1');
      REFUSED_WITH(RESTORE_MODEL_MISMATCH, &s, good, AT_DIGEST, uint8_t, good.bytes[AT_DIGEST] ^ 1);
      REFUSED_WITH(RESTORE_KV_MISMATCH, &s, good, AT_PRECISION, uint32_t, 1);
      REFUSED_WITH(RESTORE_SCHEMA_MISMATCH, &s, good, AT_SCHEMA, uint64_t, 12345);
      REFUSED_WITH(RESTORE_SCHEMA_MISMATCH, &s, good, AT_WALK, uint32_t, 0);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_ORDER, int32_t, 83);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_HISTORY_LENGTH, uint64_t, 1);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_HISTORY_LENGTH, uint64_t, 151);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_LENGTH, int64_t, cap + 1);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_LENGTH, int64_t, -1);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_LAYER, uint32_t, info_of(s.model).layers);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_READY, uint32_t, 0);
      REFUSED_WITH(INVALID_ARGUMENT, &s, good, AT_PENDING, int32_t, info_of(s.model).vocab);
    }
  }
  {
    /* A larger buffer is fine for a whole block and refused for exact rows. */
    blob longer = {(unsigned char*)check_alloc(ssb5.size + 100), ssb5.size + 100};
    sslm_seq restored = NULL;
    memset(longer.bytes, 0xEE, longer.size);
    memcpy(longer.bytes, ssb5.bytes, ssb5.size);
    OK(sslm_seq_restore(s.model, &s.pool, longer.bytes, longer.size, &restored));
    CHECK_UNCHANGED(restored, ssb5);
    OK(sslm_seq_release(restored));
    free(longer.bytes);
  }
  free(ssb6.bytes);
  OK(sslm_seq_release(plain));
  OK(sslm_seq_release(budget));
  OK(sslm_prefix_release(s.prefix));
  CHECK_INT(used_pages(s.pool), 0);
  OK(sslm_kv_pool_destroy(s.pool));
  OK(sslm_model_unmap(s.model));
}

static void a_blob_of_another_model_is_refused(void) {
  const sslm_model model = map_artifact(SMALL), other = map_artifact(OTHER);
  pool_memory memory = make_pool(model, BLOCK_POOL, 1), target = make_pool(other, BLOCK_POOL, 1);
  sslm_seq seq = make_seq(model, memory.pool), out = (sslm_seq)(uintptr_t)8;
  blob saved;
  prefill_run(model, seq, 10, 1, NULL);
  saved = save(seq);
  STATUS(RESTORE_MODEL_MISMATCH, sslm_seq_restore(other, &target.pool, saved.bytes, saved.size, &out));
  CHECK(out == NULL);
  OK(sslm_seq_release(seq));
  STATUS(INVALID_ARGUMENT, sslm_seq_restore(model, &target.pool, saved.bytes, saved.size, &out));
  free(saved.bytes);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(target.pool));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

static void a_short_buffer_reports_the_size_and_changes_nothing(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 8);
  sslm_seq seq = make_budgeted(model, memory.pool, 100);
  blob before;
  size_t n;
  prefill_run(model, seq, 30, 1, NULL);
  before = save(seq);
  n = before.size - 1;
  {
    unsigned char* buffer = (unsigned char*)check_alloc(before.size);
    memset(buffer, 0x77, before.size);
    STATUS(BUFFER_TOO_SMALL, sslm_seq_save(seq, buffer, &n));
    CHECK_INT(n, before.size);
    CHECK_INT(buffer[0], 0x77);
    n = before.size + 1000;
    STATUS(BUFFER_TOO_SMALL, sslm_seq_save(seq, NULL, &n));
    CHECK_INT(n, before.size);
    free(buffer);
  }
  CHECK_UNCHANGED(seq, before);
  FINISH(model, memory.pool, NULL, seq);
}

/* ---- Shared restores ---- */

static void restore_shared_shares_only_with_the_prefix_that_matches(void) {
  enum { NO_HANDLE, UNFROZEN, FOREIGN, SHORTER, EQUAL_LENGTH, MATCHING, HINTS };
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, PAGE_POOL, 200), elsewhere = make_pool(model, PAGE_POOL, 64);
  sslm_prefix hints[HINTS];
  sslm_seq original = make_budgeted(model, memory.pool, 100);
  blob saved;
  int h;
  hints[NO_HANDLE] = NULL;
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 200, &hints[UNFROZEN]));
  prefill_prefix(model, hints[UNFROZEN], 130, 1, NULL);
  hints[FOREIGN] = frozen_root(model, elsewhere.pool, 130, 0, 1);
  hints[SHORTER] = frozen_root(model, memory.pool, 129, 0, 1);
  hints[EQUAL_LENGTH] = frozen_root(model, memory.pool, 130, 0, 2);
  hints[MATCHING] = frozen_root(model, memory.pool, 130, 0, 1);
  OK(sslm_seq_adopt_prefix(original, hints[MATCHING]));
  decode_run(model, original, 40, NULL, NULL);
  saved = save(original);
  for (h = 0; h < HINTS; ++h) {
    const uint32_t before = free_pages(memory.pool);
    sslm_seq restored = NULL, twin = NULL;
    uint32_t shared = 9;
    OK(sslm_seq_restore_shared(model, &memory.pool, saved.bytes, saved.size, hints[h], &restored, &shared));
    CHECK_INT(shared, h == MATCHING ? 2 : 0);
    CHECK_INT(before - free_pages(memory.pool), h == MATCHING ? 3 : 3 + 2);
    if (h == MATCHING)
      CHECK_PAGES(restored, 1, 2, 2, 0);
    else
      CHECK_PAGES(restored, 3, 0, 2, 2);
    {
      blob copy = copy_of(saved);
      CHECK_UNCHANGED(restored, copy);
    }
    OK(sslm_seq_restore(model, &memory.pool, saved.bytes, saved.size, &twin));
    check_twins(model, restored, twin, 40, NULL);
    OK(sslm_seq_release(twin));
    CHECK_INT(TOKENS_UNTIL(KV_BUDGET_EXCEEDED, model, restored, NULL), 101 - 40 - 40);
    OK(sslm_seq_release(restored));
    CHECK_INT(free_pages(memory.pool), before);
  }
  free(saved.bytes);
  OK(sslm_seq_release(original));
  for (h = 1; h < HINTS; ++h) OK(sslm_prefix_release(hints[h]));
  CHECK_INT(used_pages(memory.pool), 0);
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(elsewhere.pool));
  OK(sslm_model_unmap(model));
}

static void a_private_restore_draws_the_origin_too_until_its_first_reset(void) {
  const sslm_model model = map_artifact(SMALL);
  pool_memory memory = make_pool(model, BLOCK_POOL, 2), fits = make_pool(model, PAGE_POOL, 64),
              lacks = make_pool(model, PAGE_POOL, 63);
  sslm_prefix prefix = frozen_root(model, memory.pool, 1000, 0, 1);
  sslm_seq seq = make_budgeted(model, memory.pool, 3200), restored = NULL;
  blob saved;
  OK(sslm_seq_adopt_prefix(seq, prefix));
  saved = save(seq);
  STATUS(KV_POOL_EXHAUSTED, sslm_seq_restore(model, &lacks.pool, saved.bytes, saved.size, &restored));
  CHECK_INT(used_pages(lacks.pool), 0);
  OK(sslm_seq_restore(model, &fits.pool, saved.bytes, saved.size, &restored));
  CHECK_PAGES(restored, 16, 0, 48, 13);
  CHECK_INT(free_pages(fits.pool), 0);
  OK(sslm_seq_reset(restored));
  CHECK_INT(free_pages(fits.pool), 13);
  CHECK_PAGES(restored, 0, 0, 51, 0);
  free(saved.bytes);
  OK(sslm_seq_release(restored));
  OK(sslm_seq_release(seq));
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(fits.pool));
  OK(sslm_kv_pool_destroy(lacks.pool));
  OK(sslm_model_unmap(model));
}

/* ---- Prefixes as blobs ---- */

static blob save_prefix(sslm_prefix prefix) {
  blob out;
  out.size = 0;
  STATUS(BUFFER_TOO_SMALL, sslm_ext_prefix_save(prefix, NULL, &out.size));
  out.bytes = (unsigned char*)check_alloc(out.size);
  OK(sslm_ext_prefix_save(prefix, out.bytes, &out.size));
  return out;
}

static void a_baked_world_and_persona_continue_as_the_prefilled_ones(void) {
  const sslm_model model = map_artifact(SMALL);
  int kind;
  for (kind = 0; kind < POOL_KINDS; ++kind) {
    pool_memory studio = make_pool(model, PAGE_POOL, 80),
                player = make_pool(model, kind, kind == PAGE_POOL ? 80 : 4);
    sslm_prefix world = frozen_root(model, studio.pool, 150, 0, 1),
                persona = frozen_child(model, world, 60, 100, 2);
    sslm_prefix restored_world = NULL, restored = NULL, out = (sslm_prefix)(uintptr_t)8;
    sslm_seq a = make_budgeted(model, studio.pool, 50), b = make_budgeted(model, player.pool, 50);
    blob world_blob = save_prefix(world), blob = save_prefix(persona);
    CHECK_INT(memcmp(blob.bytes, "SSP1", 4), 0);
    CHECK_INT(blob.size, 212 + residual_bytes(model) + 60 * position_bytes(model));
    STATUS(INVALID_ARGUMENT, sslm_ext_prefix_restore(model, &player.pool, blob.bytes, blob.size, NULL, &out));
    CHECK(out == NULL);
    STATUS(INVALID_ARGUMENT,
           sslm_ext_prefix_restore(model, &player.pool, blob.bytes, blob.size, world, &out));
    CHECK_INT(used_pages(player.pool), kind == CONTIGUOUS_POOL ? 1 : 2);
    OK(sslm_ext_prefix_restore(model, &player.pool, world_blob.bytes, world_blob.size, NULL,
                               &restored_world));
    STATUS(INVALID_ARGUMENT,
           sslm_ext_prefix_restore(model, &player.pool, blob.bytes, blob.size - 1, restored_world, &out));
    OK(sslm_ext_prefix_restore(model, &player.pool, blob.bytes, blob.size, restored_world, &restored));
    if (kind != CONTIGUOUS_POOL) CHECK_INT(pool_stats(player.pool).shared_pages, 2);
    OK(sslm_prefix_release(restored_world));
    OK(sslm_seq_adopt_prefix(a, persona));
    OK(sslm_seq_adopt_prefix(b, restored));
    check_twins(model, a, b, 51, NULL);
    {
      struct blob again = save_prefix(restored);
      CHECK(equal_blobs(again, blob));
      free(again.bytes);
    }
    OK(sslm_prefix_release(restored));
    OK(sslm_prefix_release(persona));
    OK(sslm_prefix_release(world));
    OK(sslm_seq_release(a));
    OK(sslm_seq_release(b));
    CHECK_INT(used_pages(player.pool), 0);
    OK(sslm_kv_pool_destroy(studio.pool));
    OK(sslm_kv_pool_destroy(player.pool));
    free(blob.bytes);
    free(world_blob.bytes);
  }
  OK(sslm_model_unmap(model));
}

static void a_prefix_blob_is_refused_like_a_save(void) {
  const sslm_model model = map_artifact(SMALL), other = map_artifact(OTHER);
  pool_memory memory = make_pool(model, PAGE_POOL, 70), foreign = make_pool(other, PAGE_POOL, 70);
  sslm_prefix prefix = frozen_root(model, memory.pool, 100, 0, 1), out = (sslm_prefix)(uintptr_t)8,
              open = NULL;
  blob saved = save_prefix(prefix);
  size_t n = saved.size;
  int64_t failures;
  STATUS(INVALID_ARGUMENT, sslm_ext_prefix_save(NULL, saved.bytes, &n));
  STATUS(INVALID_ARGUMENT, sslm_ext_prefix_save(prefix, saved.bytes, NULL));
  STATUS(INVALID_ARGUMENT, sslm_ext_prefix_restore(model, &memory.pool, saved.bytes, saved.size, NULL, NULL));
  STATUS(INVALID_ARGUMENT, sslm_ext_prefix_restore(NULL, &memory.pool, saved.bytes, saved.size, NULL, &out));
  CHECK(out == NULL);
  STATUS(INVALID_ARGUMENT, sslm_ext_prefix_restore(model, NULL, saved.bytes, saved.size, NULL, &out));
  STATUS(INVALID_ARGUMENT, sslm_ext_prefix_restore(model, &memory.pool, NULL, saved.size, NULL, &out));
  STATUS(INVALID_ARGUMENT,
         sslm_ext_prefix_restore(model, &foreign.pool, saved.bytes, saved.size, NULL, &out));
  STATUS(RESTORE_MODEL_MISMATCH,
         sslm_ext_prefix_restore(other, &foreign.pool, saved.bytes, saved.size, NULL, &out));
  OK(sslm_prefix_begin_budgeted(model, &memory.pool, 10, &open));
  STATUS(INVALID_ARGUMENT, sslm_ext_prefix_save(open, saved.bytes, &n));
  {
    pool_memory tight = make_pool(model, PAGE_POOL, 1);
    STATUS(KV_POOL_EXHAUSTED,
           sslm_ext_prefix_restore(model, &tight.pool, saved.bytes, saved.size, NULL, &out));
    CHECK_INT(free_pages(tight.pool), 1);
    OK(sslm_kv_pool_destroy(tight.pool));
  }
  for (failures = 0;; ++failures) {
    const uint32_t before = free_pages(memory.pool);
    sslm_status status;
    sslm_test_fail_allocation_after(failures);
    status = sslm_ext_prefix_restore(model, &memory.pool, saved.bytes, saved.size, NULL, &out);
    sslm_test_fail_allocation_after(-1);
    if (status == SSLM_OK) break;
    CHECK_INT(status, SSLM_ALLOCATION_FAILED);
    CHECK(out == NULL);
    CHECK_INT(free_pages(memory.pool), before);
  }
  CHECK(failures >= 2);
  free(saved.bytes);
  OK(sslm_prefix_release(out));
  OK(sslm_prefix_release(open));
  OK(sslm_prefix_release(prefix));
  OK(sslm_kv_pool_destroy(memory.pool));
  OK(sslm_kv_pool_destroy(foreign.pool));
  OK(sslm_model_unmap(model));
  OK(sslm_model_unmap(other));
}

static const cell cells[] = {
    CELL(every_state_survives_a_save_in_every_pool_kind),
    CELL(a_budget_save_has_its_exact_size_and_zeros_in_unrun_layers),
    CELL(a_plain_save_is_zero_past_its_rows_and_equal_to_a_fresh_twins),
    CELL(each_bad_field_has_its_status_and_draws_nothing),
    CELL(a_blob_of_another_model_is_refused),
    CELL(a_short_buffer_reports_the_size_and_changes_nothing),
    CELL(restore_shared_shares_only_with_the_prefix_that_matches),
    CELL(a_private_restore_draws_the_origin_too_until_its_first_reset),
    CELL(a_baked_world_and_persona_continue_as_the_prefilled_ones),
    CELL(a_prefix_blob_is_refused_like_a_save),
};

CELLS(cells)
