// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Steps that compute or move content: prefill, decode, save, restore, and the comparison with a twin.
#include "verbs.h"

namespace superslm::fuzz {

namespace {

constexpr int32_t kUntouched = -77;
constexpr size_t kResidualAt5 = 156, kResidualAt6 = 172;

// Where a blob's residual begins, and its rows.
size_t residual_at(const Bytes& blob) { return blob[3] == '6' ? kResidualAt6 : kResidualAt5; }

}  // namespace

// ---- Prefill ----

// Up to 15 tokens; now and then one that is out of range.
std::vector<int32_t> World::read_tokens(Input& in) {
  std::vector<int32_t> tokens(in.byte() % 16);
  for (int32_t& token : tokens) {
    const uint8_t choice = in.byte();
    token = choice < 250 ? choice % kVocab : choice < 253 ? kVocab + choice % 2 : -1 - choice % 2;
  }
  return tokens;
}

void World::prefill(Input& in) {
  Seq& seq = pick_seq(in);
  const std::vector<int32_t> tokens = read_tokens(in);
  const auto count = static_cast<int32_t>(tokens.size());
  const uint8_t choice = in.byte();
  const bool content = choice % 4 == 3;
  const int32_t chunk = choice / 4 % 32;  // 0 is refused
  int32_t consumed = -5;
  const sslm_status status =
      sslm_prefill(model_, seq.handle, tokens.data(), count, chunk,
                   content ? SSLM_SPAN_SCHEMA_CONTENT : SSLM_SPAN_PROMPT, workspace(), &consumed);
  Context::Admission expected = {0, SSLM_INVALID_ARGUMENT};
  if (seq.handle != nullptr && chunk > 0) {
    Context& model = seq.model;
    model.bindable = false;
    if (content && model.state.schema == kNone) {
      expected.status = SSLM_SCHEMA_SPAN_UNBOUND;
    } else {
      expected = model.admit(tokens, count < chunk ? count : chunk, content);
      model.append(tokens, expected.count, content);
    }
  }
  REQUIRE_EQ(status, expected.status);
  REQUIRE_EQ(consumed, expected.count);
  if (seq.handle != nullptr) check_seq(seq);
}

void World::score(Input& in) {
  Seq& seq = pick_seq(in);
  const std::vector<int32_t> tokens = read_tokens(in);
  const auto count = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> out(tokens.size() + 1, kUntouched);
  int32_t consumed = -5;
  const sslm_workspace ws = hook_fails() ? nullptr : workspace();
  const sslm_status status =
      sslm_ext_score(model_, seq.handle, tokens.data(), count, ws, out.data(), &consumed);
  Context::Admission expected = {0, SSLM_INVALID_ARGUMENT};
  const bool fresh = seq.handle != nullptr && seq.model.state.fresh();
  if (seq.handle != nullptr && (fresh || seq.model.state.ready)) {
    seq.model.bindable = false;
    expected = seq.model.admit(tokens, count, false);
    seq.model.append(tokens, expected.count, false);
  }
  REQUIRE_EQ(status, expected.status);
  REQUIRE_EQ(consumed, expected.count);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t value = out[static_cast<size_t>(i)];
    REQUIRE(i < consumed ? value <= 64 : value == kUntouched);
  }
  if (fresh && consumed > 0) REQUIRE_EQ(out[0], 0);
  if (seq.handle != nullptr) check_seq(seq);
}

// ---- Decode ----

void World::run_call(Input& in, Call& call) {
  auto* handles = call.handles.data();
  const auto n = static_cast<int32_t>(call.handles.size());
  auto* out = call.out.data();
  if (call.mode == 0) {
    const sslm_decode_params params = {call.layers, 0, 9, -1, -1, -1, 0, 0, 0};  // the rest is not read
    call.status = sslm_decode_step(model_, handles, n, &params, workspace(), out);
    return;
  }
  if (call.mode == 3) {
    std::vector<sslm_ext_sample_params> samples(call.handles.size());
    for (sslm_ext_sample_params& sample : samples) {
      sample.struct_size = sizeof(sample);
      sample.seed = in.byte();
      sample.inverse_temperature = uint64_t{in.byte() + 1u} << 27;
      sample.top_k = in.byte() % 8;
      sample.top_p_q15 = 1 + in.byte() * 128;
      sample.min_p_q15 = in.byte() * 64;
    }
    call.status = sslm_ext_decode_sample(model_, handles, n, call.layers, samples.data(), workspace(), out);
    return;
  }
  const int32_t mode = call.mode == 2 ? SSLM_DECODE_MODE_DAMPED_GREEDY : SSLM_DECODE_MODE_GREEDY;
  sslm_decode_params params;
  REQUIRE_EQ(sslm_decode_params_init(model_, mode, call.layers, &params), SSLM_OK);
  if (call.mode == 2) {
    params.anti_lm_max_order = call.order = 1 + in.byte() % 3;
    params.alpha_q15 = in.byte() * 4096;
    params.top_k = 1 + in.byte() % kVocab;
  }
  call.status = sslm_decode_step_v2(model_, handles, n, &params, workspace(), out);
}

// Entries in index order, as the contract has it, whatever passes they shared.
void World::check_call(Call& call) {
  for (const Seq* entry : call.entries) {
    if (entry == nullptr || !entry->model.state.fresh()) continue;
    REQUIRE_EQ(call.status, SSLM_INVALID_ARGUMENT);
    for (const int32_t token : call.out) REQUIRE_EQ(token, kUntouched);
    return;
  }
  for (Seq* entry : call.entries) {
    if (entry != nullptr) entry->model.bindable = false;
  }
  sslm_status expected = SSLM_OK;
  size_t done = 0;
  for (; done < call.entries.size() && expected == SSLM_OK; ++done) {
    Seq* entry = call.entries[done];
    const int32_t token = call.out[done];
    if (entry == nullptr) {
      REQUIRE_EQ(token, -3);
      continue;
    }
    Context& model = entry->model;
    bool finishes = false;
    if (!model.advance(call.layers, &finishes, &expected)) {
      REQUIRE_EQ(token, -1);
    } else if (!finishes) {
      REQUIRE_EQ(token, -1);
    } else if (hook_fails()) {
      expected = SSLM_INVALID_ARGUMENT;
      REQUIRE_EQ(token, kUntouched);
    } else if (dead_end(model.state.schema, model.state.walk)) {
      REQUIRE_EQ(token, -2);
    } else {
      REQUIRE(token >= 0 && token < kVocab);
      model.emit(token, call.order);
      REQUIRE(model.state.schema == kNone || model.state.walk != kNoWalk);
    }
  }
  REQUIRE_EQ(call.status, expected);
  for (; done < call.entries.size(); ++done) REQUIRE_EQ(call.out[done], kUntouched);
}

void World::decode(Input& in) {
  Call call;
  const uint8_t choice = in.byte();
  call.mode = choice % 4;
  call.layers = 1 + choice / 4 % kLayers;
  const size_t n = 1 + in.byte() % 6;
  for (size_t i = 0; i < n; ++i) {
    Seq& seq = pick_seq(in);
    const bool live = seq.handle != nullptr;
    if (!live && dead_ == nullptr) continue;
    call.handles.push_back(live ? seq.handle : dead_);
    call.entries.push_back(live ? &seq : nullptr);
  }
  if (call.handles.empty()) return;
  call.out.assign(call.handles.size(), kUntouched);
  run_call(in, call);
  check_call(call);
  for (Seq* entry : call.entries) {
    if (entry == nullptr) continue;
    // A failed hook may leave a page mapped that an entry behind it had in its reserve; only these counts
    // show it.
    if (call.status == SSLM_INVALID_ARGUMENT && hook_fails()) {
      Holder& holder = entry->model.holder;
      sslm_seq_kv_stats_out kv = {};
      kv.struct_size = sizeof(kv);
      REQUIRE_EQ(sslm_seq_kv_stats(entry->handle, &kv), SSLM_OK);
      if (kv.reserve_pages + 1 == holder.reserve)
        holder.map_to(static_cast<int64_t>(holder.pages.size() + 1) * holder.pool->page());
    }
    check_seq(*entry);
  }
}

// ---- Save and restore ----

void World::save(Input& in) {
  Seq& seq = pick_seq(in);
  size_t size = 0;
  if (seq.handle == nullptr) {
    REQUIRE_EQ(sslm_seq_save(nullptr, nullptr, &size), SSLM_INVALID_ARGUMENT);
    return;
  }
  Blob& blob = blobs_[in.below(kBlobs)];
  blob.bytes = fuzz::save(seq.handle);
  REQUIRE_EQ(blob.bytes.size(), seq.model.saved_size());
  REQUIRE(blob.bytes.size() <= sslm_seq_state_size(model_));
  blob.state = seq.model.state;
  blob.budgeted = seq.model.holder.budgeted;
  blob.budget = seq.model.holder.budget;
  blob.origin = seq.model.holder.origin;
}

void World::restore(Input& in) {
  Seq& seq = new_seq(in);
  Blob& blob = blobs_[in.below(kBlobs)];
  if (blob.bytes.empty()) return;
  if (seq.handle != nullptr) forget(seq);
  Pool& pool = pick_pool(in);
  Prefix& hint = pick_prefix(in);
  const int64_t full = blob.origin / pool.page();
  const uint32_t reserved = pool.reservation(blob.budgeted, blob.budget);
  const bool shares = blob.budgeted && is_parent(blob, pool, hint) && pool.per_context() > 1;
  const int64_t spare = pool.per_context() - reserved;
  const int64_t extra = !blob.budgeted || shares ? 0 : full < spare ? full : spare;
  const bool enough = pool.free >= reserved + extra;
  uint32_t shared = 99;
  const sslm_status status = sslm_seq_restore_shared(model_, &pool.handle, blob.bytes.data(),
                                                     blob.bytes.size(), hint.handle, &seq.handle, &shared);
  REQUIRE_EQ(status, enough ? SSLM_OK : SSLM_KV_POOL_EXHAUSTED);
  REQUIRE_EQ(shared, enough && shares ? full : 0);
  if (!enough) return REQUIRE(seq.handle == nullptr);
  Context& model = seq.model;
  Holder& holder = model.holder;
  model.state = blob.state;
  model.bindable = false;
  holder.draw(&pool, blob.budgeted, blob.budget, static_cast<uint32_t>(reserved + extra));
  if (shares) holder.share(hint.model.holder, full);
  holder.map_to(blob.state.carried());
  holder.materialized = static_cast<uint32_t>(extra);
  holder.origin = blob.budgeted ? blob.origin : 0;
  check_seq(seq);
  REQUIRE(fuzz::save(seq.handle) == blob.bytes);
}

// Whether a blob's rows up to its origin are the whole content of this frozen prefix of the pool.
bool World::is_parent(const Blob& blob, const Pool& pool, const Prefix& hint) const {
  if (hint.handle == nullptr || !hint.model.holder.frozen || hint.model.holder.pool != &pool) return false;
  if (hint.model.state.length() != blob.origin) return false;
  return same_rows(hint.model.state, blob.state, blob.origin / pool.page() * pool.page());
}

void World::save_prefix(Input& in) {
  Prefix& prefix = pick_prefix(in);
  size_t size = 0;
  const bool frozen = prefix.handle != nullptr && prefix.model.holder.frozen;
  REQUIRE_EQ(sslm_ext_prefix_save(prefix.handle, nullptr, &size),
             frozen ? SSLM_BUFFER_TOO_SMALL : SSLM_INVALID_ARGUMENT);
  if (!frozen) return;
  const State& state = prefix.model.state;
  const int64_t own = state.length() - prefix.model.holder.origin;
  REQUIRE_EQ(size, 212 + 4 * kHidden + own * kPositionBytes);
  prefix_blob_.bytes.resize(size);
  REQUIRE_EQ(sslm_ext_prefix_save(prefix.handle, prefix_blob_.bytes.data(), &size), SSLM_OK);
  prefix_blob_.state = state;
  prefix_blob_.budgeted = prefix.model.holder.budgeted;
  prefix_blob_.budget = prefix.model.holder.budget;
  prefix_blob_.origin = prefix.model.holder.origin;
}

void World::restore_prefix(Input& in) {
  Prefix& prefix = new_prefix(in);
  Prefix& parent = pick_prefix(in);
  Pool& pool = pick_pool(in);
  const Blob& blob = prefix_blob_;
  if (prefix.handle != nullptr || blob.bytes.empty()) return;
  const sslm_status status = sslm_ext_prefix_restore(model_, &pool.handle, blob.bytes.data(),
                                                     blob.bytes.size(), parent.handle, &prefix.handle);
  const bool nested = blob.origin > 0;
  const bool fits = is_parent(blob, pool, parent) && same_rows(parent.model.state, blob.state, blob.origin);
  const int64_t shared = nested && pool.per_context() > 1 ? blob.origin / pool.page() : 0;
  const int64_t needed = up(blob.state.length(), pool.page()) - shared;
  const sslm_status expected = nested && !fits      ? SSLM_INVALID_ARGUMENT
                               : pool.free < needed ? SSLM_KV_POOL_EXHAUSTED
                                                    : SSLM_OK;
  REQUIRE_EQ(status, expected);
  if (status != SSLM_OK) return REQUIRE(prefix.handle == nullptr);
  Holder& holder = prefix.model.holder;
  holder.draw(&pool, blob.budgeted, blob.budget, static_cast<uint32_t>(needed));
  if (shared > 0) holder.share(parent.model.holder, shared);
  holder.map_to(blob.state.length());
  holder.origin = blob.origin;
  holder.frozen = true;
  prefix.model.state = blob.state;
}

// ---- The twin ----

// Gives a fresh sequence the tokens in as few prefills as the adapter's changes allow.
void World::replay(const State& state, sslm_seq twin) {
  for (size_t at = 0; at < state.rows.size();) {
    std::vector<int32_t> tokens;
    const bool adapted = state.rows[at].adapted;
    for (; at < state.rows.size() && state.rows[at].adapted == adapted; ++at)
      tokens.push_back(state.rows[at].token);
    int32_t consumed = 0;
    const auto n = static_cast<int32_t>(tokens.size());
    REQUIRE_EQ(sslm_seq_set_adapter(twin, adapted ? adapter_ : nullptr), SSLM_OK);
    REQUIRE_EQ(sslm_prefill(model_, twin, tokens.data(), n, n, SSLM_SPAN_PROMPT, nullptr, &consumed),
               SSLM_OK);
  }
}

void World::compare_logits(sslm_seq a, sslm_seq b) {
  int32_t got[kVocab], want[kVocab];
  size_t n = kVocab;
  const sslm_workspace ws = hook_fails() ? nullptr : workspace();
  REQUIRE_EQ(sslm_ext_seq_logits(model_, a, ws, got, &n), SSLM_OK);
  REQUIRE_EQ(sslm_ext_seq_logits(model_, b, nullptr, want, &n), SSLM_OK);
  REQUIRE(std::memcmp(got, want, sizeof(got)) == 0);
}

// The rows, and where no token is half written the residual, equal those of one whole prefill. No prefill
// gives the row of a token that lost its adapter between two layers.
void World::compare(Input& in) {
  Seq& seq = pick_seq(in);
  if (seq.handle == nullptr || seq.model.state.fresh() || seq.model.state.mixed) return;
  const State& state = seq.model.state;
  sslm_seq twin = nullptr;
  REQUIRE_EQ(sslm_seq_create(model_, &twin_pool_, &twin), SSLM_OK);
  replay(state, twin);
  const Bytes got = fuzz::save(seq.handle), want = fuzz::save(twin);
  const int64_t got_positions = seq.model.holder.budgeted ? state.carried() : kCap;
  const uint8_t* got_rows = got.data() + got.size() - got_positions * kPositionBytes;
  const uint8_t* want_rows = want.data() + want.size() - kCap * kPositionBytes;
  constexpr int64_t kRow = kPositionBytes / (2 * kLayers);
  for (int64_t run = 0; run < 2 * kLayers; ++run) {
    const int cmp = std::memcmp(got_rows + run * got_positions * kRow, want_rows + run * kCap * kRow,
                                static_cast<size_t>(state.length() * kRow));
    REQUIRE_EQ(cmp, 0);
  }
  if (state.layer == 0) {
    REQUIRE(std::memcmp(got.data() + residual_at(got), want.data() + residual_at(want), 4 * kHidden) == 0);
  }
  if (state.ready) compare_logits(seq.handle, twin);
  REQUIRE_EQ(sslm_seq_release(twin), SSLM_OK);
}

}  // namespace superslm::fuzz
