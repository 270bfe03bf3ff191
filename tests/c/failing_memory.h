// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Stands in for base/memory.cpp: a heap that counts and can refuse. Include it in one file of a program.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "base/memory.h"

inline std::atomic<int64_t> allocations{0};
inline std::atomic<int64_t> allocations_left{-1};  // -1: never refuse

namespace superslm::base {

void* allocate(size_t bytes) noexcept {
  ++allocations;
  if (allocations_left.load() == 0) return nullptr;
  if (allocations_left.load() > 0) --allocations_left;
  return std::malloc(bytes ? bytes : 1);
}
void deallocate(void* block) noexcept { std::free(block); }

}  // namespace superslm::base
