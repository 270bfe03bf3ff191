// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What a sequence emitted in damped mode since its last reset or adopt: the one part of decoding on the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/memory.h"

namespace superslm::decode {

struct EmittedHistory {
  int32_t order = 0;  // of the anti-LM; 0: nothing emitted yet
  int32_t* tokens = nullptr;
  size_t length = 0;
  size_t capacity = 0;

  // Working memory of a step, in the same block as the tokens.
  int32_t* previous() const { return tokens + capacity; }
  uint8_t* match() const { return reinterpret_cast<uint8_t*>(tokens + 2 * capacity); }

  // Room for `wanted` tokens; what is there stays. False when memory is exhausted.
  bool reserve(size_t wanted) {
    if (wanted <= capacity) return true;
    if (wanted > SIZE_MAX / 16) return false;
    auto* block = static_cast<int32_t*>(base::allocate(wanted * (2 * sizeof(int32_t) + 1)));
    if (block == nullptr) return false;
    if (length > 0) std::memcpy(block, tokens, length * sizeof(int32_t));
    base::deallocate(tokens);
    tokens = block;
    capacity = wanted;
    return true;
  }

  void discard() {
    base::deallocate(tokens);
    *this = EmittedHistory{};
  }
};

}  // namespace superslm::decode
