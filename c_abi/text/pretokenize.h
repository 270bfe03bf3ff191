// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Cuts text into the pieces inside which tokens may form.
#pragma once

#include "text/unicode.h"

namespace superslm::text {

// Yields the pieces of a text in order; together they are the text. Linear time, no allocation.
class Splitter {
 public:
  Splitter(const Tokenizer& tokenizer, Span text)
      : tokenizer_(tokenizer), at_(text.begin), end_(text.end), section_end_(text.begin) {}

  // False at the end of the text. A piece is never empty.
  bool next(Span* piece);

 private:
  const Tokenizer& tokenizer_;
  const uint8_t* at_;
  const uint8_t* end_;
  const uint8_t* section_end_;  // no piece crosses it
};

}  // namespace superslm::text
