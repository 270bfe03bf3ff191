// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "forward/layer.h"

#include "base/fixed_point.h"
#include "forward/attention.h"
#include "forward/linear.h"
#include "forward/spread.h"
#include "kernels/scalar.h"

namespace superslm::forward {

namespace {

using artifact::LayerView;
using artifact::Matrix;
using artifact::ModelView;
using artifact::NormGains;
using artifact::Projection;
using base::rsh;

constexpr int32_t kStateExponent = 16;  // q, k, v, gate, up, logits

// One pass of a batch through one layer, and where its vectors lie in the wide rows.
struct Pass {
  Engine& engine;
  const ModelView& model;
  const LayerView& layer;
  int32_t layer_index;
  int32_t count;
  int32_t first_live;
  Split split;

  bool counts_all() const { return layer_index + 1 < model.layer_count; }
  int32_t query_width() const { return model.heads * model.head_dim; }
  int32_t key_width() const { return model.kv_heads * model.head_dim; }
  int32_t* wide(int32_t row) const {
    return engine.scratch.wide + static_cast<size_t>(row) * engine.scratch.wide_stride;
  }
  int32_t* query(int32_t row) const { return wide(row); }
  int32_t* key(int32_t row) const { return wide(row) + query_width(); }
  int32_t* value(int32_t row) const { return wide(row) + query_width() + key_width(); }
  int32_t* gate(int32_t row) const { return wide(row); }
  int32_t* up(int32_t row) const { return wide(row) + model.mlp; }
};

// QUANT15 of a vector into the activations of a row, padded with zeros to whole blocks.
void quantise_row(Engine& engine, int32_t row, const int32_t* y, int32_t n) {
  Scratch& s = engine.scratch;
  int16_t* a = s.activation + static_cast<size_t>(row) * s.activation_stride;
  s.activation_shift[row] = engine.kernels->quantise(y, n, a);
  for (int32_t i = n; i % kernels::kBlock != 0; ++i) a[i] = 0;
}

// Norm and quantisation of one row, which becomes its activations.
void norm_row(Engine& engine, int32_t row, const int32_t* x, const NormGains& gains,
              const TaskScratch& task) {
  const ModelView& m = *engine.model;
  engine.kernels->norm(x, gains.gains.bytes, m.hidden, m.norm_epsilon, task.line);
  quantise_row(engine, row, task.line, m.hidden);
}

Target target(const Pass& p, Projection projection, int32_t* out, base::LeArray<int32_t> bias = {}) {
  return Target{&p.layer.weights[projection],
                projection,
                bias.bytes,
                kStateExponent,
                false,
                out,
                static_cast<size_t>(p.engine.scratch.wide_stride)};
}

Target residual_target(const Pass& p, Projection projection) {
  return Target{&p.layer.weights[projection],
                projection,
                nullptr,
                p.model.residual_exponent,
                true,
                p.engine.scratch.residual,
                static_cast<size_t>(p.engine.scratch.residual_stride)};
}

// Runs one projection group and adds the clamps of each row to a site, unless the site is null.
bool run_group(const Pass& p, const Group& group, uint64_t SiteCounts::* site) {
  Scratch& s = p.engine.scratch;
  const Hook hook = p.split == Split::kNone      ? Hook::kUnused
                    : p.split == Split::kPrefill ? Hook::kPrefill
                                                 : Hook::kProjection;
  if (!project(p.engine, group, p.layer_index, hook)) return false;
  for (int32_t row = group.first_row; site && row < group.end_row; ++row) {
    s.row[row].counts.*site += s.clipped[row].load(std::memory_order_relaxed);
  }
  return true;
}

bool run_one(const Pass& p, const Target& t, int32_t in_exponent, int32_t first_row,
             uint64_t SiteCounts::* site) {
  return run_group(p, Group{{t, {}}, 1, in_exponent, first_row, p.count}, site);
}

bool run_pair(const Pass& p, const Target& a, const Target& b, int32_t in_exponent, int32_t first_row,
              uint64_t SiteCounts::* site) {
  if (p.split == Split::kSingles) {
    return run_one(p, a, in_exponent, first_row, site) && run_one(p, b, in_exponent, first_row, site);
  }
  return run_group(p, Group{{a, b}, 2, in_exponent, first_row, p.count}, site);
}

void norm_heads(const Pass& p, int32_t* x, int32_t heads, base::LeArray<int32_t> gains) {
  const int32_t hd = p.model.head_dim;
  for (int32_t h = 0; h < heads; ++h, x += hd) {
    p.engine.kernels->norm(x, gains.bytes, hd, p.model.head_norm_epsilon, x);
  }
}

// Norm, centre and rotation of a row's keys, then landing.
void finish_key_value(const Pass& p, int32_t index) {
  Row& row = p.engine.scratch.row[index];
  int32_t* key = p.key(index);
  if (p.layer.k_norm) {
    norm_heads(p, key, p.model.kv_heads, p.layer.k_norm);
    for (int32_t c = 0; p.layer.key_center && c < p.key_width(); ++c) {
      key[c] = base::sat32(int64_t{key[c]} - p.layer.key_center[static_cast<size_t>(c)], row.counts.qkv);
    }
  }
  const int32_t hd = p.model.head_dim;
  const int32_t* cosine = p.engine.scratch.rotary + static_cast<size_t>(index) * hd;
  row.counts.rotary_key += p.engine.kernels->rotate(key, p.model.kv_heads, hd, cosine, cosine + hd / 2);
  land(p.engine, row, p.layer_index, key, p.value(index));
}

// Norm and rotation of a row's query.
void finish_query(const Pass& p, int32_t index) {
  Row& row = p.engine.scratch.row[index];
  int32_t* query = p.query(index);
  if (p.layer.q_norm) norm_heads(p, query, p.model.heads, p.layer.q_norm);
  const int32_t hd = p.model.head_dim;
  const int32_t* cosine = p.engine.scratch.rotary + static_cast<size_t>(index) * hd;
  const uint32_t clipped = p.engine.kernels->rotate(query, p.model.heads, hd, cosine, cosine + hd / 2);
  if (p.counts_all()) row.counts.rotary_query += clipped;
}

// Operations of about the weight of an input byte, for `rows` vectors of n elements.
int64_t row_work(int32_t rows, int64_t n) { return 8 * n * rows; }

bool norm_rows(const Pass& p, int32_t first, const NormGains& gains) {
  return for_each(p.engine, p.count - first, row_work(p.count - first, p.model.hidden),
                  [&](int32_t i, const TaskScratch& task) {
                    norm_row(p.engine, first + i, p.engine.scratch.row[first + i].residual, gains, task);
                  });
}

// Attention of every live row and KV head; each output takes the place of its query and becomes activations.
bool attend_rows(const Pass& p) {
  Scratch& s = p.engine.scratch;
  const int32_t live = p.count - p.first_live, kv_heads = p.model.kv_heads;
  int64_t positions = 0;
  for (int32_t i = p.first_live; i < p.count; ++i) positions += s.row[i].position + 1;
  const bool ok = for_each(p.engine, live * kv_heads, 4 * positions * p.query_width(),
                           [&](int32_t item, const TaskScratch& task) {
                             const int32_t i = p.first_live + item / kv_heads;
                             attend(p.engine, s.row[i], p.layer_index, item % kv_heads, p.query(i), task);
                           });
  return ok && for_each(p.engine, live, row_work(live, p.query_width()), [&](int32_t i, const TaskScratch&) {
           quantise_row(p.engine, p.first_live + i, p.query(p.first_live + i), p.query_width());
         });
}

bool attention(const Pass& p) {
  const NormGains& norm = p.layer.attention_norm;
  if (!norm_rows(p, 0, norm)) return false;
  const Target q = target(p, artifact::kQ, p.query(0), p.layer.q_bias);
  const Target k = target(p, artifact::kK, p.key(0), p.layer.k_bias);
  const Target v = target(p, artifact::kV, p.value(0), p.layer.v_bias);
  uint64_t SiteCounts::* const q_site = p.counts_all() ? &SiteCounts::qkv : nullptr;
  if (p.first_live < p.count && !run_one(p, q, norm.exponent, p.first_live, q_site)) return false;
  if (!run_pair(p, k, v, norm.exponent, 0, &SiteCounts::qkv)) return false;
  const bool ok = for_each(p.engine, p.count, row_work(p.count, p.query_width() + 2 * p.key_width()),
                           [&](int32_t i, const TaskScratch&) {
                             finish_key_value(p, i);
                             if (i >= p.first_live) finish_query(p, i);
                           });
  if (!ok) return false;
  if (p.first_live == p.count) return true;
  if (!attend_rows(p)) return false;
  return run_one(p, residual_target(p, artifact::kO), p.layer.value_exponent, p.first_live,
                 p.counts_all() ? &SiteCounts::residual : nullptr);
}

// The gated product of one row, quantised.
void gate_row(const Pass& p, int32_t index) {
  const ModelView& m = p.model;
  const uint32_t clipped = p.engine.kernels->silu_multiply(p.gate(index), p.up(index), m.mlp, m.sigmoid.bytes,
                                                           32 - p.layer.mlp_exponent);
  if (p.counts_all()) p.engine.scratch.row[index].counts.mlp += clipped;
  quantise_row(p.engine, index, p.gate(index), m.mlp);
}

bool mlp(const Pass& p) {
  const NormGains& norm = p.layer.mlp_norm;
  if (!norm_rows(p, p.first_live, norm)) return false;
  if (!run_pair(p, target(p, artifact::kGate, p.gate(0)), target(p, artifact::kUp, p.up(0)), norm.exponent,
                p.first_live, p.counts_all() ? &SiteCounts::gate_up : nullptr)) {
    return false;
  }
  const int32_t live = p.count - p.first_live;
  const bool ok = for_each(p.engine, live, row_work(live, 2 * p.model.mlp),
                           [&](int32_t i, const TaskScratch&) { gate_row(p, p.first_live + i); });
  return ok && run_one(p, residual_target(p, artifact::kDown), p.layer.mlp_exponent, p.first_live,
                       p.counts_all() ? &SiteCounts::residual : nullptr);
}

}  // namespace

void embed(const ModelView& model, int32_t token, int32_t* residual) {
  const Matrix& e = model.embedding;
  const kernels::WeightRows rows = weight_rows(e, token);
  const int64_t multiplier = e.multipliers[static_cast<size_t>(token)];
  uint64_t uncounted = 0;
  for (int32_t b = 0; b < rows.blocks; ++b) {
    int16_t w[kernels::kBlock];
    kernels::scalar::expand_block(rows, 0, b, w);
    for (int32_t i = 0; i < kernels::kBlock && b * kernels::kBlock + i < e.cols; ++i) {
      residual[b * kernels::kBlock + i] =
          base::sat32(rsh(w[i] * multiplier, e.exponent - model.residual_exponent), uncounted);
    }
  }
}

void prepare_rotary(Engine& engine, int32_t index) {
  const ModelView& m = *engine.model;
  const int32_t half = m.head_dim / 2;
  int32_t* cosine = engine.scratch.rotary + static_cast<size_t>(index) * m.head_dim;
  const auto interpolate = [&m](uint32_t phase) {
    const size_t i = phase >> 20;
    const int64_t fraction = (phase >> 4) & 65535;
    const int64_t step = int64_t{m.sine[i + 1]} - m.sine[i];
    return static_cast<int32_t>(m.sine[i] + rsh(step * fraction, 16));
  };
  for (int32_t f = 0; f < half; ++f) {
    const uint64_t turn =
        static_cast<uint64_t>(engine.scratch.row[index].position) * m.rotary_step[static_cast<size_t>(f)];
    const uint32_t phase = static_cast<uint32_t>(turn >> 32);
    cosine[f] = interpolate(phase + (uint32_t{1} << 30));
    cosine[f + half] = interpolate(phase);
  }
}

bool layer(Engine& engine, int32_t count, int32_t first_live, int32_t layer_index, Split split) {
  const ModelView& m = *engine.model;
  const Pass pass{engine, m, m.layers[layer_index], layer_index, count, first_live, split};
  if (!attention(pass)) return false;
  return first_live == count || mlp(pass);
}

bool logits(Engine& engine, LogitRow* rows, int32_t count) {
  const ModelView& m = *engine.model;
  for (int32_t i = 0; i < count; ++i) {
    norm_row(engine, i, rows[i].residual, m.final_norm, engine.scratch.task[0]);
  }
  Target head;
  head.matrix = &m.head;
  head.projection = artifact::kProjectionCount;
  head.out_exponent = kStateExponent;
  head.logit_rows = rows;
  if (!project(engine, Group{{head, {}}, 1, m.final_norm.exponent, 0, count}, 0, Hook::kLogits)) return false;
  for (int32_t i = 0; i < count; ++i) rows[i].best = best_token(engine.scratch, i);
  return true;
}

}  // namespace superslm::forward
