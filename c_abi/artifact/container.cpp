// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/container.h"

#include <cstring>

#include "artifact/digests.h"

namespace superslm::artifact {

namespace {

using base::load_le;
using base::Message;

constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderSize = 128;
constexpr size_t kEntrySize = 32;
constexpr size_t kMaxSections = (kModelStart - kHeaderSize) / kEntrySize;
constexpr uint32_t kCritical = 1;
constexpr Site kHeader{"header"};

struct KnownSection {
  const char* id;
  Span Container::* span;
  bool named_part;  // covered by the digest that names the content; in this order, before the others
  bool required;
};

constexpr KnownSection kModelSections[] = {
    {"CONF", &Container::config, true, true},     {"LAYR", &Container::layers, true, true},
    {"TENS", &Container::tensors, true, true},    {"DATA", &Container::data, true, true},
    {"TOKN", &Container::tokenizer, true, false}, {"DGC1", &Container::logit_scale, true, false},
    {"SCHM", &Container::schemas, false, false},  {"PROV", &Container::provenance, false, false},
    {"GOLD", &Container::golden, false, false},
};

// Tensors are not required here, so that an adapter of another base is told apart first.
constexpr KnownSection kAdapterSections[] = {{"BASE", &Container::base, true, true},
                                             {"TENS", &Container::tensors, true, false},
                                             {"DATA", &Container::data, true, false},
                                             {"PROV", &Container::provenance, false, false}};

// What a container of a kind may hold.
struct KnownSections {
  const KnownSection* items;
  size_t count;
  const KnownSection* begin() const { return items; }
  const KnownSection* end() const { return items + count; }
};

template <size_t n>
constexpr KnownSections all(const KnownSection (&sections)[n]) {
  return KnownSections{sections, n};
}

KnownSections known_sections(Kind kind) {
  return kind == Kind::kModel ? all(kModelSections) : all(kAdapterSections);
}

bool check_header(const uint8_t* data, size_t size, Kind kind, Message* why) {
  if (size >= 4 && std::memcmp(data, "GGUF", 4) == 0)
    return refuse(why, kHeader, "this is a GGUF file; make an artifact of it with `superslm convert`");
  if (std::memcmp(data, "SUPERSLM", size < 8 ? size : 8) != 0) {
    return refuse(
        why, kHeader,
        "magic is not SUPERSLM; this is no artifact, or one of a release that is not read: convert the "
        "model again");
  }
  if (size < kModelStart)
    return refuse(why, kHeader, "the file is shorter than 1024 bytes; it is empty or truncated");
  const uint32_t version = load_le<uint32_t>(data + 8);
  if (version != kVersion) {
    why->append("header: format version is ").append_u64(version);
    why->append(", this release reads 1; convert the model again");
    return false;
  }
  const uint32_t stored_kind = load_le<uint32_t>(data + 12);
  if (stored_kind != static_cast<uint32_t>(kind)) {
    return refuse(why, kHeader,
                  kind == Kind::kModel ? "kind is not 1: the file holds no model"
                                       : "kind is not 2: the file holds no adapter");
  }
  const uint64_t stored_size = load_le<uint64_t>(data + 16);
  if (stored_size != size) {
    why->append("header: file size is ").append_u64(stored_size).append(", but ").append_u64(size);
    why->append(" bytes were given; the file is truncated or has bytes behind its end");
    return false;
  }
  if (!in_range(why, kHeader, "section count", load_le<uint32_t>(data + 24), 1, kMaxSections)) return false;
  if (load_le<uint32_t>(data + 28) != 0 || !all_zero(data + 96, 32))
    return refuse(why, kHeader, "reserved is not 0");
  return true;
}

struct Entry {
  char id[5] = {};
  uint32_t flags;
  uint64_t offset;
  uint64_t size;

  explicit Entry(const uint8_t* bytes)
      : flags(load_le<uint32_t>(bytes + 4)),
        offset(load_le<uint64_t>(bytes + 8)),
        size(load_le<uint64_t>(bytes + 16)) {
    std::memcpy(id, bytes, 4);
  }
  // The id as it may be shown: other characters than visible ASCII become '?'.
  Entry shown() const {
    Entry copy = *this;
    for (int i = 0; i < 4; ++i) {
      if (copy.id[i] <= ' ' || copy.id[i] > '~') copy.id[i] = '?';
    }
    return copy;
  }
};

// Reads the section table in file order. `*model_count` and `*model_end` describe the part that the content's
// digest covers.
bool read_table(const uint8_t* data, size_t size, KnownSections sections, Container* out, size_t* model_count,
                size_t* model_end, Message* why) {
  const size_t count = load_le<uint32_t>(data + 24);
  size_t end = kModelStart;  // of the section before; at most `size`
  size_t next_known = 0;     // in that part, where order matters
  *model_count = 0;
  *model_end = kModelStart;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* bytes = data + kHeaderSize + i * kEntrySize;
    const Entry entry(bytes);
    const Entry shown = entry.shown();
    const Site site{shown.id};
    if (entry.flags > kCritical) return refuse(why, site, "flags has an unknown bit");
    if (load_le<uint64_t>(bytes + 24) != 0) return refuse(why, site, "reserved is not 0");
    const size_t expected = (end + kAlignment - 1) / kAlignment * kAlignment;
    if (entry.offset != expected) {
      return refuse_value(why, site, "offset", static_cast<int64_t>(entry.offset),
                          static_cast<int64_t>(expected), static_cast<int64_t>(expected));
    }
    if (entry.offset > size || entry.size > size - entry.offset)
      return refuse(why, site, "size reaches behind the file's end");
    end = static_cast<size_t>(entry.offset + entry.size);

    size_t k = 0;
    while (k < sections.count && std::memcmp(entry.id, sections.items[k].id, 4) != 0) ++k;
    if (k == sections.count) {
      if (entry.flags & kCritical)
        return refuse(why, site, "id is unknown and the section is critical; a newer release reads it");
      continue;
    }
    const KnownSection& known = sections.items[k];
    if (out->*known.span) return refuse(why, site, "id appears twice");
    out->*known.span = Span{data + entry.offset, static_cast<size_t>(entry.size)};
    if (!known.named_part) continue;
    if (*model_count != i || k < next_known) return refuse(why, site, "id is out of order");
    next_known = k + 1;
    ++*model_count;
    *model_end = end;
  }
  if (end != size) return refuse(why, kHeader, "file size reaches behind the last section");
  return true;
}

}  // namespace

bool open_container(const uint8_t* data, size_t size, Kind kind, Container* out, Message* why) {
  *out = Container{};
  *why = Message{};
  if (!check_header(data, size, kind, why)) return false;
  size_t model_count = 0, model_end = 0;
  const KnownSections sections = known_sections(kind);
  if (!read_table(data, size, sections, out, &model_count, &model_end, why)) return false;
  const Digests digests =
      compute_digests(data, size, Span{data + kHeaderSize, model_count * kEntrySize}, model_end);
  std::memcpy(out->file_digest.bytes, data + kFileDigestOffset, 32);
  std::memcpy(out->model_digest.bytes, data + kFileDigestOffset + 32, 32);
  if (!(digests.file == out->file_digest))
    return refuse(why, kHeader, "file digest does not match; the file is damaged");
  if (!(digests.model == out->model_digest))
    return refuse(why, kHeader,
                  kind == Kind::kModel ? "model digest does not match the model part"
                                       : "adapter digest does not match the adapter part");
  for (const KnownSection& known : sections) {
    if (known.required && !(out->*known.span)) return refuse(why, Site{known.id}, "section is absent");
  }
  return true;
}

}  // namespace superslm::artifact
