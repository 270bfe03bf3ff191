// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Any bytes as a save blob or a prefix blob. What is refused draws nothing; what is accepted saves to bytes
// that save to themselves, decodes within the contract, and gives every page back. The first byte chooses
// verb, hint and pool; the second whether the model's digest is written into the blob.
#include "fuzz.h"

using namespace superslm::fuzz;

namespace {

constexpr int64_t kPage = 4;
constexpr uint32_t kPages = 40;

sslm_model model;
sslm_ext_model_info_out info;
sslm_kv_pool pools[2];  // pages, contiguous
sslm_prefix hints[4];   // none, of 9 positions, of 12 built on those, of another pool

void fill(sslm_prefix prefix, int32_t count, int32_t first) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((first + 5 * i) % info.vocab);
  int32_t consumed = 0;
  REQUIRE_EQ(
      sslm_prefix_prefill(model, prefix, tokens.data(), count, count, SSLM_SPAN_PROMPT, nullptr, &consumed),
      SSLM_OK);
  REQUIRE_EQ(sslm_prefix_freeze(prefix), SSLM_OK);
}

uint32_t expected_pages(const sslm_seq_kv_stats_out& stats, bool paged, uint32_t shared) {
  if (!paged) return 1;
  const auto all = static_cast<uint32_t>((info.cap + kPage - 1) / kPage);
  if (stats.mode == 0) return all;
  const auto reserved = static_cast<uint32_t>(sslm_kv_pages_for_budget(model, stats.budget));
  const auto full = static_cast<uint32_t>(stats.origin / kPage);
  if (shared != 0) {
    REQUIRE_EQ(shared, full);
    return reserved;
  }
  return reserved + (full < all - reserved ? full : all - reserved);
}

void run_on(sslm_seq seq, sslm_kv_pool pool, Input& in) {
  int32_t token = 0, consumed = 0;
  sslm_decode_params params = {};
  for (int i = 0; i < 4; ++i) {
    const uint8_t choice = in.byte();
    if (choice % 4 == 0) {
      const int32_t next = choice / 4 % info.vocab;
      sslm_prefill(model, seq, &next, 1, 1, SSLM_SPAN_PROMPT, nullptr, &consumed);
    } else {
      params.layer_budget = 1 + choice % info.layers;
      const sslm_status status = sslm_decode_step(model, &seq, 1, &params, nullptr, &token);
      REQUIRE(status == SSLM_OK || status == SSLM_INVALID_ARGUMENT || status == SSLM_CONTEXT_CAP_EXCEEDED ||
              status == SSLM_KV_BUDGET_EXCEEDED);
      if (status == SSLM_OK) REQUIRE(token >= -2 && token < info.vocab);
    }
  }
  REQUIRE_EQ(sslm_seq_reset(seq), SSLM_OK);
  REQUIRE(pool_stats(pool).shared_pages <= 5);
}

void try_sequence(const Bytes& blob, sslm_kv_pool pool, bool paged, sslm_prefix hint, Input choices) {
  const uint32_t before = pool_stats(pool).free_pages;
  sslm_seq seq = reinterpret_cast<sslm_seq>(&seq);
  uint32_t shared = 77;
  const sslm_status status =
      sslm_seq_restore_shared(model, &pool, blob.data(), blob.size(), hint, &seq, &shared);
  if (status != SSLM_OK) {
    REQUIRE(seq == nullptr);
    REQUIRE_EQ(shared, 0);
    REQUIRE_EQ(pool_stats(pool).free_pages, before);
    return;
  }
  sslm_seq_kv_stats_out stats = {};
  stats.struct_size = sizeof(stats);
  REQUIRE_EQ(sslm_seq_kv_stats(seq, &stats), SSLM_OK);
  REQUIRE(stats.context_length <= stats.limit && stats.limit <= info.cap);
  REQUIRE_EQ(before - pool_stats(pool).free_pages, expected_pages(stats, paged, shared));
  const Bytes saved = save(seq);
  REQUIRE(saved.size() <= sslm_seq_state_size(model));
  if (blob[3] >= '5' && !(blob[3] == '6' && stats.mode == 0)) {
    REQUIRE(blob.size() >= saved.size());
    REQUIRE(std::memcmp(blob.data(), saved.data(), 52) == 0);  // behind it: an adapter's number, not kept
    REQUIRE(std::memcmp(blob.data() + 60, saved.data() + 60, 96) == 0);
  }
  sslm_seq twin = nullptr;
  REQUIRE_EQ(sslm_seq_restore(model, &pool, saved.data(), saved.size(), &twin), SSLM_OK);
  REQUIRE(save(twin) == saved);
  REQUIRE_EQ(sslm_seq_release(twin), SSLM_OK);
  run_on(seq, pool, choices);
  REQUIRE_EQ(sslm_seq_release(seq), SSLM_OK);
  REQUIRE_EQ(pool_stats(pool).free_pages, before);
}

void try_prefix(const Bytes& blob, sslm_kv_pool pool, sslm_prefix hint) {
  const uint32_t before = pool_stats(pool).free_pages;
  sslm_prefix prefix = reinterpret_cast<sslm_prefix>(&prefix);
  if (sslm_ext_prefix_restore(model, &pool, blob.data(), blob.size(), hint, &prefix) != SSLM_OK) {
    REQUIRE(prefix == nullptr);
    REQUIRE_EQ(pool_stats(pool).free_pages, before);
    return;
  }
  size_t size = 0;
  REQUIRE_EQ(sslm_ext_prefix_save(prefix, nullptr, &size), SSLM_BUFFER_TOO_SMALL);
  REQUIRE_EQ(size, blob.size());
  Bytes saved(size);
  REQUIRE_EQ(sslm_ext_prefix_save(prefix, saved.data(), &size), SSLM_OK);
  REQUIRE(std::memcmp(blob.data() + 60, saved.data() + 60, size - 60) == 0);
  sslm_seq seq = nullptr;
  if (sslm_seq_create_budgeted(model, &pool, 3, &seq) == SSLM_OK) {
    const sslm_status status = sslm_seq_adopt_prefix(seq, prefix);
    REQUIRE(status == SSLM_OK || status == SSLM_PREFIX_SCHEMA_MISMATCH);
    save(seq);
    sslm_seq_release(seq);
  }
  REQUIRE_EQ(sslm_prefix_release(prefix), SSLM_OK);
  REQUIRE_EQ(pool_stats(pool).free_pages, before);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  sslm_test_pin_page_positions(kPage);
  model = map_base("verbs");
  info = info_of(model);
  pools[0] = make_pool(model, true, kPages);
  pools[1] = make_pool(model, false, 4);
  REQUIRE_EQ(sslm_prefix_begin_budgeted(model, &pools[0], 9, &hints[1]), SSLM_OK);
  fill(hints[1], 9, 1);
  REQUIRE_EQ(sslm_prefix_begin_from(hints[1], 3, &hints[2]), SSLM_OK);
  fill(hints[2], 3, 2);
  REQUIRE_EQ(sslm_prefix_begin(model, &pools[1], &hints[3]), SSLM_OK);
  fill(hints[3], 9, 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint8_t choice = data[0], repair = data[1];
  Bytes blob(data + 2, data + size);
  if (repair % 4 != 0 && blob.size() >= 36) std::memcpy(blob.data() + 4, info.model_digest, 32);
  const bool paged = choice / 8 % 2 == 0;
  sslm_kv_pool pool = pools[paged ? 0 : 1];
  sslm_prefix hint = hints[choice / 2 % 4];
  if (choice % 2 == 0) {
    try_sequence(blob, pool, paged, hint, Input(data, size));
  } else {
    try_prefix(blob, pool, hint);
  }
  return 0;
}
