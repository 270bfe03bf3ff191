// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/handles.h"

using namespace superslm;

namespace {

sslm_status create_pool(sslm_model model, kv::PoolKind kind, void* buf, size_t buf_size, uint32_t units,
                        sslm_kv_pool* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || buf == nullptr) return SSLM_INVALID_ARGUMENT;
  const kv::Status refusal = kv::Pool::check(model->geometry, kind, buf, buf_size, units);
  if (refusal != kv::Status::kOk) return abi::status_of(refusal);
  sslm_kv_pool pool = abi::create<sslm_kv_pool_s>();
  if (pool == nullptr) return SSLM_ALLOCATION_FAILED;
  pool->model_serial = model->serial;
  const kv::Status opened = pool->pages.open(model->geometry, kind, buf, buf_size, units);
  if (opened != kv::Status::kOk) {
    abi::destroy(pool);
    return abi::status_of(opened);
  }
  *out = pool;
  return SSLM_OK;
}

}  // namespace

size_t sslm_kv_block_size(sslm_model model) { return model == nullptr ? 0 : kv::block_size(model->geometry); }

size_t sslm_kv_pool_overhead_size(sslm_model model, uint32_t block_count) {
  return model == nullptr ? 0 : kv::block_pool_overhead(model->geometry, block_count);
}

sslm_status sslm_kv_pool_create(sslm_model model, void* buf, size_t buf_size, uint32_t block_count,
                                sslm_kv_pool* out) {
  return create_pool(model, kv::PoolKind::kBlock, buf, buf_size, block_count, out);
}

int64_t sslm_kv_page_positions(sslm_model model) {
  return model == nullptr ? 0 : kv::page_positions(model->geometry);
}

size_t sslm_kv_page_size(sslm_model model) { return model == nullptr ? 0 : kv::page_size(model->geometry); }

size_t sslm_kv_pages_for_budget(sslm_model model, int32_t budget) {
  if (model == nullptr || !abi::valid_budget(*model, budget)) return 0;
  return static_cast<size_t>(kv::pages_for_budget(model->geometry, budget));
}

size_t sslm_kv_page_pool_overhead_size(sslm_model model, uint32_t page_count) {
  return model == nullptr ? 0 : kv::page_pool_overhead(page_count);
}

sslm_status sslm_kv_page_pool_create(sslm_model model, void* buf, size_t buf_size, uint32_t page_count,
                                     sslm_kv_pool* out) {
  return create_pool(model, kv::PoolKind::kPage, buf, buf_size, page_count, out);
}

size_t sslm_kv_pool_contiguous_size(sslm_model model, uint32_t block_count) {
  return model == nullptr ? 0 : kv::contiguous_pool_size(model->geometry, block_count);
}

sslm_status sslm_kv_pool_create_contiguous(sslm_model model, void* buf, size_t buf_size, uint32_t block_count,
                                           sslm_kv_pool* out) {
  return create_pool(model, kv::PoolKind::kContiguous, buf, buf_size, block_count, out);
}

sslm_status sslm_kv_pool_destroy(sslm_kv_pool pool) {
  if (pool == nullptr) return SSLM_INVALID_ARGUMENT;
  if (pool->pages.live_holders() != 0) return SSLM_POOL_HAS_LIVE_HANDLES;
  abi::destroy(pool);
  return SSLM_OK;
}

sslm_status sslm_kv_pool_stats(sslm_kv_pool pool, sslm_kv_pool_stats_out* out) {
  if (pool == nullptr || out == nullptr || out->struct_size != sizeof(*out)) return SSLM_INVALID_ARGUMENT;
  const kv::PoolStats stats = pool->pages.stats();
  out->page_count = stats.page_count;
  out->free_pages = stats.free_pages;
  out->shared_pages = stats.shared_pages;
  out->page_positions = stats.page_positions;
  return SSLM_OK;
}
