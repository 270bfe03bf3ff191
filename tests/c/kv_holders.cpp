// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Every event of a page holder: what it draws, shares, copies, keeps and gives back.
#include "failing_memory.h"
#include "kv_fixture.h"

using kv::Holder;
using kv::Mode;
using kv::PoolKind;
using kv::Status;

namespace {

void check_stats(const Holder& holder, uint32_t own, uint32_t shared, uint32_t reserve,
                 uint32_t materialized) {
  const kv::HolderStats stats = holder.stats();
  CHECK_EQ(stats.private_pages, own);
  CHECK_EQ(stats.shared_pages, shared);
  CHECK_EQ(stats.reserve_pages, reserve);
  CHECK_EQ(stats.materialized_pages, materialized);
}

Filled frozen_prefix(kv::Pool& pool, int64_t length, uint64_t stamp, int32_t budget = 0) {
  Filled prefix{budget ? budgeted(pool, budget) : no_budget(pool), {}};
  prefix.append_many(length, stamp);
  prefix.freeze();
  return prefix;
}

void creation_reserves_by_kind_and_mode() {
  PoolFixture blocks(small_geometry(1000), PoolKind::kBlock, 2);  // 16 pages a context
  Holder whole = no_budget(blocks.pool);
  CHECK_EQ(blocks.free_pages(), 16);
  check_stats(whole, 0, 0, 16, 0);
  CHECK_EQ(whole.limit(), 1000);
  Holder part = budgeted(blocks.pool, 200);
  CHECK_EQ(blocks.free_pages(), 11);
  check_stats(part, 0, 0, 5, 0);
  CHECK_EQ(part.limit(), 200);
  whole.release();
  part.release();
  CHECK_EQ(blocks.free_pages(), 32);

  PoolFixture flat(small_geometry(1000), PoolKind::kContiguous, 2);
  Holder one = no_budget(flat.pool);
  Holder two = budgeted(flat.pool, 1);
  check_stats(one, 0, 0, 1, 0);
  check_stats(two, 0, 0, 1, 0);
  CHECK_EQ(flat.free_pages(), 0);
  one.release();
  two.release();
}

void a_short_pool_refuses_and_draws_nothing() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 15);
  Holder out;
  CHECK(Holder::create(fixture.pool, Mode::kNoBudget, 1000, &out) == Status::kExhausted);
  CHECK(Holder::create(fixture.pool, Mode::kBudget, 1000, &out) == Status::kExhausted);
  CHECK_EQ(fixture.free_pages(), 15);
  CHECK_EQ(fixture.pool.live_holders(), 0);
  Holder part = budgeted(fixture.pool, 14 * 64);
  CHECK_EQ(fixture.free_pages(), 0);
  part.release();
}

void a_failed_allocation_gives_everything_back() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 40);
  Filled parent = frozen_prefix(fixture.pool, 100, 1);
  const std::vector<uint8_t> rows = parent.packed(100);
  const uint32_t before = fixture.free_pages();
  const uint32_t shared = fixture.pool.stats().shared_pages;
  allocations_left = 0;
  Holder out;
  uint32_t count = 7;
  CHECK(Holder::create(fixture.pool, Mode::kNoBudget, 1000, &out) == Status::kNoMemory);
  CHECK(Holder::begin_from(parent.holder, 100, 200, &out) == Status::kNoMemory);
  CHECK(Holder::restore(fixture.pool, request_of(parent, rows), &out, &count) == Status::kNoMemory);
  allocations_left = -1;
  CHECK_EQ(fixture.free_pages(), before);
  CHECK_EQ(fixture.pool.stats().shared_pages, shared);
  CHECK_EQ(fixture.pool.live_holders(), 1);
  parent.holder.release();
}

void a_block_pool_without_heap_is_refused() {
  const kv::Geometry g = small_geometry(100);
  const size_t size = kv::pool_buffer_size(g, PoolKind::kBlock, 1).saturated();
  void* buffer = std::aligned_alloc(64, (size + 63) / 64 * 64);
  allocations_left = 0;
  {
    kv::Pool pool;
    CHECK(pool.open(g, PoolKind::kBlock, buffer, size, 1) == Status::kNoMemory);
  }
  allocations_left = -1;
  std::free(buffer);
}

void mapping_takes_no_lock_and_no_memory() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 40);
  Filled sequence{budgeted(fixture.pool, 200), {}};
  const int64_t heap = allocations;
  const uint64_t locks = kv::seams::lock_count;
  for (int i = 0; i < 200; ++i) {
    CHECK(sequence.holder.map_to(i + 1));
    check_stats(sequence.holder, static_cast<uint32_t>(i / 64 + 1), 0, static_cast<uint32_t>(5 - i / 64 - 1),
                0);
  }
  CHECK_EQ(allocations, heap);
  CHECK_EQ(kv::seams::lock_count, locks);
  CHECK(!sequence.holder.map_to(5 * 64 + 1));
  check_stats(sequence.holder, 4, 0, 1, 0);
  sequence.holder.release();
}

void reset_keeps_private_pages_and_their_bytes() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 40);
  Filled sequence{no_budget(fixture.pool), {}};
  sequence.append_many(300, 5);
  const uint8_t first = *reinterpret_cast<uint8_t*>(sequence.holder.view().row(0, kv::kKey, 0, 0));
  const uint32_t free = fixture.free_pages();
  sequence.reset();
  CHECK_EQ(fixture.free_pages(), free);
  check_stats(sequence.holder, 0, 0, 16, 0);
  CHECK(sequence.holder.map_to(1));
  CHECK_EQ(*reinterpret_cast<uint8_t*>(sequence.holder.view().row(0, kv::kKey, 0, 0)), first);
  sequence.holder.release();
}

void freezing_keeps_the_pages_of_the_content() {
  PoolFixture fixture(small_geometry(4096), PoolKind::kPage, 64);
  Filled prefix{budgeted(fixture.pool, 1008), {}};
  CHECK_EQ(fixture.free_pages(), 64 - 17);
  prefix.append_many(1000, 9);
  prefix.freeze();
  CHECK_EQ(fixture.free_pages(), 64 - 16);
  check_stats(prefix.holder, 16, 0, 0, 0);
  prefix.freeze();
  CHECK_EQ(fixture.free_pages(), 64 - 16);
  prefix.check_rows();
  prefix.holder.release();

  Filled stray{budgeted(fixture.pool, 200), {}};  // a failed prefill may leave a page mapped past the content
  stray.append_many(64, 2);
  CHECK(stray.holder.map_to(65));
  stray.freeze();
  CHECK_EQ(fixture.free_pages(), 63);
  stray.holder.release();

  Filled empty{no_budget(fixture.pool), {}};
  empty.freeze();
  CHECK_EQ(fixture.free_pages(), 64);
  empty.holder.release();
}

void nested_sharing_counts_as_documented() {
  PoolFixture fixture(small_geometry(4096), PoolKind::kPage, 100);
  const auto used = [&] { return 100 - fixture.free_pages(); };
  Filled world = frozen_prefix(fixture.pool, 1000, 1, 1000);
  CHECK_EQ(used(), 16);
  CHECK_EQ(fixture.pool.stats().shared_pages, 0);
  Filled persona = begin_from(world, 200);
  CHECK_EQ(persona.holder.origin(), 1000);
  CHECK_EQ(persona.holder.limit(), 1200);
  persona.append_many(200, 5000);
  persona.freeze();
  CHECK_EQ(used(), 20);
  CHECK_EQ(fixture.pool.stats().shared_pages, 15);
  check_stats(persona.holder, 4, 15, 0, 0);
  std::vector<Filled> adopters;
  for (int i = 0; i < 3; ++i) {
    adopters.push_back(Filled{budgeted(fixture.pool, 512), {}});
    adopters.back().adopt(persona);
    check_stats(adopters.back().holder, 1, 18, 8, 0);
    CHECK_EQ(adopters.back().holder.limit(), 1712);
  }
  CHECK_EQ(used(), 47);
  CHECK_EQ(fixture.pool.stats().shared_pages, 18);
  adopters[0].append_many(19, 9000);
  check_stats(adopters[0].holder, 2, 18, 7, 0);
  world.holder.release();
  CHECK_EQ(used(), 46);
  adopters[0].append_many(512 - 19, 9019);
  CHECK(!adopters[0].append(1));
  persona.holder.release();
  CHECK_EQ(used(), 45);
  for (Filled& adopter : adopters) adopter.check_rows();
  for (Filled& adopter : adopters) adopter.reset();
  CHECK_EQ(used(), 27);
  CHECK_EQ(fixture.pool.stats().shared_pages, 0);
  for (Filled& adopter : adopters) adopter.holder.release();
  CHECK_EQ(used(), 0);
}

void adopting_again_never_frees_the_shared_pages() {
  PoolFixture fixture(small_geometry(4096), PoolKind::kPage, 64);
  Filled prefix = frozen_prefix(fixture.pool, 200, 1);
  Filled sequence{budgeted(fixture.pool, 100), {}};
  sequence.adopt(prefix);
  const uint64_t filled = kv::seams::bytes_filled;
  sequence.append_many(100, 7);
  sequence.adopt(prefix);
  CHECK_EQ(kv::seams::bytes_filled, filled);
  check_stats(sequence.holder, 1, 3, 2, 0);
  sequence.check_rows();
  prefix.holder.release();
  sequence.check_rows();
  sequence.holder.release();
  CHECK_EQ(fixture.free_pages(), 64);
}

void adoption_works_in_an_exhausted_pool() {
  PoolFixture fixture(small_geometry(4096), PoolKind::kPage, 4 + 9);
  Filled prefix = frozen_prefix(fixture.pool, 200, 1, 200);
  Filled sequence{budgeted(fixture.pool, 512), {}};
  CHECK_EQ(fixture.free_pages(), 0);
  sequence.adopt(prefix);
  sequence.append_many(512, 40);
  CHECK(!sequence.append(0));
  sequence.check_rows();
  sequence.holder.release();
  prefix.holder.release();
  CHECK_EQ(fixture.free_pages(), 13);
}

void every_offset_and_budget_fits_its_reservation() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 64);
  for (int64_t origin = 0; origin <= 128; ++origin) {
    Filled prefix = frozen_prefix(fixture.pool, origin, 1);
    for (int32_t budget : {1, 63, 64, 65, 512}) {
      Filled sequence{budgeted(fixture.pool, budget), {}};
      sequence.adopt(prefix);
      CHECK(sequence.holder.map_to(sequence.holder.limit()));
      CHECK_EQ(sequence.holder.limit(), origin + budget);
      sequence.holder.release();
    }
    prefix.holder.release();
  }
  CHECK_EQ(fixture.free_pages(), 64);
}

void limits_stop_at_the_cap() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 64);
  Filled prefix = frozen_prefix(fixture.pool, 900, 1);
  for (int32_t budget : {99, 100, 101, 1000}) {
    Filled sequence{budgeted(fixture.pool, budget), {}};
    sequence.adopt(prefix);
    CHECK_EQ(sequence.holder.limit(), budget == 99 ? 999 : 1000);
    CHECK(sequence.holder.map_to(sequence.holder.limit()));
    sequence.holder.release();
  }
  prefix.holder.release();
}

void no_budget_holders_copy_across_kinds() {
  const kv::Geometry g = small_geometry(1000);
  for (PoolKind source : {PoolKind::kBlock, PoolKind::kPage, PoolKind::kContiguous}) {
    for (PoolKind target : {PoolKind::kBlock, PoolKind::kPage, PoolKind::kContiguous}) {
      PoolFixture from(g, source, source == PoolKind::kPage ? 16 : 1);
      PoolFixture to(g, target, target == PoolKind::kPage ? 16 : 1);
      for (int64_t length : {0, 1, 64, 65, 999, 1000}) {
        Filled prefix = frozen_prefix(from.pool, length, 3);
        Filled copy{no_budget(to.pool), {}};
        copy.adopt(prefix);
        CHECK_EQ(copy.holder.origin(), length);
        CHECK_EQ(copy.holder.limit(), 1000);
        CHECK_EQ(copy.holder.stats().shared_pages, 0);
        prefix.holder.release();
        copy.check_rows();
        if (length < 1000) CHECK(copy.append(4));
        copy.holder.release();
      }
    }
  }
}

void one_page_contexts_never_share() {
  for (int32_t cap : {64, 65}) {
    PoolFixture fixture(small_geometry(cap), PoolKind::kPage, 16);
    for (int64_t length : {0, 1, 63, 64}) {
      Filled prefix = frozen_prefix(fixture.pool, length, 3);
      Filled sequence{budgeted(fixture.pool, cap), {}};
      sequence.adopt(prefix);
      const bool shares = cap == 65 && length == 64;
      CHECK_EQ(sequence.holder.stats().shared_pages, shares ? 1 : 0);
      CHECK_EQ(fixture.pool.stats().shared_pages, shares ? 1 : 0);
      sequence.check_rows();
      Filled child = begin_from(prefix, 1);
      CHECK_EQ(child.holder.stats().shared_pages, shares ? 1 : 0);
      child.check_rows();
      child.holder.release();
      sequence.holder.release();
      prefix.holder.release();
    }
  }
}

void a_contiguous_pool_gives_one_page_and_shares_nothing() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kContiguous, 4);
  Filled prefix = frozen_prefix(fixture.pool, 500, 3);
  Filled child = begin_from(prefix, 300);
  child.append_many(300, 60);
  CHECK(!child.append(0));
  child.freeze();
  Filled sequence{budgeted(fixture.pool, 100), {}};
  sequence.adopt(child);
  sequence.append_many(100, 90);
  sequence.check_rows();
  check_stats(sequence.holder, 1, 0, 0, 0);
  CHECK_EQ(fixture.pool.stats().shared_pages, 0);
  CHECK_EQ(fixture.free_pages(), 1);
  sequence.holder.release();
  child.holder.release();
  prefix.holder.release();
}

void a_refused_child_takes_no_reference() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 6);
  Filled prefix = frozen_prefix(fixture.pool, 200, 1, 200);
  CHECK_EQ(fixture.free_pages(), 2);
  Holder out;
  CHECK(Holder::begin_from(prefix.holder, 200, 65, &out) == Status::kExhausted);
  CHECK_EQ(fixture.pool.stats().shared_pages, 0);
  CHECK_EQ(fixture.free_pages(), 2);
  prefix.holder.release();
  CHECK_EQ(fixture.free_pages(), 6);
}

void shared_pages_outlive_their_prefix_until_the_last_sharer() {
  PoolFixture fixture(small_geometry(4096), PoolKind::kBlock, 2);
  Filled prefix = frozen_prefix(fixture.pool, 4000, 1);
  Filled sharer{budgeted(fixture.pool, 4096), {}};
  sharer.adopt(prefix);
  prefix.holder.release();
  CHECK_EQ(fixture.free_pages(), 2);
  Holder out;
  CHECK(Holder::create(fixture.pool, Mode::kNoBudget, 4096, &out) == Status::kExhausted);
  sharer.check_rows();
  sharer.reset();
  Holder next = no_budget(fixture.pool);
  next.release();
  sharer.holder.release();
}

void block_pools_admit_a_handle_per_block() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kBlock, 3);
  Filled prefix = frozen_prefix(fixture.pool, 700, 1);
  Filled copy{no_budget(fixture.pool), {}};
  copy.adopt(prefix);
  prefix.holder.release();
  Holder b = no_budget(fixture.pool), c = no_budget(fixture.pool), out;
  CHECK(Holder::create(fixture.pool, Mode::kNoBudget, 1000, &out) == Status::kExhausted);
  copy.holder.release();
  b.release();
  c.release();
}

void released_pages_are_poisoned_where_they_were_written() {
  PoolFixture fixture(small_geometry(4096), PoolKind::kPage, 10);
  Filled sequence{budgeted(fixture.pool, 512), {}};
  sequence.append_many(150, 3);
  sequence.reset();  // three written pages wait in the reserve
  sequence.append_many(10, 3);
  sequence.holder.release();
  const size_t page = fixture.pool.geometry().page_bytes();
  int poisoned = 0, untouched = 0;
  for (size_t i = 0; i < 10; ++i) {
    const uint8_t* bytes = fixture.buffer + i * page;
    for (size_t k = 1; k < page; ++k) CHECK_EQ(bytes[k], bytes[0]);
    poisoned += bytes[0] == kPoison;
    untouched += bytes[0] == kHostFill;
  }
  CHECK_EQ(poisoned, 3);
  CHECK_EQ(untouched, 7);
  const uint64_t before = kv::seams::bytes_filled;
  budgeted(fixture.pool, 512).release();  // draws all the same pages, writes none
  CHECK_EQ(kv::seams::bytes_filled, before);
}

void restore_draws_materialised_pages_until_the_first_reset() {
  PoolFixture origin(small_geometry(4096), PoolKind::kPage, 200);
  Filled prefix = frozen_prefix(origin.pool, 1000, 1);
  Filled saved{budgeted(origin.pool, 3200), {}};
  saved.adopt(prefix);
  saved.append_many(77, 400);
  const std::vector<uint8_t> rows = saved.packed(saved.length());
  uint32_t shared = 9;
  Holder out;
  PoolFixture short_pool(small_geometry(4096), PoolKind::kPage, 63);
  CHECK(Holder::restore(short_pool.pool, request_of(saved, rows), &out, &shared) == Status::kExhausted);
  CHECK_EQ(short_pool.free_pages(), 63);
  PoolFixture fixture(small_geometry(4096), PoolKind::kPage, 64);
  Filled restored{Holder(), saved.history};
  CHECK(Holder::restore(fixture.pool, request_of(saved, rows), &restored.holder, &shared) == Status::kOk);
  CHECK_EQ(shared, 0);
  check_stats(restored.holder, 17, 0, 64 - 17, 13);
  CHECK_EQ(restored.holder.origin(), 1000);
  CHECK_EQ(restored.holder.limit(), 4096);
  restored.check_rows();
  restored.reset();
  CHECK_EQ(fixture.free_pages(), 13);
  check_stats(restored.holder, 0, 0, 51, 0);
  restored.holder.release();
  CHECK_EQ(fixture.free_pages(), 64);
  saved.holder.release();
  prefix.holder.release();
}

void restore_shares_only_a_prefix_that_matches() {
  PoolFixture fixture(small_geometry(4096), PoolKind::kPage, 300);
  PoolFixture elsewhere(small_geometry(4096), PoolKind::kPage, 100);
  Filled prefix = frozen_prefix(fixture.pool, 1000, 1);
  Filled saved{budgeted(fixture.pool, 512), {}};
  saved.adopt(prefix);
  saved.append_many(300, 400);
  const std::vector<uint8_t> rows = saved.packed(saved.length());
  Filled unfrozen{no_budget(fixture.pool), {}};
  unfrozen.append_many(1000, 1);
  Filled foreign = frozen_prefix(elsewhere.pool, 1000, 1);
  Filled shorter = frozen_prefix(fixture.pool, 999, 1);
  Filled other = frozen_prefix(fixture.pool, 1000, 1);
  // One byte of the last full page differs; a difference in the tail is not compared.
  *other.holder.view().row(1, kv::kValue, 0, 959) ^= 1;
  Filled tail = frozen_prefix(fixture.pool, 1000, 1);
  *tail.holder.view().row(1, kv::kValue, 0, 960) ^= 1;
  const Filled* hints[] = {nullptr, &unfrozen, &foreign, &shorter, &other, &prefix, &tail};
  for (const Filled* hint : hints) {
    const bool match = hint == &prefix || hint == &tail;
    kv::RestoreRequest request = request_of(saved, rows);
    request.prefix = hint ? &hint->holder : nullptr;
    request.prefix_length = hint ? hint->length() : 0;
    const uint32_t before = fixture.free_pages();
    Filled restored{Holder(), saved.history};
    uint32_t shared = 99;
    CHECK(Holder::restore(fixture.pool, request, &restored.holder, &shared) == Status::kOk);
    CHECK_EQ(shared, match ? 15 : 0);
    CHECK_EQ(before - fixture.free_pages(), match ? 9 : 9 + 15);
    check_stats(restored.holder, match ? 6 : 21, match ? 15 : 0, 3, match ? 0 : 15);
    restored.check_rows();
    restored.append_many(212, 700);
    CHECK(!restored.append(0));
    CHECK(restored.packed(restored.length()).size() > rows.size());
    restored.holder.release();
    CHECK_EQ(fixture.free_pages(), before);
  }
  kv::RestoreRequest request = request_of(saved, rows);
  request.prefix = &prefix.holder;
  request.prefix_length = 1000;
  Filled heir{Holder(), saved.history};
  uint32_t shared = 0;
  CHECK(Holder::restore(fixture.pool, request, &heir.holder, &shared) == Status::kOk);
  for (Filled* filled : {&prefix, &saved, &unfrozen, &shorter, &other, &tail}) filled->holder.release();
  foreign.holder.release();
  heir.check_rows();
  heir.holder.release();
  CHECK_EQ(fixture.free_pages(), 300);
}

void restore_without_budget_takes_a_whole_context() {
  for (PoolKind kind : {PoolKind::kBlock, PoolKind::kPage, PoolKind::kContiguous}) {
    PoolFixture fixture(small_geometry(1000), kind, kind == PoolKind::kPage ? 32 : 2);
    Filled saved{no_budget(fixture.pool), {}};
    saved.append_many(333, 3);
    const std::vector<uint8_t> rows = saved.packed(saved.length());
    Filled restored{Holder(), saved.history};
    uint32_t shared = 1;
    CHECK(Holder::restore(fixture.pool, request_of(saved, rows), &restored.holder, &shared) == Status::kOk);
    CHECK_EQ(fixture.free_pages(), 0);
    CHECK_EQ(restored.holder.limit(), 1000);
    restored.check_rows();
    restored.holder.release();
    saved.holder.release();
  }
}

void copies_follow_the_live_length_and_not_the_cap() {
  for (int32_t cap : {4096, 32768}) {
    kv::seams::pinned_page_positions = 64;
    PoolFixture fixture(small_geometry(cap), PoolKind::kBlock, 3);
    kv::seams::pinned_page_positions = 0;
    const int64_t row = static_cast<int64_t>(fixture.model.position_bytes());
    Filled prefix = frozen_prefix(fixture.pool, 1000, 1);
    Filled copy{no_budget(fixture.pool), {}};
    Filled sharer{budgeted(fixture.pool, 512), {}};
    uint64_t moved = kv::seams::bytes_moved;
    copy.adopt(prefix);
    CHECK_EQ(kv::seams::bytes_moved - moved, 1000 * row);
    moved = kv::seams::bytes_moved;
    sharer.adopt(prefix);
    CHECK_EQ(kv::seams::bytes_moved - moved, 40 * row);
    const uint64_t filled = kv::seams::bytes_filled;
    copy.holder.release();
    CHECK_EQ(kv::seams::bytes_filled - filled, 16 * 64 * row);
    sharer.holder.release();
    prefix.holder.release();
  }
}

void live_holders_are_counted() {
  PoolFixture fixture(small_geometry(1000), PoolKind::kPage, 64);
  Filled prefix = frozen_prefix(fixture.pool, 100, 1);
  Filled child = begin_from(prefix, 50);
  CHECK_EQ(fixture.pool.live_holders(), 2);
  prefix.holder.release();
  CHECK_EQ(fixture.pool.live_holders(), 1);
  child.holder.release();
  CHECK_EQ(fixture.pool.live_holders(), 0);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests({TEST(creation_reserves_by_kind_and_mode),
                    TEST(a_short_pool_refuses_and_draws_nothing),
                    TEST(a_failed_allocation_gives_everything_back),
                    TEST(a_block_pool_without_heap_is_refused),
                    TEST(mapping_takes_no_lock_and_no_memory),
                    TEST(reset_keeps_private_pages_and_their_bytes),
                    TEST(freezing_keeps_the_pages_of_the_content),
                    TEST(nested_sharing_counts_as_documented),
                    TEST(adopting_again_never_frees_the_shared_pages),
                    TEST(adoption_works_in_an_exhausted_pool),
                    TEST(every_offset_and_budget_fits_its_reservation),
                    TEST(limits_stop_at_the_cap),
                    TEST(no_budget_holders_copy_across_kinds),
                    TEST(one_page_contexts_never_share),
                    TEST(a_contiguous_pool_gives_one_page_and_shares_nothing),
                    TEST(a_refused_child_takes_no_reference),
                    TEST(shared_pages_outlive_their_prefix_until_the_last_sharer),
                    TEST(block_pools_admit_a_handle_per_block),
                    TEST(released_pages_are_poisoned_where_they_were_written),
                    TEST(restore_draws_materialised_pages_until_the_first_reset),
                    TEST(restore_shares_only_a_prefix_that_matches),
                    TEST(restore_without_budget_takes_a_whole_context),
                    TEST(copies_follow_the_live_length_and_not_the_cap),
                    TEST(live_holders_are_counted)},
                   argc, argv);
}
