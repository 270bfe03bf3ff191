// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Sequences without a model: states, histories and rows of known bytes, saved and parsed.
#pragma once

#include "blob/blob.h"
#include "blob/layout.h"
#include "kv_fixture.h"

namespace blob = superslm::blob;
namespace decode = superslm::decode;

constexpr int32_t kVocab = 1000, kHidden = 8, kResidualExponent = 16;
constexpr uint64_t kKnownSchema = 0x1234567890ABCDEFu;
constexpr uint32_t kSchemaStates = 12;
constexpr uint8_t kModelDigest[32] = {7, 1, 4, 1, 5, 9, 2, 6, 5, 3};

inline int32_t find_schema(const void*, uint64_t hash, uint32_t* states) {
  if (hash != kKnownSchema) return -1;
  *states = kSchemaStates;
  return 3;
}

inline blob::ModelFacts facts_of(const kv::Geometry& geometry) {
  blob::ModelFacts facts;
  facts.model_digest = kModelDigest;
  facts.vocab = kVocab;
  facts.hidden = kHidden;
  facts.residual_exponent = kResidualExponent;
  facts.geometry = geometry;
  facts.schemas.find = find_schema;
  return facts;
}

// A sequence in one of the four resting states.
struct Speaker {
  Filled kv;
  decode::SequenceState state;
  std::vector<int32_t> residual = std::vector<int32_t>(kHidden);
  int32_t order = 0;
  std::vector<int32_t> history;
  uint64_t schema = 0;

  explicit Speaker(const kv::Holder& holder = kv::Holder()) { kv.holder = holder; }
  void fill(int64_t length, uint64_t stamp) {
    kv.append_many(length - kv.length(), stamp);
    state.length = kv.length();
    state.ready = length > 0;
    for (int i = 0; i < kHidden; ++i) residual[static_cast<size_t>(i)] = length ? (i - 3) * 1000003 : 0;
    state.counts = decode::SaturationCounts{11, 2, 3, 4, 2};
    state.forced_token_count = length / 3;
  }
  void rest_pending(int32_t token) {
    state.ready = false;
    state.pending_token = token;
  }
  // The layers that ran have the token's rows; the others hold what the page held before.
  void rest_mid_token(int32_t layers) {
    state.ready = false;
    state.layer_index = layers;
    CHECK(kv.holder.map_to(state.length + 1));
    int plane = 0;
    const kv::Geometry& g = *kv.holder.view().geometry;
    for (int32_t layer = 0; layer < g.layers; ++layer) {
      for (kv::Kind kind : {kv::kKey, kv::kValue}) {
        for (int32_t head = 0; head < g.kv_heads; ++head, ++plane) {
          int8_t* row = kv.holder.view().row(layer, kind, head, state.length);
          std::memset(row, layer < layers ? 0x11 + plane : 0x77, g.row_bytes());
        }
      }
    }
  }
  blob::Content content() const {
    blob::Content content;
    content.state = &state;
    const_cast<decode::SequenceState&>(state).residual = const_cast<int32_t*>(residual.data());
    content.schema_hash = schema;
    content.history.order = order;
    content.history.length = history.size();
    content.history.tokens.bytes = reinterpret_cast<const unsigned char*>(history.data());
    content.holder = &kv.holder;
    return content;
  }
  std::vector<uint8_t> save(const blob::ModelFacts& facts) const {
    const size_t size = blob::saved_size(facts, content());
    CHECK(size > 0);
    CHECK(size <= blob::state_size_bound(facts));
    std::vector<uint8_t> bytes(size, 0xEE);
    blob::write(facts, content(), bytes.data());
    return bytes;
  }
};

// Rebuilds a sequence from a blob that parsed.
inline kv::Status rebuild(kv::Pool& pool, const blob::Parsed& parsed, uint64_t schema, Speaker* out,
                          const Filled* prefix = nullptr, uint32_t* shared = nullptr) {
  uint32_t count = 0;
  kv::RestoreRequest request = parsed.request();
  if (prefix != nullptr) {
    request.prefix = &prefix->holder;
    request.prefix_length = prefix->length();
  }
  const kv::Status status = kv::Holder::restore(pool, request, &out->kv.holder, shared ? shared : &count);
  if (status != kv::Status::kOk) return status;
  out->state = parsed.state;
  out->schema = schema;
  for (int i = 0; i < kHidden; ++i) {
    out->residual[static_cast<size_t>(i)] = parsed.residual ? parsed.residual[static_cast<size_t>(i)] : 0;
  }
  out->order = parsed.history.order;
  out->history.clear();
  for (uint64_t i = 0; i < parsed.history.length; ++i) {
    out->history.push_back(parsed.history.tokens[static_cast<size_t>(i)]);
  }
  return status;
}

template <typename T>
void put(std::vector<uint8_t>& bytes, size_t at, T value) {
  CHECK(at + sizeof(T) <= bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

inline blob::Status parse(const blob::ModelFacts& facts, const std::vector<uint8_t>& bytes) {
  // An exact heap block, so that a read past the end is caught.
  std::vector<uint8_t> exact(bytes);
  exact.shrink_to_fit();
  blob::Parsed parsed;
  return blob::parse(facts, exact.data(), exact.size(), &parsed);
}

// A blob of an older format from an SSB5 one: fewer fields, and for SSB3 and SSB2 a residual only mid-token.
inline std::vector<uint8_t> downgrade(const std::vector<uint8_t>& ssb5, const blob::Format& format,
                                      size_t history_bytes) {
  std::vector<uint8_t> out(ssb5.begin(), ssb5.begin() + static_cast<std::ptrdiff_t>(format.fixed_bytes));
  std::memcpy(out.data(), format.magic, 4);
  uint32_t layer;
  std::memcpy(&layer, ssb5.data() + blob::kLayerIndexAt, 4);
  auto at = ssb5.begin() + static_cast<std::ptrdiff_t>(blob::kSsb5.fixed_bytes);
  if (format.residual_always() || layer != 0) out.insert(out.end(), at, at + kHidden * 4);
  at += kHidden * 4;
  if (format.has_history) out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(history_bytes));
  at += static_cast<std::ptrdiff_t>(history_bytes);
  out.insert(out.end(), at, ssb5.end());
  return out;
}
