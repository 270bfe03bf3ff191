// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/prefill.h"

#include "abi/registry.h"
#include "abi/scratch.h"

using namespace superslm;

namespace superslm::abi {

Admission admit(const Context& context, const int32_t* tokens, int32_t count, sslm_span_kind kind) {
  const int32_t vocab = context.model->view().vocab;
  const int64_t headroom = context.holder.limit() - context.state.length;
  int32_t bound = headroom < count ? static_cast<int32_t>(headroom > 0 ? headroom : 0) : count;
  sslm_status status = bound < count ? limit_status(context) : SSLM_OK;
  // A bad id right behind the last position that fits still names itself.
  for (int32_t i = 0; i < count && i <= bound; ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) continue;
    bound = i;
    status = SSLM_TOKEN_ID_OUT_OF_RANGE;
    break;
  }
  Admission out{bound, status, context.state.walk_state};
  if (kind != SSLM_SPAN_SCHEMA_CONTENT) return out;
  const decode::Automaton& automaton = schema_of(context)->automaton;
  for (int32_t i = 0; i < bound; ++i) {
    const uint32_t next = automaton.step(out.walk_state, tokens[i]);
    if (next == decode::kNoWalkState) {
      out.count = i;
      out.status = SSLM_SCHEMA_SPAN_UNREACHABLE;
      return out;
    }
    out.walk_state = next;
  }
  return out;
}

sslm_status append(Context& context, const artifact::AdapterView* adapter, const int32_t* tokens,
                   int32_t count, sslm_span_kind kind, sslm_workspace ws, int32_t* consumed) {
  const Admission admission = admit(context, tokens, count, kind);
  if (admission.count == 0) return admission.status;
  CallScratch scratch(*context.model, ws, forward::Shape{1, admission.count});
  if (!scratch) return SSLM_ALLOCATION_FAILED;
  decode::SequenceState& state = context.state;
  if (!context.holder.map_to(state.length + admission.count)) return SSLM_KV_POOL_EXHAUSTED;
  if (!decode::prefill(scratch.engine, state, context.holder.view(), adapter, tokens, admission.count)) {
    return SSLM_INVALID_ARGUMENT;
  }
  if (kind == SSLM_SPAN_SCHEMA_CONTENT) {
    state.walk_state = admission.walk_state;
    // Unsigned: a blob may hold any count, and the sum must not overflow.
    state.forced_token_count = static_cast<int64_t>(static_cast<uint64_t>(state.forced_token_count) +
                                                    static_cast<uint64_t>(admission.count));
  }
  *consumed = admission.count;
  return admission.status;
}

}  // namespace superslm::abi

namespace {

bool valid_span(const int32_t* tokens, int32_t count, int32_t chunk_budget, sslm_span_kind kind) {
  return count >= 0 && chunk_budget >= 1 && (count == 0 || tokens != nullptr) &&
         (kind == SSLM_SPAN_PROMPT || kind == SSLM_SPAN_SCHEMA_CONTENT);
}

int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

}  // namespace

sslm_status sslm_prefill(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t count,
                         int32_t chunk_budget, sslm_span_kind kind, sslm_workspace ws, int32_t* consumed) {
  if (consumed == nullptr) return SSLM_INVALID_ARGUMENT;
  *consumed = 0;
  abi::Sequence* sequence = abi::find_sequence(seq);
  if (model == nullptr || sequence == nullptr || sequence->model != model) return SSLM_INVALID_ARGUMENT;
  if (!valid_span(tokens, count, chunk_budget, kind)) return SSLM_INVALID_ARGUMENT;
  sequence->bindable = false;
  if (kind == SSLM_SPAN_SCHEMA_CONTENT && sequence->state.schema < 0) return SSLM_SCHEMA_SPAN_UNBOUND;
  const artifact::AdapterView* adapter = abi::adapter_of(*sequence);
  return abi::append(*sequence, adapter, tokens, smaller(count, chunk_budget), kind, ws, consumed);
}

sslm_status sslm_prefix_prefill(sslm_model model, sslm_prefix prefix, const int32_t* tokens, int32_t count,
                                int32_t chunk_budget, sslm_span_kind kind, sslm_workspace ws,
                                int32_t* consumed) {
  if (consumed == nullptr) return SSLM_INVALID_ARGUMENT;
  *consumed = 0;
  if (model == nullptr || prefix == nullptr || prefix->model != model) return SSLM_INVALID_ARGUMENT;
  if (!valid_span(tokens, count, chunk_budget, kind)) return SSLM_INVALID_ARGUMENT;
  if (prefix->holder.frozen()) return SSLM_PREFIX_FROZEN_REJECTED;
  if (kind == SSLM_SPAN_SCHEMA_CONTENT && prefix->state.schema < 0) return SSLM_SCHEMA_SPAN_UNBOUND;
  return abi::append(*prefix, nullptr, tokens, smaller(count, chunk_budget), kind, ws, consumed);
}
