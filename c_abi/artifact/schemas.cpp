// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/schemas.h"

#include <cstring>
#include <new>

#include "artifact/sha256.h"
#include "base/memory.h"

namespace superslm::artifact {

namespace {

using base::LeArray;
using base::load_le;
using base::Message;

constexpr size_t kAlignment = 64;
constexpr size_t kRecordSize = 40, kEntrySize = 48;
constexpr int64_t kMaxSchemas = 65536, kMaxStates = 1 << 20, kMaxClasses = 65535;
constexpr Site kSection{"SCHM"};
constexpr uint32_t kNoState = 0xFFFFFFFFu;

Site schema_site(size_t i) { return Site{"SCHM", static_cast<int64_t>(i), "schema"}; }

// Walks through the section; every part lies inside it, with zeros in front of an aligned one.
class Cursor {
 public:
  Cursor(Span section, Message* why) : section_(section), why_(why) {}

  // The next `count` elements of `size` bytes (count * size < 2^64), null behind the end.
  const uint8_t* take(uint64_t count, uint64_t size) {
    if (count * size > section_.size - at_) {
      refuse(why_, kSection, "the section ends inside a table");
      return nullptr;
    }
    const uint8_t* part = section_.data + at_;
    at_ += static_cast<size_t>(count * size);
    return part;
  }
  bool align() {
    const size_t gap = (kAlignment - at_ % kAlignment) % kAlignment;
    const uint8_t* padding = take(gap, 1);
    return padding != nullptr && (all_zero(padding, gap) || refuse(why_, kSection, "padding is not 0"));
  }
  bool at_end() const { return at_ == section_.size; }

 private:
  Span section_;
  size_t at_ = 0;
  Message* why_;
};

// What stands in front of the tables.
struct Head {
  uint32_t tables = 0, schemas = 0;
  const uint8_t* records = nullptr;
  const uint8_t* entries = nullptr;
  const uint8_t* class_tables = nullptr;
  size_t class_stride = 0;

  const uint8_t* record(size_t i) const { return records + i * kRecordSize; }
  const uint8_t* entry(size_t i) const { return entries + i * kEntrySize; }
};

bool read_head(Cursor& cursor, int32_t vocab, Head* head, Message* why) {
  const uint8_t* header = cursor.take(32, 1);
  if (header == nullptr) return false;
  if (std::memcmp(header, "SLSC", 4) != 0) return refuse(why, kSection, "the magic is not SLSC");
  if (!in_range(why, kSection, "version", load_le<uint32_t>(header + 4), 1, 1)) return false;
  if (!in_range(why, kSection, "vocabulary", load_le<uint32_t>(header + 8), vocab, vocab)) return false;
  head->tables = load_le<uint32_t>(header + 12);
  head->schemas = load_le<uint32_t>(header + 16);
  if (!in_range(why, kSection, "number of schemas", head->schemas, 1, kMaxSchemas)) return false;
  if (!in_range(why, kSection, "number of class tables", head->tables, 1, head->schemas)) return false;
  if (!all_zero(header + 20, 12)) return refuse(why, kSection, "reserved is not 0");
  head->records = cursor.take(head->tables, kRecordSize);
  if (head->records == nullptr) return false;
  head->entries = cursor.take(head->schemas, kEntrySize);
  return head->entries != nullptr;
}

bool check_entry(const Head& head, size_t i, Message* why) {
  const uint8_t* entry = head.entry(i);
  const Site site = schema_site(i);
  const int64_t states = load_le<uint32_t>(entry + 8);
  return in_range(why, site, "name length", load_le<uint32_t>(entry), 1, UINT32_MAX) &&
         in_range(why, site, "class table", load_le<uint32_t>(entry + 4), 0, int64_t{head.tables} - 1) &&
         in_range(why, site, "number of states", states, 1, kMaxStates) &&
         in_range(why, site, "number of accepting states", load_le<uint32_t>(entry + 12), 0, states);
}

// Whether name a comes before name b, byte by byte.
bool before(const SchemaView& a, const SchemaView& b) {
  const size_t shared = a.name_length < b.name_length ? a.name_length : b.name_length;
  const int order = std::memcmp(a.name, b.name, shared);
  return order != 0 ? order < 0 : a.name_length < b.name_length;
}

bool read_names(Cursor& cursor, const Head& head, SchemaView* views, Message* why) {
  for (size_t i = 0; i < head.schemas; ++i) {
    if (!check_entry(head, i, why)) return false;
    SchemaView& view = views[i];
    view.name_length = load_le<uint32_t>(head.entry(i));
    view.name = reinterpret_cast<const char*>(cursor.take(view.name_length, 1));
    if (view.name == nullptr) return false;
    if (i > 0 && !before(views[i - 1], view)) return refuse(why, schema_site(i), "names do not ascend");
  }
  return cursor.align();
}

bool read_class_tables(Cursor& cursor, Head* head, int32_t vocab, Message* why) {
  const size_t bytes = static_cast<size_t>(vocab) * sizeof(uint16_t);
  head->class_stride = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (size_t t = 0; t < head->tables; ++t) {
    const Site site{"SCHM", static_cast<int64_t>(t), "class table"};
    const uint8_t* record = head->record(t);
    const int64_t classes = load_le<uint32_t>(record);
    if (!in_range(why, site, "number of classes", classes, 1, kMaxClasses)) return false;
    if (load_le<uint32_t>(record + 4) != 0) return refuse(why, site, "reserved is not 0");
    const LeArray<uint16_t> table{cursor.take(bytes, 1)};
    if (!table || !cursor.align()) return false;
    if (t == 0) head->class_tables = table.bytes;
    for (size_t i = 0; i < static_cast<size_t>(vocab); ++i) {
      if (table[i] >= classes) return refuse_value(why, site, "class of a token", table[i], 0, classes - 1);
    }
    if (std::memcmp(sha256(table.bytes, bytes).bytes, record + 8, 32) != 0)
      return refuse(why, site, "the digest does not match");
  }
  return true;
}

bool check_digest(const Head& head, const SchemaView& view, int32_t vocab, size_t cells, Site site,
                  Message* why) {
  const uint32_t sizes[4] = {static_cast<uint32_t>(vocab), view.class_count, view.state_count,
                             view.accepting_count};
  uint8_t packed[16];
  for (size_t i = 0; i < 4; ++i) base::store_le(packed + 4 * i, sizes[i]);
  const size_t table = static_cast<size_t>(view.classes.bytes - head.class_tables) / head.class_stride;
  const Digest digest = Sha256()
                            .update(packed, sizeof(packed))
                            .update(head.record(table) + 8, 32)
                            .update(view.next.bytes, cells * sizeof(uint32_t))
                            .update(view.accepting.bytes, view.accepting_count * sizeof(uint32_t))
                            .finish();
  return std::memcmp(digest.bytes, view.digest, 32) == 0 || refuse(why, site, "the digest does not match");
}

bool check_states(const SchemaView& view, size_t cells, Site site, Message* why) {
  for (size_t i = 0; i < cells; ++i) {
    const uint32_t next = view.next[i];
    if (next >= view.state_count && next != kNoState)
      return refuse_value(why, site, "next state", next, 0, int64_t{view.state_count} - 1);
  }
  int64_t last = -1;
  for (size_t i = 0; i < view.accepting_count; ++i) {
    const int64_t state = view.accepting[i];
    if (!in_range(why, site, "accepting state (ascending)", state, last + 1, int64_t{view.state_count} - 1))
      return false;
    last = state;
  }
  return true;
}

bool read_tables(Cursor& cursor, const Head& head, size_t i, int32_t vocab, SchemaView* view, Message* why) {
  const Site site = schema_site(i);
  const uint8_t* entry = head.entry(i);
  const size_t table = load_le<uint32_t>(entry + 4);
  view->classes.bytes = head.class_tables + table * head.class_stride;
  view->class_count = load_le<uint32_t>(head.record(table));
  view->state_count = load_le<uint32_t>(entry + 8);
  view->accepting_count = load_le<uint32_t>(entry + 12);
  view->digest = entry + 16;
  const uint64_t cells = uint64_t{view->state_count} * view->class_count;
  view->next.bytes = cursor.take(cells, sizeof(uint32_t));
  if (!view->next || !cursor.align()) return false;
  view->accepting.bytes = cursor.take(view->accepting_count, sizeof(uint32_t));
  if (!view->accepting || !cursor.align()) return false;
  return check_states(*view, static_cast<size_t>(cells), site, why) &&
         check_digest(head, *view, vocab, static_cast<size_t>(cells), site, why);
}

bool read_all(Cursor& cursor, Head& head, int32_t vocab, SchemaView* views, Message* why) {
  if (!read_names(cursor, head, views, why) || !read_class_tables(cursor, &head, vocab, why)) return false;
  for (size_t i = 0; i < head.schemas; ++i) {
    if (!read_tables(cursor, head, i, vocab, &views[i], why)) return false;
  }
  return cursor.at_end() || refuse(why, kSection, "bytes behind the last table");
}

}  // namespace

SchemaResult read_schemas(Span section, int32_t vocab, SchemaView** out, int32_t* count, Message* why) {
  Cursor cursor(section, why);
  Head head;
  if (!read_head(cursor, vocab, &head, why)) return SchemaResult::kRejected;
  auto* views = static_cast<SchemaView*>(base::allocate(head.schemas * sizeof(SchemaView)));
  if (views == nullptr) return SchemaResult::kNoMemory;
  for (size_t i = 0; i < head.schemas; ++i) new (&views[i]) SchemaView;
  if (!read_all(cursor, head, vocab, views, why)) {
    base::deallocate(views);
    return SchemaResult::kRejected;
  }
  *out = views;
  *count = static_cast<int32_t>(head.schemas);
  return SchemaResult::kOk;
}

}  // namespace superslm::artifact
