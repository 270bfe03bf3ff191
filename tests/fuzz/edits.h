// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// An artifact changed by a short list of edits, so that inputs stay small and reach behind the digests:
// sections are cut, moved, renamed and overwritten, tensor entries and elements get hostile values, and then
// the digests are made anew unless an edit says otherwise.
#pragma once

#include "artifact/container.h"
#include "artifact/sha256.h"
#include "fuzz.h"
#include "mutation.h"

namespace superslm::fuzz {

struct Section {
  uint8_t entry[32] = {};  // of the table; offset and size are set when the file is put together
  Bytes bytes;

  bool is(const char* id) const { return std::memcmp(entry, id, 4) == 0; }
};

template <typename T>
T load(const uint8_t* at) {
  return base::load_le<T>(at);
}

// An intact file, taken apart.
struct Parts {
  uint8_t header[128] = {};
  std::vector<Section> sections;

  explicit Parts(const Bytes& file) {
    std::memcpy(header, file.data(), sizeof(header));
    for (uint32_t i = 0; i < load<uint32_t>(header + 24); ++i) {
      Section section;
      std::memcpy(section.entry, file.data() + 128 + 32 * i, 32);
      const uint8_t* begin = file.data() + load<uint64_t>(section.entry + 8);
      section.bytes.assign(begin, begin + load<uint64_t>(section.entry + 16));
      sections.push_back(section);
    }
  }

  Section* find(const char* id) {
    for (Section& section : sections) {
      if (section.is(id)) return &section;
    }
    return nullptr;
  }
};

// A number that checks like to stumble over, or one from the input.
inline uint64_t hostile(Input& in, uint64_t old, uint64_t size) {
  const uint8_t choice = in.byte();
  if (choice < 2 * test::kHostileNumbers) return test::hostile_number(choice, old, size);
  if (choice < 96) return old ^ uint64_t { 1 } << (in.byte() % 64);
  return choice < 128 ? in.byte() : in.word();
}

// Overwrites the number of 1, 2, 4 or 8 bytes at an offset.
inline void poke(Input& in, Bytes& bytes, size_t offset, size_t width, uint64_t size) {
  if (offset > bytes.size() || bytes.size() - offset < width) return;
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, width);
  value = hostile(in, value, size);
  std::memcpy(bytes.data() + offset, &value, width);
}

// The file being changed. Edits of whole files wait until its sections are together.
class Editor {
 public:
  explicit Editor(const Parts& parts) : parts_(parts) {}

  Bytes apply(Input in) {
    while (!in.empty()) edit(in);
    if (schema_digests_) repair_schemas();
    Bytes file = put_together();
    for (Input late : late_) edit_file(late, file);
    if (file_digests_) test::repair_digests(file.data(), file.size());
    return file;
  }

 private:
  static constexpr size_t kEntryBytes = 64;  // of TENS
  static constexpr size_t kMostBytes = size_t{1} << 20;

  Section& section(Input& in) { return parts_.sections[in.byte() % parts_.sections.size()]; }

  void edit(Input& in) {
    if (parts_.sections.empty()) parts_.sections.emplace_back();
    switch (in.byte() % 14) {
      case 0:
      case 1: {
        Bytes& bytes = section(in).bytes;
        const size_t width = size_t{1} << (in.byte() % 4), offset = in.half();
        return poke(in, bytes, bytes.size() < 65536 ? offset : offset * 4, width, bytes.size());
      }
      case 2:
      case 3:
        return edit_entry(in);
      case 4:
        return edit_element(in);
      case 5:
        return move_entry(in);
      case 6: {
        Bytes& bytes = section(in).bytes;
        const auto delta = static_cast<int16_t>(in.half());
        const int64_t size = static_cast<int64_t>(bytes.size()) + delta;
        return bytes.resize(static_cast<size_t>(size < 0 ? 0 : size));
      }
      case 7:
        parts_.sections.erase(parts_.sections.begin() + static_cast<int>(in.byte() % parts_.sections.size()));
        return;
      case 8: {
        static const char kIds[] = "CONFLAYRTENSDATATOKNDGC1SCHMPROVGOLDBASEXTRA";
        std::memcpy(section(in).entry, kIds + 4 * in.below(11), 4);
        return;
      }
      case 9: {
        if (parts_.sections.size() >= 30) return;
        const Section copy = section(in);
        parts_.sections.insert(parts_.sections.begin() + static_cast<int>(in.byte() % parts_.sections.size()),
                               copy);
        return;
      }
      case 10: {
        Bytes& bytes = section(in).bytes;
        size_t offset = in.half();
        for (uint32_t n = 1 + in.below(16); n > 0 && offset < bytes.size(); --n) bytes[offset++] = in.byte();
        return;
      }
      case 11:
        late_.push_back(in);
        for (int i = 0; i < 8; ++i) in.byte();
        return;
      case 12:
        section(in).entry[4 + in.below(28)] = in.byte();
        return;
      default:
        schema_digests_ = schema_digests_ && in.byte() % 2 == 0;
        file_digests_ = file_digests_ && in.byte() % 8 != 0;
    }
  }

  void edit_entry(Input& in) {
    Section* tensors = parts_.find("TENS");
    if (tensors == nullptr || tensors->bytes.size() < kEntryBytes) return;
    constexpr size_t kFields[] = {0, 4, 8, 12, 16, 20, 24, 32, 40, 48};
    const size_t entry = in.byte() % (tensors->bytes.size() / kEntryBytes);
    const size_t field = kFields[in.below(10)];
    poke(in, tensors->bytes, entry * kEntryBytes + field, field >= 24 ? 8 : 4, tensors->bytes.size());
  }

  // A value that a scan of DATA must see.
  void edit_element(Input& in) {
    const Section* tensors = parts_.find("TENS");
    Section* data = parts_.find("DATA");
    if (tensors == nullptr || data == nullptr || tensors->bytes.size() < kEntryBytes) return;
    const uint8_t* entry =
        tensors->bytes.data() + kEntryBytes * (in.byte() % (tensors->bytes.size() / kEntryBytes));
    const uint32_t format = load<uint32_t>(entry + 8);
    const uint64_t begin = load<uint64_t>(entry + (format <= 3 ? 40 : 24));
    const size_t width = format == 17 ? 2 : format == 18 ? 8 : 4;
    poke(in, data->bytes, begin + width * in.half(), width, data->bytes.size());
  }

  void move_entry(Input& in) {
    Section* tensors = parts_.find("TENS");
    if (tensors == nullptr || tensors->bytes.size() < kEntryBytes) return;
    const size_t count = tensors->bytes.size() / kEntryBytes;
    uint8_t* a = tensors->bytes.data() + kEntryBytes * (in.byte() % count);
    uint8_t* b = tensors->bytes.data() + kEntryBytes * (in.byte() % count);
    uint8_t copy[kEntryBytes];
    std::memcpy(copy, a, kEntryBytes);
    switch (in.below(3)) {
      case 0:
        std::memmove(a, b, kEntryBytes);
        std::memcpy(b, copy, kEntryBytes);
        return;
      case 1:  // one tensor gets the bytes of another
        std::memcpy(b + 24, copy + 24, 24);
        return;
      default:
        std::memcpy(b, copy, kEntryBytes);
    }
  }

  Bytes put_together() {
    Bytes file(artifact::kModelStart);
    if (parts_.sections.size() > 28) parts_.sections.resize(28);
    base::store_le<uint32_t>(parts_.header + 24, static_cast<uint32_t>(parts_.sections.size()));
    for (size_t i = 0; i < parts_.sections.size(); ++i) {
      Section& section = parts_.sections[i];
      file.resize((file.size() + 63) / 64 * 64);
      if (file.size() > kMostBytes) section.bytes.clear();
      base::store_le<uint64_t>(section.entry + 8, file.size());
      base::store_le<uint64_t>(section.entry + 16, section.bytes.size());
      std::memcpy(file.data() + 128 + 32 * i, section.entry, 32);
      append(file, section.bytes.data(), section.bytes.size());
    }
    base::store_le<uint64_t>(parts_.header + 16, file.size());
    std::memcpy(file.data(), parts_.header, sizeof(parts_.header));
    return file;
  }

  // Header, table, the room between sections, and the file's size.
  void edit_file(Input& in, Bytes& file) {
    const uint8_t kind = in.byte();
    if (kind % 4 != 0) {
      const size_t offset = kind % 4 == 1 ? in.byte() % 128u : in.half() % artifact::kModelStart;
      return poke(in, file, offset, size_t{1} << (kind / 4 % 4), file.size());
    }
    const auto delta = static_cast<int16_t>(in.half());
    const int64_t size = static_cast<int64_t>(file.size()) + delta;
    file.resize(static_cast<size_t>(size < 0 ? 0 : size));
    if (kind / 4 % 2 == 0 && file.size() >= 128) base::store_le<uint64_t>(file.data() + 16, file.size());
  }

  // The digests of class tables and entries, as far as their places can be found; docs/schema_section.md.
  void repair_schemas() {
    Section* schemas = parts_.find("SCHM");
    if (schemas == nullptr || schemas->bytes.size() < 32) return;
    Bytes& s = schemas->bytes;
    const uint64_t vocab = load<uint32_t>(s.data() + 8), tables = load<uint32_t>(s.data() + 12),
                   count = load<uint32_t>(s.data() + 16);
    if (vocab > s.size() || tables > 64 || count > 64) return;
    const uint64_t entries = 32 + 40 * tables;
    uint64_t at = entries + 48 * count;
    if (at > s.size()) return;
    for (uint64_t i = 0; i < count; ++i) at += load<uint32_t>(s.data() + entries + 48 * i);
    for (uint64_t i = 0; i < tables; ++i) {
      at = (at + 63) / 64 * 64;
      if (at > s.size() || 2 * vocab > s.size() - at) return;
      const artifact::Digest digest = artifact::sha256(s.data() + at, static_cast<size_t>(2 * vocab));
      std::memcpy(s.data() + 32 + 40 * i + 8, digest.bytes, 32);
      at += 2 * vocab;
    }
    for (uint64_t i = 0; i < count; ++i) {
      uint8_t* entry = s.data() + entries + 48 * i;
      const uint64_t table = load<uint32_t>(entry + 4);
      if (table >= tables) return;
      const uint8_t* record = s.data() + 32 + 40 * table;
      const uint64_t next = uint64_t{load<uint32_t>(entry + 8)} * load<uint32_t>(record) * 4;
      const uint64_t accepting = uint64_t{load<uint32_t>(entry + 12)} * 4;
      const uint64_t next_at = (at + 63) / 64 * 64;
      if (next_at > s.size() || next > s.size() - next_at) return;
      const uint64_t accepting_at = (next_at + next + 63) / 64 * 64;
      if (accepting_at > s.size() || accepting > s.size() - accepting_at) return;
      Bytes hashed;
      append(hashed, s.data() + 8, 4);
      append(hashed, record, 4);
      append(hashed, entry + 8, 8);
      append(hashed, record + 8, 32);
      append(hashed, s.data() + next_at, static_cast<size_t>(next));
      append(hashed, s.data() + accepting_at, static_cast<size_t>(accepting));
      const artifact::Digest digest = artifact::sha256(hashed.data(), hashed.size());
      std::memcpy(entry + 16, digest.bytes, 32);
      at = accepting_at + accepting;
    }
  }

  Parts parts_;
  std::vector<Input> late_;
  bool schema_digests_ = true, file_digests_ = true;
};

}  // namespace superslm::fuzz
