// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Sixteen threads share prefixes of one pool: each creates, adopts, writes, restores, resets and releases.
#include <thread>

#include "failing_memory.h"
#include "kv_fixture.h"

using kv::Holder;
using kv::Mode;
using kv::PoolKind;
using kv::Status;

namespace {

constexpr int kThreads = 16, kRounds = 10;

struct Shared {
  PoolFixture* fixture;
  std::vector<Filled> prefixes;
};

void restore_copy(Shared& shared, const Filled& saved, const Filled& prefix) {
  const std::vector<uint8_t> rows = saved.packed(saved.length());
  kv::RestoreRequest request = request_of(saved, rows);
  request.prefix = &prefix.holder;
  request.prefix_length = prefix.length();
  Filled restored{Holder(), saved.history};
  uint32_t count = 0;
  if (Holder::restore(shared.fixture->pool, request, &restored.holder, &count) != Status::kOk) return;
  restored.check_rows();
  restored.holder.release();
}

void nest(const Filled& parent, uint64_t stamp) {
  Filled child;
  if (Holder::begin_from(parent.holder, parent.length(), 100, &child.holder) != Status::kOk) return;
  child.history = parent.history;
  child.append_many(70, stamp);
  child.freeze();
  child.check_rows();
  child.holder.release();
}

void play(Shared& shared, uint64_t seed) {
  Random random{seed};
  for (int round = 0; round < kRounds; ++round) {
    const Filled& prefix =
        shared.prefixes[static_cast<size_t>(random.below(static_cast<int64_t>(shared.prefixes.size())))];
    const bool budget = random.below(3) != 0;
    Filled sequence;
    const Status status = Holder::create(shared.fixture->pool, budget ? Mode::kBudget : Mode::kNoBudget,
                                         budget ? 150 : 1000, &sequence.holder);
    if (status != Status::kOk) continue;
    for (int i = 0; i < 3; ++i) {
      sequence.adopt(prefix);
      sequence.append_many(random.below(150), seed * 1000 + static_cast<uint64_t>(round));
      sequence.check_rows();
    }
    restore_copy(shared, sequence, prefix);
    nest(prefix, seed);
    if (random.below(2)) sequence.reset();
    sequence.holder.release();
    shared.fixture->pool.stats();
  }
}

void sixteen_threads_leave_the_pool_whole() {
  PoolFixture fixture(small_geometry(1000, 2), PoolKind::kPage, 160);
  Shared shared{&fixture, {}};
  for (int i = 0; i < 3; ++i) {
    shared.prefixes.push_back(Filled{no_budget(fixture.pool), {}});
    shared.prefixes.back().append_many(300 + 64 * i, static_cast<uint64_t>(i) * 7000);
    shared.prefixes.back().freeze();
  }
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) threads.emplace_back([&shared, i] { play(shared, i + 1); });
  for (std::thread& thread : threads) thread.join();
  for (Filled& prefix : shared.prefixes) {
    prefix.check_rows();
    prefix.holder.release();
  }
  CHECK_EQ(fixture.free_pages(), 160);
  CHECK_EQ(fixture.pool.stats().shared_pages, 0);
  CHECK_EQ(fixture.pool.live_holders(), 0);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests({TEST(sixteen_threads_leave_the_pool_whole)}, argc, argv);
}
