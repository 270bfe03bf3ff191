// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "text/unicode.h"

namespace superslm::text {
namespace {

// What the first byte of a character asks for: its length and the range of the second byte, which excludes
// overlong forms, surrogates and code points above U+10FFFF. Length 0: no character starts with this byte.
struct Lead {
  uint32_t size;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) return {3, uint8_t(byte == 0xE0 ? 0xA0 : 0x80), uint8_t(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5) return {4, uint8_t(byte == 0xF0 ? 0x90 : 0x80), uint8_t(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

bool continues(const Lead& lead, const uint8_t* text, size_t index) {
  const uint8_t byte = text[index];
  return index == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
}

}  // namespace

Character decode(Span text) {
  const uint8_t first = text.begin[0];
  const Lead lead = lead_of(first);
  const Character raw{kRawByte | first, 1};
  if (lead.size == 1) return {first, 1};
  if (lead.size == 0 || lead.size > text.size()) return raw;
  uint32_t code = first & (0x7Fu >> lead.size);
  for (size_t i = 1; i < lead.size; ++i) {
    if (!continues(lead, text.begin, i)) return raw;
    code = code << 6 | (text.begin[i] & 0x3Fu);
  }
  return {code, lead.size};
}

size_t encode(uint32_t code, uint8_t* out) {
  if (code & kRawByte || code < 0x80) {
    out[0] = static_cast<uint8_t>(code);
    return 1;
  }
  const size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = size - 1; i > 0; --i, code >>= 6) out[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
  out[0] = static_cast<uint8_t>(0xF00u >> size | code);
  return size;
}

size_t incomplete_tail(const uint8_t* tail, size_t size) {
  for (size_t n = 1; n <= 3 && n <= size; ++n) {
    const uint8_t* start = tail + (size - n);
    if ((*start & 0xC0) == 0x80) continue;
    const Lead lead = lead_of(*start);
    if (lead.size <= n) return 0;
    for (size_t i = 1; i < n; ++i) {
      if (!continues(lead, start, i)) return 0;
    }
    return n;
  }
  return 0;
}

}  // namespace superslm::text
