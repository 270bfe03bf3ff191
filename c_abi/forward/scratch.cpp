// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The one layout of working memory, used to size it and to carve it.
#include <new>

#include "base/checked.h"
#include "forward/engine.h"

namespace superslm::forward {

namespace {

using artifact::ModelView;

// Hands out aligned arrays of one buffer, or only measures when the buffer is null.
class Carver {
 public:
  explicit Carver(void* buffer) : base_(static_cast<unsigned char*>(buffer)) {}

  template <typename T>
  T* take(uint64_t count, uint64_t times = 1) {
    const uint64_t at = used_.value();
    used_ = used_ + base::CheckedSize(count) * times * sizeof(T);
    if (!used_.ok()) return nullptr;
    used_ = used_ + base::CheckedSize((0 - used_.value()) % kScratchAlignment);
    return base_ ? reinterpret_cast<T*>(base_ + at) : nullptr;
  }
  base::CheckedSize used() const { return used_; }

 private:
  unsigned char* base_;
  base::CheckedSize used_ = 0;
};

int32_t clamp_rows(int32_t wanted) { return wanted < 1 ? 1 : wanted < kMaxRows ? wanted : kMaxRows; }
int32_t padded(int32_t n) { return (n + kernels::kBlock - 1) / kernels::kBlock * kernels::kBlock; }
// A row length of whole cache lines, an odd number of them: rows at the same column then share no cache set.
int32_t spread(int32_t n, int32_t elements_per_line) {
  return ((n + elements_per_line - 1) / elements_per_line | 1) * elements_per_line;
}
int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

base::CheckedSize lay_out(const ModelView& m, const Shape& shape, void* buffer, Scratch& s) {
  const int32_t query = m.heads * m.head_dim, key = m.kv_heads * m.head_dim;
  const int32_t widest = larger(larger(m.hidden, query), m.mlp);
  s.rows = clamp_rows(larger(shape.max_batch, shape.max_chunk));
  s.logit_rows = clamp_rows(shape.max_batch < kMaxLogitRows ? shape.max_batch : kMaxLogitRows);
  s.tasks = shape.max_tasks < 1 ? 1 : shape.max_tasks < base::kMaxTasks ? shape.max_tasks : base::kMaxTasks;
  s.activation_stride = spread(padded(widest), 32);
  s.wide_stride = spread(larger(query + 2 * key, 2 * m.mlp), 16);
  s.residual_stride = spread(m.hidden, 16);
  const uint64_t rows = static_cast<uint64_t>(s.rows);
  const int32_t group = (m.heads + m.kv_heads - 1) / m.kv_heads;
  const uint64_t shared = static_cast<uint64_t>(group < kSharedHeads ? group : kSharedHeads);
  const uint64_t vocab = static_cast<uint64_t>(m.vocab);

  Carver carver(buffer);
  s.row = carver.take<Row>(rows);
  s.residual = carver.take<int32_t>(rows, static_cast<uint64_t>(s.residual_stride));
  s.rotary = carver.take<int32_t>(rows, static_cast<uint64_t>(m.head_dim));
  s.activation = carver.take<int16_t>(rows, static_cast<uint64_t>(s.activation_stride));
  s.activation_shift = carver.take<int32_t>(rows);
  s.wide = carver.take<int32_t>(rows, static_cast<uint64_t>(s.wide_stride));
  s.low_rank = carver.take<int16_t>(rows, uint64_t{2} * kMaxRank);
  s.low_rank_shift = carver.take<int32_t>(rows, 2);
  s.clipped = carver.take<std::atomic<uint32_t>>(rows);
  s.best = carver.take<std::atomic<uint64_t>>(rows);
  s.task = carver.take<TaskScratch>(static_cast<uint64_t>(s.tasks));
  for (int32_t i = 0; i < s.tasks; ++i) {
    TaskScratch t;
    t.line = carver.take<int32_t>(static_cast<uint64_t>(widest));
    t.product = carver.take<int64_t>(rows, kernels::kTileRows);
    t.panel = carver.take<int16_t>(kernels::kPanelElements);
    t.score = carver.take<int64_t>(shared, static_cast<uint64_t>(m.cap));
    t.weight = carver.take<int16_t>(2 * shared, static_cast<uint64_t>(m.cap));
    t.head_query = carver.take<int16_t>(3 * shared, static_cast<uint64_t>(m.head_dim));
    t.head_sum = carver.take<int64_t>(shared, static_cast<uint64_t>(m.head_dim));
    if (buffer) new (&s.task[i]) TaskScratch(t);
  }
  s.first_residual = carver.take<int32_t>(static_cast<uint64_t>(m.hidden));
  s.saved_row =
      carver.take<uint8_t>(uint64_t{2} * static_cast<uint64_t>(m.layer_count), static_cast<uint64_t>(key));
  s.logit = carver.take<int32_t>(static_cast<uint64_t>(s.logit_rows), vocab);
  s.candidate = carver.take<int32_t>(vocab);
  s.candidate_weight = carver.take<uint32_t>(vocab);
  return carver.used();
}

}  // namespace

size_t scratch_size(const ModelView& model, const Shape& shape) {
  Scratch unused;
  const base::CheckedSize size = lay_out(model, shape, nullptr, unused);
  return size.ok() ? static_cast<size_t>(size.value()) : 0;
}

Scratch carve(const ModelView& model, const Shape& shape, void* buffer) {
  Scratch s;
  lay_out(model, shape, buffer, s);
  for (int32_t i = 0; i < s.rows; ++i) {
    new (&s.row[i]) Row();
    new (&s.clipped[i]) std::atomic<uint32_t>(0);
    new (&s.best[i]) std::atomic<uint64_t>(0);
  }
  return s;
}

}  // namespace superslm::forward
