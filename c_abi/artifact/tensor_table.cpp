// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/tensor_table.h"

#include "artifact/container.h"
#include "base/checked.h"

namespace superslm::artifact {

namespace {

using base::CheckedSize;
using base::load_le;
using base::Message;

constexpr uint32_t kW8 = 1, kW4 = 2, kTiled8 = 3, kInt32 = 16, kInt16 = 17, kUint64 = 18;
constexpr int64_t kMaxMultiplier = int64_t{1} << 23;
constexpr uint32_t kWholeModel = 0xffffffff;

template <typename T>
bool scan(Message* why, Site site, LeArray<T> values, int32_t rows, int32_t cols, Range range) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  for (size_t i = 0; i < count; ++i) {
    const int64_t value = values[i];
    if (value >= range.low && value <= range.high) continue;
    const size_t row = i / static_cast<size_t>(cols), col = i % static_cast<size_t>(cols);
    Message field;
    field.append("value ").append_u64(col);
    if (rows > 1) field.append(" of row ").append_u64(row);
    return refuse_value(why, site, field.text, value, range.low, range.high);
  }
  return true;
}

}  // namespace

const char* role_name(Role role) {
  constexpr const char* kWhole[] = {"embedding", "head", "NF", "STEP", "SIN", "SIG", "T"};
  constexpr const char* kLayer[] = {"N1", "N2", "WQ", "WK", "WV", "WO", "WG", "WU", "WD", "BQ",
                                    "BK", "BV", "NQ", "NK", "CK", "MK", "MV", "MQ", "SV", "MC"};
  constexpr const char* kAdapter[] = {"A of WQ", "B of WQ", "A of WK", "B of WK", "A of WV",
                                      "B of WV", "A of WO", "B of WO", "A of WG", "B of WG",
                                      "A of WU", "B of WU", "A of WD", "B of WD"};
  const auto r = static_cast<uint32_t>(role);
  if (r >= 64) return kAdapter[r - 64];
  return r >= 16 ? kLayer[r - 16] : kWhole[r - 1];
}

bool TensorTable::whole_entries() const {
  return entries_.size % kEntrySize == 0 || refuse(why_, Site{"TENS"}, "size is not a multiple of 64");
}

bool TensorTable::has(Role role) const {
  if (next_ >= entries_.size / kEntrySize) return false;
  const uint32_t layer = layer_ < 0 ? kWholeModel : static_cast<uint32_t>(layer_);
  return load_le<uint32_t>(bytes()) == static_cast<uint32_t>(role) && load_le<uint32_t>(bytes() + 4) == layer;
}

int64_t TensorTable::rows(Role role) const { return has(role) ? load_le<uint32_t>(bytes() + 16) : 0; }

bool TensorTable::enter(int64_t layer) {
  layer_ = layer;
  if (next_ >= entries_.size / kEntrySize) return true;  // the getters will name what is missing
  const uint32_t stored = load_le<uint32_t>(bytes() + 4);
  if (layer < 0 || stored == static_cast<uint32_t>(layer)) return true;
  return finish();
}

bool TensorTable::finish() {
  if (next_ >= entries_.size / kEntrySize) return true;
  why_->append("TENS: entry ").append_u64(next_).append(" has role ").append_u64(load_le<uint32_t>(bytes()));
  why_->append(" and layer ").append_u64(load_le<uint32_t>(bytes() + 4));
  why_->append(", which is unknown, repeated, out of order or not used by this model");
  return false;
}

bool TensorTable::take(Role role, int32_t rows, int32_t cols, Entry* out) {
  if (!has(role)) return refuse(why_, site(role), "absent from the tensor table, or out of order");
  const uint8_t* e = bytes();
  ++next_;
  if (!in_range(why_, site(role), "rows", load_le<uint32_t>(e + 16), rows, rows)) return false;
  if (!in_range(why_, site(role), "columns", load_le<uint32_t>(e + 20), cols, cols)) return false;
  if (!all_zero(e + 48, 16)) return refuse(why_, site(role), "reserved is not 0");
  *out = Entry{load_le<uint32_t>(e + 8), load_le<int32_t>(e + 12), load_le<uint64_t>(e + 24),
               load_le<uint64_t>(e + 32), load_le<uint64_t>(e + 40)};
  return true;
}

bool TensorTable::place(Role role, const char* part, uint64_t offset, uint64_t size, const uint8_t** out) {
  Message field;
  field.append("offset of the ").append(part);
  if (offset % kAlignment != 0)
    return refuse(why_, site(role), field.append(" is not a multiple of 64").text);
  if (offset > data_.size || size > data_.size - offset) {
    return refuse(why_, site(role), field.append(" leads behind the end of DATA").text);
  }
  *out = data_.data + offset;
  return true;
}

bool TensorTable::matrix(Role role, int32_t rows, int32_t cols, Matrix* out) {
  Entry e;
  if (!take(role, rows, cols, &e)) return false;
  if (!in_range(why_, site(role), "format", e.format, kW8, kW4)) return false;
  Matrix m;
  m.format = static_cast<WeightFormat>(e.format);
  m.rows = rows;
  m.cols = cols;
  m.padded_cols = (cols + 31) / 32 * 32;
  m.exponent = e.exponent;
  const bool w8 = m.format == WeightFormat::kW8;
  const auto blocks = static_cast<uint64_t>(m.blocks());
  const CheckedSize row_count(static_cast<uint64_t>(rows));
  const CheckedSize values = row_count * (blocks * (w8 ? 32 : 16));
  const CheckedSize scales = row_count * (w8 ? (blocks + 1) / 2 : blocks * 2);
  if (!place(role, "values", e.values, values.value(), &m.values)) return false;
  if (!place(role, "sub-scales", e.scales, scales.value(), &m.scales)) return false;
  if (!multipliers(role, e.multipliers, rows, &m.multipliers)) return false;
  *out = m;
  return true;
}

bool TensorTable::tiled(Role role, int32_t rows, int32_t cols, TiledMatrix* out) {
  constexpr uint64_t kTile = 16;
  constexpr uint8_t kMaxScale = 15;
  Entry e;
  if (!take(role, rows, cols, &e)) return false;
  if (!in_range(why_, site(role), "format", e.format, kTiled8, kTiled8)) return false;
  TiledMatrix m;
  m.rows = rows;
  m.cols = cols;
  m.exponent = e.exponent;
  const CheckedSize lanes = CheckedSize((static_cast<uint64_t>(rows) + kTile - 1) / kTile) * kTile;
  const CheckedSize values = lanes * (2 * static_cast<uint64_t>(m.pairs()));
  const CheckedSize scales = lanes * static_cast<uint64_t>(m.blocks());
  if (!place(role, "values", e.values, values.value(), &m.values)) return false;
  if (!place(role, "sub-scales", e.scales, scales.value(), &m.scales)) return false;
  for (uint64_t i = 0; i < scales.value(); ++i) {
    if (m.scales[i] <= kMaxScale) continue;
    Message field;
    return refuse_value(why_, site(role), field.append("sub-scale ").append_u64(i).text, m.scales[i], 0,
                        kMaxScale);
  }
  if (!multipliers(role, e.multipliers, rows, &m.multipliers)) return false;
  *out = m;
  return true;
}

bool TensorTable::multipliers(Role role, uint64_t offset, int32_t rows, LeArray<int32_t>* out) {
  const CheckedSize size = CheckedSize(static_cast<uint64_t>(rows)) * 4;
  if (!place(role, "multipliers", offset, size.value(), &out->bytes)) return false;
  for (int32_t r = 0; r < rows; ++r) {
    const int64_t w = (*out)[static_cast<size_t>(r)];
    if (w >= 1 && w <= kMaxMultiplier) continue;
    Message field;
    return refuse_value(why_, site(role), field.append("multiplier of row ").append_i64(r).text, w, 1,
                        kMaxMultiplier);
  }
  return true;
}

bool TensorTable::numbers(Role role, uint32_t format, int32_t rows, int32_t cols, size_t element,
                          Entry* entry, const uint8_t** out) {
  if (!take(role, rows, cols, entry)) return false;
  if (!in_range(why_, site(role), "format", entry->format, format, format)) return false;
  if (entry->scales != 0 || entry->multipliers != 0)
    return refuse(why_, site(role), "offset of the sub-scales or multipliers is not 0");
  const CheckedSize size = CheckedSize(static_cast<uint64_t>(rows)) * static_cast<uint64_t>(cols) * element;
  return place(role, "values", entry->values, size.value(), out);
}

bool TensorTable::gains(Role role, int32_t size, NormGains* out) {
  Entry e;
  if (!numbers(role, kInt32, 1, size, sizeof(int32_t), &e, &out->gains.bytes)) return false;
  if (!in_range(why_, site(role), "exponent EG", e.exponent, 0, 30)) return false;
  out->exponent = e.exponent;
  return scan(why_, site(role), out->gains, 1, size, kUnit30);
}

bool TensorTable::int32s(Role role, int32_t rows, int32_t cols, Range range, LeArray<int32_t>* out) {
  Entry e;
  if (!numbers(role, kInt32, rows, cols, sizeof(int32_t), &e, &out->bytes)) return false;
  if (!in_range(why_, site(role), "exponent", e.exponent, 0, 0)) return false;
  return scan(why_, site(role), *out, rows, cols, range);
}

bool TensorTable::int16s(Role role, int32_t rows, int32_t cols, Range range, LeArray<int16_t>* out) {
  Entry e;
  if (!numbers(role, kInt16, rows, cols, sizeof(int16_t), &e, &out->bytes)) return false;
  if (!in_range(why_, site(role), "exponent", e.exponent, 0, 0)) return false;
  return scan(why_, site(role), *out, rows, cols, range);
}

bool TensorTable::uint64s(Role role, int32_t cols, LeArray<uint64_t>* out) {
  Entry e;
  if (!numbers(role, kUint64, 1, cols, sizeof(uint64_t), &e, &out->bytes)) return false;
  return in_range(why_, site(role), "exponent", e.exponent, 0, 0);
}

}  // namespace superslm::artifact
