// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <cstring>

#include "blob/blob.h"
#include "blob/layout.h"

namespace superslm::blob {

namespace {

using base::CheckedSize;
using base::load_le;

constexpr int32_t kMaxHistoryOrder = 82;

const Format* format_of(const uint8_t* bytes) {
  static constexpr const Format* kFormats[] = {&kSsb6, &kSsb5, &kSsb4, &kSsb3, &kSsb2};
  for (const Format* format : kFormats) {
    if (std::memcmp(bytes, format->magic, sizeof(format->magic)) == 0) return format;
  }
  return nullptr;
}

int64_t limit_of(const Parsed& parsed, int64_t cap) {
  if (parsed.mode == kv::Mode::kNoBudget) return cap;
  const int64_t limit = parsed.origin + parsed.budget;
  return limit < cap ? limit : cap;
}

}  // namespace

Status FixedPart::read(Parsed* out) const {
  if (std::memcmp(bytes_ + kModelDigestAt, facts_.model_digest, kDigestBytes) != 0) {
    return Status::kModelMismatch;
  }
  if (at<uint32_t>(kPrecisionAt) != precision_code(facts_)) return Status::kKvMismatch;
  Status status = read_schema(out);
  if (status == Status::kOk) status = read_history(out);
  if (status == Status::kOk) status = read_position(out);
  if (status == Status::kOk) status = read_budget(out);
  if (status != Status::kOk) return status;
  if (!format_.has_ready) {
    const decode::SequenceState& state = out->state;
    if (state.layer_index == 0 && state.length > 0 && state.pending_token == -1) return Status::kResidualLost;
  }
  read_counts(out);
  return Status::kOk;
}

Status FixedPart::read_schema(Parsed* out) const {
  const uint64_t hash = at<uint64_t>(kSchemaHashAt);
  const uint32_t walk = at<uint32_t>(kWalkStateAt);
  out->state.walk_state = walk;
  if (hash == 0) return walk == decode::kNoWalkState ? Status::kOk : Status::kSchemaMismatch;
  uint32_t states = 0;
  const SchemaResolver& schemas = facts_.schemas;
  out->state.schema = schemas.find != nullptr ? schemas.find(schemas.context, hash, &states) : -1;
  return out->state.schema >= 0 && walk < states ? Status::kOk : Status::kSchemaMismatch;
}

Status FixedPart::read_history(Parsed* out) const {
  if (!format_.has_history) return Status::kOk;
  AntiLmHistory& history = out->history;
  history.order = at<int32_t>(kHistoryOrderAt);
  history.length = at<uint64_t>(kHistoryLengthAt);
  if (history.order < 0 || history.order > kMaxHistoryOrder) return Status::kInvalid;
  return history.order == 0 && history.length != 0 ? Status::kInvalid : Status::kOk;
}

Status FixedPart::read_position(Parsed* out) const {
  decode::SequenceState& state = out->state;
  const int64_t cap = facts_.geometry.cap;
  const uint32_t layer = at<uint32_t>(kLayerIndexAt);
  state.length = at<int64_t>(kLengthAt);
  if (state.length < 0 || state.length > cap) return Status::kInvalid;
  if (layer >= static_cast<uint32_t>(facts_.geometry.layers)) return Status::kInvalid;
  if (out->history.length > static_cast<uint64_t>(state.length)) return Status::kInvalid;
  state.layer_index = static_cast<int32_t>(layer);
  state.pending_token = at<int32_t>(kPendingTokenAt);
  out->positions = carried_positions(state);
  return out->positions <= cap ? Status::kOk : Status::kInvalid;
}

Status FixedPart::read_budget(Parsed* out) const {
  const int32_t cap = facts_.geometry.cap;
  out->budget = cap;
  if (!format_.has_budget) return Status::kOk;
  const uint32_t mode = at<uint32_t>(kModeAt);
  if (mode > static_cast<uint32_t>(kv::Mode::kBudget)) return Status::kInvalid;
  out->mode = static_cast<kv::Mode>(mode);
  out->budget = at<int32_t>(kBudgetAt);
  out->origin = at<int64_t>(kOriginAt);
  if (out->budget < 1 || out->budget > cap) return Status::kInvalid;
  if (out->mode == kv::Mode::kNoBudget && out->budget != cap) return Status::kInvalid;
  if (out->origin < 0 || out->origin > out->state.length) return Status::kInvalid;
  return out->state.length <= limit_of(*out, cap) ? Status::kOk : Status::kInvalid;
}

void FixedPart::read_counts(Parsed* out) const {
  decode::SequenceState& state = out->state;
  state.forced_token_count = at<int64_t>(kForcedTokensAt);
  state.counts.total = at<uint64_t>(kSaturationTotalAt);
  state.ready = format_.has_ready && at<uint32_t>(kReadyAt) != 0;
  if (!format_.has_sites) return;
  state.counts.value_landing = at<uint64_t>(kValueLandingAt);
  state.counts.key_landing = at<uint64_t>(kKeyLandingAt);
  state.counts.rotary_query = at<uint64_t>(kRotaryQueryAt);
  state.counts.rotary_key = at<uint64_t>(kRotaryKeyAt);
}

// A blob must describe one of the four resting states, as this model would have saved it.
Status FixedPart::check_state(const Parsed& parsed) const {
  const decode::SequenceState& state = parsed.state;
  const bool fresh = state.length == 0;
  if (at<int64_t>(kScaleMantissaAt) != (fresh ? 0 : 1)) return Status::kInvalid;
  if (at<int64_t>(kScaleExponentAt) != (fresh ? 0 : -int64_t{facts_.residual_exponent}))
    return Status::kInvalid;
  if (at<uint64_t>(kAdapterAt) != 0) return Status::kInvalid;
  if (format_.has_ready && at<uint32_t>(kReadyAt) > 1) return Status::kInvalid;
  if (state.pending_token < -1 || state.pending_token >= facts_.vocab) return Status::kInvalid;
  const bool mid_token = state.layer_index != 0;
  const bool pending = state.pending_token != -1;
  const int states = (state.ready ? 1 : 0) + (mid_token ? 1 : 0) + (pending ? 1 : 0);
  if (states != (fresh ? 0 : 1)) return Status::kInvalid;
  // Of the context's tokens the first came from a prompt; the one being written comes on top.
  if (state.ready && parsed.history.length >= static_cast<uint64_t>(state.length)) return Status::kInvalid;
  // An unfinished token has room for its own row.
  return parsed.positions <= limit_of(parsed, facts_.geometry.cap) ? Status::kOk : Status::kInvalid;
}

namespace {

// Checks 11 and 12: residual, history and rows lie within the blob. Sizes are sums of checked parts: the
// history is no longer than the context.
Status read_tail(const Format& format, const ModelFacts& facts, const uint8_t* bytes, size_t size,
                 Parsed* out) {
  const bool has_residual = format.residual_always() || out->state.layer_index != 0;
  const CheckedSize residual = has_residual ? residual_bytes(facts) : CheckedSize(0);
  const CheckedSize history = CheckedSize(sizeof(int32_t)) * out->history.length;
  const CheckedSize count_at = CheckedSize(format.fixed_bytes) + residual + history;
  const CheckedSize rows_at = count_at + CheckedSize(format.count_bytes());
  if (!rows_at.ok() || size < rows_at.value()) return Status::kInvalid;

  out->rows.stride = format.has_budget ? out->positions : int64_t{facts.geometry.cap};
  const CheckedSize end = rows_at + rows_bytes(facts, out->rows.stride);
  if (!end.ok()) return Status::kInvalid;
  const uint8_t* count = bytes + count_at.value();
  if (format.has_budget) {
    if (load_le<uint64_t>(count) != static_cast<uint64_t>(out->positions)) return Status::kInvalid;
    if (size != end.value()) return Status::kInvalid;
  } else if (load_le<uint32_t>(count) != 1 || size < end.value()) {
    return Status::kInvalid;
  }
  if (has_residual) out->residual.bytes = bytes + format.fixed_bytes;
  out->history.tokens.bytes = bytes + format.fixed_bytes + residual.value();
  out->rows.bytes = bytes + rows_at.value();
  return Status::kOk;
}

Status check_history(const ModelFacts& facts, const AntiLmHistory& history) {
  for (uint64_t i = 0; i < history.length; ++i) {
    const int32_t token = history.tokens[static_cast<size_t>(i)];
    if (token < 0 || token >= facts.vocab) return Status::kInvalid;
  }
  return Status::kOk;
}

}  // namespace

Status parse(const ModelFacts& facts, const uint8_t* bytes, size_t size, Parsed* out) {
  *out = Parsed();
  if (size < sizeof(kSsb6.magic)) return Status::kInvalid;
  const Format* format = format_of(bytes);
  if (format == nullptr || size < format->fixed_bytes + format->count_bytes()) return Status::kInvalid;
  const FixedPart fixed(*format, facts, bytes);
  Status status = fixed.read(out);
  if (status == Status::kOk) status = read_tail(*format, facts, bytes, size, out);
  if (status == Status::kOk) status = fixed.check_state(*out);
  if (status == Status::kOk) status = check_history(facts, out->history);
  return status;
}

kv::RestoreRequest Parsed::request() const {
  kv::RestoreRequest request;
  request.mode = mode;
  request.budget = budget;
  request.origin = origin;
  request.positions = positions;
  request.rows = rows;
  return request;
}

}  // namespace superslm::blob
