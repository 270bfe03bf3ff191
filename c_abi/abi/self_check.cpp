// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Replays the golden record of an artifact through the verbs a host calls (docs/sslm_format.md, section 8).
#include <cstring>

#include "abi/handles.h"
#include "artifact/sha256.h"
#include "base/checked.h"
#include "base/load.h"

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/sslm_ext.h"

using namespace superslm;

namespace {

// The section's bytes, checked when the model was mapped.
class Record {
 public:
  explicit Record(const uint8_t* section) : section_(section) {}
  int32_t prompt_length() const { return word(0); }
  int32_t token_count() const { return word(1); }
  const uint8_t* digest() const { return section_ + 8; }
  int32_t prompt(int32_t i) const { return word(10 + i); }
  int32_t token(int32_t i) const { return word(10 + prompt_length() + i); }
  int32_t positions() const { return prompt_length() + token_count() - 1; }

 private:
  int32_t word(int32_t i) const { return static_cast<int32_t>(base::load_le<uint32_t>(section_ + 4 * i)); }
  const uint8_t* section_;
};

// Heap memory at the alignment of a pool, given back at the end of the scope.
class Block {
 public:
  explicit Block(base::CheckedSize size) {
    const base::CheckedSize padded = size + base::CheckedSize(SSLM_ABI_ALIGNMENT_BYTES);
    memory_ = padded.ok() ? base::allocate(static_cast<size_t>(padded.value())) : nullptr;
  }
  ~Block() { base::deallocate(memory_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  explicit operator bool() const { return memory_ != nullptr; }

  uint8_t* data() const {
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    const uintptr_t past = address % SSLM_ABI_ALIGNMENT_BYTES;
    return static_cast<uint8_t*>(memory_) + (past == 0 ? 0 : SSLM_ABI_ALIGNMENT_BYTES - past);
  }

 private:
  void* memory_;
};

// A conversation in memory of its own.
class Replay {
 public:
  Replay(sslm_model model, sslm_workspace workspace) : model_(model), workspace_(workspace) {}
  ~Replay() {
    if (sequence_ != nullptr) sslm_seq_release(sequence_);
    if (pool_ != nullptr) sslm_kv_pool_destroy(pool_);
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  sslm_status open(uint8_t* memory, size_t size, uint32_t pages, int32_t positions) {
    const sslm_status status = sslm_kv_page_pool_create(model_, memory, size, pages, &pool_);
    return status == SSLM_OK ? sslm_seq_create_budgeted(model_, &pool_, positions, &sequence_) : status;
  }
  sslm_status append(int32_t token) {
    int32_t consumed = 0;
    return sslm_prefill(model_, sequence_, &token, 1, 1, SSLM_SPAN_PROMPT, workspace_, &consumed);
  }
  sslm_status logits(int32_t* row, size_t vocab) {
    return sslm_ext_seq_logits(model_, sequence_, workspace_, row, &vocab);
  }
  sslm_status save(uint8_t* blob, size_t* size) { return sslm_seq_save(sequence_, blob, size); }

 private:
  sslm_model model_;
  sslm_workspace workspace_;
  sslm_kv_pool pool_ = nullptr;
  sslm_seq sequence_ = nullptr;
};

int32_t largest(const int32_t* row, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; ++i) {
    if (row[i] > row[best]) best = i;
  }
  return best;
}

// Generates greedily until a token differs; `*hash` takes the logits.
sslm_status compare_tokens(Replay& replay, const Record& record, int32_t* row, int32_t vocab,
                           artifact::Sha256* hash, sslm_ext_self_check_out* out) {
  for (int32_t i = 0; i < record.token_count(); ++i) {
    if (i > 0) {
      const sslm_status appended = replay.append(record.token(i - 1));
      if (appended != SSLM_OK) return appended;
    }
    const sslm_status status = replay.logits(row, static_cast<size_t>(vocab));
    if (status != SSLM_OK) return status;
    hash->update(row, static_cast<size_t>(vocab) * sizeof(int32_t));
    out->computed = largest(row, vocab);
    out->recorded = record.token(i);
    if (out->computed != out->recorded) {
      out->verdict = SSLM_EXT_SELF_CHECK_TOKEN_DIFFERS;
      return SSLM_OK;
    }
    out->tokens = i + 1;
  }
  return SSLM_OK;
}

// Compares the digest of the logits and of the K/V rows at the end of the sequence's blob.
sslm_status compare_digest(Replay& replay, const Record& record, size_t row_bytes, artifact::Sha256* hash,
                           sslm_ext_self_check_out* out) {
  size_t size = 0;
  replay.save(nullptr, &size);
  const Block blob{base::CheckedSize(size)};
  if (!blob) return SSLM_ALLOCATION_FAILED;
  const sslm_status status = replay.save(blob.data(), &size);
  if (status != SSLM_OK) return status;
  const size_t kv = static_cast<size_t>(record.positions()) * row_bytes;
  const artifact::Digest digest = hash->update(blob.data() + size - kv, kv).finish();
  const bool same = std::memcmp(digest.bytes, record.digest(), sizeof(digest.bytes)) == 0;
  out->verdict = same ? SSLM_EXT_SELF_CHECK_VERIFIED : SSLM_EXT_SELF_CHECK_DIGEST_DIFFERS;
  return SSLM_OK;
}

sslm_status run(sslm_model model, sslm_workspace ws, const Record& record, sslm_ext_self_check_out* out) {
  const artifact::ModelView& view = model->view();
  const size_t pages = sslm_kv_pages_for_budget(model, record.positions());
  const size_t overhead = sslm_kv_page_pool_overhead_size(model, static_cast<uint32_t>(pages));
  const base::CheckedSize size = base::CheckedSize(sslm_kv_page_size(model)) * pages + overhead;
  const Block memory(size);
  const Block row(base::CheckedSize(sizeof(int32_t)) * static_cast<uint64_t>(view.vocab));
  if (!memory || !row) return SSLM_ALLOCATION_FAILED;

  Replay replay(model, ws);
  const sslm_status opened =
      replay.open(memory.data(), size.saturated(), static_cast<uint32_t>(pages), record.positions());
  if (opened != SSLM_OK) return opened;
  for (int32_t i = 0; i < record.prompt_length(); ++i) {
    const sslm_status status = replay.append(record.prompt(i));
    if (status != SSLM_OK) return status;
  }
  artifact::Sha256 hash;
  const sslm_status status =
      compare_tokens(replay, record, reinterpret_cast<int32_t*>(row.data()), view.vocab, &hash, out);
  if (status != SSLM_OK || out->tokens < out->expected_tokens) return status;
  const size_t row_bytes = static_cast<size_t>(view.layer_count) * 2 * static_cast<size_t>(view.kv_heads) *
                           static_cast<size_t>(view.head_dim);
  return compare_digest(replay, record, row_bytes, &hash, out);
}

}  // namespace

sslm_status sslm_ext_self_check(sslm_model model, sslm_workspace ws, sslm_ext_self_check_out* out) {
  if (model == nullptr || out == nullptr || out->struct_size < sizeof(*out)) return SSLM_INVALID_ARGUMENT;
  if (model->artifact.golden == nullptr) return SSLM_ARTIFACT_REJECTED;
  const Record record(model->artifact.golden);
  sslm_ext_self_check_out result{};
  result.struct_size = out->struct_size;
  result.expected_tokens = record.token_count();
  result.recorded = result.computed = -1;
  const sslm_status status = run(model, ws, record, &result);
  if (status == SSLM_OK) *out = result;
  return status;
}
