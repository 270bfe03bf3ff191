// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Seeded sampling: parameters per entry, checked before any sequence is touched.
#include "abi/decode.h"

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/sslm_ext.h"

using namespace superslm;

namespace {

constexpr int32_t kOne = 32768;  // Q15
constexpr uint64_t kInverseTemperatureEnd = uint64_t{1} << 47;

const sslm_ext_sample_params& entry_of(const sslm_ext_sample_params* samples, int32_t index) {
  const size_t offset = static_cast<size_t>(index) * samples->struct_size;
  return *reinterpret_cast<const sslm_ext_sample_params*>(reinterpret_cast<const char*>(samples) + offset);
}

bool valid_ids(const int32_t* ids, int32_t count, int32_t vocab) {
  if (count < 0 || (count > 0 && ids == nullptr)) return false;
  for (int32_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) return false;
  }
  return true;
}

bool valid_params(const sslm_ext_sample_params& p, int32_t vocab) {
  if (p.inverse_temperature < 1 || p.inverse_temperature >= kInverseTemperatureEnd) return false;
  if (p.top_k < 0 || p.top_p_q15 < 1 || p.top_p_q15 > kOne || p.min_p_q15 < 0 || p.min_p_q15 > kOne)
    return false;
  if (p.reserved != 0 || !valid_ids(p.banned, p.banned_count, vocab)) return false;
  if (!valid_ids(p.bias_tokens, p.bias_count, vocab) || (p.bias_count > 0 && p.bias_q16 == nullptr))
    return false;
  if (!valid_ids(p.penalty_tokens, p.penalty_count, vocab)) return false;
  if (p.penalty_count > 0 && p.penalty_counts == nullptr) return false;
  for (int32_t i = 0; i < p.penalty_count; ++i) {
    if (p.penalty_counts[i] < 0) return false;
  }
  return true;
}

// All entries carry the same size, at least this release's, which is also their distance.
bool valid_array(const sslm_ext_sample_params* samples, int32_t n, int32_t vocab) {
  const uint32_t size = samples->struct_size;
  if (size < sizeof(sslm_ext_sample_params) || size % alignof(sslm_ext_sample_params) != 0) return false;
  for (int32_t i = 0; i < n; ++i) {
    const sslm_ext_sample_params& params = entry_of(samples, i);
    if (params.struct_size != size || !valid_params(params, vocab)) return false;
  }
  return true;
}

}  // namespace

namespace superslm::abi {

decode::Sampling sampling_of(const sslm_ext_sample_params* samples, int32_t index) {
  const sslm_ext_sample_params& p = entry_of(samples, index);
  decode::Sampling s;
  s.seed = p.seed;
  s.inverse_temperature = p.inverse_temperature;
  s.top_k = p.top_k;
  s.top_p = p.top_p_q15;
  s.min_p = p.min_p_q15;
  s.banned = p.banned;
  s.banned_count = p.banned_count;
  s.bias_tokens = p.bias_tokens;
  s.bias = p.bias_q16;
  s.bias_count = p.bias_count;
  s.penalty_tokens = p.penalty_tokens;
  s.penalty_counts = p.penalty_counts;
  s.penalty_count = p.penalty_count;
  s.frequency = p.frequency_q16;
  s.presence = p.presence_q16;
  return s;
}

}  // namespace superslm::abi

sslm_status sslm_ext_decode_sample(sslm_model model, sslm_seq* seqs, int32_t n, int32_t layer_budget,
                                   const sslm_ext_sample_params* params, sslm_workspace ws,
                                   int32_t* out_tokens) {
  if (model == nullptr || seqs == nullptr || params == nullptr || out_tokens == nullptr || n < 1) {
    return SSLM_INVALID_ARGUMENT;
  }
  if (layer_budget < 1 || layer_budget > model->view().layer_count) return SSLM_INVALID_ARGUMENT;
  if (!valid_array(params, n, model->view().vocab)) return SSLM_INVALID_ARGUMENT;
  abi::Selection selection;
  selection.mode = decode::Mode::kSampled;
  selection.samples = params;
  return abi::decode_batch(model, seqs, n, layer_budget, selection, ws, out_tokens);
}
