// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/handles.h"

using namespace superslm;

namespace {

sslm_status begin(sslm_model model, kv::Holder& holder, kv::Status drawn, sslm_prefix* out) {
  if (drawn != kv::Status::kOk) return abi::status_of(drawn);
  *out = abi::create_context<sslm_prefix_s>(model, holder);
  return *out == nullptr ? SSLM_ALLOCATION_FAILED : SSLM_OK;
}

}  // namespace

sslm_status sslm_prefix_begin(sslm_model model, sslm_kv_pool* pool, sslm_prefix* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || pool == nullptr || *pool == nullptr) return SSLM_INVALID_ARGUMENT;
  if (!(*pool)->belongs_to(*model)) return SSLM_INVALID_ARGUMENT;
  kv::Holder holder;
  const kv::Status drawn =
      kv::Holder::create((*pool)->pages, kv::Mode::kNoBudget, model->view().cap, &holder);
  return begin(model, holder, drawn, out);
}

sslm_status sslm_prefix_begin_budgeted(sslm_model model, sslm_kv_pool* pool, int32_t budget,
                                       sslm_prefix* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || pool == nullptr || *pool == nullptr) return SSLM_INVALID_ARGUMENT;
  if (!(*pool)->belongs_to(*model) || !abi::valid_budget(*model, budget)) return SSLM_INVALID_ARGUMENT;
  kv::Holder holder;
  const kv::Status drawn = kv::Holder::create((*pool)->pages, kv::Mode::kBudget, budget, &holder);
  return begin(model, holder, drawn, out);
}

sslm_status sslm_prefix_begin_from(sslm_prefix parent, int32_t budget, sslm_prefix* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (parent == nullptr || !parent->holder.frozen()) return SSLM_INVALID_ARGUMENT;
  if (!abi::valid_budget(*parent->model, budget)) return SSLM_INVALID_ARGUMENT;
  kv::Holder holder;
  const kv::Status drawn = kv::Holder::begin_from(parent->holder, parent->state.length, budget, &holder);
  const sslm_status status = begin(parent->model, holder, drawn, out);
  if (status == SSLM_OK) abi::copy_state(*parent->model, parent->state, (*out)->state);
  return status;
}

sslm_status sslm_prefix_freeze(sslm_prefix prefix) {
  if (prefix == nullptr) return SSLM_INVALID_ARGUMENT;
  prefix->holder.freeze(prefix->state.length);
  return SSLM_OK;
}

sslm_status sslm_prefix_release(sslm_prefix prefix) {
  if (prefix == nullptr) return SSLM_INVALID_ARGUMENT;
  abi::destroy_context(prefix);
  return SSLM_OK;
}

sslm_status sslm_prefix_set_schema(sslm_prefix prefix, sslm_schema schema) {
  if (prefix == nullptr || prefix->holder.frozen() || prefix->state.length != 0) return SSLM_INVALID_ARGUMENT;
  if (schema != SSLM_SCHEMA_NONE && schema->model != prefix->model) return SSLM_INVALID_ARGUMENT;
  abi::bind_schema(prefix->state, schema);
  return SSLM_OK;
}
