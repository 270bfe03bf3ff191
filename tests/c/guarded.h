// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Memory whose neighbours cannot be read, for tests that nothing beyond an input is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(_WIN32)
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#undef near  // it takes common words for itself
#undef far
#elif !defined(__wasm__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace superslm::tests {

#if defined(__wasm__)

// The one place of linear memory with nothing behind it is its end. One block at a time lies there, by
// turns; the program is linked with a fixed memory and room for kSpare more, so that no allocation ever moves
// the end.
class GuardedBytes {
 public:
  GuardedBytes(size_t bytes, bool at_end) {
    static char* const end = grow();
    holds_end_ = at_end && !end_is_taken && bytes <= kSpare && turn++ % 2 == 0;
    if (holds_end_) end_is_taken = true;
    data_ = holds_end_ ? end - bytes : static_cast<char*>(std::malloc(bytes ? bytes : 1));
  }
  ~GuardedBytes() {
    if (holds_end_) {
      end_is_taken = false;
    } else {
      std::free(data_);
    }
  }
  GuardedBytes(const GuardedBytes&) = delete;
  char* data() const { return data_; }

 private:
  static constexpr size_t kPage = 65536, kSpare = 16 * kPage;
  static char* grow() {
    const size_t pages = __builtin_wasm_memory_grow(0, kSpare / kPage);
    if (pages == SIZE_MAX || __builtin_wasm_memory_grow(0, 1) != SIZE_MAX) {
      std::fprintf(stderr, "link with --initial-memory and %zu bytes more as --max-memory\n", kSpare);
      std::exit(2);
    }
    return reinterpret_cast<char*>(pages * kPage) + kSpare;
  }
  static inline bool end_is_taken = false;
  static inline unsigned turn = 0;
  bool holds_end_;
  char* data_;
};

#else

#if defined(_WIN32)
inline size_t page_size() {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}
inline void* map_pages(size_t bytes) {
  return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}
inline void forbid(void* page, size_t bytes) {
  DWORD before;
  VirtualProtect(page, bytes, PAGE_NOACCESS, &before);
}
inline void unmap_pages(void* pages, size_t) { VirtualFree(pages, 0, MEM_RELEASE); }
#else
inline size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
inline void* map_pages(size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
inline void forbid(void* page, size_t bytes) { mprotect(page, bytes, PROT_NONE); }
inline void unmap_pages(void* pages, size_t bytes) { munmap(pages, bytes); }
#endif

// A mapping of its own between unreadable pages, its data at the end or the beginning.
class GuardedBytes {
 public:
  GuardedBytes(size_t bytes, bool at_end) {
    const size_t page = page_size();
    size_ = (bytes + page - 1) / page * page + 2 * page;
    base_ = static_cast<char*>(map_pages(size_));
    forbid(base_, page);
    forbid(base_ + size_ - page, page);
    data_ = at_end ? base_ + size_ - page - bytes : base_ + page;
  }
  ~GuardedBytes() { unmap_pages(base_, size_); }
  GuardedBytes(const GuardedBytes&) = delete;
  char* data() const { return data_; }

 private:
  size_t size_;
  char* base_;
  char* data_;
};

#endif

}  // namespace superslm::tests
