// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <cstring>

#include "blob/blob.h"
#include "blob/layout.h"

namespace superslm::blob {

namespace {

using base::CheckedSize;
using base::store_le;

bool budgeted(const Content& content) { return content.holder->mode() == kv::Mode::kBudget; }

// Positions per plane of the rows: all of the context without a budget.
int64_t row_stride(const ModelFacts& facts, const Content& content) {
  return budgeted(content) ? carried_positions(*content.state) : int64_t{facts.geometry.cap};
}

uint64_t fnv1a(uint64_t hash, const uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x100000001B3u;
  return hash;
}

}  // namespace

uint64_t schema_hash(const char* name, size_t name_length, const uint8_t* table_digest) {
  const uint64_t hash = fnv1a(0xCBF29CE484222325u, reinterpret_cast<const uint8_t*>(name), name_length);
  return fnv1a(hash, table_digest, kDigestBytes);
}

size_t state_size_bound(const ModelFacts& facts) {
  const CheckedSize history = CheckedSize(sizeof(int32_t)) * static_cast<uint64_t>(facts.geometry.cap);
  const CheckedSize fixed = kSsb6.fixed_bytes + kSsb6.count_bytes();
  return (fixed + residual_bytes(facts) + history + rows_bytes(facts, facts.geometry.cap)).saturated();
}

size_t saved_size(const ModelFacts& facts, const Content& content) {
  const decode::SequenceState& state = *content.state;
  const uint64_t history = content.history.length;
  if (state.length < 0 || history > static_cast<uint64_t>(state.length)) return 0;
  if (carried_positions(state) > facts.geometry.cap) return 0;
  const Format& format = budgeted(content) ? kSsb6 : kSsb5;
  const CheckedSize bytes = CheckedSize(format.fixed_bytes + format.count_bytes()) + residual_bytes(facts) +
                            CheckedSize(sizeof(int32_t)) * history +
                            rows_bytes(facts, row_stride(facts, content));
  return bytes.ok() ? static_cast<size_t>(bytes.value()) : 0;
}

void write_common(const Format& format, const ModelFacts& facts, const Content& content, uint8_t* out) {
  const decode::SequenceState& state = *content.state;
  const bool fresh = state.length == 0;
  std::memcpy(out + kMagicAt, format.magic, sizeof(format.magic));
  std::memcpy(out + kModelDigestAt, facts.model_digest, kDigestBytes);
  store_le<uint32_t>(out + kPrecisionAt, precision_code(facts));
  store_le<uint64_t>(out + kSchemaHashAt, content.schema_hash);
  store_le<uint32_t>(out + kWalkStateAt, state.walk_state);
  store_le<uint64_t>(out + kAdapterAt, 0);
  store_le<int64_t>(out + kLengthAt, state.length);
  store_le<uint32_t>(out + kLayerIndexAt, static_cast<uint32_t>(state.layer_index));
  store_le<int32_t>(out + kPendingTokenAt, state.pending_token);
  store_le<int64_t>(out + kScaleMantissaAt, fresh ? 0 : 1);
  store_le<int64_t>(out + kScaleExponentAt, fresh ? 0 : -int64_t{facts.residual_exponent});
  store_le<uint64_t>(out + kSaturationTotalAt, state.counts.total);
  store_le<int64_t>(out + kForcedTokensAt, state.forced_token_count);
  store_le<int32_t>(out + kHistoryOrderAt, content.history.order);
  store_le<uint64_t>(out + kHistoryLengthAt, content.history.length);
  store_le<uint32_t>(out + kReadyAt, state.ready ? 1 : 0);
  store_le<uint64_t>(out + kValueLandingAt, state.counts.value_landing);
  store_le<uint64_t>(out + kKeyLandingAt, state.counts.key_landing);
  store_le<uint64_t>(out + kRotaryQueryAt, state.counts.rotary_query);
  store_le<uint64_t>(out + kRotaryKeyAt, state.counts.rotary_key);
}

void write_budget(const kv::Holder& holder, uint8_t* out) {
  store_le<uint32_t>(out + kModeAt, static_cast<uint32_t>(holder.mode()));
  store_le<int32_t>(out + kBudgetAt, holder.budget());
  store_le<int64_t>(out + kOriginAt, holder.origin());
}

uint8_t* write_residual(const ModelFacts& facts, const Content& content, uint8_t* out) {
  const size_t bytes = static_cast<size_t>(residual_bytes(facts).value());
  if (content.state->residual != nullptr) {
    std::memcpy(out, content.state->residual, bytes);
  } else {
    std::memset(out, 0, bytes);
  }
  return out + bytes;
}

void write(const ModelFacts& facts, const Content& content, uint8_t* out) {
  const decode::SequenceState& state = *content.state;
  const Format& format = budgeted(content) ? kSsb6 : kSsb5;
  write_common(format, facts, content, out);
  if (format.has_budget) write_budget(*content.holder, out);
  uint8_t* at = write_residual(facts, content, out + format.fixed_bytes);
  const size_t history_bytes = static_cast<size_t>(content.history.length) * sizeof(int32_t);
  if (history_bytes != 0) std::memcpy(at, content.history.tokens.bytes, history_bytes);
  at += history_bytes;
  if (format.has_budget) {
    store_le<uint64_t>(at, static_cast<uint64_t>(carried_positions(state)));
  } else {
    store_le<uint32_t>(at, 1);
  }
  at += format.count_bytes();
  kv::pack_rows(content.holder->view(), 0, state.length, state.layer_index, row_stride(facts, content), at);
}

}  // namespace superslm::blob
