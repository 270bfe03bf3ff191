// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Working memory of one call: carved from the workspace where it fits, else from the heap, by one layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/handles.h"
#include "decode/decode.h"
#include "forward/engine.h"

namespace superslm::abi {

// Bookkeeping of a decode call.
struct BatchTables {
  uint32_t* slots = nullptr;       // [n] slot numbers, ascending after locking
  Sequence** sequences = nullptr;  // [n], null: not live
  decode::Entry* group = nullptr;  // [group_capacity]
  int32_t* group_index = nullptr;  // [group_capacity] batch index of each member
  int32_t group_capacity = 0;
};

// Bytes for calls of this shape, 0 when they cannot be represented.
size_t call_scratch_size(const sslm_model_s& model, const forward::Shape& shape);

class CallScratch {
 public:
  CallScratch(const sslm_model_s& model, sslm_workspace workspace, const forward::Shape& shape);
  ~CallScratch() { base::deallocate(heap_); }
  CallScratch(const CallScratch&) = delete;
  CallScratch& operator=(const CallScratch&) = delete;

  // False when the workspace is too small and the heap is exhausted.
  explicit operator bool() const { return usable_; }

  forward::Engine engine;
  BatchTables tables;

 private:
  void* heap_ = nullptr;
  bool usable_ = false;
};

}  // namespace superslm::abi
