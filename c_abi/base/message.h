// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include <cstddef>
#include <cstdint>

namespace superslm::base {

// A short NUL-terminated text built without allocation; what does not fit is cut.
struct Message {
  char text[256] = {};
  size_t length = 0;

  Message& append(const char* part) {
    while (*part != 0 && length + 1 < sizeof(text)) text[length++] = *part++;
    text[length] = 0;
    return *this;
  }
  Message& append_u64(uint64_t value) {
    char digits[21];
    size_t n = sizeof(digits);
    digits[--n] = 0;
    do {
      digits[--n] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    return append(digits + n);
  }
  Message& append_i64(int64_t value) {
    if (value >= 0) return append_u64(static_cast<uint64_t>(value));
    return append("-").append_u64(uint64_t{0} - static_cast<uint64_t>(value));
  }
};

}  // namespace superslm::base
