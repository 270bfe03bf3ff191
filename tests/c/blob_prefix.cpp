// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Frozen prefixes as blobs: what a nested one leaves out, whom it accepts as parent, and what both share
// again.
//   blob_prefix [TEST]
#include "blob/prefix_blob.h"
#include "blob_fixture.h"
#include "failing_memory.h"

using blob::Status;
using kv::PoolKind;

namespace {

using Bytes = std::vector<uint8_t>;

const kv::Geometry kGeometry = kv::make_geometry(3, 1, 16, 1, 300);
const blob::ModelFacts kFacts = facts_of(kGeometry);

Bytes save_prefix(const Speaker& prefix) {
  const size_t size = blob::saved_prefix_size(kFacts, prefix.content());
  CHECK(size > 0);
  Bytes bytes(size, 0xEE);
  blob::write_prefix(kFacts, prefix.content(), bytes.data());
  return bytes;
}

Status parse_prefix(const Bytes& bytes) {
  Bytes exact(bytes);
  exact.shrink_to_fit();
  blob::ParsedPrefix parsed;
  return blob::parse_prefix(kFacts, exact.data(), exact.size(), &parsed);
}

Speaker frozen(kv::Pool& pool, int64_t length, uint64_t stamp) {
  Speaker s{no_budget(pool)};
  s.fill(length, stamp);
  s.kv.freeze();
  return s;
}

Speaker frozen_child(const Speaker& parent, int64_t length, uint64_t stamp) {
  Speaker s;
  s.kv = begin_from(parent.kv, 120);
  s.fill(length, stamp);
  s.kv.freeze();
  return s;
}

kv::Status rebuild_prefix(kv::Pool& pool, const Bytes& bytes, const Speaker* parent, Speaker* out) {
  blob::ParsedPrefix parsed;
  CHECK_EQ(blob::parse_prefix(kFacts, bytes.data(), bytes.size(), &parsed), Status::kOk);
  if (parsed.nested()) CHECK(parsed.names(parent->kv.holder, parent->state.length));
  const kv::Status status = kv::Holder::restore_frozen(
      pool, parsed.request(parent ? &parent->kv.holder : nullptr), &out->kv.holder);
  if (status != kv::Status::kOk) return status;
  out->state = parsed.common.state;
  for (int i = 0; i < kHidden; ++i)
    out->residual[static_cast<size_t>(i)] = parsed.common.residual[static_cast<size_t>(i)];
  return status;
}

void a_root_prefix_comes_back_whole() {
  for (PoolKind kind : {PoolKind::kPage, PoolKind::kBlock, PoolKind::kContiguous}) {
    for (int64_t length : {0, 1, 64, 100, 300}) {
      PoolFixture from(kGeometry, PoolKind::kPage, 5), to(kGeometry, kind, kind == PoolKind::kPage ? 5 : 1);
      Speaker prefix = frozen(from.pool, length, 4);
      const Bytes bytes = save_prefix(prefix);
      CHECK_EQ(bytes.size(),
               204 + 4 * kHidden + 8 + static_cast<size_t>(length) * kGeometry.position_bytes());
      Speaker restored;
      CHECK(rebuild_prefix(to.pool, bytes, nullptr, &restored) == kv::Status::kOk);
      restored.kv.history = prefix.kv.history;
      restored.kv.check_rows();
      CHECK(restored.kv.holder.frozen());
      CHECK(save_prefix(restored) == bytes);
      const int64_t page = to.pool.geometry().page_positions;
      CHECK_EQ(to.pool.stats().page_count - to.free_pages(), kv::pages_covering(length, page));
      restored.kv.holder.release();
      CHECK_EQ(to.free_pages(), to.pool.stats().page_count);
      prefix.kv.holder.release();
    }
  }
}

void a_nested_prefix_shares_its_parents_pages_again() {
  for (int64_t origin : {64, 100}) {
    PoolFixture from(kGeometry, PoolKind::kPage, 20), to(kGeometry, PoolKind::kPage, 20);
    Speaker world = frozen(from.pool, origin, 4);
    Speaker persona = frozen_child(world, origin + 90, 700);
    const Bytes world_bytes = save_prefix(world), bytes = save_prefix(persona);
    CHECK_EQ(bytes.size(), 204 + 4 * kHidden + 8 + 90 * kGeometry.position_bytes());
    Speaker restored_world, restored;
    CHECK(rebuild_prefix(to.pool, world_bytes, nullptr, &restored_world) == kv::Status::kOk);
    CHECK(rebuild_prefix(to.pool, bytes, &restored_world, &restored) == kv::Status::kOk);
    CHECK_EQ(to.free_pages(), from.free_pages());
    CHECK_EQ(to.pool.stats().shared_pages, 1);
    restored_world.kv.holder.release();
    restored.kv.history = persona.kv.history;
    restored.kv.check_rows();
    CHECK(save_prefix(restored) == bytes);
    CHECK_EQ(restored.kv.holder.origin(), origin);
    Filled adopter{budgeted(to.pool, 50), {}};
    adopter.adopt(restored.kv);
    adopter.check_rows();
    restored.kv.holder.release();
    adopter.append_many(50, 9);
    adopter.check_rows();
    adopter.holder.release();
    CHECK_EQ(to.free_pages(), 20);
    world.kv.holder.release();
    persona.kv.holder.release();
  }
}

void a_contiguous_pool_copies_the_parent() {
  PoolFixture from(kGeometry, PoolKind::kPage, 20), to(kGeometry, PoolKind::kContiguous, 2);
  Speaker world = frozen(from.pool, 100, 4);
  Speaker persona = frozen_child(world, 190, 700);
  Speaker restored_world, restored;
  CHECK(rebuild_prefix(to.pool, save_prefix(world), nullptr, &restored_world) == kv::Status::kOk);
  CHECK(rebuild_prefix(to.pool, save_prefix(persona), &restored_world, &restored) == kv::Status::kOk);
  CHECK_EQ(to.pool.stats().shared_pages, 0);
  restored.kv.history = persona.kv.history;
  restored.kv.check_rows();
  CHECK(save_prefix(restored) == save_prefix(persona));
  for (Speaker* s : {&world, &persona, &restored_world, &restored}) s->kv.holder.release();
}

void only_the_named_parent_is_accepted() {
  PoolFixture fixture(kGeometry, PoolKind::kPage, 40);
  Speaker world = frozen(fixture.pool, 100, 4);
  Speaker persona = frozen_child(world, 190, 700);
  const Bytes bytes = save_prefix(persona);
  blob::ParsedPrefix parsed;
  CHECK_EQ(blob::parse_prefix(kFacts, bytes.data(), bytes.size(), &parsed), Status::kOk);
  Speaker same = frozen(fixture.pool, 100, 4), other = frozen(fixture.pool, 100, 5);
  Speaker shorter = frozen(fixture.pool, 99, 4), open{no_budget(fixture.pool)},
          tail = frozen(fixture.pool, 100, 4);
  open.fill(100, 4);
  *tail.kv.holder.view().row(2, kv::kValue, 0, 99) ^= 1;
  CHECK(parsed.names(world.kv.holder, 100));
  CHECK(parsed.names(same.kv.holder, 100));
  CHECK(!parsed.names(other.kv.holder, 100));
  CHECK(!parsed.names(shorter.kv.holder, 99));
  CHECK(!parsed.names(open.kv.holder, 100));
  CHECK(!parsed.names(tail.kv.holder, 100));
  for (Speaker* s : {&world, &persona, &same, &other, &shorter, &open, &tail}) s->kv.holder.release();
}

void refusals_draw_nothing() {
  PoolFixture from(kGeometry, PoolKind::kPage, 20), to(kGeometry, PoolKind::kPage, 2);
  Speaker world = frozen(from.pool, 130, 4);
  const Bytes bytes = save_prefix(world);
  Speaker restored;
  CHECK(rebuild_prefix(to.pool, bytes, nullptr, &restored) == kv::Status::kExhausted);
  allocations_left = 0;
  CHECK(rebuild_prefix(from.pool, bytes, nullptr, &restored) == kv::Status::kNoMemory);
  allocations_left = -1;
  CHECK_EQ(to.free_pages(), 2);
  CHECK_EQ(from.free_pages(), 17);
  CHECK_EQ(to.pool.live_holders(), 0);
  world.kv.holder.release();
}

void every_field_is_checked() {
  PoolFixture fixture(kGeometry, PoolKind::kPage, 20);
  Speaker world = frozen(fixture.pool, 100, 4);
  Speaker persona = frozen_child(world, 190, 700);
  const Bytes good = save_prefix(persona), root = save_prefix(world);
  const auto expect = [&](const Bytes& from, size_t at, auto value, Status status) {
    Bytes bad = from;
    put(bad, at, value);
    CHECK_EQ(parse_prefix(bad), status);
  };
  CHECK_EQ(parse_prefix(good), Status::kOk);
  expect(good, 3, uint8_t('2'), Status::kInvalid);
  expect(good, 4, uint8_t(0xFF), Status::kModelMismatch);
  expect(good, 36, uint32_t(1), Status::kKvMismatch);
  expect(good, 40, uint64_t(5), Status::kSchemaMismatch);
  expect(good, 52, uint64_t(1), Status::kInvalid);
  expect(good, 60, int64_t(189), Status::kInvalid);
  expect(good, 60, int64_t(301), Status::kInvalid);
  expect(good, 68, uint32_t(1), Status::kInvalid);
  expect(good, 72, int32_t(1), Status::kInvalid);
  expect(good, 108, int32_t(1), Status::kInvalid);
  expect(good, 112, uint64_t(1), Status::kInvalid);
  expect(good, 120, uint32_t(0), Status::kInvalid);
  expect(good, 156, uint32_t(2), Status::kInvalid);
  expect(good, 160, int32_t(0), Status::kInvalid);
  Bytes unbounded = good;  // who continues a prefix has a budget
  put(unbounded, 156, uint32_t(0));
  expect(unbounded, 160, int32_t(300), Status::kInvalid);
  expect(good, 164, int64_t(101), Status::kInvalid);
  expect(good, 164, int64_t(191), Status::kInvalid);
  expect(good, 204 + 4 * kHidden, uint64_t(91), Status::kInvalid);
  expect(root, 172, uint8_t(1), Status::kInvalid);  // a root names no parent
  for (size_t size = 0; size < good.size(); size += size < 300 ? 1 : 101) {
    CHECK_EQ(parse_prefix(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))),
             Status::kInvalid);
  }
  Bytes longer = good;
  longer.push_back(0);
  CHECK_EQ(parse_prefix(longer), Status::kInvalid);
  world.kv.holder.release();
  persona.kv.holder.release();
}

void mutations_never_break_the_pool() {
  PoolFixture fixture(kGeometry, PoolKind::kPage, 20);
  Speaker world = frozen(fixture.pool, 100, 4);
  Speaker persona = frozen_child(world, 190, 700);
  const Bytes seeds[] = {save_prefix(world), save_prefix(persona)};
  const uint32_t free = fixture.free_pages();
  Random random{7};
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes = seeds[random.below(2)];
    for (int64_t edits = 1 + random.below(3); edits > 0; --edits) {
      const size_t at =
          static_cast<size_t>(random.below(random.below(6) ? 250 : static_cast<int64_t>(bytes.size())));
      if (at < bytes.size()) bytes[at] = static_cast<uint8_t>(random.below(3) ? random.next() : 0);
    }
    if (random.below(6) == 0)
      bytes.resize(static_cast<size_t>(random.below(static_cast<int64_t>(bytes.size()) + 9)));
    bytes.shrink_to_fit();
    blob::ParsedPrefix parsed;
    if (blob::parse_prefix(kFacts, bytes.data(), bytes.size(), &parsed) == Status::kOk &&
        (!parsed.nested() || parsed.names(world.kv.holder, world.kv.length()))) {
      kv::Holder restored;
      CHECK(kv::Holder::restore_frozen(fixture.pool, parsed.request(&world.kv.holder), &restored) ==
            kv::Status::kOk);
      restored.release();
    }
    CHECK_EQ(fixture.free_pages(), free);
  }
  world.kv.holder.release();
  persona.kv.holder.release();
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(
      {TEST(a_root_prefix_comes_back_whole), TEST(a_nested_prefix_shares_its_parents_pages_again),
       TEST(a_contiguous_pool_copies_the_parent), TEST(only_the_named_parent_is_accepted),
       TEST(refusals_draw_nothing), TEST(every_field_is_checked), TEST(mutations_never_break_the_pool)},
      argc, argv);
}
