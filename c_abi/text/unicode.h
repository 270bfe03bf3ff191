// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// UTF-8, code point classes and canonical composition, all by tables of the artifact.
#pragma once

#include "text/tokenizer.h"

namespace superslm::text {

struct Span {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;
  size_t size() const { return static_cast<size_t>(end - begin); }
};

// Classes of a code point; a byte that is part of no character has none.
enum : uint8_t {
  kLetter = 1,         // \p{L}
  kNumber = 2,         // \p{N}
  kSpace = 4,          // \s
  kIsolatedDigit = 8,  // split off by the SmolLM pre-tokenizer
};
inline constexpr uint8_t kClassMask = 15;

// One character, or one byte that is part of no valid character.
struct Character {
  uint32_t code = 0;  // a code point, or kRawByte | byte
  uint32_t size = 1;  // bytes
};
inline constexpr uint32_t kRawByte = 0x80000000u;
inline constexpr uint32_t kCodePoints = 0x110000u;

// The character at `text.begin`; the span is not empty. Never looks beyond its end.
Character decode(Span text);

// Writes 1..4 bytes (a raw byte as itself) and returns how many.
size_t encode(uint32_t code, uint8_t* out);

inline uint8_t classes_of(const Tokenizer& tokenizer, uint32_t code) {
  return code < kCodePoints ? tokenizer.classes.at(code) : uint8_t{0};
}

// How many bytes at the end of the `size` bytes at `tail` start a character that has not ended: 0..3. Looking
// at the last three bytes of a text is enough.
size_t incomplete_tail(const uint8_t* tail, size_t size);

// Text that is its own NFC needs no buffer; otherwise `block` holds it.
struct Normalized {
  Span text;
  void* block = nullptr;  // of base::allocate; the caller gives it back
};

// NFC of valid characters; bytes that are part of none stay and neither combine nor reorder.
Result normalize(const Tokenizer& tokenizer, Span text, Normalized* out);

}  // namespace superslm::text
