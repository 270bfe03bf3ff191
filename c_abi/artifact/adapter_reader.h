// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A hostile adapter file in, checked LoRA pairs out (docs/adapter_format.md). The bytes are used in place.
#pragma once

#include "artifact/reader.h"

namespace superslm::artifact {

struct Adapter {
  AdapterView view;
  AdapterLayer* layers = nullptr;  // view.layers, on the heap
};

// `data` must stay mapped and unchanged until release, and `base` mapped. On any result but ok, `*out` holds
// nothing and, memory aside, `why` names the section or tensor and the field.
ReadResult read_adapter(const uint8_t* data, size_t size, const ModelView& base, Adapter* out,
                        base::Message* why);
void release(Adapter* adapter);

}  // namespace superslm::artifact
