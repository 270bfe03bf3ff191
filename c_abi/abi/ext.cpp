// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <climits>
#include <cstring>

#include "abi/handles.h"
#include "abi/prefill.h"
#include "abi/registry.h"
#include "abi/scratch.h"
#include "forward/layer.h"
#include "kernels/kernels.h"

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/sslm_ext.h"

using namespace superslm;
using abi::LockedSequence;
using abi::Sequence;

namespace {

#define SSLM_NAME(name) #name,
const char* const kStatusNames[] = {SSLM_STATUS_ENUM_LIST(SSLM_NAME)};
#undef SSLM_NAME

// Logits of a context that rests ready, in scratch; null when the hook broke exactly-once.
const int32_t* ready_logits(abi::CallScratch& scratch, const abi::Context& context) {
  forward::LogitRow row;
  row.residual = context.state.residual;
  row.logits = scratch.engine.scratch.logit;
  return forward::logits(scratch.engine, &row, 1) ? row.logits : nullptr;
}

// Appends one token and gives its log-probability, 0 where nothing predicts it.
sslm_status score_token(abi::CallScratch& scratch, Sequence& sequence, int32_t token, int32_t* out) {
  const artifact::ModelView& view = sequence.model->view();
  int32_t value = 0;
  if (sequence.state.ready) {
    const int32_t* logits = ready_logits(scratch, sequence);
    if (logits == nullptr) return SSLM_INVALID_ARGUMENT;
    value = static_cast<int32_t>(decode::log_probability(logits, view.vocab, token));
  }
  if (!sequence.holder.map_to(sequence.state.length + 1)) return SSLM_KV_POOL_EXHAUSTED;
  const artifact::AdapterView* adapter = abi::adapter_of(sequence);
  if (!decode::prefill(scratch.engine, sequence.state, sequence.holder.view(), adapter, &token, 1)) {
    return SSLM_INVALID_ARGUMENT;
  }
  *out = value;
  return SSLM_OK;
}

// Ids for a caller's array under the capacity rule that all of these verbs share.
sslm_status report_count(size_t count, const int32_t* out, size_t* n) {
  const size_t capacity = *n;
  *n = count;
  return out == nullptr || capacity < count ? SSLM_BUFFER_TOO_SMALL : SSLM_OK;
}

// A reader's refusal for a caller's buffer, cut to its capacity; empty when there was none.
void report_reason(artifact::ReadResult result, const base::Message& why, char* message, size_t* n) {
  const size_t length = result == artifact::ReadResult::ok ? 0 : why.length;
  if (message != nullptr && *n > 0) {
    const size_t copied = length < *n ? length : *n - 1;
    std::memcpy(message, why.text, copied);
    message[copied] = 0;
  }
  if (n != nullptr) *n = length;
}

}  // namespace

uint32_t sslm_ext_version(void) { return SSLM_EXT_VERSION; }

const char* sslm_ext_status_name(sslm_status status) {
  const int ordinal = static_cast<int>(status);
  if (ordinal < 0 || ordinal >= static_cast<int>(SSLM_STATUS_NEXT_FREE)) return "unknown status";
  return kStatusNames[ordinal];
}

const char* sslm_ext_kernel_tier(void) { return kernels::active().name; }

sslm_status sslm_ext_model_info(sslm_model model, sslm_ext_model_info_out* out) {
  if (model == nullptr || out == nullptr || out->struct_size < sizeof(*out)) return SSLM_INVALID_ARGUMENT;
  const artifact::ModelView& view = model->view();
  out->layers = view.layer_count;
  out->hidden = view.hidden;
  out->heads = view.heads;
  out->kv_heads = view.kv_heads;
  out->head_dim = view.head_dim;
  out->mlp = view.mlp;
  out->vocab = view.vocab;
  out->cap = view.cap;
  out->weight_bits = artifact::weight_bits(view);
  out->has_tokenizer = model->artifact.has_tokenizer ? 1 : 0;
  out->tokenizer_size =
      model->artifact.has_tokenizer ? static_cast<int32_t>(model->artifact.tokenizer.size) : 0;
  out->schema_count = model->schema_count;
  out->stop_id_count = view.stop_id_count;
  std::memcpy(out->stop_ids, view.stop_ids, sizeof(out->stop_ids));
  std::memcpy(out->file_digest, view.file_digest, sizeof(out->file_digest));
  std::memcpy(out->model_digest, view.model_digest, sizeof(out->model_digest));
  return SSLM_OK;
}

sslm_status sslm_ext_model_check(const void* data, size_t size, char* message, size_t* n) {
  if (data == nullptr || (message != nullptr && n == nullptr)) return SSLM_INVALID_ARGUMENT;
  artifact::Model model;
  base::Message why;
  const artifact::ReadResult result = artifact::read(static_cast<const uint8_t*>(data), size, &model, &why);
  if (result == artifact::ReadResult::ok) artifact::release(&model);
  report_reason(result, why, message, n);
  return abi::status_of(result);
}

sslm_status sslm_ext_adapter_check(sslm_model model, const void* data, size_t size, char* message,
                                   size_t* n) {
  if (model == nullptr || data == nullptr || (message != nullptr && n == nullptr))
    return SSLM_INVALID_ARGUMENT;
  artifact::Adapter adapter;
  base::Message why;
  const artifact::ReadResult result =
      artifact::read_adapter(static_cast<const uint8_t*>(data), size, model->view(), &adapter, &why);
  if (result == artifact::ReadResult::ok) artifact::release(&adapter);
  report_reason(result, why, message, n);
  return abi::status_of(result);
}

sslm_status sslm_ext_seq_logits(sslm_model model, sslm_seq seq, sslm_workspace ws, int32_t* out, size_t* n) {
  if (model == nullptr || n == nullptr) return SSLM_INVALID_ARGUMENT;
  const LockedSequence sequence(seq);
  if (!sequence || sequence->model != model || !sequence->state.ready) return SSLM_INVALID_ARGUMENT;
  const sslm_status refusal = report_count(static_cast<size_t>(model->view().vocab), out, n);
  if (refusal != SSLM_OK) return refusal;
  abi::CallScratch scratch(*model, ws, forward::Shape{1, 1});
  if (!scratch) return SSLM_ALLOCATION_FAILED;
  const int32_t* logits = ready_logits(scratch, *sequence);
  if (logits == nullptr) return SSLM_INVALID_ARGUMENT;
  std::memcpy(out, logits, *n * sizeof(int32_t));
  return SSLM_OK;
}

sslm_status sslm_ext_tokenize(sslm_model model, const char* utf8, size_t len, uint32_t flags, int32_t* out,
                              size_t* n) {
  if (model == nullptr || n == nullptr || (utf8 == nullptr && len > 0)) return SSLM_INVALID_ARGUMENT;
  if ((flags & ~SSLM_EXT_TOKENIZE_SPECIAL) != 0) return SSLM_INVALID_ARGUMENT;
  if (!model->artifact.has_tokenizer) return SSLM_ARTIFACT_REJECTED;
  size_t count = 0;
  const text::Result result =
      text::tokenize(model->artifact.tokenizer, reinterpret_cast<const uint8_t*>(utf8), len,
                     (flags & SSLM_EXT_TOKENIZE_SPECIAL) != 0, out, *n, &count);
  return result == text::Result::kOk ? report_count(count, out, n) : SSLM_ALLOCATION_FAILED;
}

sslm_status sslm_ext_chat_ids(sslm_model model, int32_t role, int32_t part, int32_t* out, size_t* n) {
  if (model == nullptr || n == nullptr) return SSLM_INVALID_ARGUMENT;
  if (role < SSLM_EXT_CHAT_SYSTEM || role > SSLM_EXT_CHAT_ASSISTANT) return SSLM_INVALID_ARGUMENT;
  if (part < SSLM_EXT_CHAT_PREFIX || part > SSLM_EXT_CHAT_OPENING) return SSLM_INVALID_ARGUMENT;
  if (!model->artifact.has_tokenizer || !model->artifact.tokenizer.has_chat) return SSLM_ARTIFACT_REJECTED;
  const text::IdSpan ids =
      text::chat_ids(model->artifact.tokenizer, static_cast<text::Role>(role), static_cast<text::Part>(part));
  const sslm_status refusal = report_count(ids.count, out, n);
  if (refusal != SSLM_OK) return refusal;
  std::memcpy(out, ids.ids.bytes, ids.count * sizeof(int32_t));
  return SSLM_OK;
}

sslm_status sslm_ext_score(sslm_model model, sslm_seq seq, const int32_t* tokens, int32_t n,
                           sslm_workspace ws, int32_t* out, int32_t* consumed) {
  if (consumed == nullptr) return SSLM_INVALID_ARGUMENT;
  *consumed = 0;
  Sequence* sequence = abi::find_sequence(seq);
  if (model == nullptr || sequence == nullptr || sequence->model != model) return SSLM_INVALID_ARGUMENT;
  if (n < 0 || out == nullptr || (n > 0 && tokens == nullptr)) return SSLM_INVALID_ARGUMENT;
  if (!sequence->state.ready && !abi::fresh(sequence->state)) return SSLM_INVALID_ARGUMENT;
  sequence->bindable = false;
  const abi::Admission admission = abi::admit(*sequence, tokens, n, SSLM_SPAN_PROMPT);
  if (admission.count == 0) return admission.status;
  abi::CallScratch scratch(*model, ws, forward::Shape{1, 1});
  if (!scratch) return SSLM_ALLOCATION_FAILED;
  for (int32_t i = 0; i < admission.count; ++i) {
    const sslm_status status = score_token(scratch, *sequence, tokens[i], out + i);
    if (status != SSLM_OK) return status;
    *consumed = i + 1;
  }
  return admission.status;
}
