// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A cast in one pool, counted by admission alone: a world of 1,000 positions, ten personas of 200, fifty
// speakers of 512. Known bytes stand in for a model's rows.
#include "failing_memory.h"
#include "kv_fixture.h"

using kv::Holder;
using kv::Mode;
using kv::PoolKind;
using kv::Status;

namespace {

constexpr int kPersonas = 10, kSpeakers = 50, kWorld = 1000, kPersona = 200, kBudget = 512;

kv::Geometry cast_geometry() { return kv::make_geometry(2, 1, 64, 1, 4096); }

struct Cast {
  std::vector<Filled> personas, speakers;

  // World and personas, the world released.
  void prepare(kv::Pool& pool) {
    Filled world{budgeted(pool, kWorld), {}};
    world.append_many(kWorld, 1);
    world.freeze();
    for (int p = 0; p < kPersonas; ++p) {
      personas.push_back(begin_from(world, kPersona));
      personas.back().append_many(kPersona, 10000 + 1000 * static_cast<uint64_t>(p));
      personas.back().freeze();
    }
    world.holder.release();
  }
  // As many speakers as the pool admits, at most count.
  int admit(kv::Pool& pool, int count) {
    int admitted = 0;
    for (; admitted < count; ++admitted) {
      Filled speaker;
      const Status status = Holder::create(pool, Mode::kBudget, kBudget, &speaker.holder);
      if (status != Status::kOk) {
        CHECK(status == Status::kExhausted);
        break;
      }
      speaker.adopt(personas[speakers.size() % kPersonas]);
      speakers.push_back(speaker);
    }
    return admitted;
  }
  void speak(int64_t until) {
    for (size_t i = 0; i < speakers.size(); ++i) {
      while (speakers[i].length() < until)
        CHECK(speakers[i].append(50000 + 5000 * i + speakers[i].history.size()));
    }
  }
  void release() {
    for (Filled& speaker : speakers) speaker.holder.release();
    for (Filled& persona : personas) persona.holder.release();
  }
};

void fifty_speakers_fit_505_pages_and_not_504() {
  for (uint32_t pages : {505u, 504u}) {
    PoolFixture fixture(cast_geometry(), PoolKind::kPage, pages);
    Cast cast;
    cast.prepare(fixture.pool);
    CHECK_EQ(pages - fixture.free_pages(), 55);
    CHECK_EQ(cast.admit(fixture.pool, kSpeakers), pages == 505 ? 50 : 49);
    cast.speak(kWorld + kPersona + kBudget);
    for (Filled& speaker : cast.speakers) {
      CHECK(!speaker.append(0));
      speaker.check_rows();
    }
    cast.release();
    CHECK_EQ(fixture.free_pages(), pages);
  }
}

void the_same_bytes_as_blocks_hold_seven_handles() {
  const kv::Geometry g = cast_geometry();
  const size_t bytes = 505 * kv::page_size(g) + kv::page_pool_overhead(505);
  std::vector<uint8_t> memory(bytes + 64);
  uint8_t* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  CHECK(kv::Pool::check(g, PoolKind::kBlock, at, bytes, 8) == Status::kTooSmall);
  kv::Pool pool;
  CHECK(pool.open(g, PoolKind::kBlock, at, bytes, 7) == Status::kOk);
  std::vector<Holder> handles;
  for (int i = 0; i < 7; ++i) handles.push_back(no_budget(pool));
  Holder out;
  CHECK(Holder::create(pool, Mode::kNoBudget, 4096, &out) == Status::kExhausted);
  for (Holder& handle : handles) handle.release();
}

// The fifty speakers' rows at one length, and what a restore needs beside them.
struct Saved {
  std::vector<Filled> speakers;
  std::vector<std::vector<uint8_t>> rows;
};

int restore_all(kv::Pool& pool, const Saved& saved, const std::vector<Filled>* hints,
                std::vector<Filled>* out) {
  for (size_t i = 0; i < saved.speakers.size(); ++i) {
    kv::RestoreRequest request = request_of(saved.speakers[i], saved.rows[i]);
    if (hints != nullptr) {
      request.prefix = &(*hints)[i % kPersonas].holder;
      request.prefix_length = (*hints)[i % kPersonas].length();
    }
    Filled restored{Holder(), saved.speakers[i].history};
    uint32_t shared = 0;
    const Status status = Holder::restore(pool, request, &restored.holder, &shared);
    if (status != Status::kOk) {
      CHECK(status == Status::kExhausted);
      return static_cast<int>(i);
    }
    CHECK_EQ(shared, hints != nullptr ? 18 : 0);
    restored.check_rows();
    out->push_back(restored);
  }
  return static_cast<int>(saved.speakers.size());
}

void check_restores(const Saved& saved, bool with_handles, uint32_t pages, int admitted) {
  PoolFixture fixture(cast_geometry(), PoolKind::kPage, pages);
  Cast cast;
  cast.prepare(fixture.pool);
  std::vector<Filled>& restored = cast.speakers;
  CHECK_EQ(restore_all(fixture.pool, saved, with_handles ? &cast.personas : nullptr, &restored), admitted);
  cast.speak(kWorld + kPersona + kBudget);
  for (Filled& speaker : restored) {
    CHECK(!speaker.append(0));
    speaker.check_rows();
  }
  if (!with_handles && admitted == kSpeakers) {
    for (size_t i = 0; i < restored.size(); ++i) {
      restored[i].reset();
      restored[i].adopt(cast.personas[i % kPersonas]);
    }
    CHECK_EQ(fixture.free_pages(), 900);
    CHECK_EQ(cast.admit(fixture.pool, 101), 100);
  }
  cast.release();
  CHECK_EQ(fixture.free_pages(), pages);
}

void restores_fit_505_pages_with_handles_and_1405_without() {
  PoolFixture fixture(cast_geometry(), PoolKind::kPage, 505);
  Cast cast;
  cast.prepare(fixture.pool);
  CHECK_EQ(cast.admit(fixture.pool, kSpeakers), kSpeakers);
  for (int64_t length : {1456, 1712}) {
    cast.speak(length);
    Saved saved;
    saved.speakers = cast.speakers;
    for (const Filled& speaker : cast.speakers) saved.rows.push_back(speaker.packed(length));
    check_restores(saved, true, 505, 50);
    check_restores(saved, true, 504, 49);
    check_restores(saved, false, 1405, 50);
    check_restores(saved, false, 1404, 49);
  }
  cast.release();
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(
      {TEST(fifty_speakers_fit_505_pages_and_not_504), TEST(the_same_bytes_as_blocks_hold_seven_handles),
       TEST(restores_fit_505_pages_with_handles_and_1405_without)},
      argc, argv);
}
