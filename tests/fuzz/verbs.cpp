// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "verbs.h"

namespace superslm::fuzz {

namespace {

// ---- Hooks ----

void run_backwards(void*, int32_t count, sslm_task_fn task, void* context) {
  for (int32_t i = count; i-- > 0;) task(context, i);
}

void run_too_little(void*, int32_t count, sslm_task_fn task, void* context) {
  for (int32_t i = 1; i < count; ++i) task(context, i);
}

sslm_workspace make_workspace(sslm_model model, int32_t batch, int32_t chunk, sslm_run_tasks_fn run,
                              bool spread) {
  const sslm_config config = {batch, chunk, kLayers, 0};
  const size_t size =
      spread ? sslm_ext_workspace_size_parallel(model, &config, 4) : sslm_workspace_size(model, &config);
  sslm_workspace ws = nullptr;
  REQUIRE_EQ(sslm_workspace_create(model, &config, lend(size), size, &ws), SSLM_OK);
  if (run == nullptr) return ws;
  const sslm_parallel_for hook = {run, nullptr, 4, spread ? SSLM_PARALLEL_FOR_MATVEC : 0};
  REQUIRE_EQ(sslm_workspace_set_parallel_for(ws, &hook), SSLM_OK);
  if (spread) REQUIRE_EQ(sslm_ext_workspace_set_parallel(ws, SSLM_EXT_PARALLEL_SPREAD), SSLM_OK);
  return ws;
}

sslm_kv_pool create_pool(sslm_model model, Kind kind, uint8_t* buffer, size_t size, uint32_t count) {
  sslm_kv_pool pool = nullptr;
  const auto create = kind == kBlockPool  ? sslm_kv_pool_create
                      : kind == kPagePool ? sslm_kv_page_pool_create
                                          : sslm_kv_pool_create_contiguous;
  REQUIRE_EQ(create(model, buffer, size, count, &pool), SSLM_OK);
  return pool;
}

constexpr uint32_t kUnits[kPools] = {2, 13, 2};  // blocks, pages, blocks
constexpr uint32_t kTotals[kPools] = {2 * kContextPages, 13, 2};

}  // namespace

// ---- The world ----

World::World() : model_(map_base("verbs")), other_(map_base("centred")), adapter_file_(read_base("adapter")) {
  const sslm_ext_model_info_out info = info_of(model_);
  REQUIRE_EQ(info.layers, kLayers);
  REQUIRE_EQ(info.vocab, kVocab);
  REQUIRE_EQ(info.cap, kCap);
  REQUIRE_EQ(info.hidden, kHidden);
  REQUIRE_EQ(sslm_kv_page_positions(model_), kPage);
  REQUIRE_EQ(sslm_schema_lookup(model_, "chain", &schemas_[kChain]), SSLM_OK);
  REQUIRE_EQ(sslm_schema_lookup(model_, "parity", &schemas_[kParity]), SSLM_OK);
  REQUIRE_EQ(sslm_schema_lookup(other_, "parity", &foreign_), SSLM_OK);
  workspaces_[1] = make_workspace(model_, 8, kCap, nullptr, false);
  workspaces_[2] = make_workspace(model_, 1, 1, nullptr, false);
  workspaces_[3] = make_workspace(model_, 8, kCap, run_backwards, true);
  workspaces_[4] = make_workspace(model_, 8, kCap, run_too_little, false);
  twin_pool_ = make_pool(model_, false, 1);
  for (int i = 0; i < kPools; ++i) {
    const auto kind = static_cast<Kind>(i);
    sizes_[i] = kind == kBlockPool
                    ? kUnits[i] * sslm_kv_block_size(model_) + sslm_kv_pool_overhead_size(model_, kUnits[i])
                : kind == kPagePool ? kUnits[i] * sslm_kv_page_size(model_) +
                                          sslm_kv_page_pool_overhead_size(model_, kUnits[i])
                                    : sslm_kv_pool_contiguous_size(model_, kUnits[i]);
    buffers_[i] = lend(sizes_[i]);
  }
}

void World::open() {
  workspace_ = 0;
  dead_ = nullptr;
  for (int i = 0; i < kPools; ++i) {
    pools_[i] = Pool();
    pools_[i].kind = static_cast<Kind>(i);
    pools_[i].total = pools_[i].free = kTotals[i];
    pools_[i].handle = create_pool(model_, pools_[i].kind, buffers_[i], sizes_[i], kUnits[i]);
  }
  REQUIRE_EQ(sslm_adapter_map(adapter_file_.data(), adapter_file_.size(), model_, &adapter_), SSLM_OK);
  for (Blob& blob : blobs_) blob = Blob();
  prefix_blob_ = Blob();
}

void World::close() {
  for (Seq& seq : seqs_) {
    if (seq.handle == nullptr) continue;
    check_seq(seq);
    forget(seq);
  }
  for (Prefix& prefix : prefixes_) {
    if (prefix.handle == nullptr) continue;
    REQUIRE_EQ(sslm_prefix_release(prefix.handle), SSLM_OK);
    prefix.model.holder.release();
    prefix = Prefix();
  }
  check_pools();
  for (Pool& pool : pools_) {
    REQUIRE_EQ(pool.free, pool.total);
    REQUIRE_EQ(sslm_kv_pool_destroy(pool.handle), SSLM_OK);
  }
  REQUIRE_EQ(sslm_adapter_release(adapter_), SSLM_OK);
}

void World::check_pools() {
  for (const Pool& pool : pools_) {
    const sslm_kv_pool_stats_out stats = pool_stats(pool.handle);
    REQUIRE_EQ(stats.page_count, pool.total);
    REQUIRE_EQ(stats.page_positions, pool.page());
    REQUIRE_EQ(stats.free_pages, pool.free);
    REQUIRE_EQ(stats.shared_pages, pool.shared);
  }
}

void World::check_seq(Seq& seq) {
  const Context& model = seq.model;
  const Holder& holder = model.holder;
  sslm_seq_kv_stats_out kv = {};
  kv.struct_size = sizeof(kv);
  REQUIRE_EQ(sslm_seq_kv_stats(seq.handle, &kv), SSLM_OK);
  REQUIRE_EQ(kv.mode, holder.budgeted ? 1 : 0);
  REQUIRE_EQ(kv.origin, holder.origin);
  REQUIRE_EQ(kv.budget, holder.budget);
  REQUIRE_EQ(kv.limit, holder.limit());
  REQUIRE_EQ(kv.context_length, model.state.length());
  REQUIRE_EQ(kv.shared_pages, holder.shared);
  REQUIRE_EQ(kv.materialized_pages, holder.materialized);
  REQUIRE_EQ(kv.mapped_private_pages, holder.pages.size() - holder.shared);
  REQUIRE_EQ(kv.reserve_pages, holder.reserve);
  sslm_stats_out stats = {};
  REQUIRE_EQ(sslm_stats(model_, seq.handle, &stats), SSLM_OK);
  REQUIRE_EQ(stats.forced_token_count, model.state.forced);
  REQUIRE_EQ(stats.schema_accepting,
             model.state.schema != kNone && accepting(model.state.schema, model.state.walk) ? 1 : 0);
  int32_t bound = 0;
  REQUIRE_EQ(sslm_seq_schema_bound(seq.handle, &bound), SSLM_OK);
  REQUIRE_EQ(bound, model.state.schema == kNone ? 0 : 1);
}

void World::forget(Seq& seq) {
  REQUIRE_EQ(sslm_seq_release(seq.handle), SSLM_OK);
  dead_ = seq.handle;
  seq.model.holder.release();
  seq = Seq();
}

// The model's answer to a verb that draws a reservation; it is drawn where the answer is OK.
sslm_status World::draw(Pool& pool, bool budgeted, int32_t budget, Context& context) {
  if (budgeted && (budget < 1 || budget > kCap)) return SSLM_INVALID_ARGUMENT;
  const uint32_t pages = pool.reservation(budgeted, budget);
  if (pool.free < pages) return SSLM_KV_POOL_EXHAUSTED;
  context.holder.draw(&pool, budgeted, budget, pages);
  return SSLM_OK;
}

// ---- Sequences ----

void World::create(Input& in) {
  Seq& seq = new_seq(in);
  if (seq.handle != nullptr) forget(seq);
  Pool& pool = pick_pool(in);
  const uint8_t choice = in.byte();
  const bool budgeted = choice % 4 != 0;
  const int32_t budget = choice % 32;
  const bool starved = choice >= 224;  // of heap, at the first or second allocation
  if (starved) sslm_test_fail_allocation_after(choice % 2);
  const sslm_status status = budgeted ? sslm_seq_create_budgeted(model_, &pool.handle, budget, &seq.handle)
                                      : sslm_seq_create(model_, &pool.handle, &seq.handle);
  sslm_test_fail_allocation_after(-1);
  if (starved && status == SSLM_ALLOCATION_FAILED) return REQUIRE(seq.handle == nullptr);
  REQUIRE_EQ(status, draw(pool, budgeted, budget, seq.model));
  REQUIRE((seq.handle != nullptr) == (status == SSLM_OK));
  if (status == SSLM_OK) check_seq(seq);
}

void World::release(Input& in) {
  Seq& seq = pick_seq(in);
  if (seq.handle == nullptr) return REQUIRE_EQ(sslm_seq_release(nullptr), SSLM_INVALID_ARGUMENT);
  check_seq(seq);
  forget(seq);
}

void World::reset(Input& in) {
  Seq& seq = pick_seq(in);
  REQUIRE_EQ(sslm_seq_reset(seq.handle), seq.handle == nullptr ? SSLM_INVALID_ARGUMENT : SSLM_OK);
  if (seq.handle == nullptr) return;
  seq.model.holder.reset();
  seq.model.state.clear();
  seq.model.bindable = true;
  check_seq(seq);
}

void World::adopt(Input& in) {
  Seq& seq = pick_seq(in);
  Prefix& prefix = pick_prefix(in);
  const sslm_status status = sslm_seq_adopt_prefix(seq.handle, prefix.handle);
  if (seq.handle == nullptr || prefix.handle == nullptr || !prefix.model.holder.frozen ||
      (seq.model.holder.budgeted && seq.model.holder.pool != prefix.model.holder.pool)) {
    REQUIRE_EQ(status, SSLM_INVALID_ARGUMENT);
    return;
  }
  seq.model.bindable = false;
  const State& from = prefix.model.state;
  if (from.schema != kNone && from.walk != 0 && from.schema != seq.model.state.schema) {
    REQUIRE_EQ(status, SSLM_PREFIX_SCHEMA_MISMATCH);
  } else {
    REQUIRE_EQ(status, SSLM_OK);
    seq.model.holder.adopt(prefix.model.holder, from.length());
    seq.model.take(prefix.model);
  }
  check_seq(seq);
}

void World::set_schema(Input& in) {
  Seq& seq = pick_seq(in);
  const uint32_t choice = in.below(4);
  const sslm_schema schema = choice < 2 ? schemas_[choice] : choice == 2 ? SSLM_SCHEMA_NONE : foreign_;
  sslm_status expected = SSLM_OK;
  if (seq.handle == nullptr) {
    expected = SSLM_INVALID_ARGUMENT;
  } else if (!seq.model.bindable) {
    expected = SSLM_SCHEMA_BIND_REJECTED;
  } else if (choice == 3) {
    expected = SSLM_INVALID_ARGUMENT;
  }
  REQUIRE_EQ(sslm_seq_set_schema(seq.handle, schema), expected);
  if (expected == SSLM_OK) seq.model.state.bind(choice < 2 ? static_cast<int>(choice) : kNone);
  if (seq.handle != nullptr) check_seq(seq);
}

void World::set_adapter(Input& in) {
  Seq& seq = pick_seq(in);
  const bool bind = in.byte() % 2 == 0;
  sslm_status expected = SSLM_OK;
  if (seq.handle == nullptr) {
    expected = SSLM_INVALID_ARGUMENT;
  } else if (seq.model.state.layer != 0) {
    expected = SSLM_ADAPTER_SWAP_MIDTOKEN_REJECTED;
  }
  REQUIRE_EQ(sslm_seq_set_adapter(seq.handle, bind ? adapter_ : nullptr), expected);
  if (expected == SSLM_OK) seq.model.adapted = bind;
}

// Verbs that are refused while others live.
void World::busy(Input& in) {
  Pool& pool = pick_pool(in);
  if (pool.holders > 0) REQUIRE_EQ(sslm_kv_pool_destroy(pool.handle), SSLM_POOL_HAS_LIVE_HANDLES);
  bool bound = false;
  for (const Seq& seq : seqs_) bound = bound || (seq.handle != nullptr && seq.model.adapted);
  if (bound) REQUIRE_EQ(sslm_adapter_release(adapter_), SSLM_ADAPTER_HAS_LIVE_SEQUENCES);
  REQUIRE_EQ(sslm_model_unmap(model_), SSLM_MODEL_HAS_LIVE_SEQUENCES);  // the adapter at least
}

void World::choose_workspace(Input& in) { workspace_ = static_cast<int>(in.below(kWorkspaces)); }

// ---- Prefixes ----

void World::begin(Input& in) {
  Prefix& prefix = new_prefix(in);
  if (prefix.handle != nullptr) return;
  Pool& pool = pick_pool(in);
  const uint8_t choice = in.byte();
  const bool budgeted = choice % 4 != 0;
  const int32_t budget = choice % 32;
  const bool starved = choice >= 224;
  if (starved) sslm_test_fail_allocation_after(choice % 2);
  const sslm_status status = budgeted
                                 ? sslm_prefix_begin_budgeted(model_, &pool.handle, budget, &prefix.handle)
                                 : sslm_prefix_begin(model_, &pool.handle, &prefix.handle);
  sslm_test_fail_allocation_after(-1);
  if (starved && status == SSLM_ALLOCATION_FAILED) return REQUIRE(prefix.handle == nullptr);
  REQUIRE_EQ(status, draw(pool, budgeted, budget, prefix.model));
  REQUIRE((prefix.handle != nullptr) == (status == SSLM_OK));
}

void World::begin_from(Input& in) {
  Prefix& prefix = new_prefix(in);
  Prefix& parent = pick_prefix(in);
  if (prefix.handle != nullptr) return;
  const uint8_t choice = in.byte();
  const int32_t budget = choice % 32;
  const bool starved = choice >= 224;
  if (starved) sslm_test_fail_allocation_after(choice % 2);
  const sslm_status status = sslm_prefix_begin_from(parent.handle, budget, &prefix.handle);
  sslm_test_fail_allocation_after(-1);
  if (starved && status == SSLM_ALLOCATION_FAILED) return REQUIRE(prefix.handle == nullptr);
  if (parent.handle == nullptr || !parent.model.holder.frozen) {
    REQUIRE_EQ(status, SSLM_INVALID_ARGUMENT);
    return;
  }
  REQUIRE_EQ(status, draw(*parent.model.holder.pool, true, budget, prefix.model));
  if (status != SSLM_OK) return REQUIRE(prefix.handle == nullptr);
  prefix.model.state = parent.model.state;
  prefix.model.holder.adopt(parent.model.holder, parent.model.state.length());
}

void World::fill_prefix(Input& in) {
  Prefix& prefix = pick_prefix(in);
  const std::vector<int32_t> tokens = read_tokens(in);
  const auto count = static_cast<int32_t>(tokens.size());
  const uint8_t choice = in.byte();
  const bool content = choice % 4 == 3;
  const int32_t chunk = 1 + choice / 4 % 32;
  int32_t consumed = -5;
  const sslm_status status =
      sslm_prefix_prefill(model_, prefix.handle, tokens.data(), count, chunk,
                          content ? SSLM_SPAN_SCHEMA_CONTENT : SSLM_SPAN_PROMPT, workspace(), &consumed);
  Context::Admission expected = {0, SSLM_INVALID_ARGUMENT};
  if (prefix.handle != nullptr) {
    Context& model = prefix.model;
    if (model.holder.frozen) {
      expected.status = SSLM_PREFIX_FROZEN_REJECTED;
    } else if (content && model.state.schema == kNone) {
      expected.status = SSLM_SCHEMA_SPAN_UNBOUND;
    } else {
      expected = model.admit(tokens, count < chunk ? count : chunk, content);
      model.append(tokens, expected.count, content);
    }
  }
  REQUIRE_EQ(status, expected.status);
  REQUIRE_EQ(consumed, expected.count);
}

void World::freeze(Input& in) {
  Prefix& prefix = pick_prefix(in);
  REQUIRE_EQ(sslm_prefix_freeze(prefix.handle), prefix.handle == nullptr ? SSLM_INVALID_ARGUMENT : SSLM_OK);
  if (prefix.handle != nullptr) prefix.model.holder.freeze(prefix.model.state.length());
}

void World::drop_prefix(Input& in) {
  Prefix& prefix = pick_prefix(in);
  REQUIRE_EQ(sslm_prefix_release(prefix.handle), prefix.handle == nullptr ? SSLM_INVALID_ARGUMENT : SSLM_OK);
  if (prefix.handle == nullptr) return;
  prefix.model.holder.release();
  prefix = Prefix();
}

void World::prefix_schema(Input& in) {
  Prefix& prefix = pick_prefix(in);
  const uint32_t choice = in.below(4);
  const sslm_schema schema = choice < 2 ? schemas_[choice] : choice == 2 ? SSLM_SCHEMA_NONE : foreign_;
  const bool refused =
      prefix.handle == nullptr || prefix.model.holder.frozen || !prefix.model.state.fresh() || choice == 3;
  REQUIRE_EQ(sslm_prefix_set_schema(prefix.handle, schema), refused ? SSLM_INVALID_ARGUMENT : SSLM_OK);
  if (!refused) prefix.model.state.bind(choice < 2 ? static_cast<int>(choice) : kNone);
}

}  // namespace superslm::fuzz
