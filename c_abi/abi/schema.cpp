// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <cstring>

#include "abi/handles.h"

using namespace superslm;

namespace superslm::abi {

bool accepts(const sslm_schema_s& schema, uint32_t walk_state) {
  uint32_t low = 0, high = schema.accepting_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (schema.accepting[middle] < walk_state) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < schema.accepting_count && schema.accepting[low] == walk_state;
}

}  // namespace superslm::abi

sslm_status sslm_schema_lookup(sslm_model model, const char* name, sslm_schema* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  if (model == nullptr || name == nullptr) return SSLM_INVALID_ARGUMENT;
  const size_t length = std::strlen(name);
  for (int32_t i = 0; i < model->schema_count; ++i) {
    const sslm_schema schema = model->schemas + i;
    if (schema->name_length != length || std::memcmp(schema->name, name, length) != 0) continue;
    *out = schema;
    return SSLM_OK;
  }
  return SSLM_SCHEMA_NOT_FOUND;
}

size_t sslm_schema_count(sslm_model model) {
  return model == nullptr ? 0 : static_cast<size_t>(model->schema_count);
}

sslm_status sslm_schema_name(sslm_model model, int32_t index, char* buf, size_t* n) {
  if (n == nullptr || model == nullptr) return SSLM_INVALID_ARGUMENT;
  if (index < 0 || index >= model->schema_count) return SSLM_INVALID_ARGUMENT;
  const sslm_schema_s& schema = model->schemas[index];
  const size_t capacity = *n;
  *n = schema.name_length;
  if (buf == nullptr || capacity < schema.name_length) return SSLM_BUFFER_TOO_SMALL;
  std::memcpy(buf, schema.name, schema.name_length);
  return SSLM_OK;
}
