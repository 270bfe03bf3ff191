// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include <cstddef>
#include <cstdint>

namespace superslm::base {

// Asks for memory that will be read soon; a hint only.
inline void prefetch(const uint8_t* begin, size_t bytes) {
  constexpr size_t kLine = 64;
#if defined(__GNUC__)
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(begin + i);
  __asm__ volatile("");  // or GCC takes a caller that only prefetches for one without effects, and drops it
#else
  (void)begin, (void)bytes;
#endif
}

}  // namespace superslm::base
