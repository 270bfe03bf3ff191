// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/adapter_reader.h"

#include <cstring>
#include <new>

#include "artifact/container.h"
#include "artifact/projections.h"
#include "artifact/tensor_table.h"
#include "base/memory.h"

namespace superslm::artifact {

namespace {

using base::Message;

constexpr size_t kBaseSize = 64;
constexpr size_t kDigestSize = 32;
constexpr int32_t kInnerExponent = 16;  // QA, docs/numerics.md section 11

bool check_base_section(Span section, Message* why) {
  const Site site{"BASE"};
  return in_range(why, site, "size", static_cast<int64_t>(section.size), kBaseSize, kBaseSize) &&
         (all_zero(section.data + kDigestSize, kBaseSize - kDigestSize) ||
          refuse(why, site, "reserved is not 0"));
}

bool read_factor(TensorTable& table, Role role, int32_t rows, int32_t cols, int32_t in_exponent,
                 int32_t out_exponent, Site site, TiledMatrix* out, Message* why) {
  return table.tiled(role, rows, cols, out) &&
         check_shift(out->exponent, in_exponent, out_exponent, site, why);
}

// The pair of one projection where the table has one.
bool read_pair(TensorTable& table, const ProjectionShape& shape, int projection, int32_t layer, LoraPair* out,
               Message* why) {
  const Role a = at(Role::kAdapterA, 2 * projection), b = at(Role::kAdapterB, 2 * projection);
  if (!table.has(a)) return true;
  const Site site{role_name(a), layer};
  const int64_t rank = table.rows(a);
  if (!in_range(why, site, "rank", rank, 1, kMaxAdapterRank)) return false;
  const auto r = static_cast<int32_t>(rank);
  return read_factor(table, a, r, shape.cols, shape.in_exponent, kInnerExponent, site, &out->a, why) &&
         read_factor(table, b, shape.rows, r, kInnerExponent, shape.out_exponent, Site{role_name(b), layer},
                     &out->b, why);
}

bool read_pairs(const Container& c, const ModelView& base, Adapter* out, Message* why) {
  TensorTable table(c.tensors, c.data, why);
  if (!table.whole_entries()) return false;
  for (int32_t l = 0; l < base.layer_count; ++l) {
    table.turn_to(l);
    for (int p = 0; p < kProjectionCount; ++p) {
      const ProjectionShape shape = projection_shape(base, base.layers[l], static_cast<Projection>(p));
      LoraPair& pair = out->layers[l].pairs[p];
      if (!read_pair(table, shape, p, l, &pair, why)) return false;
      if (pair && pair.a.rows > out->view.max_rank) out->view.max_rank = pair.a.rows;
    }
  }
  if (!table.finish()) return false;
  return out->view.max_rank > 0 || refuse(why, Site{"TENS"}, "entries are absent: the adapter has no pair");
}

ReadResult read_content(const Container& c, const ModelView& base, Adapter* out, Message* why) {
  if (!check_base_section(c.base, why)) return ReadResult::rejected;
  if (std::memcmp(c.base.data, base.model_digest, kDigestSize) != 0) {
    refuse(why, Site{"BASE"},
           "model digest is not that of this model: the adapter was made for another base");
    return ReadResult::other_base;
  }
  if (!c.tensors || !c.data) {
    refuse(why, Site{c.tensors ? "DATA" : "TENS"}, "section is absent");
    return ReadResult::rejected;
  }
  const auto count = static_cast<size_t>(base.layer_count);
  out->layers = static_cast<AdapterLayer*>(base::allocate(count * sizeof(AdapterLayer)));
  if (out->layers == nullptr) return ReadResult::out_of_memory;
  for (size_t i = 0; i < count; ++i) new (&out->layers[i]) AdapterLayer;
  out->view.layers = out->layers;
  return read_pairs(c, base, out, why) ? ReadResult::ok : ReadResult::rejected;
}

}  // namespace

ReadResult read_adapter(const uint8_t* data, size_t size, const ModelView& base, Adapter* out, Message* why) {
  *out = Adapter{};
  *why = Message{};
  Container container;
  if (!open_container(data, size, Kind::kAdapter, &container, why)) return ReadResult::rejected;
  const ReadResult result = read_content(container, base, out, why);
  if (result != ReadResult::ok) release(out);
  return result;
}

void release(Adapter* adapter) {
  base::deallocate(adapter->layers);
  *adapter = Adapter{};
}

}  // namespace superslm::artifact
