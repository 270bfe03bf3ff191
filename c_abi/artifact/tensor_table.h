// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The tensor table (docs/sslm_format.md, section 5), walked once in its fixed order.
#pragma once

#include "artifact/check.h"
#include "artifact/model_view.h"

namespace superslm::artifact {

enum class Role : uint32_t {
  kEmbedding = 1,
  kHead,
  kNF,
  kStep,
  kSin,
  kSig,
  kT,
  kN1 = 16,
  kN2,
  kWQ,
  kWK,
  kWV,
  kWO,
  kWG,
  kWU,
  kWD,
  kBQ,
  kBK,
  kBV,
  kNQ,
  kNK,
  kCK,
  kMK,
  kMV,
  kMQ,
  kSV,
  kMC,
  kAdapterA = 64,  // of WQ; the pairs follow in the order of Projection, each A before its B
  kAdapterB,
};

// The role `steps` places behind another, where neighbours have neighbouring numbers.
constexpr Role at(Role first, int steps) {
  return static_cast<Role>(static_cast<uint32_t>(first) + static_cast<uint32_t>(steps));
}

const char* role_name(Role role);

struct Range {
  int64_t low;
  int64_t high;
};

inline constexpr Range kAny32{INT32_MIN, INT32_MAX};
inline constexpr Range kUnit30{-(int64_t{1} << 30), int64_t{1} << 30};

// Each getter takes the next entry, which must have the given role, and checks format, shape, place and
// values.
class TensorTable {
 public:
  TensorTable(Span entries, Span data, base::Message* why) : entries_(entries), data_(data), why_(why) {}

  bool whole_entries() const;
  // Turns to a layer, or to the tensors of the whole model (-1). False when an entry of the group before is
  // left.
  bool enter(int64_t layer);
  // The same for a layer that may have no tensor at all; `finish` then finds entries that were left.
  void turn_to(int64_t layer) { layer_ = layer; }
  // After the last group: no entry may be left.
  bool finish();

  bool has(Role role) const;
  // The rows of the next entry, which must have the given role; 0 when it has not.
  int64_t rows(Role role) const;
  bool matrix(Role role, int32_t rows, int32_t cols, Matrix* out);
  bool tiled(Role role, int32_t rows, int32_t cols, TiledMatrix* out);
  bool gains(Role role, int32_t size, NormGains* out);
  bool int32s(Role role, int32_t rows, int32_t cols, Range range, LeArray<int32_t>* out);
  bool int16s(Role role, int32_t rows, int32_t cols, Range range, LeArray<int16_t>* out);
  bool uint64s(Role role, int32_t cols, LeArray<uint64_t>* out);

 private:
  struct Entry {
    uint32_t format = 0;
    int32_t exponent = 0;
    uint64_t values = 0, scales = 0, multipliers = 0;
  };
  const uint8_t* bytes() const { return entries_.data + next_ * kEntrySize; }
  bool take(Role role, int32_t rows, int32_t cols, Entry* out);
  bool place(Role role, const char* part, uint64_t offset, uint64_t size, const uint8_t** out);
  bool multipliers(Role role, uint64_t offset, int32_t rows, LeArray<int32_t>* out);
  bool numbers(Role role, uint32_t format, int32_t rows, int32_t cols, size_t element, Entry* entry,
               const uint8_t** out);
  Site site(Role role) const { return Site{role_name(role), layer_}; }

  static constexpr size_t kEntrySize = 64;
  Span entries_, data_;
  base::Message* why_;
  size_t next_ = 0;
  int64_t layer_ = -1;
};

}  // namespace superslm::artifact
