// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// What the decode verbs share: one batch, whatever way its tokens are chosen.
#pragma once

#include "abi/handles.h"

struct sslm_ext_sample_params;

namespace superslm::abi {

// How a call chooses.
struct Selection {
  decode::Mode mode = decode::Mode::kGreedy;
  decode::Damped damped;                            // its history is filled in per sequence
  const sslm_ext_sample_params* samples = nullptr;  // [n]
};

// The parameters of a checked array's entry, as the engine takes them.
decode::Sampling sampling_of(const sslm_ext_sample_params* samples, int32_t index);

// Checks 8 to 11 of sslm_decode_step_v2 and the batch itself.
sslm_status decode_batch(sslm_model model, const sslm_seq* seqs, int32_t n, int32_t layer_budget,
                         const Selection& selection, sslm_workspace ws, int32_t* out_tokens);

}  // namespace superslm::abi
