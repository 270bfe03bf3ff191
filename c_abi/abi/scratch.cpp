// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/scratch.h"

#include <type_traits>

#include "base/checked.h"

namespace superslm::abi {
namespace {

constexpr size_t kAlignment = SSLM_ABI_ALIGNMENT_BYTES;

int32_t group_capacity(const forward::Shape& shape) {
  return shape.max_batch < forward::kMaxRows ? shape.max_batch : forward::kMaxRows;
}

// Places the tables one after the other from an aligned address and returns their total size.
uint64_t lay_out(const forward::Shape& shape, uintptr_t address, BatchTables* out) {
  uint64_t end = 0;
  const auto place = [&](auto*& array, int32_t count) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(address + static_cast<uintptr_t>(end));
    end += (static_cast<uint64_t>(count) * sizeof(*array) + kAlignment - 1) / kAlignment * kAlignment;
  };
  out->group_capacity = group_capacity(shape);
  place(out->slots, shape.max_batch);
  place(out->sequences, shape.max_batch);
  place(out->group, out->group_capacity);
  place(out->group_index, out->group_capacity);
  return end;
}

}  // namespace

size_t call_scratch_size(const sslm_model_s& model, const forward::Shape& shape) {
  const size_t engine = forward::scratch_size(model.view(), shape);
  if (engine == 0) return 0;
  BatchTables tables;
  const base::CheckedSize total = base::CheckedSize(lay_out(shape, 0, &tables)) + engine;
  return total.ok() ? static_cast<size_t>(total.value()) : 0;
}

CallScratch::CallScratch(const sslm_model_s& model, sslm_workspace workspace, const forward::Shape& call) {
  forward::Shape shape = call;
  size_t size = call_scratch_size(model, shape);
  if (size == 0) return;
  const bool covers = workspace != nullptr && workspace->size >= size;
  if (covers && workspace->spread && workspace->parallel.active()) {
    shape.max_tasks = workspace->parallel.max_tasks;
    const size_t spread_size = call_scratch_size(model, shape);
    if (spread_size == 0 || spread_size > workspace->capacity) shape = call;
  }
  uint8_t* memory;
  if (covers) {
    memory = workspace->buffer;
  } else {
    if (size > SIZE_MAX - kAlignment) return;
    heap_ = base::allocate(size + kAlignment);
    if (heap_ == nullptr) return;
    const uintptr_t address = reinterpret_cast<uintptr_t>(heap_);
    memory = static_cast<uint8_t*>(heap_) + (kAlignment - address % kAlignment) % kAlignment;
  }
  const size_t own = static_cast<size_t>(lay_out(shape, reinterpret_cast<uintptr_t>(memory), &tables));
  engine = forward::make_engine(model.view(), shape, memory + own,
                                workspace == nullptr ? base::Parallel{} : workspace->parallel);
  engine.spread = covers && workspace->spread;
  usable_ = true;
}

}  // namespace superslm::abi
