// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What a test build can pin and count here. A shipped build compiles all of it to nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef SUPERSLM_TEST_SEAMS
#include <atomic>
#endif

namespace superslm::kv::seams {

#ifdef SUPERSLM_TEST_SEAMS

extern int64_t pinned_page_positions;       // B for geometries made from now on; 0: the page rule
extern std::atomic<uint64_t> lock_count;    // times any pool's mutex was taken
extern std::atomic<uint64_t> bytes_moved;   // row bytes copied between pages, or between pages and blobs
extern std::atomic<uint64_t> bytes_filled;  // bytes poisoned

inline void count_lock() { ++lock_count; }
inline void count_moved(size_t bytes) { bytes_moved += bytes; }
inline void count_filled(size_t bytes) { bytes_filled += bytes; }

#else

inline void count_lock() {}
inline void count_moved(size_t) {}
inline void count_filled(size_t) {}

#endif

}  // namespace superslm::kv::seams
