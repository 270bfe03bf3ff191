// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The page rule and every size the host asks for. Sizes never wrap: they saturate to SIZE_MAX or give 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "kv/kv_view.h"

namespace superslm::kv {

enum class PoolKind { kBlock, kPage, kContiguous };

// The geometry of a model in paged memory: fills page_positions by the page rule.
Geometry make_geometry(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t element_bytes,
                       int32_t cap);

// The same model as a pool of this kind sees it: one page of cap positions in a contiguous pool.
Geometry geometry_for(const Geometry& model, PoolKind kind);

inline int64_t pages_covering(int64_t positions, int64_t page) { return (positions + page - 1) / page; }

// Pages per full context (Pcap).
int64_t pages_per_context(const Geometry& geometry);

// Pages reserved by a holder of this budget (R); the budget must lie in [1, cap].
int64_t pages_for_budget(const Geometry& geometry, int32_t budget);

// K/V bytes of one context (cap * BPT), saturating.
size_t block_size(const Geometry& geometry);

// Positions and bytes of one page; 0 when a page does not fit the address space.
int64_t page_positions(const Geometry& geometry);
size_t page_size(const Geometry& geometry);

// Bytes beyond units * block_size (block) or units * page_size (page); SIZE_MAX where no pool could be made.
size_t block_pool_overhead(const Geometry& geometry, uint32_t blocks);
size_t page_pool_overhead(uint32_t pages);

// Whole buffer of a contiguous pool.
size_t contiguous_pool_size(const Geometry& geometry, uint32_t blocks);

// Whole buffer of a pool of any kind, unsaturated, and its page total; geometry is the model's.
base::CheckedSize pool_buffer_size(const Geometry& geometry, PoolKind kind, uint32_t units);
uint64_t pool_page_total(const Geometry& geometry, PoolKind kind, uint32_t units);

}  // namespace superslm::kv
