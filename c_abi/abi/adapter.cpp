// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/handles.h"

using namespace superslm;

// The container of adapters is not read yet: bytes that pass the argument checks are refused as unusable.
sslm_status sslm_adapter_map(const void* data, size_t size, sslm_model base, sslm_adapter* out) {
  (void)size;
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (data == nullptr || base == nullptr) return SSLM_INVALID_ARGUMENT;
  return SSLM_ARTIFACT_REJECTED;
}

sslm_status sslm_adapter_release(sslm_adapter adapter) {
  if (adapter == nullptr) return SSLM_INVALID_ARGUMENT;
  if (adapter->bound.load(std::memory_order_acquire) != 0) return SSLM_ADAPTER_HAS_LIVE_SEQUENCES;
  adapter->model->live.fetch_sub(1, std::memory_order_release);
  abi::destroy(adapter);
  return SSLM_OK;
}

size_t sslm_adapter_residency(sslm_adapter adapter) { return adapter == nullptr ? 0 : adapter->size; }
