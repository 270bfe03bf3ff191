// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Between handles and the plain structs of blob/.
#pragma once

#include "abi/handles.h"
#include "blob/blob.h"

namespace superslm::abi {

blob::ModelFacts facts_of(const sslm_model_s& model);

// What a save of this context carries, without a history.
blob::Content content_of(const Context& context);

sslm_status status_of(blob::Status status);

// The resting state of a blob that passed its checks, the residual in the place the state already has.
void fill_state(const sslm_model_s& model, const blob::Parsed& parsed, decode::SequenceState& state);

}  // namespace superslm::abi
