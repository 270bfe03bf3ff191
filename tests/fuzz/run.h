// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A short run over a file that was accepted.
#pragma once

#include "fuzz.h"

namespace superslm::fuzz {

// A copy at an odd address, with nothing legal around it.
class Shifted {
 public:
  Shifted(const Bytes& bytes, size_t shift)
      : block_(static_cast<uint8_t*>(std::malloc(bytes.size() + shift + 1))), shift_(shift) {
    REQUIRE(block_ != nullptr);
    // The byte that keeps an empty file from being null lies in front.
    if (!bytes.empty()) std::memcpy(block_ + shift + 1, bytes.data(), bytes.size());
  }
  ~Shifted() { std::free(block_); }
  Shifted(const Shifted&) = delete;
  Shifted& operator=(const Shifted&) = delete;

  const uint8_t* data() const { return block_ + shift_ + 1; }

 private:
  uint8_t* block_;
  size_t shift_;
};

// A refusal reads "section: what is wrong".
inline bool names_field(const char* message) {
  const char* colon = std::strstr(message, ": ");
  return colon != nullptr && colon != message && colon[2] != 0;
}

// Prefill of up to three tokens, then two decoded ones, the first cut into layers.
inline void run_sequence(sslm_model model, const sslm_ext_model_info_out& info, sslm_seq seq) {
  const int32_t tokens[3] = {0, info.vocab / 2, info.vocab - 1};
  int32_t consumed = 0, token = 0;
  const int32_t most = info.cap < 3 ? info.cap : 3;
  const sslm_status status = sslm_prefill(model, seq, tokens, most, 2, SSLM_SPAN_PROMPT, nullptr, &consumed);
  REQUIRE(status == SSLM_OK || status == SSLM_KV_BUDGET_EXCEEDED || status == SSLM_CONTEXT_CAP_EXCEEDED);
  REQUIRE(consumed >= 1);
  sslm_decode_params params = {};
  for (int step = 0; step < 3; ++step) {
    params.layer_budget = step == 1 ? 1 : info.layers;
    const sslm_status decoded = sslm_decode_step(model, &seq, 1, &params, nullptr, &token);
    if (decoded != SSLM_OK) {
      REQUIRE(decoded == SSLM_KV_BUDGET_EXCEEDED || decoded == SSLM_CONTEXT_CAP_EXCEEDED);
      REQUIRE_EQ(token, -1);
      return;
    }
    REQUIRE(token >= -2 && token < info.vocab);
  }
}

}  // namespace superslm::fuzz
