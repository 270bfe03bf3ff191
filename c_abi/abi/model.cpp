// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/reader.h"

#include "abi/handles.h"

using namespace superslm;

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
  const artifact::ModelView& view = model->view();
  model->geometry =
      kv::make_geometry(view.layer_count, view.kv_heads, view.head_dim, /*element_bytes=*/1, view.cap);
  *out = model;
  return SSLM_OK;
}

sslm_status sslm_model_unmap(sslm_model model) {
  if (model == nullptr) return SSLM_INVALID_ARGUMENT;
  if (model->live.load(std::memory_order_acquire) != 0) return SSLM_MODEL_HAS_LIVE_SEQUENCES;
  artifact::release(&model->artifact);
  abi::destroy(model);
  return SSLM_OK;
}
