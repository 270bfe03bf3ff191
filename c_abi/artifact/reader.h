// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A hostile .sslm file in, a checked model out (docs/sslm_format.md). The bytes are used in place.
#pragma once

#include "artifact/model_view.h"
#include "artifact/schemas.h"
#include "base/damped_constants.h"
#include "base/message.h"
#include "text/tokenizer.h"

namespace superslm::artifact {

enum class ReadResult { ok, rejected, out_of_memory, other_base };  // the last of adapters only

struct Model {
  ModelView view;
  LayerView* layers = nullptr;    // view.layers, on the heap
  SchemaView* schemas = nullptr;  // [schema_count], on the heap
  int32_t schema_count = 0;
  const uint8_t* golden = nullptr;  // the GOLD section, checked; null without one
  bool has_tokenizer = false;
  text::Tokenizer tokenizer;
  base::DampedConstants damped;  // where view.has_logit_scale
};

// `data` must stay mapped and unchanged until release. On any result but ok, `*out` holds nothing; on
// rejected, `why` names the section or tensor and the field.
ReadResult read(const uint8_t* data, size_t size, Model* out, base::Message* why);
void release(Model* model);

}  // namespace superslm::artifact
