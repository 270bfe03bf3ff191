// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Byte-pair merging of one piece of text.
#pragma once

#include "text/unicode.h"

namespace superslm::text {

// Collects ids: counts all of them and keeps those that may fit the caller's buffer.
class IdSink {
 public:
  explicit IdSink(size_t capacity) : capacity_(capacity) {}
  ~IdSink();
  IdSink(const IdSink&) = delete;
  IdSink& operator=(const IdSink&) = delete;

  bool append(uint32_t id);  // false: out of memory
  size_t count() const { return count_; }
  void copy_to(int32_t* out) const;

 private:
  bool grow();

  int32_t* ids_ = nullptr;
  size_t room_ = 0;
  size_t count_ = 0;
  size_t capacity_;
};

struct Merge {
  uint32_t rank = kNoId, result = kNoId;  // kNoId: the two do not merge
};

// Working memory of merging: short pieces live on the stack, a longer one draws from the heap once.
class MergeScratch {
 public:
  MergeScratch();
  ~MergeScratch();
  MergeScratch(const MergeScratch&) = delete;
  MergeScratch& operator=(const MergeScratch&) = delete;

  // A doubly linked list of symbols in arrays, and a heap of candidate merges. A merge adds one candidate
  // more than it removes, so twice the symbols are enough.
  struct Arrays {
    uint64_t* heap;  // [2 n]
    uint32_t* id;    // [n]; kNoId: absorbed by its left neighbour
    uint32_t* next;  // [n]; n: none
    uint32_t* prev;  // [n]; kNoId: none
  };
  // Null heap: out of memory.
  Arrays arrays(size_t symbols);

  // The merge of two neighbours; the last answers are kept, since a text repeats its pairs.
  Merge find_merge(const Tokenizer& tokenizer, uint32_t left, uint32_t right);

 private:
  struct Memo {
    uint64_t pair;
    Merge merge;
  };
  static constexpr size_t kMemos = 512;

  static constexpr size_t kLocalSymbols = 128;
  static constexpr size_t kSymbolBytes = 2 * sizeof(uint64_t) + 3 * sizeof(uint32_t);

  alignas(8) unsigned char local_[kLocalSymbols * kSymbolBytes];
  Memo memos_[kMemos];
  void* block_ = nullptr;
  size_t block_symbols_ = 0;
};

// Appends the ids of one piece. Pieces are at most kMaxTextBytes long.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;
Result encode_piece(const Tokenizer& tokenizer, Span piece, MergeScratch* scratch, IdSink* sink);

}  // namespace superslm::text
