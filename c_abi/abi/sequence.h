// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include "abi/handles.h"

namespace superslm::abi {

// Enters a new sequence into the registry; where that fails the sequence is destroyed and the handle is null.
sslm_seq enter(Sequence* sequence);

}  // namespace superslm::abi
