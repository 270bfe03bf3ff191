// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include <cstddef>

#ifdef SUPERSLM_TEST_SEAMS
#include <atomic>
#include <cstdint>
#endif

namespace superslm::base {

// The library's only door to the process heap. Null on failure.
void* allocate(size_t bytes) noexcept;
void deallocate(void* block) noexcept;

#ifdef SUPERSLM_TEST_SEAMS
namespace seams {
extern std::atomic<int64_t> allocations_left;   // that still succeed; -1: all
extern std::atomic<uint64_t> allocation_count;  // that succeeded so far
}  // namespace seams
#endif

}  // namespace superslm::base
