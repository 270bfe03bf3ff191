// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Byte-level BPE over the tokenizer section of an artifact (docs/tokenizer_section.md), read in place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/load.h"
#include "base/message.h"

namespace superslm::text {

using base::LeArray;

enum class PreTokenizer : uint32_t { kGpt2 = 1, kSmolLm = 2, kQwen2 = 3, kLlama3 = 4 };

// A code point's properties: stage[cp >> 8] names a block of 256 entries.
template <typename T>
struct CodePointMap {
  const uint8_t* stage = nullptr;  // [0x1100]
  LeArray<T> blocks;               // [block][256]

  T at(uint32_t code_point) const {
    return blocks[size_t{stage[code_point >> 8]} * 256 + (code_point & 255)];
  }
};

// Typed views into a checked section. Trivially copyable; it owns nothing and lives as long as the mapping.
struct Tokenizer {
  uint32_t vocab = 0;  // the model's: ids are [0, vocab)
  uint32_t size = 0;   // the tokenizer's: ids in [size, vocab) have no text
  PreTokenizer pre_tokenizer = PreTokenizer::kGpt2;

  LeArray<uint32_t> text_start;  // [size + 1]: token i is text[text_start[i] .. text_start[i + 1])
  const uint8_t* text = nullptr;
  LeArray<uint32_t> byte_id;             // [256]: the token of a byte; kNoId: the vocabulary lacks it
  const uint8_t* replacement = nullptr;  // UTF-8 read instead of a character with a lacking byte
  uint32_t replacement_size = 0;
  bool lacks_bytes = false;

  LeArray<uint32_t> merge_start;  // [size + 1]: merges whose left part is i, ascending by right part
  LeArray<uint32_t> merges;       // [merge][3]: right id, rank (lower merges first), result id

  LeArray<uint32_t>
      whole_words;  // ids ascending by text: a piece of text equal to one is that token, unmerged
  uint32_t whole_word_count = 0;

  LeArray<uint32_t> added;  // [added_count][2]: id, flags; ascending by text
  uint32_t added_count = 0;

  CodePointMap<uint8_t> classes;  // kLetter and its companions in unicode.h

  bool normalizes = false;             // NFC before splitting; the four tables below exist
  CodePointMap<uint16_t> nfc;          // index into nfc_records
  LeArray<uint32_t> nfc_records;       // combining class | length << 8 | start in nfc_parts << 16
  LeArray<uint32_t> nfc_parts;         // full canonical decompositions
  LeArray<uint32_t> nfc_compositions;  // [pair][3]: first, second, composed; ascending
  uint32_t nfc_composition_count = 0;

  LeArray<uint32_t> chat_start;  // [kChatSlots + 1]
  LeArray<uint32_t> chat_id;
  bool has_chat = false;
};

inline constexpr uint32_t kNoId = 0xFFFFFFFFu;

// Checks every offset, count and id of the section; afterwards no text and no id can lead out of its bytes.
// False: `why` names the field. Allocates nothing.
bool parse(const uint8_t* data, size_t size, uint32_t vocab, Tokenizer* out, base::Message* why);

enum class Result { kOk, kOutOfMemory };

// Writes the ids of `len` bytes, valid UTF-8 or not. `*count` is their number; when it exceeds `capacity` (or
// `out` is null) nothing is written. Without `control_tokens` the text of a control token is plain text.
// Texts above 1 GiB report kOutOfMemory.
Result tokenize(const Tokenizer& tokenizer, const uint8_t* utf8, size_t len, bool control_tokens,
                int32_t* out, size_t capacity, size_t* count);

enum class DetokenizeResult {
  kOk,
  kOutOfRange,  // an id outside [0, vocab)
  kUnmapped,    // an id without text
  kTooSmall,    // `out` null or short
};

// Writes pending bytes and the tokens' bytes, less an incomplete UTF-8 tail of 1..3 bytes that becomes the
// new pending bytes. `*required` is the number of bytes written or needed (0 when an id is refused). Any
// result but kOk changes neither `pending` nor `*pending_count` (0..3 on entry) and writes nothing.
DetokenizeResult detokenize(const Tokenizer& tokenizer, const int32_t* tokens, size_t n, uint8_t pending[3],
                            uint8_t* pending_count, uint8_t* out, size_t capacity, size_t* required);

// Ids around the turns of a conversation.
enum class Role : uint32_t { kSystem = 0, kUser = 1, kAssistant = 2 };
enum class Part : uint32_t {
  kPrefix = 0,   // in front of the turn's text; the system prefix opens the whole conversation
  kSuffix = 1,   // behind the turn's text
  kOpening = 2,  // role kSystem: what opens a conversation that has no system turn (perhaps a default one)
};
inline constexpr uint32_t kChatRoles = 3;
inline constexpr uint32_t kChatParts = 3;
inline constexpr uint32_t kChatSlots = kChatRoles * kChatParts;

struct IdSpan {
  LeArray<uint32_t> ids;
  size_t count = 0;
};

// Empty when the model has no chat format (has_chat is false) or the part has no ids.
IdSpan chat_ids(const Tokenizer& tokenizer, Role role, Part part);

}  // namespace superslm::text
