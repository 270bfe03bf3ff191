// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Moving rows between pages, and between pages and the flat form of a blob.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/kv_view.h"

namespace superslm::kv {

// Rows of a blob: [layer][K, V][kv head][stride positions from first on][row bytes].
struct PackedRows {
  const uint8_t* bytes = nullptr;
  int64_t stride = 0;
  int64_t first = 0;
};

// Copies positions [begin, end) between views of one model, whose pages may differ in size.
void copy_rows(const KvView& from, const KvView& to, int64_t begin, int64_t end);

// Copies positions [begin, end) of packed rows into pages.
void unpack_rows(const PackedRows& from, const KvView& to, int64_t begin, int64_t end);

// Whether positions [0, end) hold the packed rows' bytes.
bool rows_equal(const KvView& view, const PackedRows& packed, int64_t end);

// Writes stride positions per plane, from begin on: rows [begin, length) from pages, row length too in the
// layers below layers_of_last_row, zeros in the rest.
void pack_rows(const KvView& from, int64_t begin, int64_t length, int32_t layers_of_last_row, int64_t stride,
               uint8_t* out);

}  // namespace superslm::kv
