// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Save blobs: SSB5 and SSB6 are written; SSB6 down to SSB2 are read. A blob is hostile until parsed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/load.h"
#include "decode/sequence_state.h"
#include "kv/geometry.h"
#include "kv/holder.h"
#include "kv/rows.h"

namespace superslm::blob {

// The restore refusals, each one status of the ABI.
enum class Status {
  kOk,
  kInvalid,         // INVALID_ARGUMENT
  kModelMismatch,   // RESTORE_MODEL_MISMATCH
  kKvMismatch,      // RESTORE_KV_MISMATCH
  kSchemaMismatch,  // RESTORE_SCHEMA_MISMATCH
  kResidualLost,    // RESTORE_RESIDUAL_LOST
};

// Finds a schema by its blob hash: its index and state count, or -1.
struct SchemaResolver {
  int32_t (*find)(const void* context, uint64_t hash, uint32_t* state_count) = nullptr;
  const void* context = nullptr;
};

// What a blob must agree with.
struct ModelFacts {
  const uint8_t* model_digest = nullptr;  // [32]
  int32_t vocab = 0;
  int32_t hidden = 0;
  int32_t residual_exponent = 0;  // R
  kv::Geometry geometry;          // page size plays no part
  SchemaResolver schemas;
};

// FNV-1a 64 over a schema's name bytes, then over its 32-byte table digest.
uint64_t schema_hash(const char* name, size_t name_length, const uint8_t* table_digest);

// The emitted-token history of damped greedy; order 0 and length 0: none.
struct AntiLmHistory {
  int32_t order = 0;
  uint64_t length = 0;
  base::LeArray<int32_t> tokens;  // [length], in emission order
};

// What a save carries.
struct Content {
  const decode::SequenceState* state = nullptr;
  uint64_t schema_hash = 0;  // of the bound schema, 0: none
  AntiLmHistory history;
  const kv::Holder* holder = nullptr;
};

// An upper bound of every blob of this model in every state, saturating.
size_t state_size_bound(const ModelFacts& facts);

// Exact size of the blob, 0 when the content is impossible (negative length, history longer than the context)
// or its size cannot be represented.
size_t saved_size(const ModelFacts& facts, const Content& content);

// Writes saved_size bytes: SSB5 for a no-budget holder, SSB6 for a budget holder.
void write(const ModelFacts& facts, const Content& content, uint8_t* out);

// A blob that passed every check; points into its bytes.
struct Parsed {
  decode::SequenceState state;      // residual stays null
  base::LeArray<int32_t> residual;  // [hidden]; null: zeros
  AntiLmHistory history;
  kv::Mode mode = kv::Mode::kNoBudget;
  int32_t budget = 0;  // the cap without a budget
  int64_t origin = 0;
  int64_t positions = 0;  // L'
  kv::PackedRows rows;

  // The holder this blob asks for; the caller adds the prefix hint.
  kv::RestoreRequest request() const;
};

// Checks 2 (from the size on) to 13 of the restore verbs, in order.
Status parse(const ModelFacts& facts, const uint8_t* bytes, size_t size, Parsed* out);

}  // namespace superslm::blob
