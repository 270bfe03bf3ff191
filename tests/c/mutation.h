// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What mutated and fuzzed artifacts share: numbers that checks like to stumble over, and digests made anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "artifact/container.h"
#include "artifact/digests.h"
#include "base/load.h"

namespace superslm::test {

constexpr size_t kHostileNumbers = 28;

// One of them, in place of a number `old` in a file or section of `size` bytes.
inline uint64_t hostile_number(size_t choice, uint64_t old, uint64_t size) {
  const uint64_t values[kHostileNumbers] = {0,
                                            1,
                                            2,
                                            old + 1,
                                            old - 1,
                                            old * 2,
                                            uint64_t{0} - old,
                                            31,
                                            63,
                                            64,
                                            65,
                                            1 << 15,
                                            1 << 23,
                                            (1 << 23) + 1,
                                            1 << 30,
                                            0x40000001,
                                            0x7fffffff,
                                            0x80000000,
                                            0xffffffff,
                                            uint64_t{1} << 32,
                                            UINT64_MAX,
                                            UINT64_MAX - 63,
                                            uint64_t{1} << 63,
                                            INT64_MAX,
                                            size,
                                            size - 1,
                                            old + 64,
                                            old - 64};
  return values[choice % kHostileNumbers];
}

// Writes the digests that a file has as it is, so that a reader looks behind them.
inline void repair_digests(uint8_t* file, size_t size) {
  if (size < artifact::kModelStart) return;
  const uint32_t count = base::load_le<uint32_t>(file + 24) < 28 ? base::load_le<uint32_t>(file + 24) : 28;
  uint64_t end = artifact::kModelStart;
  size_t named = 0;
  for (; named < count; ++named) {
    const uint8_t* entry = file + 128 + 32 * named;
    bool known = false;
    for (const char* id : {"CONF", "LAYR", "BASE", "TENS", "DATA", "TOKN", "DGC1"})
      known = known || std::memcmp(entry, id, 4) == 0;
    if (!known) break;
    end = base::load_le<uint64_t>(entry + 8) + base::load_le<uint64_t>(entry + 16);
  }
  if (end < artifact::kModelStart || end > size) end = size;
  const artifact::Span entries{file + 128, 32 * named};
  artifact::Digests d = artifact::compute_digests(file, size, entries, static_cast<size_t>(end));
  std::memcpy(file + 64, d.model.bytes, 32);
  d = artifact::compute_digests(file, size, entries, static_cast<size_t>(end));
  std::memcpy(file + 32, d.file.bytes, 32);
}

}  // namespace superslm::test
