// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Constants of the tokenizer section and its plainest accessor.
#pragma once

#include "text/unicode.h"

namespace superslm::text {

// Flags of an added token.
inline constexpr uint32_t kAddedControl = 1;     // structure, not text: only on request
inline constexpr uint32_t kAddedNormalized = 2;  // looked for after normalisation
inline constexpr uint32_t kMaxAddedBytes = 1024;

// The bytes of an id of the vocabulary; empty when it has no text.
inline Span token_text(const Tokenizer& t, uint32_t id) {
  if (id >= t.size) return {};
  return {t.text + t.text_start[id], t.text + t.text_start[size_t{id} + 1]};
}

}  // namespace superslm::text
