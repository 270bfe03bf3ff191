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

int32_t find_schema(const void* context, uint64_t hash, uint32_t* state_count) {
  const sslm_model_s& model = *static_cast<const sslm_model_s*>(context);
  for (int32_t i = 0; i < model.schema_count; ++i) {
    if (model.schemas[i].hash != hash) continue;
    *state_count = model.schemas[i].state_count;
    return i;
  }
  return -1;
}

}  // namespace

namespace superslm::abi {

blob::ModelFacts facts_of(const sslm_model_s& model) {
  const artifact::ModelView& view = model.view();
  blob::ModelFacts facts;
  facts.model_digest = view.model_digest;
  facts.vocab = view.vocab;
  facts.hidden = view.hidden;
  facts.residual_exponent = view.residual_exponent;
  facts.geometry = model.geometry;
  facts.schemas = blob::SchemaResolver{find_schema, &model};
  return facts;
}

blob::Content content_of(const Context& context) {
  const sslm_schema_s* schema = schema_of(context);
  blob::Content content;
  content.state = &context.state;
  content.schema_hash = schema == nullptr ? 0 : schema->hash;
  content.holder = &context.holder;
  return content;
}

sslm_status status_of(blob::Status status) {
  switch (status) {
    case blob::Status::kOk:
      return SSLM_OK;
    case blob::Status::kInvalid:
      return SSLM_INVALID_ARGUMENT;
    case blob::Status::kModelMismatch:
      return SSLM_RESTORE_MODEL_MISMATCH;
    case blob::Status::kKvMismatch:
      return SSLM_RESTORE_KV_MISMATCH;
    case blob::Status::kSchemaMismatch:
      return SSLM_RESTORE_SCHEMA_MISMATCH;
    case blob::Status::kResidualLost:
      return SSLM_RESTORE_RESIDUAL_LOST;
  }
  return SSLM_INVALID_ARGUMENT;
}

void fill_state(const sslm_model_s& model, const blob::Parsed& parsed, decode::SequenceState& state) {
  int32_t* residual = state.residual;
  state = parsed.state;
  state.residual = residual;
  const size_t bytes = residual_count(model) * sizeof(int32_t);
  if (parsed.residual) {
    std::memcpy(residual, parsed.residual.bytes, bytes);
  } else {
    std::memset(residual, 0, bytes);
  }
}

}  // namespace superslm::abi

namespace {

blob::Content sequence_content(const Sequence& sequence) {
  blob::Content content = abi::content_of(sequence);
  content.history.order = sequence.history.order;
  content.history.length = sequence.history.length;
  content.history.tokens.bytes = reinterpret_cast<const unsigned char*>(sequence.history.tokens);
  return content;
}

bool copy_history(const blob::AntiLmHistory& from, decode::EmittedHistory& to) {
  to.order = from.order;
  if (from.length == 0) return true;
  const size_t count = static_cast<size_t>(from.length);
  if (!to.reserve(count)) return false;
  to.length = count;
  std::memcpy(to.tokens, from.tokens.bytes, count * sizeof(int32_t));
  return true;
}

// Draws pages and builds the sequence of a blob that passed its checks.
sslm_status rebuild(sslm_model model, sslm_kv_pool pool, const blob::Parsed& parsed, sslm_prefix prefix,
                    sslm_seq* out, uint32_t* shared_pages) {
  kv::RestoreRequest request = parsed.request();
  if (prefix != nullptr && prefix->model == model) {
    request.prefix = &prefix->holder;
    request.prefix_length = prefix->state.length;
  }
  kv::Holder holder;
  uint32_t shared = 0;
  const kv::Status drawn = kv::Holder::restore(pool->pages, request, &holder, &shared);
  if (drawn != kv::Status::kOk) return abi::status_of(drawn);
  Sequence* sequence = abi::create_context<Sequence>(model, holder);
  if (sequence == nullptr) return SSLM_ALLOCATION_FAILED;
  abi::fill_state(*model, parsed, sequence->state);
  sequence->bindable = false;
  if (!copy_history(parsed.history, sequence->history)) {
    abi::destroy_context(sequence);
    return SSLM_ALLOCATION_FAILED;
  }
  *out = abi::enter(sequence);
  if (*out == nullptr) return SSLM_ALLOCATION_FAILED;
  if (shared_pages != nullptr) *shared_pages = shared;
  return SSLM_OK;
}

}  // namespace

sslm_status sslm_seq_save(sslm_seq seq, void* buf, size_t* n) {
  if (n == nullptr) return SSLM_INVALID_ARGUMENT;
  const LockedSequence sequence(seq);
  if (!sequence) return SSLM_INVALID_ARGUMENT;
  const blob::ModelFacts facts = abi::facts_of(*sequence->model);
  const blob::Content content = sequence_content(*sequence);
  const size_t size = blob::saved_size(facts, content);
  if (size == 0) return SSLM_INVALID_ARGUMENT;
  const size_t capacity = *n;
  *n = size;
  if (buf == nullptr || capacity < size) return SSLM_BUFFER_TOO_SMALL;
  blob::write(facts, content, static_cast<uint8_t*>(buf));
  return SSLM_OK;
}

sslm_status sslm_seq_restore(sslm_model model, sslm_kv_pool* pool, const void* buf, size_t n, sslm_seq* out) {
  return sslm_seq_restore_shared(model, pool, buf, n, nullptr, out, nullptr);
}

sslm_status sslm_seq_restore_shared(sslm_model model, sslm_kv_pool* pool, const void* blob_bytes, size_t size,
                                    sslm_prefix prefix_or_null, sslm_seq* out, uint32_t* out_shared_pages) {
  if (out_shared_pages != nullptr) *out_shared_pages = 0;
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || pool == nullptr || *pool == nullptr || blob_bytes == nullptr) {
    return SSLM_INVALID_ARGUMENT;
  }
  blob::Parsed parsed;
  const blob::Status checked =
      blob::parse(abi::facts_of(*model), static_cast<const uint8_t*>(blob_bytes), size, &parsed);
  if (checked != blob::Status::kOk) return abi::status_of(checked);
  if (!(*pool)->belongs_to(*model)) return SSLM_INVALID_ARGUMENT;
  return rebuild(model, *pool, parsed, prefix_or_null, out, out_shared_pages);
}
