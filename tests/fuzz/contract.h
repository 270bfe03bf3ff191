// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A small model of docs/api.md: what pools, pages, sequences and prefixes must be after each verb. Written
// from that page and not from the library.
#pragma once

#include "fuzz.h"

namespace superslm::fuzz {

constexpr int64_t kPage = 4;  // positions per page, pinned
constexpr int32_t kLayers = 3, kVocab = 32, kCap = 20, kHidden = 16;
constexpr int64_t kPositionBytes = int64_t{kLayers} * 2 * 1 * 8;  // one K/V head of 8 channels
constexpr uint32_t kContextPages = kCap / kPage;
constexpr uint32_t kNoWalk = 0xFFFFFFFF;

inline int64_t up(int64_t positions, int64_t page) { return (positions + page - 1) / page; }

// ---- Schemas: "chain" ends after three tokens, "parity" alternates for ever ----

enum Schema : int { kNone = -1, kChain = 0, kParity = 1 };

// The state behind a token, kNoWalk where the token is not legal.
inline uint32_t step(int schema, uint32_t state, int32_t token) {
  if (schema == kChain) {
    const auto low = static_cast<int32_t>(4 * state);
    return state < 3 && token >= low && token < low + 8 ? state + 1 : kNoWalk;
  }
  return static_cast<uint32_t>(token % 2) == state ? 1 - state : kNoWalk;
}

inline bool accepting(int schema, uint32_t state) { return state == (schema == kChain ? 3u : 0u); }
inline bool dead_end(int schema, uint32_t state) { return schema == kChain && state == 3; }

// ---- Pools and pages ----

struct Page {
  int mappers = 1;  // holders whose table has it
  int sharers = 0;  // those that map it by sharing
};

enum Kind { kBlockPool, kPagePool, kContiguousPool };

struct Pool {
  sslm_kv_pool handle = nullptr;
  Kind kind = kPagePool;
  uint32_t total = 0, free = 0;
  int holders = 0;
  uint32_t shared = 0;  // pages that some holder maps by sharing

  int64_t page() const { return kind == kContiguousPool ? kCap : kPage; }
  uint32_t per_context() const { return kind == kContiguousPool ? 1 : kContextPages; }
  uint32_t reservation(bool budgeted, int32_t budget) const {
    if (!budgeted) return per_context();
    const int64_t pages = up(budget, page()) + 1;
    return pages < per_context() ? static_cast<uint32_t>(pages) : per_context();
  }
  void let_go(Page* page_) {
    if (--page_->mappers > 0) return;
    delete page_;
    ++free;
  }
};

// Pages in table order: shared, materialised, private; and the reserve.
struct Holder {
  Pool* pool = nullptr;
  bool budgeted = false, frozen = false;
  int32_t budget = kCap;
  int64_t origin = 0;
  std::vector<Page*> pages;
  uint32_t shared = 0, materialized = 0, reserve = 0;

  int64_t limit() const {
    if (!budgeted) return kCap;
    return origin + budget < kCap ? origin + budget : kCap;
  }
  sslm_status at_limit() const {
    return limit() < kCap ? SSLM_KV_BUDGET_EXCEEDED : SSLM_CONTEXT_CAP_EXCEEDED;
  }
  bool shares() const { return budgeted && pool->per_context() > 1; }

  void draw(Pool* from, bool with_budget, int32_t positions, uint32_t count) {
    pool = from;
    budgeted = with_budget;
    budget = with_budget ? positions : kCap;
    reserve = count;
    from->free -= count;
    ++from->holders;
  }
  void map_to(int64_t end) {
    for (int64_t needed = up(end, pool->page()); static_cast<int64_t>(pages.size()) < needed; --reserve) {
      REQUIRE(reserve > 0);
      pages.push_back(new Page);
    }
  }
  void share(const Holder& source, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      Page* page = source.pages[static_cast<size_t>(i)];
      ++page->mappers;
      if (page->sharers++ == 0) ++pool->shared;
      pages.push_back(page);
    }
    shared = static_cast<uint32_t>(count);
  }
  void unshare(Page* page) {
    if (--page->sharers == 0) --pool->shared;
    pool->let_go(page);
  }
  // Private pages go back to the own reserve, the others to the pool.
  void reset() {
    for (size_t i = 0; i < pages.size(); ++i) {
      if (i < shared) {
        unshare(pages[i]);
      } else if (i < shared + materialized) {
        pool->let_go(pages[i]);
      } else {
        REQUIRE_EQ(pages[i]->mappers, 1);
        delete pages[i];
        ++reserve;
      }
    }
    pages.clear();
    shared = materialized = 0;
    origin = 0;
  }
  // The front is shared before the old pages go, so that none of them is freed in between.
  void adopt(const Holder& prefix, int64_t length) {
    Holder next = *this;
    next.pages.clear();
    next.materialized = 0;
    next.share(prefix, shares() ? length / pool->page() : 0);
    reset();
    next.reserve = reserve;
    next.origin = length;
    *this = next;
    map_to(length);
  }
  void freeze(int64_t length) {
    if (frozen) return;
    for (const int64_t keep = up(length, pool->page()); static_cast<int64_t>(pages.size()) > keep;
         pages.pop_back())
      pool->let_go(pages.back());
    pool->free += reserve;
    reserve = 0;
    frozen = true;
  }
  void release() {
    for (size_t i = 0; i < pages.size(); ++i) i < shared ? unshare(pages[i]) : pool->let_go(pages[i]);
    pages.clear();
    pool->free += reserve;
    --pool->holders;
  }
};

// ---- Sequences and prefixes ----

struct Row {
  int32_t token;
  bool adapted;  // computed with the adapter bound
  bool operator==(const Row& other) const { return token == other.token && adapted == other.adapted; }
};

// What a save carries.
struct State {
  std::vector<Row> rows;
  int32_t layer = 0;
  bool begun_adapted = false;  // the token that is being written
  bool mixed = false;          // some token began with the adapter and ended, after a restore, without it
  bool ready = false;
  int32_t pending = -1;  // also while it is being written
  int schema = kNone;
  uint32_t walk = kNoWalk;
  int64_t forced = 0;
  int32_t order = 0;  // of the damped history
  size_t history = 0;

  int64_t length() const { return static_cast<int64_t>(rows.size()); }
  bool fresh() const { return rows.empty(); }
  int64_t carried() const { return length() + (layer > 0 ? 1 : 0); }
  void bind(int to) {
    schema = to;
    walk = to == kNone ? kNoWalk : 0;
  }
  void clear() {
    const int kept = schema;
    *this = State();
    bind(kept);
  }
};

struct Context {
  State state;
  Holder holder;
  bool adapted = false, bindable = true;

  // The state of a prefix that is adopted or continued.
  void take(const Context& prefix) {
    const int own = state.schema;
    state = prefix.state;
    state.forced = 0;
    state.order = 0;
    state.history = 0;
    if (prefix.state.schema == kNone || prefix.state.walk == 0) state.bind(own);
  }

  struct Admission {
    int32_t count;
    sslm_status status;
  };

  // docs/api.md, sslm_prefill: the three stopping points.
  Admission admit(const std::vector<int32_t>& tokens, int32_t n, bool content) const {
    const int64_t headroom = holder.limit() - state.length();
    int32_t bad = 0, walked = 0;
    while (bad < n && tokens[static_cast<size_t>(bad)] >= 0 && tokens[static_cast<size_t>(bad)] < kVocab)
      ++bad;
    const auto fits = static_cast<int32_t>(headroom < n ? headroom : n);
    const int32_t most = bad < fits ? bad : fits;
    uint32_t walk = state.walk;
    while (content && walked < most) {
      walk = step(state.schema, walk, tokens[static_cast<size_t>(walked)]);
      if (walk == kNoWalk) return {walked, SSLM_SCHEMA_SPAN_UNREACHABLE};
      ++walked;
    }
    if (bad < n && bad <= headroom) return {most, SSLM_TOKEN_ID_OUT_OF_RANGE};
    return {most, headroom < n ? holder.at_limit() : SSLM_OK};
  }

  void append(const std::vector<int32_t>& tokens, int32_t count, bool content) {
    if (count == 0) return;
    holder.map_to(state.length() + count);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t token = tokens[static_cast<size_t>(i)];
      state.rows.push_back(Row{token, adapted});
      if (content) state.walk = step(state.schema, state.walk, token);
    }
    if (content) state.forced += count;
    state.layer = 0;
    state.ready = true;
    state.pending = -1;
  }

  // A decode call's layer work on this entry. False where it is refused; else `finishes` says whether a token
  // is due.
  bool advance(int32_t layers, bool* finishes, sslm_status* refusal) {
    *finishes = true;
    *refusal = SSLM_OK;
    if (state.ready) return true;
    if (state.layer == 0) {
      if (state.length() >= holder.limit()) {
        *refusal = holder.at_limit();
        return false;
      }
      holder.map_to(state.length() + 1);
      state.begun_adapted = adapted;
    }
    state.layer += layers;
    *finishes = state.layer >= kLayers;
    if (!*finishes) return true;
    state.rows.push_back(Row{state.pending, adapted});
    state.mixed = state.mixed || state.begun_adapted != adapted;
    state.layer = 0;
    state.pending = -1;
    state.ready = true;
    return true;
  }

  void emit(int32_t token, int32_t damped_order) {
    if (state.schema != kNone) state.walk = step(state.schema, state.walk, token);
    state.pending = token;
    state.ready = false;
    if (damped_order == 0) return;
    if (damped_order != state.order) state.history = 0;
    state.order = damped_order;
    ++state.history;
  }

  size_t saved_size() const {
    const auto history = static_cast<int64_t>(4 * state.history);
    const int64_t size = holder.budgeted ? 180 + 4 * kHidden + history + state.carried() * kPositionBytes
                                         : 160 + 4 * kHidden + history + kCap * kPositionBytes;
    return static_cast<size_t>(size);
  }
};

inline bool same_rows(const State& a, const State& b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (at >= a.rows.size() || at >= b.rows.size() || !(a.rows[at] == b.rows[at])) return false;
  }
  return true;
}

}  // namespace superslm::fuzz
