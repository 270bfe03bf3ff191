// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include "artifact/check.h"
#include "artifact/sha256.h"

namespace superslm::artifact {

constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t kFileDigestOffset = 32;

struct Digests {
  Digest file, model;
};

// Both digests of a file of at least kModelStart bytes, in one pass. `model_entries` are the table entries of
// the model part, which ends at `model_end` (kModelStart..size).
Digests compute_digests(const uint8_t* data, size_t size, Span model_entries, size_t model_end);

}  // namespace superslm::artifact
