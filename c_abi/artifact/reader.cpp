// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/reader.h"

#include <cstring>
#include <new>

#include "artifact/container.h"
#include "artifact/projections.h"
#include "artifact/tensor_table.h"
#include "base/memory.h"

namespace superslm::artifact {

namespace {

using base::load_le;
using base::Message;

constexpr size_t kConfigSize = 160;
constexpr size_t kLayerSize = 32;
constexpr int32_t kMaxInputs = 65536;  // columns of a matrix, docs/numerics.md section 3
constexpr int64_t kEpsilonEnd = int64_t{1} << 61;
constexpr Site kConfig{"CONF"};

bool read_size(const uint8_t* config, size_t offset, const char* field, int64_t low, int64_t high,
               int32_t* out, Message* why) {
  const int64_t value = load_le<uint32_t>(config + offset);
  *out = static_cast<int32_t>(value);
  return in_range(why, kConfig, field, value, low, high);
}

bool read_epsilon(const uint8_t* config, size_t offset, const char* field, uint64_t* out, Message* why) {
  *out = load_le<uint64_t>(config + offset);
  if (*out < static_cast<uint64_t>(kEpsilonEnd)) return true;
  return refuse(why, kConfig, field);
}

bool read_stop_ids(const uint8_t* config, ModelView* m, Message* why) {
  if (!read_size(config, 56, "number of stop ids", 0, 16, &m->stop_id_count, why)) return false;
  for (int32_t i = 0; i < 16; ++i) {
    const bool used = i < m->stop_id_count;
    const int64_t last = used ? m->vocab - 1 : 0;
    if (!read_size(config, 60 + 4 * static_cast<size_t>(i), "stop id", 0, last, &m->stop_ids[i], why))
      return false;
  }
  return true;
}

bool read_config(Span section, ModelView* m, Message* why) {
  if (!in_range(why, kConfig, "size", static_cast<int64_t>(section.size), kConfigSize, kConfigSize))
    return false;
  const uint8_t* c = section.data;
  int32_t element_bytes = 0;
  const bool sizes = read_size(c, 0, "hidden size", 1, 32768, &m->hidden, why) &&
                     read_size(c, 4, "layers", 1, 1024, &m->layer_count, why) &&
                     read_size(c, 8, "heads", 1, kMaxInputs / 2, &m->heads, why) &&
                     read_size(c, 12, "kv_heads", 1, m->heads, &m->kv_heads, why) &&
                     read_size(c, 16, "head_dim", 2, 512, &m->head_dim, why) &&
                     read_size(c, 20, "MLP size", 1, kMaxInputs, &m->mlp, why) &&
                     read_size(c, 24, "vocabulary", 1, 1 << 19, &m->vocab, why) &&
                     read_size(c, 28, "context cap", 1, 1 << 25, &m->cap, why) &&
                     read_size(c, 32, "K/V bytes per element", 1, 1, &element_bytes, why);
  if (!sizes) return false;
  if (m->head_dim % 2 != 0) return refuse(why, kConfig, "head_dim is odd, rotation needs pairs");
  if (m->heads % m->kv_heads != 0) return refuse(why, kConfig, "kv_heads does not divide heads");
  if (!in_range(why, kConfig, "heads * head_dim", int64_t{m->heads} * m->head_dim, 2, kMaxInputs))
    return false;
  m->residual_exponent = load_le<int32_t>(c + 36);
  return in_range(why, kConfig, "R", m->residual_exponent, 0, 20) &&
         read_epsilon(c, 40, "EPS is not below 2^61", &m->norm_epsilon, why) &&
         read_epsilon(c, 48, "EPS of the q/k norms is not below 2^61", &m->head_norm_epsilon, why) &&
         read_stop_ids(c, m, why) &&
         (all_zero(c + 124, kConfigSize - 124) || refuse(why, kConfig, "reserved is not 0"));
}

bool check_sigmoid(LeArray<int32_t> sigmoid, Message* why) {
  for (size_t i = 0; i + 1 < 1025; ++i) {
    const int64_t step = int64_t{sigmoid[i]} - sigmoid[i + 1];
    Message field;
    field.append("step behind value ").append_u64(i);
    if (!in_range(why, Site{"SIG"}, field.text, step, 0, 1 << 22)) return false;
  }
  return true;
}

// Tensors of the whole model.
bool read_shared(TensorTable& table, ModelView* m, Message* why) {
  if (!table.enter(-1)) return false;
  if (!table.matrix(Role::kEmbedding, m->vocab, m->hidden, &m->embedding)) return false;
  if (!in_range(why, Site{"embedding"}, "exponent E", m->embedding.exponent, m->residual_exponent,
                m->residual_exponent + 62)) {
    return false;
  }
  m->head = m->embedding;
  const bool tied = !table.has(Role::kHead);
  if (!tied && !table.matrix(Role::kHead, m->vocab, m->hidden, &m->head)) return false;
  if (!table.gains(Role::kNF, m->hidden, &m->final_norm)) return false;
  if (!check_shift(m->head.exponent, m->final_norm.exponent, 16, Site{tied ? "embedding (as head)" : "head"},
                   why))
    return false;
  if (!table.uint64s(Role::kStep, m->head_dim / 2, &m->rotary_step)) return false;
  if (!table.int32s(Role::kSin, 1, 4097, kUnit30, &m->sine)) return false;
  if (!table.int32s(Role::kSig, 1, 1025, Range{0, kUnit30.high}, &m->sigmoid)) return false;
  if (!check_sigmoid(m->sigmoid, why)) return false;
  if (!table.has(Role::kT)) return true;
  return table.int16s(Role::kT, m->cap, m->head_dim, Range{-16384, 16384}, &m->rotary_rows);
}

bool read_scalars(const uint8_t* record, int32_t index, LayerView* layer, Message* why) {
  struct Field {
    const char* name;
    int32_t LayerView::* member;
    int32_t low, high;
  };
  constexpr Field kFields[] = {
      {"SK", &LayerView::k_shift, 1, 62},         {"SV_sh", &LayerView::v_shift, 1, 62},
      {"FQ", &LayerView::query_exponent, 4, 60},  {"ESV", &LayerView::value_exponent, 0, 30},
      {"EC", &LayerView::center_exponent, 0, 60}, {"QH", &LayerView::mlp_exponent, 0, 30}};
  const Site site{"LAYR", index};
  for (const Field& f : kFields) {
    const int32_t value = load_le<int32_t>(record);
    if (!in_range(why, site, f.name, value, f.low, f.high)) return false;
    layer->*f.member = value;
    record += 4;
  }
  return all_zero(record, 8) || refuse(why, site, "reserved is not 0");
}

bool read_projections(TensorTable& table, const ModelView& m, int32_t index, LayerView* layer, Message* why) {
  for (int p = 0; p < kProjectionCount; ++p) {
    const ProjectionShape s = projection_shape(m, *layer, static_cast<Projection>(p));
    const Role role = at(Role::kWQ, p);
    if (!table.matrix(role, s.rows, s.cols, &layer->weights[p])) return false;
    if (!check_shift(layer->weights[p].exponent, s.in_exponent, s.out_exponent, Site{role_name(role), index},
                     why))
      return false;
  }
  return true;
}

bool read_optional(TensorTable& table, Role role, int32_t rows, int32_t cols, Range range,
                   LeArray<int32_t>* out) {
  return !table.has(role) || table.int32s(role, rows, cols, range, out);
}

// Which optional parts go together.
bool check_center(const LayerView& layer, const ModelView& m, int32_t index, Message* why) {
  const bool centred = static_cast<bool>(layer.center);
  const bool head_norms = static_cast<bool>(layer.q_norm);
  if (head_norms != static_cast<bool>(layer.k_norm)) {
    return refuse(why, Site{head_norms ? "NK" : "NQ", index}, "absent, q/k norms come in pairs");
  }
  if (static_cast<bool>(layer.key_center) != (centred && head_norms)) {
    return refuse(why, Site{"CK", index}, "belongs to a centred layer with q/k norms, and only there");
  }
  if (centred && !head_norms && !layer.k_bias) {
    return refuse(why, Site{"BK", index}, "absent, a centred layer without q/k norms keeps its centre there");
  }
  if (centred && !m.rotary_rows) return refuse(why, Site{"T"}, "absent, a centred layer needs it");
  return in_range(why, Site{"LAYR", index}, centred ? "EC" : "EC of a layer that is not centred",
                  layer.center_exponent, centred ? 8 : 0, centred ? 60 : 0);
}

bool read_layer(TensorTable& table, Span scalars, const ModelView& m, int32_t index, LayerView* layer,
                Message* why) {
  const int32_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim, hd = m.head_dim;
  return read_scalars(scalars.data + kLayerSize * static_cast<size_t>(index), index, layer, why) &&
         table.enter(index) && table.gains(Role::kN1, m.hidden, &layer->attention_norm) &&
         table.gains(Role::kN2, m.hidden, &layer->mlp_norm) &&
         read_projections(table, m, index, layer, why) &&
         read_optional(table, Role::kBQ, 1, q, kAny32, &layer->q_bias) &&
         read_optional(table, Role::kBK, 1, kv, kAny32, &layer->k_bias) &&
         read_optional(table, Role::kBV, 1, kv, kAny32, &layer->v_bias) &&
         read_optional(table, Role::kNQ, 1, hd, kUnit30, &layer->q_norm) &&
         read_optional(table, Role::kNK, 1, hd, kUnit30, &layer->k_norm) &&
         read_optional(table, Role::kCK, m.kv_heads, hd, kAny32, &layer->key_center) &&
         table.int32s(Role::kMK, m.kv_heads, hd, kUnit30, &layer->k_landing) &&
         table.int32s(Role::kMV, m.kv_heads, hd, kUnit30, &layer->v_landing) &&
         table.int32s(Role::kMQ, m.heads, hd, kUnit30, &layer->query_scale) &&
         table.int32s(Role::kSV, m.kv_heads, hd, Range{0, 1 << 23}, &layer->value_scale) &&
         read_optional(table, Role::kMC, m.kv_heads, hd, kUnit30, &layer->center) &&
         check_center(*layer, m, index, why);
}

bool read_layers(TensorTable& table, Span scalars, ModelView* m, LayerView* layers, Message* why) {
  bool any_centred = false;
  for (int32_t i = 0; i < m->layer_count; ++i) {
    if (!read_layer(table, scalars, *m, i, &layers[i], why)) return false;
    any_centred = any_centred || static_cast<bool>(layers[i].center);
  }
  if (m->rotary_rows && !any_centred) return refuse(why, Site{"T"}, "present, but no layer is centred");
  return table.finish();
}

bool read_logit_scale(Span section, Model* model, Message* why) {
  if (!section) return true;
  const Site site{"DGC1"};
  ModelView& m = model->view;
  if (!in_range(why, site, "size", static_cast<int64_t>(section.size), 16, 16)) return false;
  m.logit_scale_mantissa = load_le<int64_t>(section.data);
  m.logit_scale_exponent = load_le<int64_t>(section.data + 8);
  if (!in_range(why, site, "m", m.logit_scale_mantissa, int64_t{1} << 30, (int64_t{1} << 31) - 1))
    return false;
  if (!base::derive_damped_constants(m.logit_scale_mantissa, m.logit_scale_exponent, &model->damped)) {
    return refuse(why, site, "e leads to constants outside their domain");
  }
  if (!base::damped_peak_in_domain(model->damped))
    return refuse(why, site, "e leads to a peak outside 1..2^47");
  if (!base::damped_width_in_domain(model->damped, m.vocab)) {
    return refuse(why, site, "e is too fine for the vocabulary: the peak times its size exceeds int64");
  }
  m.has_logit_scale = true;
  return true;
}

bool read_tokenizer(Span section, Model* model, Message* why) {
  if (!section) return true;
  model->view.tokenizer = section.data;
  model->view.tokenizer_size = section.size;
  Message reason;
  const auto vocab = static_cast<uint32_t>(model->view.vocab);
  model->has_tokenizer = text::parse(section.data, section.size, vocab, &model->tokenizer, &reason);
  return model->has_tokenizer || refuse(why, Site{"TOKN"}, reason.text);
}

bool check_golden(Span section, const ModelView& m, Message* why) {
  if (!section) return true;
  const Site site{"GOLD"};
  if (section.size < 40) return refuse(why, site, "size is below 40");
  const int64_t prompt = load_le<uint32_t>(section.data), tokens = load_le<uint32_t>(section.data + 4);
  if (!in_range(why, site, "prompt length", prompt, 1, m.cap - 1)) return false;
  const int64_t wanted = m.cap - prompt < 64 ? m.cap - prompt : 64;
  if (!in_range(why, site, "token count", tokens, wanted, wanted)) return false;
  const int64_t size = 40 + 4 * (prompt + tokens);
  if (!in_range(why, site, "size", static_cast<int64_t>(section.size), size, size)) return false;
  for (int64_t i = 0; i < prompt + tokens; ++i) {
    if (!in_range(why, site, "token id", load_le<uint32_t>(section.data + 40 + 4 * i), 0, m.vocab - 1))
      return false;
  }
  return true;
}

ReadResult read_schema_section(Span section, Model* model, Message* why) {
  if (!section) return ReadResult::ok;
  switch (read_schemas(section, model->view.vocab, &model->schemas, &model->schema_count, why)) {
    case SchemaResult::kOk:
      return ReadResult::ok;
    case SchemaResult::kRejected:
      return ReadResult::rejected;
    case SchemaResult::kNoMemory:
      return ReadResult::out_of_memory;
  }
  return ReadResult::rejected;
}

ReadResult read_model(const Container& c, Model* out, Message* why) {
  ModelView& m = out->view;
  if (!read_config(c.config, &m, why)) return ReadResult::rejected;
  const auto count = static_cast<size_t>(m.layer_count);
  const auto scalars = static_cast<int64_t>(count * kLayerSize);
  if (!in_range(why, Site{"LAYR"}, "size", static_cast<int64_t>(c.layers.size), scalars, scalars))
    return ReadResult::rejected;
  TensorTable table(c.tensors, c.data, why);
  if (!table.whole_entries() || !read_shared(table, &m, why)) return ReadResult::rejected;

  out->layers = static_cast<LayerView*>(base::allocate(count * sizeof(LayerView)));
  if (out->layers == nullptr) return ReadResult::out_of_memory;
  for (size_t i = 0; i < count; ++i) new (&out->layers[i]) LayerView;
  m.layers = out->layers;
  const bool ok = read_layers(table, c.layers, &m, out->layers, why) &&
                  read_tokenizer(c.tokenizer, out, why) && read_logit_scale(c.logit_scale, out, why) &&
                  check_golden(c.golden, m, why);
  out->golden = c.golden.data;
  std::memcpy(m.model_digest, c.model_digest.bytes, 32);
  std::memcpy(m.file_digest, c.file_digest.bytes, 32);
  return ok ? read_schema_section(c.schemas, out, why) : ReadResult::rejected;
}

}  // namespace

ReadResult read(const uint8_t* data, size_t size, Model* out, Message* why) {
  *out = Model{};
  *why = Message{};
  Container container;
  if (!open_container(data, size, Kind::kModel, &container, why)) return ReadResult::rejected;
  const ReadResult result = read_model(container, out, why);
  if (result != ReadResult::ok) release(out);
  return result;
}

void release(Model* model) {
  base::deallocate(model->layers);
  base::deallocate(model->schemas);
  *model = Model{};
}

}  // namespace superslm::artifact
