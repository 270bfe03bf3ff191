// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// A model as the engine sees it: checked, typed, read-only views into the mapped artifact.
// Names in comments are those of docs/numerics.md. Arrays are row-major and may lie at any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/load.h"

namespace superslm::artifact {

using base::LeArray;

enum class WeightFormat : uint8_t { kW8 = 1, kW4 = 2 };

// A weight matrix [rows][cols]; every row is padded to padded_cols, a multiple of 32.
struct Matrix {
  WeightFormat format = WeightFormat::kW8;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t padded_cols = 0;
  int32_t exponent = 0;  // E
  // W8: int8 [rows][padded_cols].
  // W4: nibbles [rows][padded_cols / 2]; 16 bytes a block, byte i holds input i (low) and input i + 16
  // (high).
  const uint8_t* values = nullptr;
  // W8: nibbles [rows][(blocks + 1) / 2], low nibble first. W4: bytes [rows][blocks][2], s then u.
  const uint8_t* scales = nullptr;
  LeArray<int32_t> multipliers;  // W [rows]

  int32_t blocks() const { return padded_cols / 32; }
  explicit operator bool() const { return values != nullptr; }
};

struct NormGains {
  LeArray<int32_t> gains;  // G [D]
  int32_t exponent = 0;    // EG
};

constexpr int32_t kMaxAdapterRank = 256;

// An 8-bit matrix stored in tiles of 16 rows, which lie side by side: pair of columns after pair of columns,
// the last tile and the last pair padded with zeros. Sub-scales are those of W8, one byte each.
struct TiledMatrix {
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t exponent = 0;             // E
  const uint8_t* values = nullptr;  // int8 [tiles][pairs][16][2]
  const uint8_t* scales = nullptr;  // [tiles][blocks][16], 0..15
  LeArray<int32_t> multipliers;     // W [rows]

  int32_t lanes() const { return (rows + 15) / 16 * 16; }  // rows, padded
  int32_t pairs() const { return (cols + 1) / 2; }
  int32_t blocks() const { return (cols + 31) / 32; }
  explicit operator bool() const { return values != nullptr; }
};

// One LoRA pair of docs/numerics.md section 11: A [rank][cols of the base], B [rows of the base][rank].
struct LoraPair {
  TiledMatrix a;
  TiledMatrix b;
  explicit operator bool() const { return static_cast<bool>(a); }
};

enum Projection { kQ, kK, kV, kO, kGate, kUp, kDown, kProjectionCount };

struct AdapterLayer {
  LoraPair pairs[kProjectionCount];
};

struct AdapterView {
  int32_t max_rank = 0;
  const AdapterLayer* layers = nullptr;
};

struct LayerView {
  NormGains attention_norm;  // N1
  NormGains mlp_norm;        // N2
  Matrix weights[kProjectionCount];
  LeArray<int32_t> q_bias, k_bias, v_bias;  // BQ BK BV, Q16, optional
  LeArray<int32_t> q_norm, k_norm;          // NQ NK [head_dim], EG 16, optional (both or none)
  LeArray<int32_t> key_center;              // CK [kv_heads][head_dim], Q16, optional
  LeArray<int32_t> k_landing;               // MK [kv_heads][head_dim]
  LeArray<int32_t> v_landing;               // MV [kv_heads][head_dim]
  LeArray<int32_t> query_scale;             // MQ [heads][head_dim]
  LeArray<int32_t> value_scale;             // SV [kv_heads][head_dim]
  LeArray<int32_t> center;                  // MC [kv_heads][head_dim], optional: the layer is centred
  int32_t k_shift = 0;                      // SK
  int32_t v_shift = 0;                      // SV_sh
  int32_t query_exponent = 0;               // FQ
  int32_t value_exponent = 0;               // ESV
  int32_t center_exponent = 0;              // EC
  int32_t mlp_exponent = 0;                 // QH
};

struct ModelView {
  int32_t hidden = 0, layer_count = 0, heads = 0, kv_heads = 0, head_dim = 0, mlp = 0, vocab = 0, cap = 0;
  int32_t residual_exponent = 0;   // R
  uint64_t norm_epsilon = 0;       // EPS for hidden
  uint64_t head_norm_epsilon = 0;  // EPS for q/k norms, 0 without them
  Matrix embedding;
  Matrix head;  // equals embedding when tied
  NormGains final_norm;
  const LayerView* layers = nullptr;
  LeArray<uint64_t> rotary_step;  // STEP [head_dim / 2]
  LeArray<int32_t> sine;          // SIN [4097]
  LeArray<int32_t> sigmoid;       // SIG [1025]
  LeArray<int16_t> rotary_rows;   // T [cap][head_dim], present when any layer is centred
  // Damped-greedy scale S = m * 2^e; absent when has_logit_scale is false.
  bool has_logit_scale = false;
  int64_t logit_scale_mantissa = 0, logit_scale_exponent = 0;
  uint8_t model_digest[32] = {};
  uint8_t file_digest[32] = {};
  int32_t stop_id_count = 0;
  int32_t stop_ids[16] = {};
  const uint8_t* tokenizer = nullptr;  // tokenizer section, checked by text::parse
  size_t tokenizer_size = 0;
};

// 8 or 4 where all weight matrices have that format, else 0.
inline int32_t weight_bits(const ModelView& model) {
  int64_t eight = 0, four = 0;
  const auto count = [&](const Matrix& matrix) { (matrix.format == WeightFormat::kW8 ? eight : four) += 1; };
  count(model.embedding);
  count(model.head);
  for (int32_t l = 0; l < model.layer_count; ++l) {
    for (const Matrix& weights : model.layers[l].weights) count(weights);
  }
  return four == 0 ? 8 : eight == 0 ? 4 : 0;
}

}  // namespace superslm::artifact
