// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Pages over the host's memory: which are free, who owns one, how many holders share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/lock.h"
#include "kv/geometry.h"
#include "kv/kv_view.h"

namespace superslm::kv {

enum class Status {
  kOk,
  kInvalid,     // zero units, or a total that no pool can have
  kTooSmall,    // buffer shorter than the pool needs
  kMisaligned,  // buffer not on a 64-byte boundary
  kExhausted,   // fewer free pages than must be drawn
  kNoMemory,    // process heap exhausted
};

constexpr size_t kPoolAlignment = 64;
constexpr uint32_t kNoPage = 0xFFFFFFFFu;

// A list of pages linked through the pool's page entries. Its owner walks it without a lock.
struct Chain {
  uint32_t head = kNoPage;
  uint32_t tail = kNoPage;
  uint32_t count = 0;
};

struct PoolStats {
  uint32_t page_count = 0;
  uint32_t free_pages = 0;
  uint32_t shared_pages = 0;  // distinct pages that at least one holder maps by sharing
  int64_t page_positions = 0;
};

// A page is free, or owned by one holder (reserve, private, materialised), or outlives its owner while others
// share it. Every page leaves and enters the pool under the mutex; an owned page nobody shares is touched by
// its owner alone, so mapping from a reserve takes no lock.
class Pool {
 public:
  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The refusals of the create verbs in their order, without side effect. geometry is the model's
  // (make_geometry); units are blocks, pages or blocks by kind.
  static Status check(const Geometry& geometry, PoolKind kind, const void* buffer, size_t size,
                      uint32_t units);

  // Checks, then takes the buffer; writes no page of it. After a passed check only kNoMemory is possible.
  Status open(const Geometry& geometry, PoolKind kind, void* buffer, size_t size, uint32_t units);

  PoolKind kind() const { return kind_; }
  const Geometry& geometry() const { return geometry_; }
  int64_t pages_per_context() const { return pages_per_context_; }  // 1 in a contiguous pool
  int64_t pages_for_budget(int32_t budget) const { return kv::pages_for_budget(geometry_, budget); }
  uint8_t* pages() const { return base_; }

  // One consistent snapshot.
  PoolStats stats();
  // Sequences and prefixes made from this pool and not released.
  uint32_t live_holders();

  // For holders only.

  // Takes count pages and registers a holder, or changes nothing.
  Status draw(int64_t count, Chain* out);
  // Maps count pages by sharing: one more sharer each.
  void share(const uint32_t* pages, int64_t count);
  // Gives back, in one call: shares, owned pages by table, owned pages by chain. Pages nobody else shares are
  // poisoned where they were written, then freed. leave: the holder is gone.
  void give_back(const uint32_t* shared, int64_t shared_count, const uint32_t* owned, int64_t owned_count,
                 const Chain& reserve, bool leave);
  // Chain operations on pages the caller owns; no lock. pop marks the page as written.
  uint32_t pop(Chain& chain);
  void push(Chain& chain, uint32_t page);

 private:
  struct Entry {
    uint32_t next;  // link of the chain the page is in
    uint32_t word;  // written, orphaned, number of sharers; 0 while free
  };
  void append(Chain& chain, uint32_t page);
  void splice(Chain& chain, const Chain& rest);
  void poison(const Chain& chain);

  base::Mutex mutex_;
  Geometry geometry_;
  PoolKind kind_ = PoolKind::kPage;
  int64_t pages_per_context_ = 0;
  uint8_t* base_ = nullptr;
  Entry* entries_ = nullptr;      // [page_count_]
  bool entries_on_heap_ = false;  // a block pool's overhead has no room for them
  uint32_t page_count_ = 0;
  uint32_t shared_pages_ = 0;
  uint32_t live_holders_ = 0;
  Chain free_;
};

}  // namespace superslm::kv
