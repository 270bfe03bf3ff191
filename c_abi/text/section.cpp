// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The tokenizer section as hostile input: docs/tokenizer_section.md states every rule that is checked here.
#include "text/section.h"

#include <algorithm>
#include <cstring>

namespace superslm::text {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 32;
constexpr uint32_t kFlagNormalizes = 1, kFlagChat = 2, kFlagMask = 3;
constexpr size_t kStageBytes = kCodePoints >> 8;
constexpr size_t kBlockEntries = 256;
constexpr uint32_t kMaxParts = 4;  // code points of one canonical decomposition
constexpr uint32_t kMaxTokenBytes = 65535;

enum Table : size_t {
  kTextStart,
  kText,
  kByteId,
  kMergeStart,
  kMerges,
  kWholeWords,
  kAdded,
  kClassStage,
  kClassBlocks,
  kNfcStage,
  kNfcBlocks,
  kNfcRecords,
  kNfcParts,
  kNfcCompositions,
  kChatStart,
  kChatIds,
  kTables
};

struct TableRule {
  const char* name;
  uint32_t entry_bytes;
};

constexpr TableRule kRules[kTables] = {
    {"text_start", 4},
    {"text", 1},
    {"byte_id", 4},
    {"merge_start", 4},
    {"merges", 12},
    {"whole_words", 4},
    {"added", 8},
    {"class_stage", 1},
    {"class_blocks", kBlockEntries},
    {"nfc_stage", 1},
    {"nfc_blocks", 2 * kBlockEntries},
    {"nfc_records", 4},
    {"nfc_parts", 4},
    {"nfc_compositions", 12},
    {"chat_start", 4},
    {"chat_ids", 4},
};

struct Entries {
  const uint8_t* data = nullptr;
  size_t count = 0;
  LeArray<uint32_t> words() const { return {data}; }
};

bool is_code_point(uint32_t code) { return code < kCodePoints && code - 0xD800u >= 0x800u; }

class Parser {
 public:
  Parser(const uint8_t* data, size_t size, uint32_t vocab, Tokenizer* out, base::Message* why)
      : data_(data), bytes_(size), t_(*out), why_(*why) {
    t_ = {};
    t_.vocab = vocab;
  }

  bool run() {
    return header() && directory() && texts() && byte_ids() && merges() && whole_words() && added() &&
           classes() && nfc() && chat();
  }

 private:
  // Reports a field unless `good`.
  bool need(bool good, const char* field, const char* rule) {
    if (!good) why_.append("tokenizer ").append(field).append(": ").append(rule);
    return good;
  }
  bool need_at(bool good, const char* field, size_t index, const char* rule) {
    if (!good)
      why_.append("tokenizer ").append(field).append("[").append_u64(index).append("]: ").append(rule);
    return good;
  }
  bool need_count(Table table, size_t count) {
    return need(tables_[table].count == count, kRules[table].name, "has the wrong number of entries");
  }

  bool header() {
    if (!need(bytes_ >= kHeaderBytes + kTables * 8, "header", "the section is shorter than its header"))
      return false;
    if (!need(std::memcmp(data_, "SLTK", 4) == 0, "magic", "is not SLTK")) return false;
    const LeArray<uint32_t> words{data_};
    if (!need(words[1] == kVersion, "version", "is not 1")) return false;
    t_.size = words[2];
    const uint32_t pre_tokenizer = words[3];
    flags_ = words[4];
    t_.replacement_size = words[5];
    t_.replacement = data_ + 24;
    t_.pre_tokenizer = static_cast<PreTokenizer>(pre_tokenizer);
    return need(t_.size >= 1 && t_.size <= t_.vocab, "size", "is zero or above the model's vocabulary") &&
           need(pre_tokenizer >= 1 && pre_tokenizer <= 4, "pre_tokenizer", "is unknown") &&
           need((flags_ & ~kFlagMask) == 0, "flags", "has an unknown bit") &&
           need(t_.replacement_size >= 1 && t_.replacement_size <= 3, "replacement_size", "is not 1 to 3") &&
           need(words[7] == kTables, "table_count", "is not 16");
  }

  // Tables lie in order, without overlap, inside the section.
  bool directory() {
    const LeArray<uint32_t> words{data_ + kHeaderBytes};
    uint64_t free_from = kHeaderBytes + kTables * 8;
    for (size_t i = 0; i < kTables; ++i) {
      const uint64_t offset = words[2 * i], size = words[2 * i + 1];
      if (!need(offset >= free_from, kRules[i].name, "its offset overlaps what stands before it") ||
          !need(offset + size <= bytes_, kRules[i].name, "it reaches beyond the section") ||
          !need(size % kRules[i].entry_bytes == 0, kRules[i].name,
                "its size is not a whole number of entries")) {
        return false;
      }
      tables_[i] = {data_ + offset, static_cast<size_t>(size / kRules[i].entry_bytes)};
      free_from = offset + size;
    }
    return true;
  }

  // [0] is 0, values never fall, the last is `total`; steps are at most `step`.
  bool starts(Table table, size_t lists, size_t total, uint32_t step) {
    if (!need_count(table, lists + 1)) return false;
    const LeArray<uint32_t> start = tables_[table].words();
    const char* name = kRules[table].name;
    if (!need(start[0] == 0, name, "does not begin at 0")) return false;
    for (size_t i = 0; i < lists; ++i) {
      const uint32_t low = start[i], high = start[i + 1];
      if (high < low || high - low > step)
        return need_at(false, name, i + 1, "falls, or its entry is too long");
    }
    return need(start[lists] == total, name, "does not end at the size of its table");
  }

  bool ids(Table table, size_t stride) {
    const LeArray<uint32_t> words = tables_[table].words();
    for (size_t i = 0; i < tables_[table].count; ++i) {
      if (words[i * stride] >= t_.size)
        return need_at(false, kRules[table].name, i, "its id is outside the tokenizer");
    }
    return true;
  }

  bool texts() {
    t_.text_start = tables_[kTextStart].words();
    t_.text = tables_[kText].data;
    return starts(kTextStart, t_.size, tables_[kText].count, kMaxTokenBytes);
  }

  bool byte_ids() {
    if (!need_count(kByteId, 256)) return false;
    t_.byte_id = tables_[kByteId].words();
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t id = t_.byte_id[byte];
      if (id == kNoId) {
        t_.lacks_bytes = true;
        continue;
      }
      if (!need_at(id < t_.size, "byte_id", byte, "its id is outside the tokenizer")) return false;
      const Span text = token_text(t_, id);
      if (!need_at(text.size() == 1 && text.begin[0] == byte, "byte_id", byte,
                   "its token is not that byte")) {
        return false;
      }
    }
    for (size_t i = 0; i < t_.replacement_size; ++i) {
      const bool known = !t_.lacks_bytes || t_.byte_id[t_.replacement[i]] != kNoId;
      if (!need_at(known, "replacement", i, "the vocabulary lacks this byte too")) return false;
    }
    return true;
  }

  bool merges() {
    const size_t count = tables_[kMerges].count;
    if (!starts(kMergeStart, t_.size, count, UINT32_MAX)) return false;
    t_.merge_start = tables_[kMergeStart].words();
    t_.merges = tables_[kMerges].words();
    for (size_t left = 0; left < t_.size; ++left) {
      uint64_t above = 0;
      for (size_t i = t_.merge_start[left], end = t_.merge_start[left + 1]; i < end; ++i) {
        const uint32_t right = t_.merges[3 * i], rank = t_.merges[3 * i + 1], result = t_.merges[3 * i + 2];
        if (right >= t_.size || result >= t_.size || rank >= count) {
          return need_at(false, "merges", i, "an id or the rank is out of range");
        }
        if (right < above) return need_at(false, "merges", i, "right parts do not ascend");
        above = uint64_t{right} + 1;
      }
    }
    return true;
  }

  bool whole_words() {
    t_.whole_words = tables_[kWholeWords].words();
    t_.whole_word_count = static_cast<uint32_t>(tables_[kWholeWords].count);
    return need(t_.whole_word_count <= t_.size, "whole_words", "has more entries than there are tokens") &&
           ids(kWholeWords, 1);
  }

  bool added() {
    t_.added = tables_[kAdded].words();
    t_.added_count = static_cast<uint32_t>(tables_[kAdded].count);
    if (!ids(kAdded, 2)) return false;
    Span before;
    for (size_t i = 0; i < t_.added_count; ++i) {
      const Span text = token_text(t_, t_.added[2 * i]);
      const bool fits = text.size() >= 1 && text.size() <= kMaxAddedBytes;
      if (!need_at(fits, "added", i, "its text is empty or above 1024 bytes") ||
          !need_at((t_.added[2 * i + 1] & ~3u) == 0, "added", i, "has an unknown flag") ||
          !need_at(std::lexicographical_compare(before.begin, before.end, text.begin, text.end), "added", i,
                   "its text does not follow the one before it")) {
        return false;
      }
      before = text;
    }
    return true;
  }

  bool stage(Table table, size_t blocks) {
    if (!need_count(table, kStageBytes)) return false;
    for (size_t i = 0; i < kStageBytes; ++i) {
      if (tables_[table].data[i] >= blocks) return need_at(false, kRules[table].name, i, "names no block");
    }
    return true;
  }

  bool classes() {
    const Entries blocks = tables_[kClassBlocks];
    t_.classes = {tables_[kClassStage].data, {blocks.data}};
    return stage(kClassStage, blocks.count);
  }

  bool nfc() {
    t_.normalizes = (flags_ & kFlagNormalizes) != 0;
    if (!t_.normalizes) return nfc_absent();
    const Entries blocks = tables_[kNfcBlocks];
    t_.nfc = {tables_[kNfcStage].data, {blocks.data}};
    t_.nfc_records = tables_[kNfcRecords].words();
    t_.nfc_parts = tables_[kNfcParts].words();
    t_.nfc_compositions = tables_[kNfcCompositions].words();
    t_.nfc_composition_count = static_cast<uint32_t>(tables_[kNfcCompositions].count);
    if (!stage(kNfcStage, blocks.count)) return false;
    for (size_t i = 0; i < blocks.count * kBlockEntries; ++i) {
      if (t_.nfc.blocks[i] >= tables_[kNfcRecords].count)
        return need_at(false, "nfc_blocks", i, "names no record");
    }
    return nfc_records() && nfc_parts() && nfc_compositions();
  }

  bool nfc_absent() {
    for (size_t i = kNfcStage; i <= kNfcCompositions; ++i) {
      if (!need(tables_[i].count == 0, kRules[i].name, "is present although nothing is normalised"))
        return false;
    }
    return true;
  }

  bool nfc_records() {
    for (size_t i = 0; i < tables_[kNfcRecords].count; ++i) {
      const uint32_t word = t_.nfc_records[i], length = word >> 8 & 255, start = word >> 16;
      if (length > kMaxParts || start + length > tables_[kNfcParts].count) {
        return need_at(false, "nfc_records", i, "its parts are too many or outside nfc_parts");
      }
    }
    return true;
  }

  bool nfc_parts() {
    for (size_t i = 0; i < tables_[kNfcParts].count; ++i) {
      if (!is_code_point(t_.nfc_parts[i])) return need_at(false, "nfc_parts", i, "is not a code point");
    }
    return true;
  }

  bool nfc_compositions() {
    uint64_t above = 0;
    for (size_t i = 0; i < t_.nfc_composition_count; ++i) {
      const uint32_t first = t_.nfc_compositions[3 * i], second = t_.nfc_compositions[3 * i + 1];
      const bool valid =
          is_code_point(first) && is_code_point(second) && is_code_point(t_.nfc_compositions[3 * i + 2]);
      const uint64_t key = uint64_t{first} << 32 | second;
      if (!need_at(valid, "nfc_compositions", i, "is not made of code points") ||
          !need_at(key >= above, "nfc_compositions", i, "pairs do not ascend")) {
        return false;
      }
      above = key + 1;
    }
    return true;
  }

  bool chat() {
    t_.has_chat = (flags_ & kFlagChat) != 0;
    if (!t_.has_chat) {
      return need_count(kChatStart, 0) && need_count(kChatIds, 0);
    }
    t_.chat_start = tables_[kChatStart].words();
    t_.chat_id = tables_[kChatIds].words();
    return starts(kChatStart, kChatSlots, tables_[kChatIds].count, UINT32_MAX) && ids(kChatIds, 1);
  }

  const uint8_t* data_;
  const size_t bytes_;
  Tokenizer& t_;
  base::Message& why_;
  uint32_t flags_ = 0;
  Entries tables_[kTables];
};

}  // namespace

bool parse(const uint8_t* data, size_t size, uint32_t vocab, Tokenizer* out, base::Message* why) {
  return Parser(data, size, vocab, out, why).run();
}

}  // namespace superslm::text
