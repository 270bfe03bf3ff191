// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Seams of the test build, declared in tests/c/sslm_test.h. A shipped build compiles none of them.
#ifdef SUPERSLM_TEST_SEAMS

#include <cstring>

#include "abi/handles.h"
#include "abi/registry.h"
#include "kv/seams.h"

using namespace superslm;
using abi::LockedSequence;

extern "C" {

SUPERSLM_API void sslm_test_fail_allocation_after(int64_t count) {
  base::seams::allocations_left.store(count);
}

SUPERSLM_API uint64_t sslm_test_allocation_count(void) { return base::seams::allocation_count.load(); }

SUPERSLM_API void sslm_test_pin_page_positions(int64_t positions) {
  kv::seams::pinned_page_positions = positions;
}

SUPERSLM_API uint64_t sslm_test_pool_lock_count(void) { return kv::seams::lock_count.load(); }

SUPERSLM_API uint64_t sslm_test_bytes_touched(void) {
  return kv::seams::bytes_moved.load() + kv::seams::bytes_filled.load();
}

SUPERSLM_API sslm_status sslm_test_seq_residual(sslm_seq seq, int32_t* out) {
  const LockedSequence sequence(seq);
  if (!sequence || out == nullptr) return SSLM_INVALID_ARGUMENT;
  std::memcpy(out, sequence->state.residual, abi::residual_count(*sequence->model) * sizeof(int32_t));
  return SSLM_OK;
}

SUPERSLM_API sslm_status sslm_test_seq_counts(sslm_seq seq, uint64_t out[5]) {
  const LockedSequence sequence(seq);
  if (!sequence || out == nullptr) return SSLM_INVALID_ARGUMENT;
  const decode::SaturationCounts& counts = sequence->state.counts;
  out[0] = counts.total;
  out[1] = counts.value_landing;
  out[2] = counts.key_landing;
  out[3] = counts.rotary_query;
  out[4] = counts.rotary_key;
  return SSLM_OK;
}

SUPERSLM_API sslm_status sslm_test_seq_kv_row(sslm_seq seq, int32_t layer, int32_t kind, int32_t head,
                                              int64_t position, int8_t* out) {
  const LockedSequence sequence(seq);
  if (!sequence || out == nullptr || layer < 0 || kind < 0 || kind > 1 || head < 0)
    return SSLM_INVALID_ARGUMENT;
  const kv::Geometry& geometry = sequence->model->geometry;
  const int64_t rows = sequence->state.length + (layer < sequence->state.layer_index ? 1 : 0);
  if (layer >= geometry.layers || head >= geometry.kv_heads || position < 0 || position >= rows) {
    return SSLM_INVALID_ARGUMENT;
  }
  const int8_t* row = sequence->holder.view().row(layer, static_cast<kv::Kind>(kind), head, position);
  std::memcpy(out, row, geometry.row_bytes());
  return SSLM_OK;
}

}  // extern "C"

#endif
