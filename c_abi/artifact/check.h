// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Refusals of the artifact reader: each names the section or tensor and the field.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/load.h"
#include "base/message.h"

namespace superslm::artifact {

// Bytes of the mapping.
struct Span {
  const uint8_t* data = nullptr;
  size_t size = 0;
  explicit operator bool() const { return data != nullptr; }
};

// What a refusal is about: "CONF", or "layer 3 WQ" with an index.
struct Site {
  const char* name = "";
  int64_t index = -1;
  const char* unit = "layer";  // what the index counts
};

// All return false, so that a check can end with `return refuse(...)`.
bool refuse(base::Message* why, Site site, const char* text);
bool refuse_value(base::Message* why, Site site, const char* field, int64_t value, int64_t low, int64_t high);

inline bool in_range(base::Message* why, Site site, const char* field, int64_t value, int64_t low,
                     int64_t high) {
  return (value >= low && value <= high) || refuse_value(why, site, field, value, low, high);
}

bool all_zero(const uint8_t* bytes, size_t count);

}  // namespace superslm::artifact
