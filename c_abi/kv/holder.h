// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What a sequence or prefix holds of a pool: its page table, its reserve, and how far it may write.
#pragma once

#include <cstdint>

#include "kv/kv_view.h"
#include "kv/pool.h"
#include "kv/rows.h"

namespace superslm::kv {

enum class Mode : uint32_t { kNoBudget = 0, kBudget = 1 };

struct HolderStats {
  uint32_t private_pages = 0;  // mapped and owned, materialised ones included
  uint32_t shared_pages = 0;
  uint32_t reserve_pages = 0;  // owned, not mapped yet
  uint32_t materialized_pages = 0;
};

class Holder;

// A holder to be rebuilt from a blob whose checks have passed.
struct RestoreRequest {
  Mode mode = Mode::kNoBudget;
  int32_t budget = 0;  // the cap without a budget
  int64_t origin = 0;
  int64_t positions = 0;  // L', rows to write
  PackedRows rows;
  // A hint: of the same model, or null. It is shared only if frozen, of this pool, of length origin and
  // equal.
  const Holder* prefix = nullptr;
  int64_t prefix_length = 0;
};

// A frozen prefix to be rebuilt from a blob whose checks have passed: rows [origin, length) are given, those
// before are the parent's, which is frozen, of the same pool and of length origin.
struct FrozenRequest {
  Mode mode = Mode::kNoBudget;
  int32_t budget = 0;
  int64_t origin = 0;
  int64_t length = 0;
  PackedRows rows;
  const Holder* parent = nullptr;  // null when origin is 0
};

// Pages in table order: shared, materialised, private; the reserve is apart. Plain data without pointers into
// itself: it may be moved by copying, as long as one copy lives on. The caller serialises calls on one
// holder; a frozen prefix may be read by any number of threads at once.
class Holder {
 public:
  // Draws the whole reservation. budget lies in [1, cap], and is the cap for a no-budget holder. Refusals
  // (kExhausted, then kNoMemory) leave the pool as it was.
  static Status create(Pool& pool, Mode mode, int32_t budget, Holder* out);

  // A budget holder in the parent's pool that shares the frozen parent's full pages and copies its tail page.
  static Status begin_from(const Holder& parent, int64_t parent_length, int32_t budget, Holder* out);

  // *shared_pages: pages shared with the request's prefix.
  static Status restore(Pool& pool, const RestoreRequest& request, Holder* out, uint32_t* shared_pages);

  // Draws the pages that the content needs and the parent does not share.
  static Status restore_frozen(Pool& pool, const FrozenRequest& request, Holder* out);

  // Replaces the content by a frozen prefix's. Never draws, never fails. A budget holder needs a prefix of
  // its own pool; a no-budget holder copies from any pool of the model.
  void adopt(const Holder& prefix, int64_t prefix_length);

  // Maps pages from the own reserve until positions [0, end) are covered. No lock, no allocation. False, with
  // nothing mapped, when the reserve is short, which cannot happen for end <= limit().
  bool map_to(int64_t end);

  // Private pages that [0, end) does not need go back to the own reserve, the first on top.
  void unmap_behind(int64_t end);

  void reset();

  // First call: gives back every page that [0, length) does not need. Later calls do nothing.
  void freeze(int64_t length);

  // Gives everything back and leaves the pool; the holder is empty afterwards.
  void release();

  KvView view() const { return KvView{pool_->pages(), table_, &pool_->geometry()}; }
  Pool* pool() const { return pool_; }
  Mode mode() const { return mode_; }
  int32_t budget() const { return budget_; }
  int64_t origin() const { return origin_; }
  int64_t limit() const { return limit_; }  // positions that may be written: [0, limit)
  bool frozen() const { return frozen_; }
  uint32_t mapped() const { return shared_ + materialized_ + private_; }  // pages in the table
  HolderStats stats() const;

 private:
  Status draw(Pool& pool, Mode mode, int32_t budget, int64_t pages);
  int64_t page_positions() const { return pool_->geometry().page_positions; }
  void set_origin(int64_t origin);
  void share_pages_of(const Holder& source, int64_t count);
  static bool can_share(const Pool& pool, const RestoreRequest& request);

  Pool* pool_ = nullptr;
  uint32_t* table_ = nullptr;  // [pages per context] page indices
  Chain reserve_;
  uint32_t shared_ = 0, materialized_ = 0, private_ = 0;
  Mode mode_ = Mode::kNoBudget;
  int32_t budget_ = 0;
  int64_t origin_ = 0, limit_ = 0;
  bool frozen_ = false;
};

}  // namespace superslm::kv
