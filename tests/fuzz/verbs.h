// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The handles of a run beside what the model says of them, and one function per step.
#pragma once

#include "contract.h"

namespace superslm::fuzz {

constexpr int kPools = 3, kSeqs = 5, kPrefixes = 4, kBlobs = 3, kWorkspaces = 5;

struct Seq {
  sslm_seq handle = nullptr;
  Context model;
};

struct Prefix {
  sslm_prefix handle = nullptr;
  Context model;
};

struct Blob {
  Bytes bytes;
  State state;
  bool budgeted = false;
  int32_t budget = 0;
  int64_t origin = 0;
};

class World {
 public:
  World();
  void open();
  void close();
  void check_pools();

  // Steps; each reads its choices from the input.
  void create(Input& in);
  void release(Input& in);
  void reset(Input& in);
  void begin(Input& in);
  void begin_from(Input& in);
  void fill_prefix(Input& in);
  void freeze(Input& in);
  void drop_prefix(Input& in);
  void prefix_schema(Input& in);
  void adopt(Input& in);
  void prefill(Input& in);
  void decode(Input& in);
  void set_schema(Input& in);
  void set_adapter(Input& in);
  void save(Input& in);
  void restore(Input& in);
  void save_prefix(Input& in);
  void restore_prefix(Input& in);
  void score(Input& in);
  void compare(Input& in);
  void busy(Input& in);
  void choose_workspace(Input& in);

 private:
  // One decode call: how its tokens are chosen, and what came back.
  struct Call {
    int mode = 0;  // 0 first verb, 1 greedy, 2 damped, 3 sampled
    int32_t layers = 1, order = 0;
    std::vector<sslm_seq> handles;
    std::vector<Seq*> entries;  // null: released
    std::vector<int32_t> out;
    sslm_status status = SSLM_OK;
  };

  // The slot a byte names or, for most bytes, the next one that is not empty.
  template <typename Slot, int kCount>
  static Slot& pick(Input& in, Slot (&slots)[kCount]) {
    const uint8_t choice = in.byte();
    for (int i = 0; i < kCount && choice < 224; ++i) {
      Slot& slot = slots[(choice + i) % kCount];
      if (slot.handle != nullptr) return slot;
    }
    return slots[choice % kCount];
  }
  Seq& pick_seq(Input& in) { return pick(in, seqs_); }
  Prefix& pick_prefix(Input& in) { return pick(in, prefixes_); }
  Seq& new_seq(Input& in) { return seqs_[in.below(kSeqs)]; }
  Prefix& new_prefix(Input& in) { return prefixes_[in.below(kPrefixes)]; }
  Pool& pick_pool(Input& in) { return pools_[in.below(kPools)]; }
  sslm_workspace workspace() const { return workspaces_[workspace_]; }
  bool hook_fails() const { return workspace_ == 4; }

  std::vector<int32_t> read_tokens(Input& in);
  void run_call(Input& in, Call& call);
  void check_call(Call& call);
  void check_seq(Seq& seq);
  void forget(Seq& seq);
  void replay(const State& state, sslm_seq twin);
  void compare_logits(sslm_seq a, sslm_seq b);
  sslm_status draw(Pool& pool, bool budgeted, int32_t budget, Context& context);
  bool is_parent(const Blob& blob, const Pool& pool, const Prefix& hint) const;

  sslm_model model_, other_;
  sslm_schema schemas_[2] = {}, foreign_ = nullptr;
  Bytes adapter_file_;
  sslm_adapter adapter_ = nullptr;
  sslm_workspace workspaces_[kWorkspaces] = {};
  int workspace_ = 0;
  sslm_kv_pool twin_pool_ = nullptr;
  uint8_t* buffers_[kPools] = {};
  size_t sizes_[kPools] = {};

  Pool pools_[kPools];
  Seq seqs_[kSeqs];
  sslm_seq dead_ = nullptr;  // released last
  Prefix prefixes_[kPrefixes];
  Blob blobs_[kBlobs], prefix_blob_;
};

}  // namespace superslm::fuzz
