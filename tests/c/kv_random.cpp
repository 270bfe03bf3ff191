// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Random events against a plain model of the pool: who holds which page, and what every page must contain.
#include <map>
#include <set>

#include "failing_memory.h"
#include "kv_fixture.h"

using kv::Holder;
using kv::Mode;
using kv::PoolKind;
using kv::Status;

namespace {

// What the contract says a holder has, counted without the library.
struct Expected {
  bool prefix = false, frozen = false;
  int64_t reserved = 0, shared = 0, materialized = 0, own = 0;
};

struct World {
  PoolFixture fixture;
  Random random;
  int64_t page, pages_per_context;
  std::map<int, Filled> holders;
  std::map<int, Expected> expected;
  int next_id = 0;
  uint64_t next_stamp = 1;

  World(PoolKind kind, int32_t cap, uint32_t units, uint64_t seed)
      : fixture(small_geometry(cap, 2), kind, units), random{seed} {
    page = fixture.pool.geometry().page_positions;
    pages_per_context = fixture.pool.pages_per_context();
  }
  int64_t pages_for(int64_t positions) const { return (positions + page - 1) / page; }
  int64_t reservation(Mode mode, int32_t budget) const {
    const int64_t pages = pages_for(budget) + 1;
    return mode == Mode::kNoBudget || pages > pages_per_context ? pages_per_context : pages;
  }
  int32_t any_budget() {
    const int32_t cap = fixture.model.cap;
    return 1 + static_cast<int32_t>(random.below(random.below(3) ? cap / 4 + 1 : cap));
  }
  int any(bool frozen_prefix) {
    std::vector<int> ids;
    for (const auto& [id, e] : expected) {
      if ((e.prefix && e.frozen) == frozen_prefix) ids.push_back(id);
    }
    return ids.empty() ? -1 : ids[static_cast<size_t>(random.below(static_cast<int64_t>(ids.size())))];
  }

  int64_t used_pages() const {
    std::set<uint32_t> mapped;
    int64_t reserve = 0;
    for (const auto& [id, filled] : holders) {
      const kv::HolderStats stats = filled.holder.stats();
      for (uint32_t i = 0; i < stats.shared_pages + stats.private_pages; ++i) {
        mapped.insert(filled.holder.view().pages[i]);
      }
      reserve += stats.reserve_pages;
    }
    return static_cast<int64_t>(mapped.size()) + reserve;
  }
  int64_t shared_pages() const {
    std::set<uint32_t> shared;
    for (const auto& [id, filled] : holders) {
      for (uint32_t i = 0; i < filled.holder.stats().shared_pages; ++i) {
        shared.insert(filled.holder.view().pages[i]);
      }
    }
    return static_cast<int64_t>(shared.size());
  }
  void check() {
    const kv::PoolStats stats = fixture.pool.stats();
    CHECK_EQ(stats.page_count - stats.free_pages, used_pages());
    CHECK_EQ(stats.shared_pages, shared_pages());
    CHECK_EQ(fixture.pool.live_holders(), holders.size());
    for (const auto& [id, e] : expected) {
      const Filled& filled = holders[id];
      const kv::HolderStats own = filled.holder.stats();
      CHECK_EQ(own.shared_pages, e.shared);
      CHECK_EQ(own.materialized_pages, e.materialized);
      CHECK_EQ(own.private_pages, e.materialized + e.own);
      CHECK_EQ(own.reserve_pages, e.frozen ? 0 : e.reserved - e.own);
      filled.check_rows();
    }
  }

  void create() {
    const Mode mode = random.below(2) ? Mode::kBudget : Mode::kNoBudget;
    const int32_t budget = mode == Mode::kBudget ? any_budget() : fixture.model.cap;
    const int64_t pages = reservation(mode, budget);
    Filled filled;
    const bool fits = pages <= int64_t{fixture.free_pages()};
    const Status status = Holder::create(fixture.pool, mode, budget, &filled.holder);
    CHECK(status == (fits ? Status::kOk : Status::kExhausted));
    if (!fits) return;
    Expected e;
    e.prefix = random.below(2) != 0;
    e.reserved = pages;
    add(filled, e);
  }
  void add(const Filled& filled, const Expected& e) {
    holders[next_id] = filled;
    expected[next_id++] = e;
  }
  void adopted(Expected& e, const Filled& filled, bool shares) {
    e.materialized = 0;
    e.shared = shares && pages_per_context > 1 ? filled.length() / page : 0;
    e.own = pages_for(filled.length()) - e.shared;
  }
  void begin() {
    const int parent = any(true);
    if (parent < 0) return;
    const int32_t budget = any_budget();
    Filled child;
    const bool fits = reservation(Mode::kBudget, budget) <= int64_t{fixture.free_pages()};
    const Filled& from = holders[parent];
    const Status status = Holder::begin_from(from.holder, from.length(), budget, &child.holder);
    CHECK(status == (fits ? Status::kOk : Status::kExhausted));
    if (!fits) return;
    child.history = from.history;
    Expected e;
    e.prefix = true;
    e.reserved = reservation(Mode::kBudget, budget);
    adopted(e, child, true);
    add(child, e);
  }
  void adopt() {
    const int prefix = any(true), id = any(false);
    if (prefix < 0 || id < 0 || expected[id].prefix) return;
    holders[id].adopt(holders[prefix]);
    adopted(expected[id], holders[id], holders[id].holder.mode() == Mode::kBudget);
  }
  void append() {
    const int id = any(false);
    if (id < 0) return;
    Filled& filled = holders[id];
    for (int64_t i = random.below(2 * page + 3); i > 0; --i) {
      if (!filled.append(next_stamp++)) break;
    }
    Expected& e = expected[id];
    const int64_t needed = pages_for(filled.length()) - e.shared - e.materialized;
    if (needed > e.own) e.own = needed;
  }
  void reset() {
    const int id = any(false);
    if (id < 0 || expected[id].prefix) return;
    holders[id].reset();
    expected[id].shared = expected[id].materialized = expected[id].own = 0;
  }
  void freeze() {
    const int id = any(false);
    if (id < 0 || !expected[id].prefix) return;
    holders[id].freeze();
    expected[id].frozen = true;
  }
  void release() {
    if (holders.empty()) return;
    auto it = holders.begin();
    std::advance(it, random.below(static_cast<int64_t>(holders.size())));
    it->second.holder.release();
    expected.erase(it->first);
    holders.erase(it);
  }
  void save_and_restore() {
    const int id = any(false);
    if (id < 0 || expected[id].prefix || holders[id].length() == 0) return;
    const Filled& saved = holders[id];
    const std::vector<uint8_t> rows = saved.packed(saved.length());
    kv::RestoreRequest request = request_of(saved, rows);
    const int hint = any(true);
    bool shares = false;
    if (hint >= 0) {
      const Filled& prefix = holders[hint];
      request.prefix = &prefix.holder;
      request.prefix_length = prefix.length();
      const int64_t full = request.origin / page * page;
      shares = request.mode == Mode::kBudget && pages_per_context > 1 && prefix.length() == request.origin;
      for (int64_t i = 0; shares && i < full; ++i) {
        shares = prefix.history[static_cast<size_t>(i)] == saved.history[static_cast<size_t>(i)];
      }
    }
    Expected e;
    e.reserved = reservation(request.mode, request.budget);
    const int64_t full = request.origin / page;
    e.shared = shares ? full : 0;
    if (request.mode == Mode::kBudget && !shares) {
      e.materialized = full < pages_per_context - e.reserved ? full : pages_per_context - e.reserved;
    }
    e.own = pages_for(saved.length()) - e.shared - e.materialized;
    Filled restored{Holder(), saved.history};
    uint32_t shared = 0;
    const bool fits = e.reserved + e.materialized <= int64_t{fixture.free_pages()};
    const Status status = Holder::restore(fixture.pool, request, &restored.holder, &shared);
    CHECK(status == (fits ? Status::kOk : Status::kExhausted));
    if (!fits) return;
    CHECK_EQ(shared, e.shared);
    CHECK_EQ(restored.holder.limit(), saved.holder.limit());
    add(restored, e);
  }
  void step() {
    using Event = void (World::*)();
    static constexpr Event kEvents[] = {
        &World::create, &World::create, &World::begin,   &World::begin,   &World::adopt,
        &World::adopt,  &World::append, &World::append,  &World::append,  &World::reset,
        &World::freeze, &World::freeze, &World::release, &World::release, &World::save_and_restore};
    (this->*kEvents[random.below(static_cast<int64_t>(std::size(kEvents)))])();
  }
};

void random_events_match_a_plain_model() {
  const struct {
    PoolKind kind;
    int32_t cap;
    uint32_t units;
  } pools[] = {{PoolKind::kPage, 1000, 60}, {PoolKind::kBlock, 300, 6}, {PoolKind::kContiguous, 200, 6},
               {PoolKind::kPage, 64, 5},    {PoolKind::kPage, 65, 12},  {PoolKind::kBlock, 100, 4}};
  for (const auto& pool : pools) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      World world(pool.kind, pool.cap, pool.units, seed);
      for (int i = 0; i < 400; ++i) {
        world.step();
        world.check();
      }
      while (!world.holders.empty()) world.release();
      world.check();
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests({TEST(random_events_match_a_plain_model)}, argc, argv); }
