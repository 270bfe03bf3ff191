// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include "abi/handles.h"

namespace superslm::abi {

// How many of the offered tokens a context takes, why it takes no more, and where its walk then stands.
struct Admission {
  int32_t count = 0;
  sslm_status status = SSLM_OK;
  uint32_t walk_state = decode::kNoWalkState;
};

// The pre-scan of a prefill; computes nothing and changes nothing.
Admission admit(const Context& context, const int32_t* tokens, int32_t count, sslm_span_kind kind);

// Appends what is admitted of `count` tokens, as one batch; *consumed counts them.
sslm_status append(Context& context, const artifact::AdapterView* adapter, const int32_t* tokens,
                   int32_t count, sslm_span_kind kind, sslm_workspace ws, int32_t* consumed);

}  // namespace superslm::abi
