// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/check.h"

namespace superslm::artifact {

namespace {

base::Message& begin(base::Message* why, Site site) {
  *why = base::Message{};
  if (site.index >= 0) why->append(site.unit).append(" ").append_i64(site.index).append(" ");
  return why->append(site.name).append(": ");
}

}  // namespace

bool refuse(base::Message* why, Site site, const char* text) {
  begin(why, site).append(text);
  return false;
}

bool refuse_value(base::Message* why, Site site, const char* field, int64_t value, int64_t low,
                  int64_t high) {
  base::Message& m = begin(why, site).append(field).append(" is ").append_i64(value).append(", must be ");
  m.append_i64(low);
  if (high > low) m.append("..").append_i64(high);
  return false;
}

bool all_zero(const uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

}  // namespace superslm::artifact
