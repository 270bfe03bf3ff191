// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include <cstddef>
#include <cstdint>

namespace superslm::base {

// Unsigned arithmetic that remembers whether it ever left its range; products of sizes are built with it.
class CheckedSize {
 public:
  constexpr CheckedSize(uint64_t value) : value_(value) {}
  constexpr CheckedSize operator*(uint64_t other) const {
    if (other != 0 && value_ > UINT64_MAX / other) return overflowed();
    return with(value_ * other);
  }
  constexpr CheckedSize operator+(CheckedSize other) const {
    if (!other.ok_ || value_ > UINT64_MAX - other.value_) return overflowed();
    return with(value_ + other.value_);
  }
  // Fits the address space of this platform.
  constexpr bool ok() const { return ok_ && value_ <= SIZE_MAX; }
  constexpr uint64_t value() const { return value_; }
  // The value, or SIZE_MAX where it cannot be represented.
  constexpr size_t saturated() const { return ok() ? static_cast<size_t>(value_) : SIZE_MAX; }

 private:
  constexpr CheckedSize with(uint64_t value) const {
    CheckedSize out(value);
    out.ok_ = ok_;
    return out;
  }
  static constexpr CheckedSize overflowed() {
    CheckedSize out(0);
    out.ok_ = false;
    return out;
  }
  uint64_t value_;
  bool ok_ = true;
};

}  // namespace superslm::base
