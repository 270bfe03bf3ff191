// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The text room behind a C surface, so that Python tests can call it without an artifact around it.
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/memory.h"
#include "text/tokenizer.h"

#if defined(_WIN32)
#define DRIVER_API extern "C" __declspec(dllexport)
#else
#define DRIVER_API extern "C" __attribute__((visibility("default")))
#endif

using namespace superslm;

namespace {
int64_t allocations_left = -1;  // negative: no limit
int64_t allocations = 0;
uint64_t allocated_bytes = 0;
}  // namespace

// Replaces base/memory.cpp: counts, and fails on request.
namespace superslm::base {
void* allocate(size_t bytes) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  ++allocations;
  allocated_bytes += bytes;
  return std::malloc(bytes ? bytes : 1);
}
void deallocate(void* block) noexcept { std::free(block); }
}  // namespace superslm::base

// Allocations from now on: at most `limit` succeed (negative: all).
DRIVER_API void driver_limit_allocations(int64_t limit) {
  allocations_left = limit;
  allocations = 0;
  allocated_bytes = 0;
}
DRIVER_API int64_t driver_allocations() { return allocations; }
DRIVER_API uint64_t driver_allocated_bytes() { return allocated_bytes; }

// Null when the section is refused; `message` (256 bytes) then says why.
DRIVER_API void* driver_parse(const uint8_t* data, size_t size, uint32_t vocab, char* message) {
  base::Message why;
  text::Tokenizer tokenizer;
  const bool good = text::parse(data, size, vocab, &tokenizer, &why);
  std::memcpy(message, why.text, sizeof(why.text));
  return good ? new (std::malloc(sizeof(tokenizer))) text::Tokenizer(tokenizer) : nullptr;
}
DRIVER_API void driver_free(void* tokenizer) { std::free(tokenizer); }

DRIVER_API int driver_tokenize(const void* tokenizer, const uint8_t* utf8, size_t len, int control_tokens,
                               int32_t* out, size_t capacity, size_t* count) {
  const auto& t = *static_cast<const text::Tokenizer*>(tokenizer);
  return static_cast<int>(text::tokenize(t, utf8, len, control_tokens != 0, out, capacity, count));
}

DRIVER_API int driver_detokenize(const void* tokenizer, const int32_t* tokens, size_t n, uint8_t* pending,
                                 uint8_t* pending_count, uint8_t* out, size_t capacity, size_t* required) {
  const auto& t = *static_cast<const text::Tokenizer*>(tokenizer);
  return static_cast<int>(text::detokenize(t, tokens, n, pending, pending_count, out, capacity, required));
}

// -1 without a chat format, else the number of ids; at most `capacity` are written.
DRIVER_API int64_t driver_chat_ids(const void* tokenizer, uint32_t role, uint32_t part, int32_t* out,
                                   size_t capacity) {
  const auto& t = *static_cast<const text::Tokenizer*>(tokenizer);
  if (!t.has_chat) return -1;
  const text::IdSpan span = text::chat_ids(t, static_cast<text::Role>(role), static_cast<text::Part>(part));
  for (size_t i = 0; i < span.count && i < capacity; ++i) out[i] = static_cast<int32_t>(span.ids[i]);
  return static_cast<int64_t>(span.count);
}
