// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include <cstddef>
#include <cstdint>

namespace superslm::kernels {

namespace {

// Asks for the rows of the next call, a few lines with each piece of the work on these: pages lie anywhere,
// so the processor does not foresee them, and all at once they would hold up the loads of these rows.
template <typename Isa>
class Ahead {
  static constexpr size_t kLine = 64;
  const uint8_t* at_;
  size_t lines_;

 public:
  Ahead(const int8_t* rows, size_t bytes)
      : at_(reinterpret_cast<const uint8_t*>(rows)), lines_(rows ? (bytes + kLine - 1) / kLine : 0) {}
  // Of all lines, the share of one piece of so many.
  size_t share(size_t pieces) const { return lines_ == 0 ? 0 : (lines_ + pieces - 1) / pieces; }
  void ask(size_t lines) {
    for (; lines > 0 && lines_ > 0; --lines, --lines_, at_ += kLine) Isa::prefetch(at_);
#if defined(__GNUC__)
    __asm__ volatile("");  // as in base/prefetch.h
#endif
  }
};

// The first 2 KiB of them at once, for kernels that ask for the others of a call while they work on it.
template <typename Isa>
inline void ask_for_first(const int8_t* rows) {
  constexpr size_t kLines = 32;
  Ahead<Isa>(rows, kLines * 64).ask(kLines);
}

}  // namespace

}  // namespace superslm::kernels
