// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "forward/attention.h"

#include "base/fixed_point.h"
#include "base/prefetch.h"

namespace superslm::forward {

namespace {

using artifact::LayerView;
using artifact::ModelView;
using base::rsh;
using kernels::Kernels;

constexpr int32_t kMaxHeadDim = 512;

int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

// The rotated centre against the query: A_f and B_f of section 9, quantised, in the planes of kernels::Query.
// Returns cs.
int32_t prepare_center(const Kernels& k, const int32_t* query, base::LeArray<int32_t> center,
                       int32_t head_dim, int16_t* out) {
  const int32_t half = head_dim / 2;
  int32_t sums[kMaxHeadDim];
  for (int32_t f = 0; f < half; ++f) {
    const int64_t a = query[f], b = query[f + half];
    const int64_t ma = center[static_cast<size_t>(f)], mb = center[static_cast<size_t>(f + half)];
    sums[f] = static_cast<int32_t>(rsh(a * ma + b * mb, 32));
    sums[f + half] = static_cast<int32_t>(rsh(b * ma - a * mb, 32));
  }
  const int32_t exponent = k.quantise(sums, head_dim, out);
  for (int32_t c = 0; c < head_dim; ++c) {
    const int16_t low = static_cast<int8_t>(out[c] & 255);
    out[head_dim + c] = low;
    out[c] = static_cast<int16_t>((out[c] - low) >> 8);
  }
  return exponent;
}

// Makes query head `head` ready for the score kernel, as the i-th that shares the pass. Returns the exponent
// of its scores: F, or Fm in a centred layer.
int32_t prepare_head(const Engine& engine, const LayerView& layer, int32_t head, int32_t kv_head, int32_t i,
                     const int32_t* query, const TaskScratch& task, kernels::Query& out) {
  const ModelView& m = *engine.model;
  const Kernels& k = *engine.kernels;
  const size_t hd = static_cast<size_t>(m.head_dim);
  int16_t* values = task.head_query + static_cast<size_t>(3 * i) * hd;
  int32_t scaled[kMaxHeadDim];
  k.scale_query(query, layer.query_scale.from(static_cast<size_t>(head) * hd).bytes, m.head_dim, scaled);
  const int32_t exponent = layer.query_exponent - k.quantise(scaled, m.head_dim, values);
  out = kernels::Query{values, nullptr, 0, 0, nullptr};
  if (!layer.center) return exponent;
  const base::LeArray<int32_t> center = layer.center.from(static_cast<size_t>(kv_head) * hd);
  const int32_t center_exponent =
      layer.center_exponent - 2 - prepare_center(k, query, center, m.head_dim, values + hd);
  const int32_t common = smaller(smaller(exponent, center_exponent), 20);
  out.center = values + hd;
  out.shift = smaller(exponent - common, 62);
  out.center_shift = smaller(center_exponent - common, 62);
  return common;
}

// Step 7 after the sums: normalises one head and applies the value scales.
void finish_head(const LayerView& layer, int32_t kv_head, int32_t head_dim, const int64_t* sums,
                 uint64_t total, int32_t* out) {
  const int n = base::bit_length(total);
  const uint64_t unit = n > 31 ? total >> (n - 31) : total << (31 - n);
  const int64_t reciprocal = static_cast<int64_t>((uint64_t{1} << 61) / unit);
  const base::LeArray<int32_t> scale =
      layer.value_scale.from(static_cast<size_t>(kv_head) * static_cast<size_t>(head_dim));
  for (int32_t c = 0; c < head_dim; ++c) {
    const int64_t u = rsh(rsh(sums[c], n - 24) * reciprocal, 30);
    out[c] = static_cast<int32_t>(rsh(u * scale[static_cast<size_t>(c)], 24));
  }
}

// The query heads [first_head, first_head + head_count) of one KV head, attending together.
struct HeadGroup {
  const Engine& engine;
  const Row& row;
  const TaskScratch& task;
  int32_t layer_index, kv_head, first_head, head_count;

  size_t line(int32_t i) const { return static_cast<size_t>(i) * static_cast<size_t>(engine.model->cap); }
};

struct Piece {
  int64_t position;
  kv::Run run;
  const int8_t* next;  // the rows of the next piece, if any
};

// The keys or values of a group in pieces: as many rows as the first cache keeps while all heads read them.
// Pages lie anywhere, so the processor does not foresee where a piece begins: the kernels ask for the rows of
// the next one while they work on this. The address of a page takes longer to translate than its rows to
// load, and the processor waits for that; asked for in groups, pages are translated side by side.
class Pieces {
  static constexpr int64_t kRows = 64, kGroup = 8 * kRows;
  const HeadGroup& group_;
  const kv::Kind kind_;
  const int64_t end_;
  int64_t position_ = 0, found_ = 0;

  kv::Run run(int64_t position) const {
    kv::Run run = group_.row.kv.run(group_.layer_index, kind_, group_.kv_head, position, end_);
    run.count = run.count < kRows ? run.count : kRows;
    return run;
  }

  void find_group() {
    constexpr size_t kMemoryPage = 4096;
    const int64_t until = end_ - found_ < kGroup ? end_ : found_ + kGroup;
    for (; found_ < until; found_ += kRows) {
      const kv::Run piece = run(found_);
      const uint8_t* rows = reinterpret_cast<const uint8_t*>(piece.rows);
      const size_t bytes =
          static_cast<size_t>(piece.count) * static_cast<size_t>(group_.engine.model->head_dim);
      for (size_t at = 0; at < bytes; at += kMemoryPage) base::prefetch(rows + at, 1);
      base::prefetch(rows + bytes - 1, 1);
    }
  }

 public:
  Pieces(const HeadGroup& group, kv::Kind kind) : group_(group), kind_(kind), end_(group.row.position + 1) {}

  bool next(Piece& out) {
    if (position_ == end_) return false;
    while (found_ < end_ && found_ <= position_ + kGroup) find_group();
    out.position = position_;
    out.run = run(position_);
    position_ += out.run.count;
    out.next = position_ < end_ ? run(position_).rows : nullptr;
    return true;
  }
};

// Steps 4 and 5: the scores of every position, piece by piece. exponents [head_count].
void score_heads(const HeadGroup& g, const int32_t* query, int32_t* exponents) {
  const ModelView& m = *g.engine.model;
  const LayerView& layer = m.layers[g.layer_index];
  const size_t hd = static_cast<size_t>(m.head_dim);
  kernels::Query queries[kSharedHeads];
  for (int32_t i = 0; i < g.head_count; ++i) {
    const int32_t head = g.first_head + i;
    exponents[i] = prepare_head(g.engine, layer, head, g.kv_head, i, query + static_cast<size_t>(head) * hd,
                                g.task, queries[i]);
  }
  Pieces pieces(g, kv::kKey);
  for (Piece p; pieces.next(p);) {
    queries[0].next_keys = p.next;
    for (int32_t i = 0; i < g.head_count; ++i) queries[i].scores = g.task.score + g.line(i) + p.position;
    const uint8_t* trig =
        layer.center ? m.rotary_rows.from(static_cast<size_t>(p.position) * hd).bytes : nullptr;
    g.engine.kernels->scores(queries, g.head_count, p.run.rows, trig, p.run.count, m.head_dim);
  }
}

// Step 7's sums, piece by piece, into the task's head_sum.
void sum_values(const HeadGroup& g) {
  const TaskScratch& s = g.task;
  const int32_t hd = g.engine.model->head_dim;
  kernels::ValueSum sums[kSharedHeads];
  for (int32_t i = 0; i < g.head_count; ++i) {
    sums[i].sums = s.head_sum + static_cast<size_t>(i) * hd;
    for (int32_t c = 0; c < hd; ++c) sums[i].sums[c] = 0;
  }
  Pieces pieces(g, kv::kValue);
  for (Piece p; pieces.next(p);) {
    sums[0].next_values = p.next;
    for (int32_t i = 0; i < g.head_count; ++i) {
      sums[i].high = s.weight + 2 * g.line(i) + p.position;
      sums[i].low = sums[i].high + g.engine.model->cap;
    }
    g.engine.kernels->values(sums, g.head_count, p.run.rows, p.run.count, hd);
  }
}

void attend_heads(const HeadGroup& g, int32_t* heads) {
  const TaskScratch& s = g.task;
  const ModelView& m = *g.engine.model;
  const size_t hd = static_cast<size_t>(m.head_dim);
  int32_t exponents[kSharedHeads];
  uint64_t totals[kSharedHeads];
  score_heads(g, heads, exponents);
  for (int32_t i = 0; i < g.head_count; ++i) {
    int16_t* high = s.weight + 2 * g.line(i);
    totals[i] =
        g.engine.kernels->weigh(s.score + g.line(i), g.row.position + 1, exponents[i], high, high + m.cap);
  }
  sum_values(g);
  for (int32_t i = 0; i < g.head_count; ++i) {
    finish_head(m.layers[g.layer_index], g.kv_head, m.head_dim, s.head_sum + static_cast<size_t>(i) * hd,
                totals[i], heads + static_cast<size_t>(g.first_head + i) * hd);
  }
}

}  // namespace

void land(const Engine& engine, Row& row, int32_t layer_index, const int32_t* keys, const int32_t* values) {
  const ModelView& m = *engine.model;
  const LayerView& layer = m.layers[layer_index];
  const size_t hd = static_cast<size_t>(m.head_dim);
  for (int32_t h = 0; h < m.kv_heads; ++h) {
    const size_t at = static_cast<size_t>(h) * hd;
    row.counts.key_landing +=
        engine.kernels->land(keys + at, layer.k_landing.from(at).bytes, m.head_dim, layer.k_shift,
                             row.kv.row(layer_index, kv::kKey, h, row.position));
    row.counts.value_landing +=
        engine.kernels->land(values + at, layer.v_landing.from(at).bytes, m.head_dim, layer.v_shift,
                             row.kv.row(layer_index, kv::kValue, h, row.position));
  }
}

void attend(const Engine& engine, const Row& row, int32_t layer_index, int32_t kv_head, int32_t* heads,
            const TaskScratch& task) {
  const ModelView& m = *engine.model;
  // g(h) = floor(h * KV / H): the query heads of a KV head are consecutive.
  const int32_t begin = static_cast<int32_t>((int64_t{kv_head} * m.heads + m.kv_heads - 1) / m.kv_heads);
  const int32_t end = static_cast<int32_t>((int64_t{kv_head + 1} * m.heads + m.kv_heads - 1) / m.kv_heads);
  for (int32_t head = begin; head < end; head += kSharedHeads) {
    attend_heads({engine, row, task, layer_index, kv_head, head, smaller(end - head, kSharedHeads)}, heads);
  }
}

}  // namespace superslm::forward
