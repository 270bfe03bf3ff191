// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Text to ids: added tokens, normalisation, added tokens of normalised text, pieces, merges.
#include "base/memory.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/section.h"
#include "text/tokenizer.h"

namespace superslm::text {
namespace {

// Added tokens are looked for twice: in the text as given, and again after normalisation.
enum class Pass : uint32_t { kGiven = 0, kNormalized = kAddedNormalized };

struct Added {
  uint32_t id = kNoId, flags = 0;
  size_t size = 0;
};

Span added_text(const Tokenizer& t, size_t index) {
  const uint32_t id = t.added[2 * index];
  return {t.text + t.text_start[id], t.text + t.text_start[size_t{id} + 1]};
}

// Byte `depth` of an added token, or -1 behind its end.
int added_byte(const Tokenizer& t, size_t index, size_t depth) {
  const Span text = added_text(t, index);
  return depth < text.size() ? text.begin[depth] : -1;
}

// The first entry of [low, high), ascending at `depth`, whose byte there is at least `byte`.
size_t lower_bound(const Tokenizer& t, size_t low, size_t high, size_t depth, int byte) {
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (added_byte(t, middle, depth) < byte) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, bool control_tokens, size_t capacity)
      : t_(tokenizer), control_tokens_(control_tokens), sink_(capacity) {
    for (size_t i = 0; i < t_.added_count; ++i) {
      const int byte = added_byte(t_, i, 0);
      if (byte >= 0) starts_[byte >> 5] |= 1u << (byte & 31);
    }
  }

  // The text between added tokens goes on to the next stage.
  Result split_added(Span text, Pass pass) {
    const uint8_t* plain = text.begin;
    for (const uint8_t* p = text.begin; p < text.end;) {
      const Added match = longest_added({p, text.end}, pass);
      if (match.id == kNoId) {
        ++p;
        continue;
      }
      if ((match.flags & kAddedControl) == 0 || control_tokens_) {
        const Result result = after(pass, {plain, p});
        if (result != Result::kOk) return result;
        if (!sink_.append(match.id)) return Result::kOutOfMemory;
        plain = p + match.size;
      }
      p += match.size;
    }
    return after(pass, {plain, text.end});
  }

  const IdSink& sink() const { return sink_; }

 private:
  // The longest added token of this pass at the beginning of the text: a walk down the sorted table.
  Added longest_added(Span text, Pass pass) const {
    Added best;
    const uint8_t first = text.begin[0];
    if ((starts_[first >> 5] >> (first & 31) & 1) == 0) return best;
    size_t low = 0, high = t_.added_count;
    for (size_t depth = 0; low < high && depth < text.size(); ++depth) {
      low = lower_bound(t_, low, high, depth, text.begin[depth]);
      high = lower_bound(t_, low, high, depth, text.begin[depth] + 1);
      if (low == high || added_byte(t_, low, depth + 1) >= 0) continue;
      const uint32_t flags = t_.added[2 * low + 1];
      if ((flags & kAddedNormalized) == static_cast<uint32_t>(pass))
        best = {t_.added[2 * low], flags, depth + 1};
    }
    return best;
  }

  Result after(Pass pass, Span text) {
    if (text.size() == 0) return Result::kOk;
    if (pass == Pass::kNormalized) return encode_plain(text);
    if (!t_.normalizes) return split_added(text, Pass::kNormalized);
    Normalized normalized;
    Result result = normalize(t_, text, &normalized);
    if (result == Result::kOk) result = split_added(normalized.text, Pass::kNormalized);
    base::deallocate(normalized.block);
    return result;
  }

  Result encode_plain(Span text) {
    if (text.size() > kMaxTextBytes) return Result::kOutOfMemory;
    Splitter splitter(t_, text);
    for (Span piece; splitter.next(&piece);) {
      const Result result = encode_piece(t_, piece, &scratch_, &sink_);
      if (result != Result::kOk) return result;
    }
    return Result::kOk;
  }

  const Tokenizer& t_;
  const bool control_tokens_;
  uint32_t starts_[8] = {};  // the bytes with which added tokens begin
  MergeScratch scratch_;
  IdSink sink_;
};

}  // namespace

Result tokenize(const Tokenizer& tokenizer, const uint8_t* utf8, size_t len, bool control_tokens,
                int32_t* out, size_t capacity, size_t* count) {
  *count = 0;
  if (len == 0) return Result::kOk;
  if (len > kMaxTextBytes) return Result::kOutOfMemory;
  Encoder encoder(tokenizer, control_tokens, out ? capacity : 0);
  const Result result = encoder.split_added({utf8, utf8 + len}, Pass::kGiven);
  if (result != Result::kOk) return result;
  *count = encoder.sink().count();
  if (out != nullptr && *count <= capacity) encoder.sink().copy_to(out);
  return Result::kOk;
}

DetokenizeResult detokenize(const Tokenizer& t, const int32_t* tokens, size_t n, uint8_t pending[3],
                            uint8_t* pending_count, uint8_t* out, size_t capacity, size_t* required) {
  *required = 0;
  uint64_t total = *pending_count;
  uint8_t tail[3];  // the last bytes of the stream, oldest first
  size_t tail_size = 0;
  const auto extend_tail = [&](Span bytes) {
    for (const uint8_t* p = bytes.size() > 3 ? bytes.end - 3 : bytes.begin; p < bytes.end; ++p) {
      if (tail_size == 3) {
        tail[0] = tail[1];
        tail[1] = tail[2];
        --tail_size;
      }
      tail[tail_size++] = *p;
    }
  };
  extend_tail({pending, pending + *pending_count});
  for (size_t i = 0; i < n; ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= t.vocab) return DetokenizeResult::kOutOfRange;
    const Span bytes = token_text(t, static_cast<uint32_t>(tokens[i]));
    if (bytes.size() == 0) return DetokenizeResult::kUnmapped;
    total += bytes.size();
    extend_tail(bytes);
  }
  const size_t held = incomplete_tail(tail, tail_size);
  total -= held;
  *required = total > SIZE_MAX ? SIZE_MAX : static_cast<size_t>(total);
  if (out == nullptr || total > capacity) return DetokenizeResult::kTooSmall;

  const uint8_t* end = out + *required;
  const auto write = [&](Span bytes) {
    for (const uint8_t* p = bytes.begin; p < bytes.end && out < end; ++p) *out++ = *p;
  };
  write({pending, pending + *pending_count});
  for (size_t i = 0; i < n; ++i) write(token_text(t, static_cast<uint32_t>(tokens[i])));
  for (size_t i = 0; i < held; ++i) pending[i] = tail[tail_size - held + i];
  *pending_count = static_cast<uint8_t>(held);
  return DetokenizeResult::kOk;
}

IdSpan chat_ids(const Tokenizer& t, Role role, Part part) {
  if (!t.has_chat) return {};
  const size_t slot = static_cast<size_t>(role) * kChatParts + static_cast<size_t>(part);
  const uint32_t start = t.chat_start[slot];
  return {t.chat_id.from(start), t.chat_start[slot + 1] - start};
}

}  // namespace superslm::text
