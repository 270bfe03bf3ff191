// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <cstring>

#include "abi/handles.h"
#include "abi/registry.h"
#include "abi/save.h"
#include "abi/sequence.h"

using namespace superslm;
using abi::LockedSequence;
using abi::Sequence;

namespace {

sslm_status create_sequence(sslm_model model, sslm_kv_pool pool, kv::Mode mode, int32_t budget,
                            sslm_seq* out) {
  kv::Holder holder;
  const kv::Status drawn = kv::Holder::create(pool->pages, mode, budget, &holder);
  if (drawn != kv::Status::kOk) return abi::status_of(drawn);
  Sequence* sequence = abi::create_context<Sequence>(model, holder);
  if (sequence == nullptr) return SSLM_ALLOCATION_FAILED;
  *out = abi::enter(sequence);
  return *out == nullptr ? SSLM_ALLOCATION_FAILED : SSLM_OK;
}

void drop_adapter(Sequence& sequence) {
  if (sequence.adapter != nullptr) sequence.adapter->bound.fetch_sub(1, std::memory_order_release);
  sequence.adapter = nullptr;
}

// The prefix's walk when it has moved, else the start of the sequence's own schema.
bool has_progress(const abi::Context& prefix) {
  return prefix.state.schema >= 0 && prefix.state.walk_state != 0;
}

void adopt(Sequence& sequence, const sslm_prefix_s& prefix) {
  const sslm_model_s& model = *sequence.model;
  decode::SequenceState& state = sequence.state;
  const int32_t schema = state.schema;
  sequence.holder.adopt(prefix.holder, prefix.state.length);
  sequence.history.discard();
  abi::copy_state(model, prefix.state, state);
  state.forced_token_count = 0;
  state.schema = schema;
  if (!has_progress(prefix)) state.walk_state = schema < 0 ? decode::kNoWalkState : 0;
}

}  // namespace

namespace superslm::abi {

sslm_seq enter(Sequence* sequence) {
  sslm_seq handle = register_sequence(sequence);
  if (handle == nullptr) {
    sequence->history.discard();
    destroy_context(sequence);
  }
  return handle;
}

}  // namespace superslm::abi

size_t sslm_seq_state_size(sslm_model model) {
  return model == nullptr ? 0 : blob::state_size_bound(abi::facts_of(*model));
}

sslm_status sslm_seq_create(sslm_model model, sslm_kv_pool* pool, sslm_seq* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || pool == nullptr || *pool == nullptr) return SSLM_INVALID_ARGUMENT;
  if (!(*pool)->belongs_to(*model)) return SSLM_INVALID_ARGUMENT;
  return create_sequence(model, *pool, kv::Mode::kNoBudget, model->view().cap, out);
}

sslm_status sslm_seq_create_budgeted(sslm_model model, sslm_kv_pool* pool, int32_t budget, sslm_seq* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || pool == nullptr || *pool == nullptr) return SSLM_INVALID_ARGUMENT;
  if (!(*pool)->belongs_to(*model) || !abi::valid_budget(*model, budget)) return SSLM_INVALID_ARGUMENT;
  return create_sequence(model, *pool, kv::Mode::kBudget, budget, out);
}

sslm_status sslm_seq_release(sslm_seq seq) {
  if (seq == nullptr) return SSLM_INVALID_ARGUMENT;
  Sequence* sequence = abi::unregister_sequence(seq);
  if (sequence == nullptr) return SSLM_INVALID_ARGUMENT;
  drop_adapter(*sequence);
  sequence->history.discard();
  abi::destroy_context(sequence);
  return SSLM_OK;
}

sslm_status sslm_seq_reset(sslm_seq seq) {
  const LockedSequence sequence(seq);
  if (!sequence) return SSLM_INVALID_ARGUMENT;
  sequence->holder.reset();
  sequence->history.discard();
  abi::clear_state(*sequence->model, sequence->state);
  sequence->bindable = true;
  return SSLM_OK;
}

sslm_status sslm_seq_adopt_prefix(sslm_seq seq, sslm_prefix prefix) {
  if (seq == nullptr || prefix == nullptr) return SSLM_INVALID_ARGUMENT;
  if (!prefix->holder.frozen()) return SSLM_INVALID_ARGUMENT;
  const LockedSequence sequence(seq);
  if (!sequence || prefix->model != sequence->model) return SSLM_INVALID_ARGUMENT;
  if (sequence->holder.mode() == kv::Mode::kBudget && sequence->holder.pool() != prefix->holder.pool()) {
    return SSLM_INVALID_ARGUMENT;
  }
  sequence->bindable = false;
  if (has_progress(*prefix) && sequence->state.schema != prefix->state.schema) {
    return SSLM_PREFIX_SCHEMA_MISMATCH;
  }
  adopt(*sequence, *prefix);
  return SSLM_OK;
}

sslm_status sslm_seq_set_adapter(sslm_seq seq, sslm_adapter adapter) {
  Sequence* sequence = abi::find_sequence(seq);
  if (sequence == nullptr) return SSLM_INVALID_ARGUMENT;
  if (abi::mid_token(sequence->state)) return SSLM_ADAPTER_SWAP_MIDTOKEN_REJECTED;
  if (adapter != nullptr && adapter->model != sequence->model) return SSLM_ADAPTER_MODEL_MISMATCH;
  if (adapter != nullptr) adapter->bound.fetch_add(1, std::memory_order_relaxed);
  drop_adapter(*sequence);
  sequence->adapter = adapter;
  return SSLM_OK;
}

sslm_status sslm_seq_set_schema(sslm_seq seq, sslm_schema schema) {
  Sequence* sequence = abi::find_sequence(seq);
  if (sequence == nullptr) return SSLM_INVALID_ARGUMENT;
  if (!sequence->bindable) return SSLM_SCHEMA_BIND_REJECTED;
  if (schema != SSLM_SCHEMA_NONE && schema->model != sequence->model) return SSLM_INVALID_ARGUMENT;
  abi::bind_schema(sequence->state, schema);
  return SSLM_OK;
}

sslm_status sslm_seq_schema_bound(sslm_seq seq, int32_t* out_schema_bound) {
  const Sequence* sequence = abi::find_sequence(seq);
  if (sequence == nullptr || out_schema_bound == nullptr) return SSLM_INVALID_ARGUMENT;
  *out_schema_bound = sequence->state.schema >= 0 ? 1 : 0;
  return SSLM_OK;
}

sslm_status sslm_seq_kv_stats(sslm_seq seq, sslm_seq_kv_stats_out* out) {
  if (seq == nullptr || out == nullptr || out->struct_size != sizeof(*out)) return SSLM_INVALID_ARGUMENT;
  const LockedSequence sequence(seq);
  if (!sequence) return SSLM_INVALID_ARGUMENT;
  const kv::Holder& holder = sequence->holder;
  const kv::HolderStats stats = holder.stats();
  out->mode = static_cast<uint32_t>(holder.mode());
  out->origin = holder.origin();
  out->budget = holder.budget();
  out->reserved0 = 0;
  out->limit = holder.limit();
  out->context_length = sequence->state.length;
  out->mapped_private_pages = stats.private_pages;
  out->shared_pages = stats.shared_pages;
  out->reserve_pages = stats.reserve_pages;
  out->materialized_pages = stats.materialized_pages;
  return SSLM_OK;
}

sslm_status sslm_stats(sslm_model model, sslm_seq seq, sslm_stats_out* out) {
  if (out == nullptr || model == nullptr) return SSLM_INVALID_ARGUMENT;
  const Sequence* sequence = abi::find_sequence(seq);
  if (sequence == nullptr || sequence->model != model) return SSLM_INVALID_ARGUMENT;
  const sslm_schema_s* schema = abi::schema_of(*sequence);
  out->decode_step_ceiling = model->view().layer_count;
  out->decode_step_actual = model->view().layer_count;
  out->forced_token_count = sequence->state.forced_token_count;
  out->kv_blocks_resident = 1;
  out->schema_accepting = schema != nullptr && abi::accepts(*schema, sequence->state.walk_state) ? 1 : 0;
  return SSLM_OK;
}
