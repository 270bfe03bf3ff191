// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kv/geometry.h"

#include "kv/seams.h"

namespace superslm::kv {

namespace {

using base::CheckedSize;

constexpr uint64_t kPoolHeaderBytes = 32;
constexpr uint64_t kUnitBytes = 8;

CheckedSize position_size(const Geometry& g) {
  return CheckedSize(2) * static_cast<uint64_t>(g.layers) * static_cast<uint64_t>(g.kv_heads) *
         static_cast<uint64_t>(g.head_dim) * static_cast<uint64_t>(g.element_bytes);
}

CheckedSize page_bytes(const Geometry& g) {
  return position_size(g) * static_cast<uint64_t>(g.page_positions);
}

CheckedSize bookkeeping_size(uint32_t units) {
  return CheckedSize(kUnitBytes) * units + CheckedSize(kPoolHeaderBytes);
}

// Large contexts of narrow heads take the longer page: fewer runs, and a page that is still small.
int64_t page_rule(int64_t row_bytes, int32_t cap) {
#ifdef SUPERSLM_TEST_SEAMS
  if (seams::pinned_page_positions > 0) {
    return seams::pinned_page_positions < cap ? seams::pinned_page_positions : cap;
  }
#endif
  const int64_t positions = row_bytes <= 64 && cap > 4096 ? 128 : 64;
  return positions < cap ? positions : cap;
}

}  // namespace

#ifdef SUPERSLM_TEST_SEAMS
int64_t seams::pinned_page_positions = 0;
#endif

Geometry make_geometry(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t element_bytes,
                       int32_t cap) {
  Geometry g;
  g.layers = layers;
  g.kv_heads = kv_heads;
  g.head_dim = head_dim;
  g.element_bytes = element_bytes;
  g.cap = cap;
  g.page_positions = page_rule(int64_t{head_dim} * element_bytes, cap);
  return g;
}

Geometry geometry_for(const Geometry& model, PoolKind kind) {
  Geometry g = model;
  if (kind == PoolKind::kContiguous) g.page_positions = g.cap;
  return g;
}

int64_t pages_per_context(const Geometry& g) { return pages_covering(g.cap, g.page_positions); }

// One page more than the budget fills: the first may begin inside a page.
int64_t pages_for_budget(const Geometry& g, int32_t budget) {
  const int64_t pages = pages_covering(budget, g.page_positions) + 1;
  const int64_t most = pages_per_context(g);
  return pages < most ? pages : most;
}

size_t block_size(const Geometry& g) { return (position_size(g) * static_cast<uint64_t>(g.cap)).saturated(); }

int64_t page_positions(const Geometry& g) { return page_bytes(g).ok() ? g.page_positions : 0; }

size_t page_size(const Geometry& g) {
  const CheckedSize bytes = page_bytes(g);
  return bytes.ok() ? static_cast<size_t>(bytes.value()) : 0;
}

size_t block_pool_overhead(const Geometry& g, uint32_t blocks) {
  if (pool_page_total(g, PoolKind::kBlock, blocks) >= UINT32_MAX) return SIZE_MAX;
  const uint64_t slack = static_cast<uint64_t>(pages_per_context(g) * g.page_positions - g.cap);
  return (position_size(g) * slack * blocks + bookkeeping_size(blocks)).saturated();
}

size_t page_pool_overhead(uint32_t pages) { return bookkeeping_size(pages).saturated(); }

size_t contiguous_pool_size(const Geometry& g, uint32_t blocks) {
  if (blocks == UINT32_MAX) return SIZE_MAX;
  return pool_buffer_size(g, PoolKind::kContiguous, blocks).saturated();
}

CheckedSize pool_buffer_size(const Geometry& model, PoolKind kind, uint32_t units) {
  const Geometry g = geometry_for(model, kind);
  return page_bytes(g) * pool_page_total(model, kind, units) + bookkeeping_size(units);
}

uint64_t pool_page_total(const Geometry& model, PoolKind kind, uint32_t units) {
  if (kind == PoolKind::kPage) return units;
  return static_cast<uint64_t>(pages_per_context(geometry_for(model, kind))) * units;
}

}  // namespace superslm::kv
