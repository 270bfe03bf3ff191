// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "blob/prefix_blob.h"

#include <cstring>

#include "artifact/sha256.h"
#include "blob/layout.h"

namespace superslm::blob {

namespace {

using base::CheckedSize;

// Digest of rows [0, end), whatever pages they lie in.
artifact::Digest digest_of_rows(const kv::KvView& view, int64_t end) {
  const kv::Geometry& g = *view.geometry;
  artifact::Sha256 hash;
  for (int32_t plane = 0; plane < g.layers * 2 * g.kv_heads; ++plane) {
    const int32_t layer = plane / (2 * g.kv_heads);
    const kv::Kind kind = plane / g.kv_heads % 2 == 0 ? kv::kKey : kv::kValue;
    for (int64_t at = 0; at < end;) {
      const kv::Run run = view.run(layer, kind, plane % g.kv_heads, at, end);
      hash.update(run.rows, static_cast<size_t>(run.count) * g.row_bytes());
      at += run.count;
    }
  }
  return hash.finish();
}

CheckedSize blob_size(const ModelFacts& facts, int64_t rows) {
  return CheckedSize(kSsp1.fixed_bytes + kSsp1.count_bytes()) + residual_bytes(facts) +
         rows_bytes(facts, rows);
}

Status read_tail(const ModelFacts& facts, const uint8_t* bytes, size_t size, Parsed* out) {
  const CheckedSize count_at = CheckedSize(kSsp1.fixed_bytes) + residual_bytes(facts);
  const CheckedSize rows_at = count_at + CheckedSize(kSsp1.count_bytes());
  if (!rows_at.ok() || size < rows_at.value()) return Status::kInvalid;
  const int64_t rows = out->state.length - out->origin;
  const CheckedSize exact = blob_size(facts, rows);
  if (base::load_le<uint64_t>(bytes + count_at.value()) != static_cast<uint64_t>(rows))
    return Status::kInvalid;
  if (!exact.ok() || size != exact.value()) return Status::kInvalid;
  out->residual.bytes = bytes + kSsp1.fixed_bytes;
  out->rows = kv::PackedRows{bytes + rows_at.value(), rows, out->origin};
  return Status::kOk;
}

bool all_zero(const uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

}  // namespace

size_t saved_prefix_size(const ModelFacts& facts, const Content& content) {
  const CheckedSize bytes = blob_size(facts, content.state->length - content.holder->origin());
  return bytes.ok() ? static_cast<size_t>(bytes.value()) : 0;
}

void write_prefix(const ModelFacts& facts, const Content& content, uint8_t* out) {
  const kv::KvView view = content.holder->view();
  const int64_t origin = content.holder->origin();
  const int64_t rows = content.state->length - origin;
  write_common(kSsp1, facts, content, out);
  write_budget(*content.holder, out);
  artifact::Digest parent;
  if (origin > 0) parent = digest_of_rows(view, origin);
  std::memcpy(out + kParentDigestAt, parent.bytes, kDigestBytes);
  uint8_t* at = write_residual(facts, content, out + kSsp1.fixed_bytes);
  base::store_le<uint64_t>(at, static_cast<uint64_t>(rows));
  kv::pack_rows(view, origin, content.state->length, 0, rows, at + kSsp1.count_bytes());
}

bool ParsedPrefix::names(const kv::Holder& parent, int64_t parent_length) const {
  if (!parent.frozen() || parent_length != common.origin) return false;
  const artifact::Digest digest = digest_of_rows(parent.view(), common.origin);
  return std::memcmp(digest.bytes, parent_digest, kDigestBytes) == 0;
}

kv::FrozenRequest ParsedPrefix::request(const kv::Holder* parent) const {
  kv::FrozenRequest request;
  request.mode = common.mode;
  request.budget = common.budget;
  request.origin = common.origin;
  request.length = common.state.length;
  request.rows = common.rows;
  request.parent = nested() ? parent : nullptr;
  return request;
}

Status parse_prefix(const ModelFacts& facts, const uint8_t* bytes, size_t size, ParsedPrefix* out) {
  *out = ParsedPrefix();
  Parsed& common = out->common;
  if (size < kSsp1.fixed_bytes + kSsp1.count_bytes()) return Status::kInvalid;
  if (std::memcmp(bytes, kSsp1.magic, sizeof(kSsp1.magic)) != 0) return Status::kInvalid;
  const FixedPart fixed(kSsp1, facts, bytes);
  Status status = fixed.read(&common);
  if (status != Status::kOk) return status;
  if (common.history.order != 0 || common.history.length != 0) return Status::kInvalid;
  status = read_tail(facts, bytes, size, &common);
  if (status == Status::kOk) status = fixed.check_state(common);
  if (status != Status::kOk) return status;
  const decode::SequenceState& state = common.state;
  if (state.layer_index != 0 || state.pending_token != -1) return Status::kInvalid;
  if (out->nested() && common.mode != kv::Mode::kBudget) return Status::kInvalid;
  out->parent_digest = bytes + kParentDigestAt;
  if (!out->nested() && !all_zero(out->parent_digest, kDigestBytes)) return Status::kInvalid;
  return Status::kOk;
}

}  // namespace superslm::blob
