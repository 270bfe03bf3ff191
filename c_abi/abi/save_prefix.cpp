// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/handles.h"
#include "abi/save.h"
#include "blob/prefix_blob.h"

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/sslm_ext.h"

using namespace superslm;

namespace {

// The parent a nested blob names, in the pool where both will share pages.
bool is_parent(const blob::ParsedPrefix& parsed, sslm_kv_pool pool, sslm_prefix parent) {
  return parent != nullptr && parent->holder.pool() == &pool->pages &&
         parsed.names(parent->holder, parent->state.length);
}

}  // namespace

sslm_status sslm_ext_prefix_save(sslm_prefix prefix, void* buf, size_t* n) {
  if (n == nullptr || prefix == nullptr || !prefix->holder.frozen()) return SSLM_INVALID_ARGUMENT;
  const blob::ModelFacts facts = abi::facts_of(*prefix->model);
  const blob::Content content = abi::content_of(*prefix);
  const size_t size = blob::saved_prefix_size(facts, content);
  if (size == 0) return SSLM_INVALID_ARGUMENT;
  const size_t capacity = *n;
  *n = size;
  if (buf == nullptr || capacity < size) return SSLM_BUFFER_TOO_SMALL;
  blob::write_prefix(facts, content, static_cast<uint8_t*>(buf));
  return SSLM_OK;
}

sslm_status sslm_ext_prefix_restore(sslm_model model, sslm_kv_pool* pool, const void* blob_bytes, size_t size,
                                    sslm_prefix parent_or_null, sslm_prefix* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || pool == nullptr || *pool == nullptr || blob_bytes == nullptr) {
    return SSLM_INVALID_ARGUMENT;
  }
  blob::ParsedPrefix parsed;
  const blob::Status checked =
      blob::parse_prefix(abi::facts_of(*model), static_cast<const uint8_t*>(blob_bytes), size, &parsed);
  if (checked != blob::Status::kOk) return abi::status_of(checked);
  if (!(*pool)->belongs_to(*model)) return SSLM_INVALID_ARGUMENT;
  if (parsed.nested() && !is_parent(parsed, *pool, parent_or_null)) return SSLM_INVALID_ARGUMENT;
  const kv::Holder* parent = parent_or_null == nullptr ? nullptr : &parent_or_null->holder;
  kv::Holder holder;
  const kv::Status drawn = kv::Holder::restore_frozen((*pool)->pages, parsed.request(parent), &holder);
  if (drawn != kv::Status::kOk) return abi::status_of(drawn);
  sslm_prefix prefix = abi::create_context<sslm_prefix_s>(model, holder);
  if (prefix == nullptr) return SSLM_ALLOCATION_FAILED;
  abi::fill_state(*model, parsed.common, prefix->state);
  *out = prefix;
  return SSLM_OK;
}
