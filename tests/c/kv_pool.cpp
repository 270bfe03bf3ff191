// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The page rule, the sizes, and the refusals of the three pools.
#include "kv_fixture.h"

using kv::Geometry;
using kv::PoolKind;
using kv::Status;

namespace {

alignas(64) uint8_t some_memory[256];

void page_rule_matches_its_table() {
  struct Row {
    int32_t head_dim, width, cap;
    int64_t positions, pages;
  };
  const Row rows[] = {{64, 1, 4096, 64, 64},   {64, 1, 32768, 128, 256}, {128, 1, 32768, 64, 512},
                      {64, 1, 64, 64, 1},      {64, 1, 65, 64, 2},       {64, 1, 40, 40, 1},
                      {64, 2, 32768, 64, 512}, {32, 2, 4097, 128, 33},   {64, 1, 4097, 128, 33},
                      {66, 1, 4097, 64, 65},   {64, 1, 1, 1, 1}};
  for (const Row& row : rows) {
    const Geometry g = kv::make_geometry(24, 2, row.head_dim, row.width, row.cap);
    CHECK_EQ(kv::page_positions(g), row.positions);
    CHECK_EQ(kv::pages_per_context(g), row.pages);
  }
  CHECK_EQ(kv::page_size(kv::make_geometry(24, 2, 64, 1, 4096)), 393216);
  CHECK_EQ(kv::page_size(kv::make_geometry(24, 2, 64, 1, 32768)), 786432);
  CHECK_EQ(kv::page_size(kv::make_geometry(28, 2, 128, 1, 32768)), 917504);
  CHECK_EQ(kv::block_size(kv::make_geometry(24, 2, 64, 1, 4096)), 4096 * 6144);
}

void a_pinned_page_size_wins_over_the_rule() {
  kv::seams::pinned_page_positions = 16;
  CHECK_EQ(kv::page_positions(small_geometry(4096)), 16);
  CHECK_EQ(kv::page_positions(small_geometry(7)), 7);
  kv::seams::pinned_page_positions = 0;
  CHECK_EQ(kv::page_positions(small_geometry(4096)), 64);
}

void reservations_cover_a_start_inside_a_page() {
  const Geometry g = small_geometry(4096);
  const int64_t expected[][2] = {{1, 2},     {63, 2},    {64, 2},    {65, 3},    {200, 5},  {512, 9},
                                 {1000, 17}, {3200, 51}, {4032, 64}, {4033, 64}, {4096, 64}};
  for (const auto& row : expected) CHECK_EQ(kv::pages_for_budget(g, static_cast<int32_t>(row[0])), row[1]);
  CHECK_EQ(kv::pages_for_budget(small_geometry(64), 1), 1);
  CHECK_EQ(kv::pages_for_budget(small_geometry(65), 1), 2);
}

void overheads_grow_with_units_and_partial_pages() {
  const Geometry even = small_geometry(4096);
  CHECK_EQ(kv::block_pool_overhead(even, 0), 32);
  CHECK_EQ(kv::block_pool_overhead(even, 7), 32 + 56);
  const Geometry odd = small_geometry(100);  // two pages of 64
  CHECK_EQ(kv::block_pool_overhead(odd, 3), 32 + 24 + 3 * 28 * static_cast<long long>(odd.position_bytes()));
  CHECK_EQ(kv::block_size(odd), 100 * odd.position_bytes());
  CHECK_EQ(kv::page_pool_overhead(505), 32 + 8 * 505);
  CHECK_EQ(kv::page_pool_overhead(UINT32_MAX), 32 + 8 * 4294967295ll);
  CHECK_EQ(kv::contiguous_pool_size(odd, 3), 3 * kv::block_size(odd) + 32 + 24);
  CHECK(kv::contiguous_pool_size(odd, UINT32_MAX) == SIZE_MAX);
}

void sizes_saturate_and_never_wrap() {
  const Geometry huge = kv::make_geometry(1 << 20, 1 << 20, 1 << 20, 1, 1 << 30);
  CHECK(kv::block_size(huge) == SIZE_MAX);
  CHECK_EQ(kv::page_size(huge), 0);
  CHECK_EQ(kv::page_positions(huge), 0);
  CHECK(kv::contiguous_pool_size(huge, 1) == SIZE_MAX);
  for (PoolKind kind : {PoolKind::kBlock, PoolKind::kPage, PoolKind::kContiguous}) {
    CHECK(kv::Pool::check(huge, kind, some_memory, 64, 1) == Status::kInvalid);
  }
}

void page_totals_stop_one_short_of_the_largest_number() {
  const Geometry wide = kv::make_geometry(28, 2, 128, 1, 32768);
  const Geometry narrow = kv::make_geometry(24, 2, 64, 1, 32768);
  const auto check = [](const Geometry& g, uint32_t blocks) {
    return kv::Pool::check(g, PoolKind::kBlock, some_memory, sizeof(some_memory), blocks);
  };
  CHECK(check(wide, 8388608) == Status::kInvalid);
  CHECK(check(wide, 8388607) == Status::kTooSmall);
  CHECK(check(narrow, 16777216) == Status::kInvalid);
  CHECK(check(narrow, 16777215) == Status::kTooSmall);
  CHECK(kv::block_pool_overhead(wide, 8388608) == SIZE_MAX);
  CHECK(kv::block_pool_overhead(wide, 8388607) != SIZE_MAX);
}

void refusals_come_in_order_and_alike_in_all_kinds() {
  const Geometry g = small_geometry(100);
  for (PoolKind kind : {PoolKind::kBlock, PoolKind::kPage, PoolKind::kContiguous}) {
    const size_t size = kv::pool_buffer_size(g, kind, 2).saturated();
    std::vector<uint8_t> memory(size + 128);
    uint8_t* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    CHECK(kv::Pool::check(g, kind, at + 1, 0, 0) == Status::kInvalid);
    CHECK(kv::Pool::check(g, kind, at + 1, size - 1, 2) == Status::kTooSmall);
    CHECK(kv::Pool::check(g, kind, at + 1, size, 2) == Status::kMisaligned);
    CHECK(kv::Pool::check(g, kind, at, size - 1, 2) == Status::kTooSmall);
    CHECK(kv::Pool::check(g, kind, at, size, 2) == Status::kOk);
  }
}

void a_page_count_of_the_largest_number_is_judged_last() {
  const Geometry g = kv::make_geometry(1, 1, 2, 1, 1);  // 4 bytes a page
  const size_t size = kv::pool_buffer_size(g, PoolKind::kPage, UINT32_MAX).saturated();
  CHECK(kv::Pool::check(g, PoolKind::kPage, some_memory, size - 1, UINT32_MAX) == Status::kTooSmall);
  CHECK(kv::Pool::check(g, PoolKind::kPage, some_memory + 1, size, UINT32_MAX) == Status::kMisaligned);
  CHECK(kv::Pool::check(g, PoolKind::kPage, some_memory, size, UINT32_MAX) == Status::kInvalid);
  CHECK(kv::Pool::check(g, PoolKind::kContiguous, some_memory, 0, UINT32_MAX) == Status::kInvalid);
}

void creation_writes_no_page() {
  for (PoolKind kind : {PoolKind::kBlock, PoolKind::kPage, PoolKind::kContiguous}) {
    PoolFixture fixture(small_geometry(100), kind, 3);
    const size_t pages = fixture.pool.stats().page_count * fixture.pool.geometry().page_bytes();
    for (size_t i = 0; i < pages; ++i) CHECK_EQ(fixture.buffer[i], kHostFill);
  }
}

void odd_page_sizes_keep_the_bookkeeping_aligned_and_inside() {
  for (uint32_t units = 1; units < 9; ++units) {
    PoolFixture fixture(kv::make_geometry(1, 1, 2, 1, 1), PoolKind::kPage, units);
    std::vector<kv::Holder> holders;
    for (uint32_t i = 0; i < units; ++i) holders.push_back(no_budget(fixture.pool));
    CHECK_EQ(fixture.free_pages(), 0);
    for (kv::Holder& holder : holders) holder.release();
    CHECK_EQ(fixture.free_pages(), units);
  }
}

void statistics_name_the_pool() {
  PoolFixture blocks(small_geometry(100), PoolKind::kBlock, 3);
  CHECK_EQ(blocks.pool.stats().page_count, 6);
  CHECK_EQ(blocks.pool.stats().page_positions, 64);
  PoolFixture flat(small_geometry(100), PoolKind::kContiguous, 3);
  CHECK_EQ(flat.pool.stats().page_count, 3);
  CHECK_EQ(flat.pool.stats().page_positions, 100);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(
      {TEST(page_rule_matches_its_table), TEST(a_pinned_page_size_wins_over_the_rule),
       TEST(reservations_cover_a_start_inside_a_page), TEST(overheads_grow_with_units_and_partial_pages),
       TEST(sizes_saturate_and_never_wrap), TEST(page_totals_stop_one_short_of_the_largest_number),
       TEST(refusals_come_in_order_and_alike_in_all_kinds),
       TEST(a_page_count_of_the_largest_number_is_judged_last), TEST(creation_writes_no_page),
       TEST(odd_page_sizes_keep_the_bookkeeping_aligned_and_inside), TEST(statistics_name_the_pool)},
      argc, argv);
}
