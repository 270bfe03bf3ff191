// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Copies that leave the cache alone, for amounts that would only push everything else out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__) || defined(_M_X64)
#define SUPERSLM_BASE_STREAMING 1
#include <emmintrin.h>
#endif

namespace superslm::base {

#ifdef SUPERSLM_BASE_STREAMING

// Whole cache lines of the target are written past the cache; call stream_fence() after the last one.
inline void stream_copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kAhead = 1024;  // what is read soon is fetched past the cache too; a hint, never a fault
  size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (head > bytes) head = bytes;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  for (bytes -= head; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead, _MM_HINT_NTA);
    const __m128i* source = reinterpret_cast<const __m128i*>(from);
    __m128i* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to, from, bytes);
}
inline void stream_fence() { _mm_sfence(); }

#else

inline void stream_copy(uint8_t* to, const uint8_t* from, size_t bytes) { std::memcpy(to, from, bytes); }
inline void stream_fence() {}

#endif

}  // namespace superslm::base
