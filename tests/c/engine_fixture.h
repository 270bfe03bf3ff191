// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Small random models in memory, paged K/V memory and sequences for the engine's own tests.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "decode/decode.h"
#include "forward/layer.h"

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: %s: expected %s\n", __FILE__, __LINE__, test_name, #condition); \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (0)

inline const char* test_name = "(start)";

namespace fixture {

using namespace superslm;
using artifact::LayerView;
using artifact::Matrix;
using artifact::ModelView;

struct Random {
  uint64_t state;
  uint64_t next() {  // splitmix64
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
};

struct Options {
  int32_t hidden = 72, layers = 3, heads = 4, kv_heads = 2, head_dim = 32, mlp = 100, vocab = 301, cap = 64;
  bool four_bit = false, centred = false, head_norms = false, biases = false;
  int32_t rank = 0;      // of an adapter on every projection; 0: none
  bool extreme = false;  // any value that a reader accepts
};

// Owns every byte of a model; arrays are laid at odd addresses to keep the engine honest about alignment.
class RandomModel {
 public:
  ModelView view;
  artifact::AdapterView adapter;

  RandomModel(uint64_t seed, const Options& options) : random_{seed}, o_(options) {
    view.hidden = o_.hidden;
    view.layer_count = o_.layers;
    view.heads = o_.heads;
    view.kv_heads = o_.kv_heads;
    view.head_dim = o_.head_dim;
    view.mlp = o_.mlp;
    view.vocab = o_.vocab;
    view.cap = o_.cap;
    view.residual_exponent = o_.extreme ? static_cast<int32_t>(random_.between(0, 20)) : 14;
    view.norm_epsilon = o_.extreme ? random_.next() >> 3 : 1000;
    view.head_norm_epsilon = o_.head_norms ? view.norm_epsilon : 0;
    view.embedding = matrix(o_.vocab, o_.hidden, false, view.residual_exponent, 62);
    view.head = view.embedding;
    view.final_norm = norm(o_.hidden);
    fit(view.embedding, view.final_norm.exponent, 16);
    view.head = view.embedding;
    tables();
    for (int32_t l = 0; l < o_.layers; ++l) layers_.push_back(layer());
    view.layers = layers_.data();
    if (o_.rank > 0) make_adapter();
  }
  RandomModel(const RandomModel&) = delete;

 private:
  template <typename T>
  base::LeArray<T> array(const std::vector<T>& values) {
    std::vector<unsigned char>& block = *blocks_.emplace_back(std::make_unique<std::vector<unsigned char>>());
    block.resize(values.size() * sizeof(T) + 1);
    std::memcpy(block.data() + 1, values.data(), values.size() * sizeof(T));
    return base::LeArray<T>{block.data() + 1};
  }
  base::LeArray<int32_t> numbers(int32_t n, int64_t low, int64_t high) {
    std::vector<int32_t> values;
    for (int32_t i = 0; i < n; ++i) values.push_back(static_cast<int32_t>(pick(low, high)));
    return array(values);
  }
  // In an extreme model most values stand at an end of their range.
  int64_t pick(int64_t low, int64_t high) {
    if (!o_.extreme || random_.next() % 4 == 0) return random_.between(low, high);
    return random_.next() % 2 ? low : high;
  }
  const uint8_t* bytes(size_t n) {
    std::vector<uint8_t> values;
    for (size_t i = 0; i < n; ++i) values.push_back(static_cast<uint8_t>(pick(0, 255)));
    return array(values).bytes;
  }
  Matrix matrix(int32_t rows, int32_t cols, bool four_bit, int32_t least_exponent, int32_t most_exponent) {
    Matrix m;
    m.format = four_bit ? artifact::WeightFormat::kW4 : artifact::WeightFormat::kW8;
    m.rows = rows;
    m.cols = cols;
    m.padded_cols = (cols + 31) / 32 * 32;
    const size_t blocks = static_cast<size_t>(m.blocks()) * static_cast<size_t>(rows);
    m.values = bytes(blocks * (four_bit ? 16 : 32));
    m.scales = bytes(four_bit ? blocks * 2
                              : static_cast<size_t>(rows) * ((static_cast<size_t>(m.blocks()) + 1) / 2));
    m.multipliers = o_.extreme ? numbers(rows, 1, 1 << 23) : numbers(rows, 1 << 21, 1 << 22);
    m.exponent = o_.extreme ? static_cast<int32_t>(random_.between(least_exponent, most_exponent))
                 : four_bit ? 34
                            : 33;
    return m;
  }
  artifact::TiledMatrix factor(int32_t rows, int32_t cols) {
    artifact::TiledMatrix m;
    m.rows = rows;
    m.cols = cols;
    const size_t lanes = static_cast<size_t>(m.lanes());
    std::vector<uint8_t> scales;
    for (size_t i = 0; i < lanes * static_cast<size_t>(m.blocks()); ++i)
      scales.push_back(static_cast<uint8_t>(pick(0, 15)));
    m.values = bytes(lanes * 2 * static_cast<size_t>(m.pairs()));
    m.scales = array(scales).bytes;
    m.multipliers = o_.extreme ? numbers(rows, 1, 1 << 23) : numbers(rows, 1 << 21, 1 << 22);
    m.exponent = o_.extreme ? static_cast<int32_t>(random_.between(0, 80)) : 33;
    return m;
  }
  // Moves an exponent so that the shifts of LIN lie in 0 .. 62 for every shift of the activations.
  template <typename AnyMatrix>
  void fit(AnyMatrix& m, int32_t in, int32_t out) {
    const int32_t low = 17 + 4 + out - in, high = 62 + 4 + out - in;
    if (m.exponent < low) m.exponent = low;
    if (m.exponent > high) m.exponent = high;
  }
  artifact::NormGains norm(int32_t n) {
    if (o_.extreme) return {numbers(n, -(1 << 30), 1 << 30), static_cast<int32_t>(random_.between(0, 30))};
    return {numbers(n, 1 << 28, 1 << 29), 26};
  }
  void tables() {
    std::vector<uint64_t> steps;
    for (int32_t f = 0; f < o_.head_dim / 2; ++f) {
      steps.push_back(o_.extreme ? random_.next()
                                 : static_cast<uint64_t>(std::pow(10000.0, -2.0 * f / o_.head_dim) /
                                                         6.283185307 * 1.8e19));
    }
    view.rotary_step = array(steps);
    std::vector<int32_t> sine, sigmoid;
    for (int i = 0; i <= 4096; ++i)
      sine.push_back(static_cast<int32_t>(std::lrint(1073741824.0 * std::sin(6.283185307179586 * i / 4096))));
    for (int i = 0; i <= 1024; ++i)
      sigmoid.push_back(static_cast<int32_t>(std::lrint(1073741824.0 / (1 + std::exp(i / 64.0)))));
    view.sine = o_.extreme ? numbers(4097, -(1 << 30), 1 << 30) : array(sine);
    view.sigmoid = array(sigmoid);
    if (!o_.centred) return;
    std::vector<int16_t> rows;
    for (int32_t i = 0; i < o_.cap * o_.head_dim; ++i)
      rows.push_back(static_cast<int16_t>(pick(-16384, 16384)));
    view.rotary_rows = array(rows);
  }
  void projections(LayerView& l) {
    const int32_t query = o_.heads * o_.head_dim, key = o_.kv_heads * o_.head_dim, r = view.residual_exponent;
    const int32_t shapes[][4] = {{query, o_.hidden, l.attention_norm.exponent, 16},
                                 {key, o_.hidden, l.attention_norm.exponent, 16},
                                 {key, o_.hidden, l.attention_norm.exponent, 16},
                                 {o_.hidden, query, l.value_exponent, r},
                                 {o_.mlp, o_.hidden, l.mlp_norm.exponent, 16},
                                 {o_.mlp, o_.hidden, l.mlp_norm.exponent, 16},
                                 {o_.hidden, o_.mlp, l.mlp_exponent, r}};
    for (int32_t p = 0; p < artifact::kProjectionCount; ++p) {
      l.weights[p] = matrix(shapes[p][0], shapes[p][1], o_.four_bit, 0, 80);
      fit(l.weights[p], shapes[p][2], shapes[p][3]);
    }
  }
  LayerView layer() {
    LayerView l;
    const int32_t query = o_.heads * o_.head_dim, key = o_.kv_heads * o_.head_dim;
    const auto between = [this](int64_t plain, int64_t low, int64_t high) {
      return static_cast<int32_t>(o_.extreme ? random_.between(low, high) : plain);
    };
    const int64_t m = int64_t{1} << 30;
    l.attention_norm = norm(o_.hidden);
    l.mlp_norm = norm(o_.hidden);
    l.value_exponent = between(24, 0, 30);
    l.mlp_exponent = between(20, 0, 30);
    projections(l);
    l.k_shift = between(41, 1, 62);
    l.v_shift = between(41, 1, 62);
    l.query_exponent = between(22, 4, 60);
    l.center_exponent = between(30, 8, 60);
    l.k_landing = o_.extreme ? numbers(key, -m, m) : numbers(key, m / 8, m / 4);
    l.v_landing = o_.extreme ? numbers(key, -m, m) : numbers(key, m / 8, m / 4);
    l.query_scale = o_.extreme ? numbers(query, -m, m) : numbers(query, m / 2, m);
    l.value_scale = o_.extreme ? numbers(key, 0, 1 << 23) : numbers(key, 1 << 19, 1 << 20);
    if (o_.biases) {
      l.q_bias = numbers(query, o_.extreme ? INT32_MIN : -90000, o_.extreme ? INT32_MAX : 90000);
      l.k_bias = numbers(key, o_.extreme ? INT32_MIN : -90000, o_.extreme ? INT32_MAX : 90000);
      l.v_bias = numbers(key, o_.extreme ? INT32_MIN : -90000, o_.extreme ? INT32_MAX : 90000);
    }
    if (o_.head_norms) {
      l.q_norm = numbers(o_.head_dim, 300000, o_.extreme ? 1 << 30 : 400000);
      l.k_norm = numbers(o_.head_dim, 300000, o_.extreme ? 1 << 30 : 400000);
      if (o_.centred)
        l.key_center = numbers(key, o_.extreme ? INT32_MIN : -90000, o_.extreme ? INT32_MAX : 90000);
    }
    if (o_.centred) l.center = numbers(key, o_.extreme ? -m : -m / 64, o_.extreme ? m : m / 64);
    return l;
  }
  void make_adapter() {
    for (int32_t i = 0; i < o_.layers; ++i) {
      artifact::AdapterLayer& out = adapter_layers_.emplace_back();
      const LayerView& l = layers_[static_cast<size_t>(i)];
      for (int32_t p = 0; p < artifact::kProjectionCount; ++p) {
        const Matrix& base = l.weights[p];
        const bool residual = p == artifact::kO || p == artifact::kDown;
        const int32_t in = p == artifact::kO                            ? l.value_exponent
                           : p == artifact::kDown                       ? l.mlp_exponent
                           : p == artifact::kGate || p == artifact::kUp ? l.mlp_norm.exponent
                                                                        : l.attention_norm.exponent;
        out.pairs[p].a = factor(o_.rank, base.cols);
        out.pairs[p].b = factor(base.rows, o_.rank);
        fit(out.pairs[p].a, in, 16);
        fit(out.pairs[p].b, 16, residual ? view.residual_exponent : 16);
      }
    }
    adapter = {o_.rank, adapter_layers_.data()};
  }

  Random random_;
  Options o_;
  std::vector<std::unique_ptr<std::vector<unsigned char>>> blocks_;
  std::vector<LayerView> layers_;
  std::vector<artifact::AdapterLayer> adapter_layers_;
};

// K/V memory of one sequence in pages of a few positions, in scattered order.
struct Cache {
  kv::Geometry geometry;
  std::vector<uint8_t> memory;
  std::vector<uint32_t> pages;

  Cache(const ModelView& m, int64_t page_positions) {
    geometry = kv::Geometry{m.layer_count, m.kv_heads, m.head_dim, 1, m.cap, page_positions};
    const size_t count = static_cast<size_t>((m.cap + page_positions - 1) / page_positions);
    memory.assign(count * geometry.page_bytes(), 0x55);
    for (size_t i = 0; i < count; ++i) pages.push_back(static_cast<uint32_t>(count - 1 - i));
  }
  kv::KvView view() const { return {const_cast<uint8_t*>(memory.data()), pages.data(), &geometry}; }

  // The bytes of positions [0, length), in an order that pages do not matter to.
  std::vector<int8_t> rows(int64_t length) const {
    std::vector<int8_t> out;
    for (int32_t l = 0; l < geometry.layers; ++l) {
      for (int kind = 0; kind < 2; ++kind) {
        for (int32_t h = 0; h < geometry.kv_heads; ++h) {
          for (int64_t j = 0; j < length; ++j) {
            const int8_t* row = view().row(l, static_cast<kv::Kind>(kind), h, j);
            out.insert(out.end(), row, row + geometry.head_dim);
          }
        }
      }
    }
    return out;
  }
};

struct Sequence {
  Cache cache;
  std::vector<int32_t> residual;
  decode::SequenceState state;
  const artifact::AdapterView* adapter = nullptr;

  explicit Sequence(const ModelView& m, int64_t page_positions = 7)
      : cache(m, page_positions), residual(static_cast<size_t>(m.hidden), 0) {
    state.residual = residual.data();
  }
  Sequence(const Sequence& other)
      : cache(other.cache), residual(other.residual), state(other.state), adapter(other.adapter) {
    state.residual = residual.data();
  }
  decode::Entry entry() { return {&state, cache.view(), adapter, {}, -1, decode::Outcome::kNotRun}; }

  // Everything that a save blob would hold, as text.
  std::string snapshot() const {
    std::string s;
    const decode::SaturationCounts& c = state.counts;
    for (uint64_t v : {static_cast<uint64_t>(state.length), static_cast<uint64_t>(state.layer_index),
                       static_cast<uint64_t>(state.ready), static_cast<uint64_t>(state.pending_token),
                       c.total, c.value_landing, c.key_landing, c.rotary_query, c.rotary_key}) {
      s += std::to_string(v) + " ";
    }
    s.append(reinterpret_cast<const char*>(residual.data()), residual.size() * sizeof(int32_t));
    const std::vector<int8_t> rows = cache.rows(state.length);
    s.append(reinterpret_cast<const char*>(rows.data()), rows.size());
    for (int32_t l = 0; l < state.layer_index; ++l) {  // the rows of the unfinished token
      for (int32_t h = 0; h < cache.geometry.kv_heads; ++h) {
        for (kv::Kind kind : {kv::kKey, kv::kValue}) {
          s.append(reinterpret_cast<const char*>(cache.view().row(l, kind, h, state.length)),
                   static_cast<size_t>(cache.geometry.head_dim));
        }
      }
    }
    return s;
  }
};

// An engine with its own scratch.
struct Bench {
  std::vector<unsigned char> buffer;
  forward::Engine engine;

  Bench(const ModelView& m, int32_t max_batch, int32_t max_chunk, base::Parallel parallel = {},
        int32_t max_tasks = 1) {
    const forward::Shape shape{max_batch, max_chunk, max_tasks};
    buffer.resize(forward::scratch_size(m, shape) + forward::kScratchAlignment);
    void* at = buffer.data();
    size_t space = buffer.size();
    std::align(forward::kScratchAlignment, buffer.size() - forward::kScratchAlignment, at, space);
    engine = forward::make_engine(m, shape, at, parallel);
    engine.spread = max_tasks > 1;
  }
};

}  // namespace fixture
