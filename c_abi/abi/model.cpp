// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/reader.h"

#include "abi/handles.h"

using namespace superslm;

namespace {

std::atomic<uint32_t> next_serial{0};

// A handle of its own for each schema; false when memory is exhausted.
bool make_schemas(sslm_model model) {
  const auto count = static_cast<size_t>(model->artifact.schema_count);
  if (count == 0) return true;
  model->schemas = static_cast<sslm_schema_s*>(base::allocate(count * sizeof(sslm_schema_s)));
  if (model->schemas == nullptr) return false;
  for (size_t i = 0; i < count; ++i) {
    const artifact::SchemaView& view = model->artifact.schemas[i];
    sslm_schema schema = new (model->schemas + i) sslm_schema_s;
    schema->model = model;
    schema->index = static_cast<int32_t>(i);
    schema->name = view.name;
    schema->name_length = view.name_length;
    schema->hash = blob::schema_hash(view.name, view.name_length, view.digest);
    schema->state_count = view.state_count;
    schema->automaton = decode::Automaton{view.classes, view.next, static_cast<int32_t>(view.class_count)};
    schema->accepting = view.accepting;
    schema->accepting_count = view.accepting_count;
  }
  model->schema_count = static_cast<int32_t>(count);
  return true;
}

void destroy_model(sslm_model model) {
  base::deallocate(model->schemas);
  artifact::release(&model->artifact);
  abi::destroy(model);
}

}  // namespace

sslm_status sslm_model_map(const void* data, size_t size, sslm_model* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (data == nullptr) return SSLM_INVALID_ARGUMENT;
  sslm_model model = abi::create<sslm_model_s>();
  if (model == nullptr) return SSLM_ALLOCATION_FAILED;
  base::Message why;
  const artifact::ReadResult result =
      artifact::read(static_cast<const uint8_t*>(data), size, &model->artifact, &why);
  if (result != artifact::ReadResult::ok) {
    abi::destroy(model);
    return abi::status_of(result);
  }
  if (!make_schemas(model)) {
    destroy_model(model);
    return SSLM_ALLOCATION_FAILED;
  }
  const artifact::ModelView& view = model->view();
  model->geometry =
      kv::make_geometry(view.layer_count, view.kv_heads, view.head_dim, /*element_bytes=*/1, view.cap);
  model->serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  *out = model;
  return SSLM_OK;
}

sslm_status sslm_model_unmap(sslm_model model) {
  if (model == nullptr) return SSLM_INVALID_ARGUMENT;
  if (model->live.load(std::memory_order_acquire) != 0) return SSLM_MODEL_HAS_LIVE_SEQUENCES;
  destroy_model(model);
  return SSLM_OK;
}
