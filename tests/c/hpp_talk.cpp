// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// superslm.hpp as a host without exceptions uses it. Prints "ok NAME" per cell.
//
//   hpp_talk TALKING.sslm DEEP.sslm ADAPTER.sslm: an artifact with a tokenizer, one without, and an adapter
//   of it.
#include "superslm/superslm.hpp"

#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include "hpp_support.hpp"

namespace {

constexpr sslm_config kConfig{1, 32, 1, 0};
constexpr int32_t kPrompt[] = {5, 17, 3, 42, 8, 100, 7};
constexpr int32_t kBudget = 40;

// Everything a conversation needs, in the order in which it must outlive the rest.
struct Host {
  explicit Host(const char* path) : artifact(read_file(path)) {
    model = sslm::Model::map(artifact.span()).value();
    const auto pages = 4 * static_cast<uint32_t>(model.pages_for_budget(kBudget));
    kv = Memory(sslm::Pool::size(model, pages));
    pool = sslm::Pool::create(model, pages, kv.span()).value();
    scratch = Memory(sslm::Workspace::size(model, kConfig));
    workspace = sslm::Workspace::create(model, kConfig, scratch.span()).value();
  }
  ~Host() { EXPECT(workspace.reset() == SSLM_OK && pool.reset() == SSLM_OK && model.reset() == SSLM_OK); }
  int32_t layers(const sslm::Sequence& sequence) const {
    return static_cast<int32_t>(sequence.stats(model).value().decode_step_ceiling);
  }
  sslm::Sequence prompted() {
    sslm::Sequence sequence = sslm::Sequence::create(model, pool, kBudget).value();
    EXPECT(sequence.prefill(model, kPrompt, 32, workspace).value() == 7);
    return sequence;
  }

  Memory artifact;
  sslm::Model model;
  Memory kv;
  sslm::Pool pool;
  Memory scratch;
  sslm::Workspace workspace;
};

void handles_move_and_release_once(Host& host) {
  static_assert(!std::is_copy_constructible_v<sslm::Sequence>);
  static_assert(std::is_nothrow_move_constructible_v<sslm::Sequence>);
  sslm::Sequence first = host.prompted();
  const sslm_seq handle = first.get();
  sslm::Sequence second = std::move(first);
  EXPECT(second.get() == handle && !first);
  sslm::Sequence third;
  third = std::move(second);
  EXPECT(third.get() == handle && third.reset() == SSLM_OK && !third);
  EXPECT(third.reset() == SSLM_OK);  // nothing left to release
}

void a_refusal_carries_its_status(Host& host) {
  const std::byte bad[16] = {};
  EXPECT(!sslm::Model::map(bad));
  EXPECT(sslm::Model::map(bad).status() == SSLM_ARTIFACT_REJECTED);
  EXPECT(sslm::Sequence::create(host.model, host.pool, 0).status() == SSLM_INVALID_ARGUMENT);
  EXPECT(sslm::Pool::create(host.model, 1, {}).status() == SSLM_INVALID_ARGUMENT);
  sslm::Sequence sequence = sslm::Sequence::create(host.model, host.pool, 3).value();
  int32_t admitted = -1;
  EXPECT(sequence.prefill(host.model, kPrompt, 32, host.workspace, &admitted).status() ==
         SSLM_KV_BUDGET_EXCEEDED);
  EXPECT(admitted == 3);
}

void a_model_in_use_stays_owned(Host& host) {
  sslm::Sequence sequence = host.prompted();
  EXPECT(host.model.reset() == SSLM_MODEL_HAS_LIVE_SEQUENCES && host.model);
  EXPECT(host.pool.reset() == SSLM_POOL_HAS_LIVE_HANDLES && host.pool);
}

void decode_agrees_with_the_c_verbs(Host& host) {
  sslm::Sequence sequence = host.prompted();
  sslm_kv_pool at = host.pool.get();
  sslm_seq plain = nullptr;
  int32_t consumed = 0;
  EXPECT(sslm_seq_create_budgeted(host.model.get(), &at, kBudget, &plain) == SSLM_OK);
  EXPECT(sslm_prefill(host.model.get(), plain, kPrompt, 7, 7, SSLM_SPAN_PROMPT, nullptr, &consumed) ==
         SSLM_OK);
  sslm_decode_params params{};
  params.layer_budget = host.layers(sequence);
  for (int i = 0; i < 8; ++i) {
    int32_t token = -9;
    EXPECT(sslm_decode_step(host.model.get(), &plain, 1, &params, nullptr, &token) == SSLM_OK);
    EXPECT(sequence.decode(host.model, params.layer_budget, host.workspace).value() == token);
  }
  EXPECT(sslm_seq_release(plain) == SSLM_OK);
  EXPECT(sequence.rewind() == SSLM_OK);
  EXPECT(sequence.decode(host.model, 1, host.workspace).status() == SSLM_INVALID_ARGUMENT);
}

void save_and_restore_continue_alike(Host& host) {
  sslm::Sequence sequence = host.prompted();
  const int32_t layers = host.layers(sequence);
  (void)sequence.decode(host.model, layers, host.workspace).value();
  Memory blob(sequence.save_size());
  EXPECT(sequence.save(blob.span()).value() == blob.span().size());
  EXPECT(sequence.save(blob.span().first(8)).status() == SSLM_BUFFER_TOO_SMALL);
  sslm::Sequence again = sslm::Sequence::restore(host.model, host.pool, blob.span()).value();
  for (int i = 0; i < 5; ++i) {
    EXPECT(sequence.decode(host.model, layers, host.workspace).value() ==
           again.decode(host.model, layers, host.workspace).value());
  }
}

void prefixes_are_adopted_and_nested(Host& host) {
  sslm::Sequence flat = host.prompted();
  const int32_t layers = host.layers(flat);
  sslm::Prefix outer = sslm::Prefix::begin(host.model, host.pool, 8).value();
  EXPECT(outer.prefill(host.model, std::span(kPrompt).first(4), 32, host.workspace).value() == 4);
  EXPECT(outer.freeze() == SSLM_OK);
  sslm::Prefix inner = outer.nested(8).value();
  EXPECT(inner.prefill(host.model, std::span(kPrompt).subspan(4), 32, host.workspace).value() == 3);
  EXPECT(inner.freeze() == SSLM_OK);
  sslm::Sequence sequence = sslm::Sequence::create(host.model, host.pool, 20).value();
  EXPECT(sequence.adopt(inner) == SSLM_OK);
  for (int i = 0; i < 5; ++i) {
    EXPECT(flat.decode(host.model, layers, host.workspace).value() ==
           sequence.decode(host.model, layers, host.workspace).value());
  }
}

int32_t ran_tasks = 0;

void run_in_order(void*, int32_t count, sslm_task_fn task, void* context) {
  for (int32_t i = 0; i < count; ++i, ++ran_tasks) task(context, i);
}

void the_hook_runs_the_logits(Host& host) {
  sslm::Sequence sequence = host.prompted();
  EXPECT(host.workspace.set_parallel_for({run_in_order, nullptr, 4, 0}) == SSLM_OK);
  EXPECT(host.workspace.set_parallel_for({nullptr, nullptr, 4, 0}) == SSLM_INVALID_ARGUMENT);
  (void)sequence.decode(host.model, host.layers(sequence), host.workspace).value();
  EXPECT(ran_tasks > 0);
}

void an_adapter_is_bound_swapped_and_released(Host& host, const char* path) {
  Memory bytes = read_file(path);
  EXPECT(sslm::Adapter::map(bytes.span().first(100), host.model).status() == SSLM_ARTIFACT_REJECTED);
  sslm::Adapter adapter = sslm::Adapter::map(bytes.span(), host.model).value();
  EXPECT(adapter.residency() == bytes.span().size());
  sslm::Sequence plain = host.prompted(), shaped = host.prompted(), swapped = host.prompted();
  EXPECT(shaped.set_adapter(adapter) == SSLM_OK && swapped.set_adapter(adapter) == SSLM_OK);
  EXPECT(adapter.reset() == SSLM_ADAPTER_HAS_LIVE_SEQUENCES && adapter);
  EXPECT(swapped.set_adapter({}) == SSLM_OK);
  const int32_t layers = host.layers(plain);
  bool differs = false;
  for (int i = 0; i < 8; ++i) {
    const int32_t token = plain.decode(host.model, layers, host.workspace).value();
    EXPECT(swapped.decode(host.model, layers, host.workspace).value() == token);
    differs |= shaped.decode(host.model, layers, host.workspace).value() != token;
  }
  EXPECT(differs);
  EXPECT(shaped.reset() == SSLM_OK && adapter.reset() == SSLM_OK && !adapter);
}

void text_makes_a_round_trip(const char* path) {
  Memory artifact = read_file(path);
  sslm::Model model = sslm::Model::map(artifact.span()).value();
  const char* text = "The caf\xc3\xa9 by the sea \xf0\x9f\x90\x99";
  const int32_t count = model.token_count(text).value();
  int32_t ids[64];
  EXPECT(count > 3 && model.tokenize(text, ids).value() == count);
  EXPECT(model.tokenize(text, std::span(ids).first(2)).status() == SSLM_BUFFER_TOO_SMALL);
  sslm_detok_state saved{};  // each token continues a saved text, in the middle of a character too
  char out[256];
  size_t length = 0;
  for (int32_t i = 0; i < count; ++i) {
    sslm::Detokenizer stream(model, saved);
    length += static_cast<size_t>(
        stream.push(std::span(ids).subspan(static_cast<size_t>(i), 1), std::span(out).subspan(length))
            .value());
    saved = stream.state();
  }
  EXPECT(length == std::strlen(text) && std::memcmp(out, text, length) == 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  text_makes_a_round_trip(argv[1]);
  Host host(argv[2]);
#define CELL(name) name(host), std::printf("ok %s\n", #name)
  CELL(handles_move_and_release_once);
  CELL(a_refusal_carries_its_status);
  CELL(a_model_in_use_stays_owned);
  CELL(decode_agrees_with_the_c_verbs);
  CELL(save_and_restore_continue_alike);
  CELL(prefixes_are_adopted_and_nested);
  CELL(the_hook_runs_the_logits);
  an_adapter_is_bound_swapped_and_released(host, argv[3]);
  std::puts("ok an_adapter_is_bound_swapped_and_released");
  return 0;
}
