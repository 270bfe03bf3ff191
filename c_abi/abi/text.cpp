// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <climits>
#include <cstring>

#include "abi/handles.h"

using namespace superslm;

sslm_status sslm_tokenize(sslm_model model, const char* utf8, int32_t* tokens, int32_t* n) {
  if (n == nullptr) return SSLM_INVALID_ARGUMENT;
  const size_t capacity = *n > 0 ? static_cast<size_t>(*n) : 0;
  *n = 0;
  if (model == nullptr || utf8 == nullptr) return SSLM_INVALID_ARGUMENT;
  if (!model->artifact.has_tokenizer) return SSLM_ARTIFACT_REJECTED;
  size_t count = 0;
  const text::Result result =
      text::tokenize(model->artifact.tokenizer, reinterpret_cast<const uint8_t*>(utf8), std::strlen(utf8),
                     /*control_tokens=*/true, tokens, capacity, &count);
  if (result != text::Result::kOk || count > INT32_MAX) return SSLM_ALLOCATION_FAILED;
  *n = static_cast<int32_t>(count);
  return tokens == nullptr || count > capacity ? SSLM_BUFFER_TOO_SMALL : SSLM_OK;
}

sslm_status sslm_detokenize_stream(sslm_model model, sslm_detok_state* state, const int32_t* tokens,
                                   int32_t n, char* utf8, int32_t* out_n) {
  if (out_n == nullptr) return SSLM_INVALID_ARGUMENT;
  const int32_t capacity = *out_n;
  *out_n = 0;
  if (model == nullptr || state == nullptr || n < 0 || (n > 0 && tokens == nullptr)) {
    return SSLM_INVALID_ARGUMENT;
  }
  if (capacity < 0 || state->pending_count > 3) return SSLM_INVALID_ARGUMENT;
  if (!model->artifact.has_tokenizer) return SSLM_ARTIFACT_REJECTED;
  size_t required = 0;
  const text::DetokenizeResult result = text::detokenize(
      model->artifact.tokenizer, tokens, static_cast<size_t>(n), state->pending_bytes, &state->pending_count,
      reinterpret_cast<uint8_t*>(utf8), static_cast<size_t>(capacity), &required);
  if (required > INT32_MAX) return SSLM_ALLOCATION_FAILED;
  *out_n = static_cast<int32_t>(required);
  switch (result) {
    case text::DetokenizeResult::kOk:
      return SSLM_OK;
    case text::DetokenizeResult::kOutOfRange:
      return SSLM_INVALID_ARGUMENT;
    case text::DetokenizeResult::kUnmapped:
      return SSLM_TOKEN_ID_UNMAPPED;
    case text::DetokenizeResult::kTooSmall:
      return SSLM_BUFFER_TOO_SMALL;
  }
  return SSLM_ARTIFACT_REJECTED;
}
