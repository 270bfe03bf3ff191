// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The decode verbs: argument checks, then the batch in index order, in groups that advance jointly.
#include "abi/decode.h"

#include <algorithm>

#include "abi/registry.h"
#include "abi/scratch.h"
#include "decode/decode.h"

using namespace superslm;
using abi::BatchTables;
using abi::Sequence;

namespace {

constexpr int32_t kUnfinished = -1, kDeadEnd = -2, kReleased = -3;
constexpr int32_t kAlphaEnd = 1 << 20;
constexpr int32_t kMaxAntiLmOrder = 82;

// Finds the live sequences of a batch and holds their locks for the call, taken in ascending slot order so
// that overlapping batches cannot wait for each other in a circle.
class LockedBatch {
 public:
  LockedBatch(const sslm_seq* handles, int32_t n, const BatchTables& tables) : slots_(tables.slots) {
    for (int32_t i = 0; i < n; ++i) {
      if (abi::find_sequence(handles[i]) != nullptr) slots_[count_++] = abi::slot_number(handles[i]);
    }
    // With std::less, libc++ would call an instantiation inside its runtime, which nothing here links.
    std::sort(slots_, slots_ + count_, [](uint32_t a, uint32_t b) { return a < b; });
    count_ = static_cast<int32_t>(std::unique(slots_, slots_ + count_) - slots_);
    for (int32_t i = 0; i < count_; ++i) abi::find_slot(slots_[i])->lock.lock();
    for (int32_t i = 0; i < n; ++i) tables.sequences[i] = abi::find_sequence(handles[i]);
  }
  ~LockedBatch() {
    for (int32_t i = 0; i < count_; ++i) abi::find_slot(slots_[i])->lock.unlock();
  }
  LockedBatch(const LockedBatch&) = delete;
  LockedBatch& operator=(const LockedBatch&) = delete;

 private:
  uint32_t* slots_;
  int32_t count_ = 0;
};

bool valid_damped_fields(const sslm_model_s& model, const sslm_decode_params& params) {
  return params.alpha_q15 >= 0 && params.alpha_q15 < kAlphaEnd && params.anti_lm_max_order >= 1 &&
         params.anti_lm_max_order <= kMaxAntiLmOrder && params.top_k >= 1 &&
         params.top_k <= model.view().vocab;
}

// Checks 4 to 7 of the call, in order.
sslm_status check_params(const sslm_model_s& model, const sslm_decode_params& params) {
  if (params.layer_budget < 1 || params.layer_budget > model.view().layer_count) return SSLM_INVALID_ARGUMENT;
  if (params.mode == SSLM_DECODE_MODE_GREEDY) return SSLM_OK;
  if (params.mode != SSLM_DECODE_MODE_DAMPED_GREEDY) return SSLM_INVALID_ARGUMENT;
  if (!valid_damped_fields(model, params)) return SSLM_INVALID_ARGUMENT;
  if (!model.view().has_logit_scale) return SSLM_ARTIFACT_REJECTED;
  const base::DampedConstants constants{params.q_ln2, params.q_b, params.q_c};
  return base::damped_width_in_domain(constants, params.top_k) && base::damped_peak_in_domain(constants)
             ? SSLM_OK
             : SSLM_INVALID_ARGUMENT;
}

sslm_status check_entries(const sslm_model_s& model, Sequence* const* sequences, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    if (sequences[i] == nullptr) continue;
    if (sequences[i]->model != &model || abi::fresh(sequences[i]->state)) return SSLM_INVALID_ARGUMENT;
  }
  return SSLM_OK;
}

// At a token boundary: room for one more row, and its page from the reserve.
sslm_status open_row(Sequence& sequence) {
  const decode::SequenceState& state = sequence.state;
  sequence.opened = false;
  if (state.ready || abi::mid_token(state)) return SSLM_OK;
  if (state.length >= sequence.holder.limit()) return abi::limit_status(sequence);
  const uint32_t mapped = sequence.holder.mapped();
  if (!sequence.holder.map_to(state.length + 1)) return SSLM_KV_POOL_EXHAUSTED;
  sequence.opened = sequence.holder.mapped() != mapped;
  return SSLM_OK;
}

decode::Entry entry_of(Sequence& sequence, const abi::Selection& selection, int32_t index) {
  decode::Entry entry;
  entry.state = &sequence.state;
  entry.kv = sequence.holder.view();
  entry.adapter = abi::adapter_of(sequence);
  const sslm_schema_s* schema = abi::schema_of(sequence);
  decode::Choice& choice = entry.choice;
  choice.automaton = schema == nullptr ? nullptr : &schema->automaton;
  choice.mode = selection.mode;
  choice.damped = selection.damped;
  choice.damped.history = &sequence.history;
  choice.damped.most_tokens = static_cast<size_t>(sequence.holder.limit()) + 1;
  if (selection.samples != nullptr) choice.sampling = abi::sampling_of(selection.samples, index);
  return entry;
}

sslm_status status_of(decode::Outcome failure) {
  switch (failure) {
    case decode::Outcome::kRefused:
      return SSLM_NUMERIC_STEP_REFUSED;
    case decode::Outcome::kNoMemory:
      return SSLM_ALLOCATION_FAILED;
    default:
      return SSLM_INVALID_ARGUMENT;  // the hook broke exactly-once
  }
}

int32_t output_of(const decode::Entry& entry) {
  switch (entry.outcome) {
    case decode::Outcome::kToken:
      return entry.token;
    case decode::Outcome::kDeadEnd:
      return kDeadEnd;
    default:
      return kUnfinished;
  }
}

// A run of batch entries [begin, end) that may advance together: distinct sequences with the same start, up
// to the first that is refused. Dead entries lie between them.
struct Group {
  int32_t end = 0;
  int32_t members = 0;
  sslm_status refusal = SSLM_OK;  // of entry `end`
};

Group gather(const BatchTables& tables, const abi::Selection& selection, int32_t begin, int32_t n) {
  Group group{begin, 0, SSLM_OK};
  for (; group.end < n && group.members < tables.group_capacity; ++group.end) {
    Sequence* sequence = tables.sequences[group.end];
    if (sequence == nullptr) continue;
    if (sequence->in_group) break;
    if (group.members > 0 && !decode::same_start(*tables.group[0].state, sequence->state)) break;
    group.refusal = open_row(*sequence);
    if (group.refusal != SSLM_OK) break;
    sequence->in_group = true;
    tables.group[group.members] = entry_of(*sequence, selection, group.end);
    tables.group_index[group.members++] = group.end;
  }
  for (int32_t i = 0; i < group.members; ++i) tables.sequences[tables.group_index[i]]->in_group = false;
  return group;
}

// Members behind a failed one are as before the call.
void close_rows(const BatchTables& tables, int32_t first, int32_t members) {
  for (int32_t i = first; i < members; ++i) {
    Sequence& sequence = *tables.sequences[tables.group_index[i]];
    if (sequence.opened) sequence.holder.unmap_behind(sequence.state.length);
  }
}

// Advances entries [begin, end) of one group and writes their outputs, up to the first failure.
sslm_status advance(abi::CallScratch& scratch, const Group& group, int32_t begin, int32_t layer_budget,
                    int32_t* out_tokens) {
  const BatchTables& tables = scratch.tables;
  const int32_t done = decode::decode_group(scratch.engine, tables.group, group.members, layer_budget);
  const bool failed = done < group.members;
  close_rows(tables, done + 1, group.members);
  const int32_t end = failed ? tables.group_index[done] : group.end;
  for (int32_t i = begin, member = 0; i < end; ++i) {
    out_tokens[i] = tables.sequences[i] == nullptr ? kReleased : output_of(tables.group[member++]);
  }
  return failed ? status_of(tables.group[done].outcome) : SSLM_OK;
}

sslm_status run_batch(abi::CallScratch& scratch, const abi::Selection& selection, int32_t n,
                      int32_t layer_budget, int32_t* out_tokens) {
  for (int32_t begin = 0; begin < n;) {
    const Group group = gather(scratch.tables, selection, begin, n);
    const sslm_status status = advance(scratch, group, begin, layer_budget, out_tokens);
    if (status != SSLM_OK) return status;
    if (group.refusal != SSLM_OK) {
      out_tokens[group.end] = kUnfinished;
      return group.refusal;
    }
    begin = group.end;
  }
  return SSLM_OK;
}

abi::Selection selection_of(const sslm_decode_params& params) {
  abi::Selection selection;
  if (params.mode == SSLM_DECODE_MODE_GREEDY) return selection;
  selection.mode = decode::Mode::kDamped;
  selection.damped.alpha = params.alpha_q15;
  selection.damped.order = params.anti_lm_max_order;
  selection.damped.top_k = params.top_k;
  selection.damped.constants = base::DampedConstants{params.q_ln2, params.q_b, params.q_c};
  return selection;
}

}  // namespace

namespace superslm::abi {

sslm_status decode_batch(sslm_model model, const sslm_seq* seqs, int32_t n, int32_t layer_budget,
                         const Selection& selection, sslm_workspace ws, int32_t* out_tokens) {
  for (int32_t i = 0; i < n; ++i) {
    if (seqs[i] == nullptr) return SSLM_INVALID_ARGUMENT;
  }
  CallScratch scratch(*model, ws, forward::Shape{n, 1});
  if (!scratch) return SSLM_ALLOCATION_FAILED;
  const LockedBatch locked(seqs, n, scratch.tables);
  Sequence* const* sequences = scratch.tables.sequences;
  const sslm_status bad_entry = check_entries(*model, sequences, n);
  if (bad_entry != SSLM_OK) return bad_entry;
  for (int32_t i = 0; i < n; ++i) {
    if (sequences[i] != nullptr) sequences[i]->bindable = false;
  }
  return run_batch(scratch, selection, n, layer_budget, out_tokens);
}

}  // namespace superslm::abi

sslm_status sslm_decode_step(sslm_model model, sslm_seq* seqs, int32_t n, const sslm_decode_params* params,
                             sslm_workspace ws, int32_t* out_tokens) {
  if (model == nullptr || seqs == nullptr || params == nullptr || out_tokens == nullptr || n < 1) {
    return SSLM_INVALID_ARGUMENT;
  }
  // A caller of the first release owns only the first four bytes of the struct.
  sslm_decode_params greedy = {};
  greedy.layer_budget = *reinterpret_cast<const int32_t*>(params);
  const sslm_status refusal = check_params(*model, greedy);
  if (refusal != SSLM_OK) return refusal;
  return abi::decode_batch(model, seqs, n, greedy.layer_budget, abi::Selection{}, ws, out_tokens);
}

sslm_status sslm_decode_step_v2(sslm_model model, sslm_seq* seqs, int32_t n, const sslm_decode_params* params,
                                sslm_workspace ws, int32_t* out_tokens) {
  if (model == nullptr || seqs == nullptr || params == nullptr || out_tokens == nullptr || n < 1) {
    return SSLM_INVALID_ARGUMENT;
  }
  if (params->struct_size != sizeof(*params)) return SSLM_INVALID_ARGUMENT;
  const sslm_status refusal = check_params(*model, *params);
  if (refusal != SSLM_OK) return refusal;
  return abi::decode_batch(model, seqs, n, params->layer_budget, selection_of(*params), ws, out_tokens);
}

sslm_status sslm_decode_params_init(sslm_model model, int32_t mode, int32_t layer_budget,
                                    sslm_decode_params* out) {
  if (model == nullptr || out == nullptr) return SSLM_INVALID_ARGUMENT;
  const artifact::ModelView& view = model->view();
  if (layer_budget < 1 || layer_budget > view.layer_count) return SSLM_INVALID_ARGUMENT;
  if (mode != SSLM_DECODE_MODE_GREEDY && mode != SSLM_DECODE_MODE_DAMPED_GREEDY) return SSLM_INVALID_ARGUMENT;
  sslm_decode_params params = {};
  params.struct_size = sizeof(params);
  params.layer_budget = layer_budget;
  params.mode = mode;
  if (mode == SSLM_DECODE_MODE_DAMPED_GREEDY) {
    if (!view.has_logit_scale) return SSLM_ARTIFACT_REJECTED;
    params.alpha_q15 = SSLM_DAMPED_GREEDY_DEFAULT_ALPHA_Q15;
    params.anti_lm_max_order = SSLM_DAMPED_GREEDY_DEFAULT_ANTI_LM_ORDER;
    params.top_k =
        view.vocab < SSLM_DAMPED_GREEDY_DEFAULT_TOP_K ? view.vocab : SSLM_DAMPED_GREEDY_DEFAULT_TOP_K;
    params.q_ln2 = model->artifact.damped.q_ln2;
    params.q_b = model->artifact.damped.q_b;
    params.q_c = model->artifact.damped.q_c;
  }
  *out = params;
  return SSLM_OK;
}
