// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "base/memory.h"

#include <cstdlib>

namespace superslm::base {

#ifdef SUPERSLM_TEST_SEAMS

namespace seams {
std::atomic<int64_t> allocations_left{-1};
std::atomic<uint64_t> allocation_count{0};
}  // namespace seams

void* allocate(size_t bytes) noexcept {
  if (seams::allocations_left.load() >= 0 && seams::allocations_left.fetch_sub(1) <= 0) {
    seams::allocations_left.store(0);
    return nullptr;
  }
  ++seams::allocation_count;
  return std::malloc(bytes ? bytes : 1);
}

#else

void* allocate(size_t bytes) noexcept { return std::malloc(bytes ? bytes : 1); }

#endif

void deallocate(void* block) noexcept { std::free(block); }

}  // namespace superslm::base
