// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The primitives of docs/numerics.md, section 1.
#pragma once

#include <cstdint>

namespace superslm::base {

// Rounding shift right, nearest with ties towards +infinity; a negative shift goes left.
inline int64_t rsh(int64_t x, int shift) {
  if (shift > 0) return (x + (int64_t{1} << (shift - 1))) >> shift;
  return static_cast<int64_t>(static_cast<uint64_t>(x) << -shift);
}

inline int bit_length(uint64_t u) {
  int n = 0;
  for (; u != 0; u >>= 1) ++n;
  return n;
}

constexpr int64_t kSat32 = 0x7fffffff;

// Clamps to [-(2^31-1), 2^31-1]; adds 1 to the count when the value changed.
inline int32_t sat32(int64_t x, uint64_t& count) {
  if (x > kSat32) {
    ++count;
    return static_cast<int32_t>(kSat32);
  }
  if (x < -kSat32) {
    ++count;
    return static_cast<int32_t>(-kSat32);
  }
  return static_cast<int32_t>(x);
}

inline int8_t clamp127(int64_t x, uint64_t& count) {
  if (x > 127) {
    ++count;
    return 127;
  }
  if (x < -127) {
    ++count;
    return -127;
  }
  return static_cast<int8_t>(x);
}

// |x| as uint32: also right for INT32_MIN, which restored bytes may hold.
inline uint32_t magnitude(int32_t x) {
  return x < 0 ? 0u - static_cast<uint32_t>(x) : static_cast<uint32_t>(x);
}

}  // namespace superslm::base
