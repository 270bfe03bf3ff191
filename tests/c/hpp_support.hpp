// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// What the programs over superslm.hpp share: a check that ends the program, lent memory, a file's bytes.
#ifndef SUPERSLM_TESTS_HPP_SUPPORT_HPP
#define SUPERSLM_TESTS_HPP_SUPPORT_HPP

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#define EXPECT(condition)                                                           \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

// Memory that is released at the end of the scope, 64-byte aligned.
class Memory {
 public:
  explicit Memory(size_t size = 0)
      : size_(size), bytes_(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64))) {}
  Memory(Memory&& other) noexcept
      : size_(std::exchange(other.size_, 0)), bytes_(std::exchange(other.bytes_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory() { std::free(bytes_); }
  std::span<std::byte> span() const { return {bytes_, size_}; }

 private:
  size_t size_;
  std::byte* bytes_;
};

inline Memory read_file(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  EXPECT(file != nullptr);
  std::fseek(file, 0, SEEK_END);
  const size_t size = static_cast<size_t>(std::ftell(file));
  std::rewind(file);
  Memory memory(size);
  EXPECT(std::fread(memory.span().data(), 1, size, file) == size);
  std::fclose(file);
  return memory;
}

#endif  // SUPERSLM_TESTS_HPP_SUPPORT_HPP
