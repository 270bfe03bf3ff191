// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace superslm::base {

// An array of little-endian numbers at any alignment, read in place. Big-endian hosts are not supported.
template <typename T>
struct LeArray {
  const unsigned char* bytes = nullptr;

  explicit operator bool() const { return bytes != nullptr; }
  T operator[](size_t i) const {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    return value;
  }
  LeArray from(size_t i) const { return LeArray{bytes + i * sizeof(T)}; }
};

template <typename T>
T load_le(const unsigned char* bytes) {
  return LeArray<T>{bytes}[0];
}

template <typename T>
void store_le(unsigned char* bytes, T value) {
  std::memcpy(bytes, &value, sizeof(T));
}

}  // namespace superslm::base
