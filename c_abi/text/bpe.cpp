// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "text/bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/checked.h"
#include "base/memory.h"

namespace superslm::text {

IdSink::~IdSink() { base::deallocate(ids_); }

bool IdSink::append(uint32_t id) {
  const size_t index = count_++;
  if (index >= capacity_) return true;
  if (index == room_ && !grow()) return false;
  ids_[index] = static_cast<int32_t>(id);
  return true;
}

bool IdSink::grow() {
  const size_t room = room_ ? room_ * 2 : 256;
  const base::CheckedSize bytes = base::CheckedSize(room) * sizeof(int32_t);
  int32_t* ids = bytes.ok() ? static_cast<int32_t*>(base::allocate(bytes.saturated())) : nullptr;
  if (ids == nullptr) return false;
  if (count_ > 1) std::memcpy(ids, ids_, room_ * sizeof(int32_t));
  base::deallocate(ids_);
  ids_ = ids;
  room_ = room;
  return true;
}

void IdSink::copy_to(int32_t* out) const {
  if (count_ > 0) std::memcpy(out, ids_, count_ * sizeof(int32_t));
}

MergeScratch::~MergeScratch() { base::deallocate(block_); }

MergeScratch::Arrays MergeScratch::arrays(size_t symbols) {
  unsigned char* bytes = local_;
  size_t room = kLocalSymbols;
  if (symbols > kLocalSymbols) {
    if (symbols > block_symbols_) {
      const base::CheckedSize size = base::CheckedSize(symbols) * kSymbolBytes;
      base::deallocate(block_);
      block_ = size.ok() ? base::allocate(size.saturated()) : nullptr;
      block_symbols_ = block_ ? symbols : 0;
      if (block_ == nullptr) return {};
    }
    bytes = static_cast<unsigned char*>(block_);
    room = block_symbols_;
  }
  uint64_t* heap = reinterpret_cast<uint64_t*>(bytes);
  uint32_t* words = reinterpret_cast<uint32_t*>(bytes + room * 2 * sizeof(uint64_t));
  return {heap, words, words + room, words + 2 * room};
}

namespace {

// Binary search among the merges of the left part.
Merge search_merge(const Tokenizer& t, uint32_t left, uint32_t right) {
  size_t low = t.merge_start[left], high = t.merge_start[size_t{left} + 1];
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint32_t id = t.merges[3 * middle];
    if (id == right) return {t.merges[3 * middle + 1], t.merges[3 * middle + 2]};
    if (id < right) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {};
}

}  // namespace

MergeScratch::MergeScratch() {
  for (Memo& memo : memos_) memo.pair = UINT64_MAX;  // no id is kNoId
}

Merge MergeScratch::find_merge(const Tokenizer& tokenizer, uint32_t left, uint32_t right) {
  Memo& memo = memos_[(left * 0x9E3779B1u ^ right * 0x85EBCA77u) >> 23];
  const uint64_t pair = uint64_t{left} << 32 | right;
  if (memo.pair != pair) memo = {pair, search_merge(tokenizer, left, right)};
  return memo.merge;
}

namespace {

// The token whose whole text is the piece, or kNoId.
uint32_t find_whole_word(const Tokenizer& t, Span piece) {
  size_t low = 0, high = t.whole_word_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint32_t id = t.whole_words[middle];
    const uint32_t start = t.text_start[id], size = t.text_start[size_t{id} + 1] - start;
    const int order = std::memcmp(t.text + start, piece.begin, std::min<size_t>(size, piece.size()));
    if (order == 0 && size == piece.size()) return id;
    if (order < 0 || (order == 0 && size < piece.size())) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return kNoId;
}

// Writes the piece's byte tokens, a character with a lacking byte as the replacement; returns their number.
size_t byte_symbols(const Tokenizer& t, Span piece, uint32_t* id) {
  size_t n = 0;
  while (piece.size() > 0) {
    const Character c = t.lacks_bytes ? decode(piece) : Character{0, 1};
    const size_t start = n;
    bool lacking = false;
    for (size_t i = 0; i < c.size; ++i) {
      id[n] = t.byte_id[piece.begin[i]];
      lacking |= id[n++] == kNoId;
    }
    if (lacking) {
      n = start;
      for (size_t i = 0; i < t.replacement_size; ++i) id[n++] = t.byte_id[t.replacement[i]];
    }
    piece.begin += c.size;
  }
  return n;
}

// Applies the lowest-ranked merge, leftmost first, until none is left: n log n however the merges fall.
class Merger {
 public:
  Merger(const Tokenizer& t, MergeScratch* scratch, const MergeScratch::Arrays& arrays, uint32_t n)
      : t_(t), scratch_(*scratch), a_(arrays), n_(n) {}

  void run() {
    for (uint32_t i = 0; i < n_; ++i) {
      a_.next[i] = i + 1;
      a_.prev[i] = i == 0 ? kNoId : i - 1;
      push(i, false);
    }
    std::make_heap(a_.heap, a_.heap + heap_size_, std::greater<>());
    while (heap_size_ > 0) {
      std::pop_heap(a_.heap, a_.heap + heap_size_, std::greater<>());
      const uint64_t top = a_.heap[--heap_size_];
      apply(static_cast<uint32_t>(top >> 32), static_cast<uint32_t>(top));
    }
  }

 private:
  // Adds the pair that begins at symbol i, if it merges.
  void push(uint32_t i, bool keep_order) {
    const uint32_t right = a_.next[i];
    if (right >= n_) return;
    const Merge merge = scratch_.find_merge(t_, a_.id[i], a_.id[right]);
    if (merge.rank == kNoId) return;
    a_.heap[heap_size_++] = uint64_t{merge.rank} << 32 | i;
    if (keep_order) std::push_heap(a_.heap, a_.heap + heap_size_, std::greater<>());
  }

  // Merges the pair at symbol i, unless the candidate is stale.
  void apply(uint32_t rank, uint32_t i) {
    if (a_.id[i] == kNoId || a_.next[i] >= n_) return;
    const uint32_t right = a_.next[i];
    const Merge merge = scratch_.find_merge(t_, a_.id[i], a_.id[right]);
    if (merge.rank != rank) return;
    a_.id[i] = merge.result;
    a_.id[right] = kNoId;
    a_.next[i] = a_.next[right];
    if (a_.next[i] < n_) a_.prev[a_.next[i]] = i;
    if (a_.prev[i] != kNoId) push(a_.prev[i], true);
    push(i, true);
  }

  const Tokenizer& t_;
  MergeScratch& scratch_;
  const MergeScratch::Arrays a_;
  const uint32_t n_;
  size_t heap_size_ = 0;
};

}  // namespace

Result encode_piece(const Tokenizer& t, Span piece, MergeScratch* scratch, IdSink* sink) {
  if (t.whole_word_count > 0) {
    const uint32_t id = find_whole_word(t, piece);
    if (id != kNoId) return sink->append(id) ? Result::kOk : Result::kOutOfMemory;
  }
  const size_t bound = piece.size() * (t.lacks_bytes ? t.replacement_size : 1);
  const MergeScratch::Arrays arrays = scratch->arrays(bound);
  if (arrays.heap == nullptr) return Result::kOutOfMemory;
  const uint32_t n = static_cast<uint32_t>(byte_symbols(t, piece, arrays.id));
  Merger(t, scratch, arrays, n).run();
  for (uint32_t i = 0; i < n; i = arrays.next[i]) {
    if (!sink->append(arrays.id[i])) return Result::kOutOfMemory;
  }
  return Result::kOk;
}

}  // namespace superslm::text
