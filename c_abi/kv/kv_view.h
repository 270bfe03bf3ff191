// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// How forward/ sees K/V memory: rows of one (layer, K or V, head), in runs that are contiguous in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace superslm::kv {

enum Kind : int32_t { kKey = 0, kValue = 1 };

// One page holds [layer][K, V][kv head][position < page_positions][head_dim] bytes.
struct Geometry {
  int32_t layers = 0, kv_heads = 0, head_dim = 0;
  int32_t element_bytes = 1;
  int32_t cap = 0;
  int64_t page_positions = 0;  // B; the cap in a contiguous pool

  size_t row_bytes() const { return static_cast<size_t>(head_dim) * element_bytes; }
  size_t position_bytes() const { return size_t{2} * layers * kv_heads * row_bytes(); }  // BPT
  size_t page_bytes() const { return static_cast<size_t>(page_positions) * position_bytes(); }
};

struct Run {
  int8_t* rows;   // [count][head_dim]
  int64_t count;  // rows contiguous from here, cut at the end asked for
};

struct KvView {
  uint8_t* base = nullptr;          // first page of the pool
  const uint32_t* pages = nullptr;  // page index for positions [i * B, (i + 1) * B)
  const Geometry* geometry = nullptr;

  // The rows from position up to the end of its page, or up to end.
  Run run(int32_t layer, Kind kind, int32_t head, int64_t position, int64_t end) const {
    const Geometry& g = *geometry;
    const int64_t page = position / g.page_positions;
    const int64_t offset = position - page * g.page_positions;
    const int64_t left = g.page_positions - offset;
    const size_t plane = (static_cast<size_t>(layer) * 2 + kind) * g.kv_heads + head;
    uint8_t* at =
        base + pages[page] * g.page_bytes() +
        (plane * static_cast<size_t>(g.page_positions) + static_cast<size_t>(offset)) * g.row_bytes();
    return Run{reinterpret_cast<int8_t*>(at), left < end - position ? left : end - position};
  }
  int8_t* row(int32_t layer, Kind kind, int32_t head, int64_t position) const {
    return run(layer, kind, head, position, position + 1).rows;
  }
};

}  // namespace superslm::kv
