// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The .sslm container (docs/sslm_format.md, sections 1, 2 and 9): header, section table, digests.
#pragma once

#include "artifact/check.h"
#include "artifact/sha256.h"

namespace superslm::artifact {

enum class Kind : uint32_t { kModel = 1, kAdapter = 2 };

constexpr size_t kModelStart = 1024;  // header and section table lie before
constexpr size_t kAlignment = 64;

struct Container {
  Span config, layers, tensors, data, tokenizer, logit_scale;  // the model part
  Span base;                                                   // with tensors and data, the adapter part
  Span schemas, provenance, golden;
  Digest file_digest, model_digest;
};

// Checks the frame of a hostile file and both digests; sections are then spans inside it.
bool open_container(const uint8_t* data, size_t size, Kind kind, Container* out, base::Message* why);

}  // namespace superslm::artifact
