// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Hand-written scanners equal to these patterns, alternatives tried in order (docs/tokenizer_section.md):
//   GPT-2   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   others  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*
//           |\s*[\r\n]+|\s+(?!\S)|\s+         with k = 1 (Qwen2) or 3 (Llama 3)
#include "text/pretokenize.h"

namespace superslm::text {
namespace {

// A cursor over characters and their classes; at the end the character has size 0 and no class.
class Scanner {
 public:
  Scanner(const Tokenizer& tokenizer, Span text) : tokenizer_(tokenizer), text_(text) { load(); }

  bool at_end() const { return text_.size() == 0; }
  const uint8_t* position() const { return text_.begin; }
  uint32_t code() const { return character_.code; }
  bool is(uint8_t classes) const { return (classes_ & classes) != 0; }
  // Neither letter, number nor space.
  bool is_other() const { return !at_end() && !is(kLetter | kNumber | kSpace); }
  bool is_line_break() const { return !at_end() && (code() == '\r' || code() == '\n'); }

  void advance() {
    text_.begin += character_.size;
    load();
  }
  void skip(uint8_t classes) {
    while (is(classes)) advance();
  }
  void skip_other() {
    while (is_other()) advance();
  }
  Scanner after() const {
    Scanner next = *this;
    next.advance();
    return next;
  }

 private:
  void load() {
    character_ = at_end() ? Character{0, 0} : decode(text_);
    classes_ = at_end() ? uint8_t{0} : classes_of(tokenizer_, character_.code);
  }

  const Tokenizer& tokenizer_;
  Span text_;
  Character character_;
  uint8_t classes_ = 0;
};

// The letter a code point is when case is ignored: U+017F (long s) folds to s.
uint32_t folded(uint32_t code, bool ignore_case) {
  if (!ignore_case) return code;
  if (code == 0x17F) return 's';
  return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
}

// The end of 's 't 'm 'd 're 've 'll, or null.
const uint8_t* contraction_end(Scanner s, bool ignore_case) {
  if (s.at_end() || s.code() != '\'') return nullptr;
  s.advance();
  if (s.at_end()) return nullptr;
  const uint32_t first = folded(s.code(), ignore_case);
  s.advance();
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return s.position();
  if (s.at_end()) return nullptr;
  const uint32_t second = folded(s.code(), ignore_case);
  s.advance();
  const bool pair = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return pair ? s.position() : nullptr;
}

// \s+(?!\S)|\s+ : a run of spaces leaves its last one to what follows, unless it is alone or ends the text.
const uint8_t* spaces_end(Scanner s) {
  const uint8_t* first = s.position();
  const uint8_t* last = first;
  for (; s.is(kSpace); s.advance()) last = s.position();
  return s.at_end() || last == first ? s.position() : last;
}

// The end of \s*[\r\n]+ : spaces up to the last line break of their run; null without one.
const uint8_t* line_breaks_end(Scanner s) {
  const uint8_t* end = nullptr;
  while (s.is(kSpace)) {
    const bool line_break = s.is_line_break();
    s.advance();
    if (line_break) end = s.position();
  }
  return end;
}

const uint8_t* gpt2_piece(Scanner s) {
  if (const uint8_t* end = contraction_end(s, false)) return end;
  Scanner body = s.code() == ' ' ? s.after() : s;
  if (body.is(kLetter)) {
    body.skip(kLetter);
  } else if (body.is(kNumber)) {
    body.skip(kNumber);
  } else if (body.is_other()) {
    body.skip_other();
  } else {
    return spaces_end(s);
  }
  return body.position();
}

const uint8_t* modern_piece(Scanner s, int digits) {
  if (const uint8_t* end = contraction_end(s, true)) return end;
  const bool joins_word = !s.is_line_break() && !s.is(kLetter | kNumber);
  Scanner word = joins_word ? s.after() : s;
  if (word.is(kLetter)) {
    word.skip(kLetter);
    return word.position();
  }
  if (s.is(kNumber)) {
    for (int i = 0; i < digits && s.is(kNumber); ++i) s.advance();
    return s.position();
  }
  Scanner body = s.code() == ' ' ? s.after() : s;
  if (body.is_other()) {
    body.skip_other();
    while (body.is_line_break()) body.advance();
    return body.position();
  }
  if (const uint8_t* end = line_breaks_end(s)) return end;
  return spaces_end(s);
}

// SmolLM cuts the text at every digit first; each part is then split on its own.
const uint8_t* digit_section_end(Scanner s) {
  if (s.is(kIsolatedDigit)) {
    s.advance();
    return s.position();
  }
  while (!s.at_end() && !s.is(kIsolatedDigit)) s.advance();
  return s.position();
}

}  // namespace

bool Splitter::next(Span* piece) {
  if (at_ == end_) return false;
  if (at_ == section_end_) {
    const bool by_digit = tokenizer_.pre_tokenizer == PreTokenizer::kSmolLm;
    section_end_ = by_digit ? digit_section_end(Scanner(tokenizer_, {at_, end_})) : end_;
  }
  const Scanner scanner(tokenizer_, {at_, section_end_});
  const uint8_t* start = at_;
  switch (tokenizer_.pre_tokenizer) {
    case PreTokenizer::kGpt2:
    case PreTokenizer::kSmolLm:
      at_ = gpt2_piece(scanner);
      break;
    case PreTokenizer::kQwen2:
      at_ = modern_piece(scanner, 1);
      break;
    case PreTokenizer::kLlama3:
      at_ = modern_piece(scanner, 3);
      break;
  }
  *piece = {start, at_};
  return true;
}

}  // namespace superslm::text
