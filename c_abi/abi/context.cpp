// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include <cstring>

#include "abi/handles.h"

namespace superslm::abi {

void clear_state(const sslm_model_s& model, decode::SequenceState& state) {
  decode::SequenceState empty;
  empty.residual = state.residual;
  empty.schema = state.schema;
  if (state.schema >= 0) empty.walk_state = 0;
  state = empty;
  std::memset(state.residual, 0, residual_count(model) * sizeof(int32_t));
}

void copy_state(const sslm_model_s& model, const decode::SequenceState& from, decode::SequenceState& to) {
  int32_t* residual = to.residual;
  to = from;
  to.residual = residual;
  std::memcpy(residual, from.residual, residual_count(model) * sizeof(int32_t));
}

}  // namespace superslm::abi
