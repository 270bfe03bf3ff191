// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The schema section (docs/schema_section.md): hostile bytes in, checked views out.
#pragma once

#include "artifact/check.h"

namespace superslm::artifact {

// A named automaton over token ids, read in place.
struct SchemaView {
  const char* name = nullptr;  // not terminated
  size_t name_length = 0;
  base::LeArray<uint16_t> classes;    // [vocab]
  base::LeArray<uint32_t> next;       // [states][class_count]
  base::LeArray<uint32_t> accepting;  // [accepting_count], ascending
  uint32_t class_count = 0;
  uint32_t state_count = 0;
  uint32_t accepting_count = 0;
  const uint8_t* digest = nullptr;  // [32], of the tables
};

enum class SchemaResult { kOk, kRejected, kNoMemory };

// Views into a section for a vocabulary, in table order, on the heap.
SchemaResult read_schemas(Span section, int32_t vocab, SchemaView** out, int32_t* count, base::Message* why);

}  // namespace superslm::artifact
