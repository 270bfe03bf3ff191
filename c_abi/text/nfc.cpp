// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Canonical composition (Unicode Standard Annex 15): decompose, order the marks, compose.
#include "base/checked.h"
#include "base/memory.h"
#include "text/unicode.h"

namespace superslm::text {
namespace {

// Hangul syllables decompose and compose by arithmetic (Unicode, section 3.12).
constexpr uint32_t kSyllable = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr uint32_t kLeadings = 19, kVowels = 21, kTrailings = 28;
constexpr uint32_t kSyllables = kLeadings * kVowels * kTrailings;

// A mark of the working text: code point in the low 24 bits, combining class above. Raw bytes are starters
// outside the code points: kRawUnit | byte.
constexpr uint32_t kCodeMask = 0xFFFFFF, kRawUnit = 0x800000;

uint32_t combining_class(uint32_t unit) { return unit >> 24; }

struct Record {
  uint32_t combining_class, length, start;
};

Record record_of(const Tokenizer& t, uint32_t code) {
  const uint32_t word = t.nfc_records[t.nfc.at(code)];
  return {word & 255, word >> 8 & 255, word >> 16};
}

uint32_t with_class(const Tokenizer& t, uint32_t code) {
  return code | record_of(t, code).combining_class << 24;
}

// Writes the full decomposition when `out` is not null; returns its length, 1..255.
size_t decompose(const Tokenizer& t, uint32_t code, uint32_t* out) {
  if (code & kRawByte) {
    if (out) out[0] = kRawUnit | (code & 255);
    return 1;
  }
  if (code - kSyllable < kSyllables) {
    const uint32_t index = code - kSyllable, trailing = index % kTrailings;
    if (out) {
      out[0] = kLeading + index / (kVowels * kTrailings);
      out[1] = kVowel + index / kTrailings % kVowels;
      if (trailing) out[2] = kTrailing + trailing;
    }
    return trailing ? 3 : 2;
  }
  const Record record = record_of(t, code);
  if (record.length == 0) {
    if (out) out[0] = code | record.combining_class << 24;
    return 1;
  }
  for (size_t i = 0; out && i < record.length; ++i) out[i] = with_class(t, t.nfc_parts[record.start + i]);
  return record.length;
}

// Sorts one run of marks by combining class, keeping equal ones in order: insertion while short, else by
// counting, so that no run is worse than linear.
void order_run(uint32_t* run, size_t n, uint32_t* spare) {
  if (n <= 16) {
    for (size_t i = 1; i < n; ++i) {
      const uint32_t unit = run[i];
      size_t j = i;
      for (; j > 0 && combining_class(run[j - 1]) > combining_class(unit); --j) run[j] = run[j - 1];
      run[j] = unit;
    }
    return;
  }
  size_t place[256] = {};
  for (size_t i = 0; i < n; ++i) ++place[combining_class(run[i])];
  size_t sum = 0;
  for (size_t& count : place) {
    const size_t here = count;
    count = sum;
    sum += here;
  }
  for (size_t i = 0; i < n; ++i) spare[place[combining_class(run[i])]++] = run[i];
  for (size_t i = 0; i < n; ++i) run[i] = spare[i];
}

void order_marks(uint32_t* units, size_t n, uint32_t* spare) {
  for (size_t i = 0; i < n;) {
    if (combining_class(units[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < n && combining_class(units[end]) != 0) ++end;
    order_run(units + i, end - i, spare);
    i = end;
  }
}

// The composite of two code points, or kNoId.
uint32_t compose_pair(const Tokenizer& t, uint32_t first, uint32_t second) {
  if (first - kLeading < kLeadings && second - kVowel < kVowels) {
    return kSyllable + ((first - kLeading) * kVowels + (second - kVowel)) * kTrailings;
  }
  if (first - kSyllable < kSyllables && (first - kSyllable) % kTrailings == 0 && second > kTrailing &&
      second < kTrailing + kTrailings) {
    return first + (second - kTrailing);
  }
  size_t low = 0, high = t.nfc_composition_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint32_t a = t.nfc_compositions[3 * middle], b = t.nfc_compositions[3 * middle + 1];
    if (a == first && b == second) return t.nfc_compositions[3 * middle + 2];
    if (a < first || (a == first && b < second)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return kNoId;
}

// Composes in place and returns the new length. A mark reaches its starter unless something of the same or a
// higher class, or another starter, stands between.
size_t compose(const Tokenizer& t, uint32_t* units, size_t n) {
  size_t length = 0, starter = SIZE_MAX;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t unit = units[i];
    if (starter != SIZE_MAX) {
      const bool adjacent = length == starter + 1;
      const bool reaches = adjacent || combining_class(units[length - 1]) < combining_class(unit);
      const uint32_t whole = reaches ? compose_pair(t, units[starter], unit & kCodeMask) : kNoId;
      if (whole != kNoId) {
        units[starter] = whole;
        continue;
      }
    }
    if (combining_class(unit) == 0) starter = length;
    units[length++] = unit;
  }
  return length;
}

size_t encode_all(const uint32_t* units, size_t n, uint8_t* out) {
  size_t size = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t unit = units[i] & kCodeMask;
    const uint32_t code = unit & kRawUnit ? kRawByte | (unit & 255) : unit;
    uint8_t scratch[4];
    const size_t bytes = encode(code, out ? out + size : scratch);
    size += bytes;
  }
  return size;
}

// Below U+0300 nothing decomposes in NFC and nothing combines.
bool is_plain(Span text) {
  for (const uint8_t* p = text.begin; p < text.end; ++p) {
    if (*p >= 0xCC) return false;
  }
  return true;
}

Result normalize_units(const Tokenizer& t, Span text, uint32_t* units, size_t n, Normalized* out) {
  size_t at = 0;
  for (Span rest = text; rest.size() > 0;) {
    const Character c = decode(rest);
    at += decompose(t, c.code, units + at);
    rest.begin += c.size;
  }
  order_marks(units, n, units + n);
  const size_t length = compose(t, units, n);
  const size_t size = encode_all(units, length, nullptr);
  uint8_t* bytes = static_cast<uint8_t*>(base::allocate(size));
  if (bytes == nullptr) return Result::kOutOfMemory;
  encode_all(units, length, bytes);
  *out = {{bytes, bytes + size}, bytes};
  return Result::kOk;
}

}  // namespace

Result normalize(const Tokenizer& t, Span text, Normalized* out) {
  *out = {text, nullptr};
  if (is_plain(text)) return Result::kOk;
  uint64_t n = 0;
  for (Span rest = text; rest.size() > 0;) {
    const Character c = decode(rest);
    n += decompose(t, c.code, nullptr);
    rest.begin += c.size;
  }
  const base::CheckedSize bytes = base::CheckedSize(n) * (2 * sizeof(uint32_t));
  if (!bytes.ok()) return Result::kOutOfMemory;
  uint32_t* units = static_cast<uint32_t*>(base::allocate(bytes.saturated()));
  if (units == nullptr) return Result::kOutOfMemory;
  const Result result = normalize_units(t, text, units, static_cast<size_t>(n), out);
  base::deallocate(units);
  return result;
}

}  // namespace superslm::text
