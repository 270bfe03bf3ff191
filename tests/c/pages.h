/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* What the cells about pages, saves and the cast share: prefixes, and statistics read in one call. */
#ifndef SUPERSLM_TESTS_PAGES_H
#define SUPERSLM_TESTS_PAGES_H

#include "check.h"

static inline sslm_prefix frozen_root(sslm_model model, sslm_kv_pool pool, int32_t length, int32_t budget,
                                      uint32_t seed) {
  sslm_prefix prefix = NULL;
  if (budget > 0)
    OK(sslm_prefix_begin_budgeted(model, &pool, budget, &prefix));
  else
    OK(sslm_prefix_begin(model, &pool, &prefix));
  prefill_prefix(model, prefix, length, seed, NULL);
  OK(sslm_prefix_freeze(prefix));
  return prefix;
}

static inline sslm_prefix frozen_child(sslm_model model, sslm_prefix parent, int32_t length, int32_t budget,
                                       uint32_t seed) {
  sslm_prefix prefix = NULL;
  OK(sslm_prefix_begin_from(parent, budget, &prefix));
  prefill_prefix(model, prefix, length, seed, NULL);
  OK(sslm_prefix_freeze(prefix));
  return prefix;
}

static inline sslm_kv_pool_stats_out pool_stats(sslm_kv_pool pool) {
  sslm_kv_pool_stats_out stats;
  memset(&stats, 0, sizeof(stats));
  stats.struct_size = sizeof(stats);
  OK(sslm_kv_pool_stats(pool, &stats));
  return stats;
}

static inline uint32_t used_pages(sslm_kv_pool pool) {
  const sslm_kv_pool_stats_out stats = pool_stats(pool);
  return stats.page_count - stats.free_pages;
}

static inline sslm_seq_kv_stats_out kv_stats(sslm_seq seq) {
  sslm_seq_kv_stats_out stats;
  memset(&stats, 0, sizeof(stats));
  stats.struct_size = sizeof(stats);
  OK(sslm_seq_kv_stats(seq, &stats));
  return stats;
}

static inline void check_pages(const char* file, int line, sslm_seq seq, uint32_t own, uint32_t shared,
                               uint32_t reserve, uint32_t materialized) {
  const sslm_seq_kv_stats_out s = kv_stats(seq);
  if (s.mapped_private_pages != own || s.shared_pages != shared || s.reserve_pages != reserve ||
      s.materialized_pages != materialized)
    check_fail(file, line, "private %u shared %u reserve %u materialised %u, expected %u %u %u %u",
               s.mapped_private_pages, s.shared_pages, s.reserve_pages, s.materialized_pages, own, shared,
               reserve, materialized);
}
#define CHECK_PAGES(seq, own, shared, reserve, materialized) \
  check_pages(__FILE__, __LINE__, seq, own, shared, reserve, materialized)

/* Decodes until the refusal, which must be this one; the number of tokens. */
#define TOKENS_UNTIL(name, model, seq, ws) \
  tokens_until_refusal(__FILE__, __LINE__, SSLM_##name, model, seq, ws)
static inline int32_t tokens_until_refusal(const char* file, int line, sslm_status refusal, sslm_model model,
                                           sslm_seq seq, sslm_workspace ws) {
  const int32_t layers = info_of(model).layers;
  int32_t count = 0, token = -9;
  sslm_status status;
  while ((status = step(model, &seq, 1, layers, ws, &token)) == SSLM_OK) {
    CHECK(token >= 0);
    ++count;
  }
  if (status != refusal)
    check_fail(file, line, "%s after %d tokens, expected %s", sslm_ext_status_name(status), count,
               sslm_ext_status_name(refusal));
  CHECK_INT(token, -1);
  return count;
}

/* Sequences continue alike: the same tokens, then the same state. */
static inline void check_twins(sslm_model model, sslm_seq a, sslm_seq b, int32_t count, sslm_workspace ws) {
  int32_t i;
  for (i = 0; i < count; ++i) CHECK_INT(decode_token(model, a, ws), decode_token(model, b, ws));
  CHECK_SAME(a, b);
}

#endif /* SUPERSLM_TESTS_PAGES_H */
