// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Byte offsets of the fields that every blob has at one place, and what tells the formats apart.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "blob/blob.h"

namespace superslm::blob {

constexpr size_t kDigestBytes = 32;

enum Offset : size_t {
  kMagicAt = 0,
  kModelDigestAt = 4,
  kPrecisionAt = 36,
  kSchemaHashAt = 40,
  kWalkStateAt = 48,
  kAdapterAt = 52,
  kLengthAt = 60,
  kLayerIndexAt = 68,
  kPendingTokenAt = 72,
  kScaleMantissaAt = 76,
  kScaleExponentAt = 84,
  kSaturationTotalAt = 92,
  kForcedTokensAt = 100,
  kHistoryOrderAt = 108,   // SSB3 and later
  kHistoryLengthAt = 112,  // SSB3 and later
  kReadyAt = 120,          // SSB4 and later
  kValueLandingAt = 124,   // SSB5 and later, as the three below
  kKeyLandingAt = 132,
  kRotaryQueryAt = 140,
  kRotaryKeyAt = 148,
  kModeAt = 156,  // SSB6 and SSP1, as the two below
  kBudgetAt = 160,
  kOriginAt = 164,
  kParentDigestAt = 172,  // SSP1
};

struct Format {
  char magic[4];
  size_t fixed_bytes;
  bool has_history, has_ready, has_sites, has_budget;

  bool residual_always() const { return has_ready; }  // older ones carry it mid-token only
  size_t count_bytes() const { return has_budget ? 8 : 4; }
};

constexpr Format kSsb6 = {{'S', 'S', 'B', '6'}, 172, true, true, true, true};
constexpr Format kSsp1 = {{'S', 'S', 'P', '1'}, 204, true, true, true, true};
constexpr Format kSsb5 = {{'S', 'S', 'B', '5'}, 156, true, true, true, false};
constexpr Format kSsb4 = {{'S', 'S', 'B', '4'}, 124, true, true, false, false};
constexpr Format kSsb3 = {{'S', 'S', 'B', '3'}, 120, true, false, false, false};
constexpr Format kSsb2 = {{'S', 'S', 'B', '2'}, 108, false, false, false, false};

inline uint32_t precision_code(const ModelFacts& facts) {
  return static_cast<uint32_t>(facts.geometry.element_bytes - 1);
}

inline base::CheckedSize residual_bytes(const ModelFacts& facts) {
  return base::CheckedSize(sizeof(int32_t)) * static_cast<uint64_t>(facts.hidden);
}

// Bytes of this many positions.
inline base::CheckedSize rows_bytes(const ModelFacts& facts, int64_t positions) {
  const kv::Geometry& g = facts.geometry;
  return base::CheckedSize(2) * static_cast<uint64_t>(g.layers) * static_cast<uint64_t>(g.kv_heads) *
         g.row_bytes() * static_cast<uint64_t>(positions);
}

// Positions a blob carries (L'): the row of an unfinished token too.
inline int64_t carried_positions(const decode::SequenceState& state) {
  return state.length + (state.layer_index > 0 ? 1 : 0);
}

// Bytes 0 .. 155, common to SSB5, SSB6 and SSP1.
void write_common(const Format& format, const ModelFacts& facts, const Content& content, uint8_t* out);
// Mode, budget and origin at 156.
void write_budget(const kv::Holder& holder, uint8_t* out);
// The residual; the address behind it.
uint8_t* write_residual(const ModelFacts& facts, const Content& content, uint8_t* out);

// The checks of the fixed part, in order; size covers the fixed part and the count field.
class FixedPart {
 public:
  FixedPart(const Format& format, const ModelFacts& facts, const uint8_t* bytes)
      : format_(format), facts_(facts), bytes_(bytes) {}

  // Checks 3 to 10 of the restore verbs: fills all of out but the tail.
  Status read(Parsed* out) const;
  // Check 13 without the history tokens: scale and resting state.
  Status check_state(const Parsed& parsed) const;

 private:
  template <typename T>
  T at(Offset offset) const {
    return base::load_le<T>(bytes_ + offset);
  }
  Status read_schema(Parsed* out) const;
  Status read_history(Parsed* out) const;
  Status read_position(Parsed* out) const;
  Status read_budget(Parsed* out) const;
  void read_counts(Parsed* out) const;

  const Format& format_;
  const ModelFacts& facts_;
  const uint8_t* bytes_;
};

}  // namespace superslm::blob
