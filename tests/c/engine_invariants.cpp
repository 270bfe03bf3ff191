// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What must not change a bit: chunks, slices, batches, pages, tasks; and what a failing hook must leave
// behind.
#include <atomic>
#include <thread>

#include "engine_fixture.h"
#include "forward/linear.h"

namespace {

using namespace fixture;
using decode::Outcome;

std::vector<int32_t> random_tokens(uint64_t seed, int32_t count, int32_t vocab) {
  Random random{seed};
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random.between(0, vocab - 1)));
  return tokens;
}

bool prefill(Bench& bench, Sequence& s, const std::vector<int32_t>& tokens, size_t from, size_t count) {
  return decode::prefill(bench.engine, s.state, s.cache.view(), s.adapter, tokens.data() + from,
                         static_cast<int32_t>(count));
}

// Decodes until `count` tokens are out, `budget` layers a call.
std::vector<int32_t> generate(Bench& bench, Sequence& s, int32_t count, int32_t budget) {
  std::vector<int32_t> out;
  while (static_cast<int32_t>(out.size()) < count) {
    decode::Entry entry = s.entry();
    CHECK(decode::decode_group(bench.engine, &entry, 1, budget) == 1);
    if (entry.outcome == Outcome::kToken) out.push_back(entry.token);
  }
  return out;
}

std::vector<Options> shapes() {
  std::vector<Options> all;
  for (int i = 0; i < 16; ++i) {
    Options o;
    o.four_bit = i & 1;
    o.centred = i & 2;
    o.head_norms = i & 4;
    o.biases = i & 8;
    o.extreme = i % 3 == 2;
    o.rank = i % 4 == 1 ? 5 : 0;
    o.head_dim = i % 5 == 3 ? 64 : 32;
    o.kv_heads = i % 3 == 0 ? 1 : 2;
    all.push_back(o);
  }
  return all;
}

void chunks_slices_and_pages_change_nothing(const RandomModel& model) {
  const ModelView& m = model.view;
  const std::vector<int32_t> tokens = random_tokens(5, 21, m.vocab);
  std::string expected;
  std::vector<int32_t> expected_tokens;
  for (int32_t chunk : {21, 1, 2, 5, 20}) {
    for (int32_t scratch_rows : {1, 3, 21}) {
      Bench bench(m, 1, scratch_rows);
      Sequence s(m, chunk == 5 ? 64 : chunk);
      s.adapter = model.adapter.layers ? &model.adapter : nullptr;
      for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(chunk)) {
        const size_t left = tokens.size() - i;
        prefill(bench, s, tokens, i, left < static_cast<size_t>(chunk) ? left : static_cast<size_t>(chunk));
      }
      const std::string prompt = s.snapshot();
      const std::vector<int32_t> out = generate(bench, s, 6, 1 + scratch_rows % m.layer_count);
      if (expected.empty()) {
        expected = prompt + s.snapshot();
        expected_tokens = out;
      }
      CHECK(prompt + s.snapshot() == expected);
      CHECK(out == expected_tokens);
    }
  }
}

// Attention walks its pages in pieces of 64 rows and looks for them in groups of eight pieces: 601 positions
// in pages that divide neither, in one page, and over several heads at once.
void pages_of_a_long_context_change_nothing(const RandomModel& model) {
  const ModelView& m = model.view;
  const std::vector<int32_t> tokens = random_tokens(31, 601, m.vocab);
  std::string expected;
  for (int32_t page_positions : {m.cap, 1, 7, 48, 63, 64, 65, 100, 513}) {
    Bench bench(m, 1, 64);
    Sequence s(m, page_positions);
    for (size_t i = 0; i < tokens.size(); i += 61) {
      CHECK(prefill(bench, s, tokens, i, tokens.size() - i < 61 ? tokens.size() - i : 61));
    }
    generate(bench, s, 3, m.layer_count);
    if (expected.empty()) expected = s.snapshot();
    CHECK(s.snapshot() == expected);
  }
}

void a_batch_equals_its_sequences_alone(const RandomModel& model) {
  const ModelView& m = model.view;
  Bench bench(m, 8, 16);
  std::vector<Sequence> together, alone;
  together.reserve(8);
  alone.reserve(8);
  for (int32_t i = 0; i < 8; ++i) {
    Sequence& s = together.emplace_back(m, 3 + i);
    s.adapter = model.adapter.layers && i % 2 == 0 ? &model.adapter : nullptr;
    const std::vector<int32_t> tokens = random_tokens(static_cast<uint64_t>(i), 2 + i, m.vocab);
    CHECK(prefill(bench, s, tokens, 0, tokens.size()));
    generate(bench, s, 1, m.layer_count);
    alone.push_back(s);
  }
  for (int32_t step = 0; step < 7; ++step) {
    const int32_t budget = 1 + step % m.layer_count;
    std::vector<decode::Entry> entries;
    for (Sequence& s : together) entries.push_back(s.entry());
    CHECK(decode::decode_group(bench.engine, entries.data(), 8, budget) == 8);
    for (size_t i = 0; i < 8; ++i) {
      decode::Entry entry = alone[i].entry();
      CHECK(decode::decode_group(bench.engine, &entry, 1, budget) == 1);
      CHECK(entry.outcome == entries[i].outcome && entry.token == entries[i].token);
      CHECK(alone[i].snapshot() == together[i].snapshot());
    }
  }
}

// ---- Hooks ----

struct Hook {
  int32_t runs = 0;
  int32_t fail_at = -1;  // run index that goes wrong
  int32_t fault = 0;     // 0 omits, 1 repeats, 2 stray above, 3 stray below, 4 nothing at all
  std::vector<int32_t> counts;

  static void run(void* context, int32_t count, void (*task)(void*, int32_t), void* task_context) {
    Hook& hook = *static_cast<Hook*>(context);
    hook.counts.push_back(count);
    const bool fails = hook.runs++ == hook.fail_at;
    for (int32_t i = count - 1; i >= 0; --i) {
      if (fails && (hook.fault == 4 || (hook.fault == 0 && i == count / 2))) continue;
      task(task_context, i);
    }
    if (!fails) return;
    if (hook.fault == 1) task(task_context, 0);
    if (hook.fault == 2) task(task_context, count);
    if (hook.fault == 3) task(task_context, -1);
  }
  base::Parallel parallel(int32_t max_tasks, bool matvec) { return {run, this, max_tasks, matvec}; }
};

void tasks_change_nothing(const RandomModel& model) {
  const ModelView& m = model.view;
  const std::vector<int32_t> tokens = random_tokens(9, 4, m.vocab);
  std::string expected;
  for (int32_t max_tasks : {0, 1, 2, 3, 8, 256}) {
    for (bool matvec : {false, true}) {
      Hook hook;
      Bench bench(m, 1, 4, hook.parallel(max_tasks, matvec));
      Sequence s(m);
      s.adapter = model.adapter.layers ? &model.adapter : nullptr;
      prefill(bench, s, tokens, 0, 3);
      CHECK(hook.runs == 0);
      prefill(bench, s, tokens, 3, 1);
      generate(bench, s, 3, 2);
      if (expected.empty()) expected = s.snapshot();
      CHECK(s.snapshot() == expected);
      if (max_tasks < 2) CHECK(hook.runs == 0);
    }
  }
}

// Prefill, attention and row work over tasks as well: the same bits, and a failure anywhere changes nothing.
void spreading_changes_nothing(const RandomModel& model) {
  const ModelView& m = model.view;
  const std::vector<int32_t> tokens = random_tokens(21, 40, m.vocab);
  std::string expected;
  for (int32_t max_tasks : {1, 2, 3, 8}) {
    for (bool matvec : {false, true}) {
      Hook hook;
      Bench bench(m, 4, 33, hook.parallel(5, matvec), max_tasks);
      Sequence s(m, 64);
      s.adapter = model.adapter.layers ? &model.adapter : nullptr;
      CHECK(prefill(bench, s, tokens, 0, 39));
      CHECK((hook.runs > 0) == (max_tasks > 1));
      CHECK(prefill(bench, s, tokens, 39, 1));
      generate(bench, s, 3, 2);
      if (expected.empty()) expected = s.snapshot();
      CHECK(s.snapshot() == expected);
    }
  }
}

void a_failed_spread_prefill_changes_nothing(const RandomModel& model) {
  const ModelView& m = model.view;
  Bench plain(m, 1, 40);
  const std::vector<int32_t> tokens = random_tokens(23, 40, m.vocab);
  Sequence start(m, 64);
  prefill(plain, start, tokens, 0, 3);
  generate(plain, start, 1, m.layer_count);
  decode::Entry entry = start.entry();
  decode::decode_group(plain.engine, &entry, 1, 1);
  for (int32_t fail_at = 0;; ++fail_at) {
    Hook hook;
    hook.fail_at = fail_at;
    hook.fault = fail_at % 5;
    Bench bench(m, 1, 20, hook.parallel(4, true), 4);
    Sequence tried = start;
    const bool ok = prefill(bench, tried, tokens, 3, 37);
    CHECK(ok == (hook.runs <= fail_at));
    if (ok) break;
    CHECK(tried.snapshot() == start.snapshot());
  }
}

// Eight workers that take tasks as they come.
void run_on_threads(void*, int32_t count, void (*task)(void*, int32_t), void* task_context) {
  std::atomic<int32_t> next{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 8; ++i) {
    workers.emplace_back([&] {
      for (int32_t index; (index = next.fetch_add(1)) < count;) task(task_context, index);
    });
  }
  for (std::thread& worker : workers) worker.join();
}

void threads_change_nothing(const RandomModel& model) {
  const ModelView& m = model.view;
  const std::vector<int32_t> tokens = random_tokens(11, 41, m.vocab);
  std::string expected;
  for (int32_t max_tasks : {0, 8, 256}) {
    Bench bench(m, 3, 40, base::Parallel{run_on_threads, nullptr, max_tasks, true}, max_tasks == 8 ? 8 : 1);
    std::vector<Sequence> batch;
    batch.reserve(3);
    for (int32_t i = 0; i < 3; ++i) {
      Sequence& s = batch.emplace_back(m);
      s.adapter = model.adapter.layers && i != 1 ? &model.adapter : nullptr;
      CHECK(prefill(bench, s, tokens, 0, 40));
      CHECK(prefill(bench, s, tokens, 40, 1));
    }
    std::string end;
    for (int32_t step = 0; step < 4; ++step) {
      std::vector<decode::Entry> entries;
      for (Sequence& s : batch) entries.push_back(s.entry());
      CHECK(decode::decode_group(bench.engine, entries.data(), 3, 1 + step % m.layer_count) == 3);
    }
    for (const Sequence& s : batch) end += s.snapshot();
    if (expected.empty()) expected = end;
    CHECK(end == expected);
  }
}

// Fails every run of a step in turn; the state afterwards must be a resting point, and a retry must end as if
// nothing had happened.
void a_failed_hook_leaves_a_resting_point(const RandomModel& model) {
  const ModelView& m = model.view;
  Bench plain(m, 4, 8);
  std::vector<Sequence> start;
  start.reserve(4);
  for (int32_t i = 0; i < 4; ++i) {
    Sequence& s = start.emplace_back(m);
    s.adapter = model.adapter.layers && i % 2 == 0 ? &model.adapter : nullptr;
    const std::vector<int32_t> tokens = random_tokens(static_cast<uint64_t>(50 + i), 3 + i, m.vocab);
    prefill(plain, s, tokens, 0, tokens.size());
    generate(plain, s, 1, m.layer_count);
  }
  for (int32_t resting = 0; resting < m.layer_count; ++resting) {
    std::vector<Sequence> whole = start;
    std::vector<decode::Entry> entries;
    for (Sequence& s : whole) entries.push_back(s.entry());
    if (resting > 0) decode::decode_group(plain.engine, entries.data(), 4, resting);
    const std::vector<Sequence> before = whole;
    decode::decode_group(plain.engine, entries.data(), 4, m.layer_count);
    for (int32_t fail_at = 0;; ++fail_at) {
      Hook hook;
      hook.fail_at = fail_at;
      hook.fault = fail_at % 5;
      Bench bench(m, 4, 8, hook.parallel(4, true), resting == 0 ? 4 : 1);
      std::vector<Sequence> tried = before;
      std::vector<decode::Entry> again;
      for (Sequence& s : tried) again.push_back(s.entry());
      const int32_t done = decode::decode_group(bench.engine, again.data(), 4, m.layer_count);
      if (done == 4) {
        CHECK(fail_at == hook.runs);
        break;
      }
      CHECK(done == 0 && again[0].outcome == Outcome::kHookFailed);
      for (size_t i = 1; i < 4; ++i) {
        CHECK(tried[i].snapshot() == before[i].snapshot() && again[i].outcome == Outcome::kNotRun);
      }
      // The first entry rests where a slice would have ended.
      const int32_t layer = tried[0].state.ready ? m.layer_count : tried[0].state.layer_index;
      Sequence sliced = before[0];
      decode::Entry slice = sliced.entry();
      if (layer > resting && layer < m.layer_count)
        decode::decode_group(plain.engine, &slice, 1, layer - resting);
      if (layer < m.layer_count) CHECK(tried[0].snapshot() == sliced.snapshot());
      for (size_t i = 0; i < 4; ++i) {
        decode::Entry retry = tried[i].entry();
        decode::decode_group(plain.engine, &retry, 1, m.layer_count);
        CHECK(tried[i].snapshot() == whole[i].snapshot());
      }
    }
  }
}

void a_failed_one_token_prefill_changes_nothing(const RandomModel& model) {
  const ModelView& m = model.view;
  Bench plain(m, 1, 8);
  const std::vector<int32_t> tokens = random_tokens(77, 5, m.vocab);
  for (int32_t resting = 0; resting < m.layer_count; ++resting) {
    Sequence start(m);
    prefill(plain, start, tokens, 0, 4);
    generate(plain, start, 1, m.layer_count);
    decode::Entry entry = start.entry();
    if (resting > 0) decode::decode_group(plain.engine, &entry, 1, resting);
    for (int32_t fail_at = 0;; ++fail_at) {
      Hook hook;
      hook.fail_at = fail_at;
      hook.fault = fail_at % 5;
      Bench bench(m, 1, 8, hook.parallel(4, true));
      Sequence tried = start;
      const bool ok = prefill(bench, tried, tokens, 4, 1);
      CHECK(ok == (hook.runs <= fail_at));
      if (ok) break;
      CHECK(tried.snapshot() == start.snapshot());
    }
  }
}

void the_split_matches_the_contract() {
  constexpr int32_t four = 4;
  using forward::Hook;
  CHECK(forward::rows_per_task(four, 896, 896, Hook::kProjection) == 320);
  CHECK(forward::rows_per_task(four, 256, 896, Hook::kProjection) == 256);
  CHECK(forward::rows_per_task(four, 9728, 896, Hook::kProjection) == 2432);
  CHECK(forward::rows_per_task(four, 896, 4864, Hook::kProjection) == 256);
  CHECK(forward::rows_per_task(four, 151936, 896, Hook::kLogits) == 38016);
  CHECK(forward::rows_per_task(four, 4864, 896, Hook::kProjection) == 1216);
}

void a_model_of_random_bits_never_leaves_its_bounds(uint64_t seed) {
  Options o;
  o.extreme = true;
  o.four_bit = seed & 1;
  o.centred = seed & 2;
  o.head_norms = seed & 4;
  o.biases = seed & 8;
  o.rank = seed % 3 ? 0 : 33;
  const RandomModel model(seed, o);
  Random random{seed};
  Bench bench(model.view, 2, 8);
  Sequence s(model.view);
  s.adapter = model.adapter.layers ? &model.adapter : nullptr;
  for (uint8_t& byte : s.cache.memory) byte = random.next() % 2 ? 0x80 : static_cast<uint8_t>(random.next());
  for (int32_t& x : s.residual) x = random.next() % 2 ? INT32_MIN : static_cast<int32_t>(random.next());
  s.state.length = 9;
  s.state.ready = true;
  generate(bench, s, 3, 1);
  for (int32_t& x : s.residual) x = random.next() % 2 ? INT32_MIN : INT32_MAX;
  s.state.layer_index = 1;
  generate(bench, s, 2, 2);
  const std::vector<int32_t> tokens = random_tokens(seed, 12, model.view.vocab);
  prefill(bench, s, tokens, 0, tokens.size());
}

}  // namespace

int main() {
  test_name = "the split matches the contract";
  the_split_matches_the_contract();
  uint64_t seed = 1;
  for (const Options& shape : shapes()) {
    const RandomModel model(seed++, shape);
    test_name = "chunks, slices and pages change nothing";
    chunks_slices_and_pages_change_nothing(model);
    test_name = "a batch equals its sequences alone";
    a_batch_equals_its_sequences_alone(model);
  }
  for (int i = 0; i < 4; ++i) {
    Options o;
    o.cap = 640;
    o.layers = 2;
    o.heads = i < 2 ? 6 : 5;
    o.head_dim = i % 2 ? 32 : 64;
    o.kv_heads = i < 2 ? 2 : 1;
    o.centred = i != 1;
    o.extreme = i == 3;
    test_name = "pages of a long context change nothing";
    pages_of_a_long_context_change_nothing(RandomModel(seed++, o));
  }
  for (int i = 0; i < 4; ++i) {
    Options o;
    o.hidden = 512;
    o.mlp = 640;
    o.layers = 2;
    o.heads = 16;
    o.kv_heads = 8;
    o.cap = 64;
    o.four_bit = i & 1;
    o.centred = i & 2;
    o.rank = i == 1 ? 9 : 0;
    o.extreme = i == 2;
    const RandomModel model(seed++, o);
    test_name = "tasks change nothing";
    tasks_change_nothing(model);
    test_name = "spreading changes nothing";
    spreading_changes_nothing(model);
    test_name = "a failed spread prefill changes nothing";
    a_failed_spread_prefill_changes_nothing(model);
    test_name = "threads change nothing";
    threads_change_nothing(model);
    test_name = "a failed hook leaves a resting point";
    a_failed_hook_leaves_a_resting_point(model);
    test_name = "a failed one-token prefill changes nothing";
    a_failed_one_token_prefill_changes_nothing(model);
  }
  test_name = "a model of random bits never leaves its bounds";
  for (uint64_t s = 0; s < 48; ++s) a_model_of_random_bits_never_leaves_its_bounds(s);
  std::printf("ok\n");
  return 0;
}
