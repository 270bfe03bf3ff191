// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kv/rows.h"

#include <cstring>

#include "base/stream_copy.h"
#include "kv/seams.h"

namespace superslm::kv {

#ifdef SUPERSLM_TEST_SEAMS
std::atomic<uint64_t> seams::bytes_moved{0};
#endif

namespace {

// Positions that lie in one page: plane p of them starts at first + p * stride bytes.
struct Stretch {
  uint8_t* first;
  size_t stride;
  int64_t count;
};

Stretch stretch(const KvView& view, int64_t position, int64_t end) {
  const Run run = view.run(0, kKey, 0, position, end);
  const Geometry& g = *view.geometry;
  return Stretch{reinterpret_cast<uint8_t*>(run.rows), static_cast<size_t>(g.page_positions) * g.row_bytes(),
                 run.count};
}

size_t planes(const Geometry& g) { return size_t{2} * g.layers * g.kv_heads; }

constexpr size_t kStreamFrom = size_t{4} << 20;

void copy_bytes(uint8_t* to, const uint8_t* from, size_t bytes) { std::memcpy(to, from, bytes); }

void copy_planes(uint8_t* to, size_t to_stride, const uint8_t* from, size_t from_stride, size_t bytes,
                 size_t count) {
  seams::count_moved(bytes * count);
  if (bytes == to_stride && bytes == from_stride) {
    std::memcpy(to, from, bytes * count);
    return;
  }
  for (size_t p = 0; p < count; ++p) std::memcpy(to + p * to_stride, from + p * from_stride, bytes);
}

// The end of every plane behind the committed rows: the row of an unfinished token in the layers that ran,
// zeros.
void finish_planes(const KvView& from, int64_t length, int32_t layers_of_last_row, uint8_t* out,
                   size_t plane_bytes, size_t rest) {
  const Geometry& g = *from.geometry;
  const size_t with_last_row = size_t{2} * layers_of_last_row * g.kv_heads;
  for (size_t p = 0; p < planes(g); ++p) {
    uint8_t* to = out + p * plane_bytes;
    size_t copied = 0;
    if (p < with_last_row) {
      const Stretch last = stretch(from, length, length + 1);
      copied = g.row_bytes();
      std::memcpy(to, last.first + p * last.stride, copied);
    }
    std::memset(to + copied, 0, rest - copied);
  }
}

}  // namespace

void copy_rows(const KvView& from, const KvView& to, int64_t begin, int64_t end) {
  const Geometry& g = *to.geometry;
  for (int64_t at = begin; at < end;) {
    const Stretch target = stretch(to, at, end);
    const Stretch source = stretch(from, at, at + target.count);
    const size_t bytes = static_cast<size_t>(source.count) * g.row_bytes();
    copy_planes(target.first, target.stride, source.first, source.stride, bytes, planes(g));
    at += source.count;
  }
}

void unpack_rows(const PackedRows& from, const KvView& to, int64_t begin, int64_t end) {
  const Geometry& g = *to.geometry;
  const size_t row = g.row_bytes();
  for (int64_t at = begin; at < end;) {
    const Stretch target = stretch(to, at, end);
    copy_planes(target.first, target.stride, from.bytes + static_cast<size_t>(at - from.first) * row,
                static_cast<size_t>(from.stride) * row, static_cast<size_t>(target.count) * row, planes(g));
    at += target.count;
  }
}

bool rows_equal(const KvView& view, const PackedRows& packed, int64_t end) {
  const Geometry& g = *view.geometry;
  const size_t row = g.row_bytes();
  const size_t stride = static_cast<size_t>(packed.stride) * row;
  for (int64_t at = 0; at < end;) {
    const Stretch held = stretch(view, at, end);
    const uint8_t* given = packed.bytes + static_cast<size_t>(at - packed.first) * row;
    for (size_t p = 0; p < planes(g); ++p) {
      const size_t bytes = static_cast<size_t>(held.count) * row;
      if (std::memcmp(held.first + p * held.stride, given + p * stride, bytes) != 0) return false;
    }
    at += held.count;
  }
  return true;
}

// Two pages at a time, plane by plane: reading is two straight walks through memory, whose beginnings the
// processor fetches while it is busy with the other, and writing goes twice as far in one piece. A save
// larger than the caches goes past them.
void pack_rows(const KvView& from, int64_t begin, int64_t length, int32_t layers_of_last_row, int64_t stride,
               uint8_t* out) {
  const Geometry& g = *from.geometry;
  const size_t row = g.row_bytes();
  const size_t plane_bytes = static_cast<size_t>(stride) * row;
  const auto copy = plane_bytes * planes(g) >= kStreamFrom ? base::stream_copy : copy_bytes;
  for (int64_t at = begin; at < length;) {
    Stretch held[2] = {stretch(from, at, length), {}};
    if (at + held[0].count < length) held[1] = stretch(from, at + held[0].count, length);
    uint8_t* to = out + static_cast<size_t>(at - begin) * row;
    for (size_t p = 0; p < planes(g); ++p) {
      uint8_t* piece = to + p * plane_bytes;
      for (const Stretch& page : held) {
        const size_t bytes = static_cast<size_t>(page.count) * row;
        if (bytes != 0) copy(piece, page.first + p * page.stride, bytes);
        piece += bytes;
      }
    }
    at += held[0].count + held[1].count;
  }
  base::stream_fence();
  finish_planes(from, length, layers_of_last_row, out + static_cast<size_t>(length - begin) * row,
                plane_bytes, static_cast<size_t>(stride - (length - begin)) * row);
  seams::count_moved(plane_bytes * planes(g));
}

}  // namespace superslm::kv
