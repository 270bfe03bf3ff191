// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What stands behind each handle. Sequences are found through the registry; all other handles are addresses.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "artifact/adapter_reader.h"
#include "artifact/reader.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "blob/blob.h"
#include "decode/history.h"
#include "decode/select.h"
#include "decode/sequence_state.h"
#include "kv/holder.h"
#include "kv/pool.h"
#include "superslm/sslm_abi.h"

// One named automaton of a model, read in place.
struct sslm_schema_s {
  sslm_model model = nullptr;
  int32_t index = 0;
  const char* name = nullptr;  // not terminated
  size_t name_length = 0;
  uint64_t hash = 0;  // of name and tables, as blobs carry it
  uint32_t state_count = 0;
  superslm::decode::Automaton automaton;
  superslm::base::LeArray<uint32_t> accepting;  // state ids, ascending
  uint32_t accepting_count = 0;
};

struct sslm_model_s {
  superslm::artifact::Model artifact;
  superslm::kv::Geometry geometry;
  sslm_schema_s* schemas = nullptr;
  int32_t schema_count = 0;
  std::atomic<uint32_t> live{0};  // sequences, prefixes and adapters
  uint32_t serial = 0;            // of this mapping: an address may be another model's later

  const superslm::artifact::ModelView& view() const { return artifact.view; }
};

// Lent scratch. It holds no reference to its model, which may be unmapped first.
struct sslm_workspace_s {
  uint8_t* buffer = nullptr;
  size_t size = 0;      // of its config's calls
  size_t capacity = 0;  // of the buffer
  superslm::base::Parallel parallel;
  bool spread = false;  // SSLM_EXT_PARALLEL_SPREAD
};

struct sslm_kv_pool_s {
  uint32_t model_serial = 0;  // not the address: the model may be unmapped first
  superslm::kv::Pool pages;

  bool belongs_to(const sslm_model_s& model) const { return model_serial == model.serial; }
};

struct sslm_adapter_s {
  sslm_model model = nullptr;
  superslm::artifact::Adapter artifact;
  size_t size = 0;
  std::atomic<uint32_t> bound{0};  // sequences

  const superslm::artifact::AdapterView& view() const { return artifact.view; }
};

namespace superslm::abi {

// What sequences and prefixes have in common: a model, a resting state and pages.
struct Context {
  sslm_model model = nullptr;
  decode::SequenceState state;  // its residual lies behind the object
  kv::Holder holder;
};

struct Sequence : Context {
  sslm_adapter adapter = nullptr;
  decode::EmittedHistory history;
  bool bindable = true;
  bool in_group = false;  // of the decode call that holds the lock
  bool opened = false;    // that call mapped a page for it
};

// An object of the library on its heap; null when memory is exhausted.
template <typename T>
T* create(size_t extra_bytes = 0) {
  void* memory = base::allocate(sizeof(T) + extra_bytes);
  return memory == nullptr ? nullptr : new (memory) T;
}

template <typename T>
void destroy(T* object) {
  object->~T();
  base::deallocate(object);
}

}  // namespace superslm::abi

struct sslm_prefix_s : superslm::abi::Context {};

namespace superslm::abi {

inline size_t residual_count(const sslm_model_s& model) { return static_cast<size_t>(model.view().hidden); }

inline bool fresh(const decode::SequenceState& state) { return state.length == 0; }
inline bool mid_token(const decode::SequenceState& state) { return state.layer_index != 0; }

// Empties a state, keeping its schema and starting that schema's walk.
void clear_state(const sslm_model_s& model, decode::SequenceState& state);

// Copies everything but the place of the residual.
void copy_state(const sslm_model_s& model, const decode::SequenceState& from, decode::SequenceState& to);

// A sequence or prefix of drawn pages: the object and its zeroed residual, counted as live. Gives the pages
// back when memory is exhausted.
template <typename T>
T* create_context(sslm_model model, kv::Holder& holder) {
  T* context = create<T>(residual_count(*model) * sizeof(int32_t));
  if (context == nullptr) {
    holder.release();
    return nullptr;
  }
  context->model = model;
  context->holder = holder;
  context->state.residual = reinterpret_cast<int32_t*>(context + 1);
  clear_state(*model, context->state);
  model->live.fetch_add(1, std::memory_order_relaxed);
  return context;
}

template <typename T>
void destroy_context(T* context) {
  sslm_model model = context->model;
  context->holder.release();
  destroy(context);
  model->live.fetch_sub(1, std::memory_order_release);
}

inline sslm_status status_of(kv::Status status) {
  switch (status) {
    case kv::Status::kOk:
      return SSLM_OK;
    case kv::Status::kInvalid:
      return SSLM_INVALID_ARGUMENT;
    case kv::Status::kTooSmall:
      return SSLM_BUFFER_TOO_SMALL;
    case kv::Status::kMisaligned:
      return SSLM_MISALIGNED_BUFFER;
    case kv::Status::kExhausted:
      return SSLM_KV_POOL_EXHAUSTED;
    case kv::Status::kNoMemory:
      return SSLM_ALLOCATION_FAILED;
  }
  return SSLM_ARTIFACT_REJECTED;
}

inline sslm_status status_of(artifact::ReadResult result) {
  switch (result) {
    case artifact::ReadResult::ok:
      return SSLM_OK;
    case artifact::ReadResult::rejected:
      return SSLM_ARTIFACT_REJECTED;
    case artifact::ReadResult::out_of_memory:
      return SSLM_ALLOCATION_FAILED;
    case artifact::ReadResult::other_base:
      return SSLM_ADAPTER_MODEL_MISMATCH;
  }
  return SSLM_ARTIFACT_REJECTED;
}

// The status of a write at a holder's limit.
inline sslm_status limit_status(const Context& context) {
  return context.holder.limit() < context.model->view().cap ? SSLM_KV_BUDGET_EXCEEDED
                                                            : SSLM_CONTEXT_CAP_EXCEEDED;
}

inline bool valid_budget(const sslm_model_s& model, int32_t budget) {
  return budget >= 1 && budget <= model.view().cap;
}

// The bound adapter, null without one.
inline const artifact::AdapterView* adapter_of(const Sequence& sequence) {
  return sequence.adapter == nullptr ? nullptr : &sequence.adapter->view();
}

// The bound schema, null without one.
inline const sslm_schema_s* schema_of(const Context& context) {
  return context.state.schema < 0 ? nullptr : context.model->schemas + context.state.schema;
}

// Whether a walk state of the schema is accepting.
bool accepts(const sslm_schema_s& schema, uint32_t walk_state);

// Binds a schema of the model, or none, at its start state.
inline void bind_schema(decode::SequenceState& state, sslm_schema schema) {
  state.schema = schema == nullptr ? -1 : schema->index;
  state.walk_state = schema == nullptr ? decode::kNoWalkState : 0;
}

}  // namespace superslm::abi
