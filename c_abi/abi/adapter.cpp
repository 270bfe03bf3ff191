// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/handles.h"

using namespace superslm;

sslm_status sslm_adapter_map(const void* data, size_t size, sslm_model base, sslm_adapter* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (data == nullptr || base == nullptr) return SSLM_INVALID_ARGUMENT;
  sslm_adapter adapter = abi::create<sslm_adapter_s>();
  if (adapter == nullptr) return SSLM_ALLOCATION_FAILED;
  base::Message why;
  const artifact::ReadResult result =
      artifact::read_adapter(static_cast<const uint8_t*>(data), size, base->view(), &adapter->artifact, &why);
  if (result != artifact::ReadResult::ok) {
    abi::destroy(adapter);
    return abi::status_of(result);
  }
  adapter->model = base;
  adapter->size = size;
  base->live.fetch_add(1, std::memory_order_relaxed);
  *out = adapter;
  return SSLM_OK;
}

sslm_status sslm_adapter_release(sslm_adapter adapter) {
  if (adapter == nullptr) return SSLM_INVALID_ARGUMENT;
  if (adapter->bound.load(std::memory_order_acquire) != 0) return SSLM_ADAPTER_HAS_LIVE_SEQUENCES;
  adapter->model->live.fetch_sub(1, std::memory_order_release);
  artifact::release(&adapter->artifact);
  abi::destroy(adapter);
  return SSLM_OK;
}

size_t sslm_adapter_residency(sslm_adapter adapter) { return adapter == nullptr ? 0 : adapter->size; }
