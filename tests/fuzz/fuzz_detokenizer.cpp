// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Any ids from any pending bytes, in one call and cut into calls, against what the contract says of them: the
// pending bytes and the tokens' bytes, less a tail that some character begins with.
#include "fuzz.h"

using namespace superslm::fuzz;

namespace {

sslm_model model;
sslm_ext_model_info_out info;
int32_t longest = 64;                   // bytes of a token
auto& texts = *new std::vector<Bytes>;  // of the ids that have one

struct Stream {
  sslm_detok_state state = {};
  Bytes text;
};

// One call with room enough; `curious` asks for the size first, and then with a byte too few.
sslm_status call(Stream& stream, const int32_t* ids, size_t n, bool curious) {
  const std::vector<int32_t> copy(ids, ids + n);  // nothing legal behind its end
  const auto count = static_cast<int32_t>(n);
  const sslm_detok_state before = stream.state;
  int32_t size = 3;
  for (size_t i = 0; i < n; ++i) size += longest;
  std::vector<char> out(static_cast<size_t>(size) + 1, '#');
  if (curious) {
    int32_t query = 0;
    const sslm_status asked =
        sslm_detokenize_stream(model, &stream.state, copy.data(), count, nullptr, &query);
    REQUIRE(asked == SSLM_BUFFER_TOO_SMALL || query == 0);
    if (query > 0) {
      int32_t less = query - 1;
      REQUIRE_EQ(sslm_detokenize_stream(model, &stream.state, copy.data(), count, out.data(), &less),
                 SSLM_BUFFER_TOO_SMALL);
      REQUIRE_EQ(less, query);
    }
    REQUIRE(std::memcmp(&before, &stream.state, sizeof(before)) == 0);
    if (asked == SSLM_BUFFER_TOO_SMALL) size = query;
  }
  const sslm_status status =
      sslm_detokenize_stream(model, &stream.state, copy.data(), count, out.data(), &size);
  if (status != SSLM_OK) {
    REQUIRE_EQ(size, 0);
    REQUIRE(std::memcmp(&before, &stream.state, sizeof(before)) == 0);
    return status;
  }
  REQUIRE_EQ(out[static_cast<size_t>(size)], '#');
  append(stream.text, out.data(), static_cast<size_t>(size));
  return SSLM_OK;
}

// Whether the `n` bytes begin a character and do not finish it.
bool begins_character(const uint8_t* s, size_t n) {
  const size_t length = s[0] >= 0xC2 && s[0] <= 0xDF   ? 2
                        : s[0] >= 0xE0 && s[0] <= 0xEF ? 3
                        : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                                       : 0;
  if (n >= length) return false;
  if (n >= 2) {
    const uint8_t low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < low || s[1] > high) return false;
  }
  return n < 3 || (s[2] & 0xC0) == 0x80;
}

// How many bytes at the end wait for more.
size_t waiting(const Bytes& text) {
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    if (begins_character(text.data() + text.size() - n, n)) return n;
  }
  return 0;
}

void check(const Stream& stream, const Bytes& whole) {
  const size_t wait = waiting(whole);
  REQUIRE(stream.text == Bytes(whole.begin(), whole.end() - static_cast<ptrdiff_t>(wait)));
  REQUIRE_EQ(stream.state.pending_count, wait);
  for (size_t i = 0; i < wait; ++i) REQUIRE_EQ(stream.state.pending_bytes[i], whole[whole.size() - wait + i]);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  model = map_base("qwen2");
  info = info_of(model);
  for (int32_t id = 0; id < info.tokenizer_size; ++id) {
    Stream alone;
    texts.emplace_back();
    if (call(alone, &id, 1, true) != SSLM_OK) continue;
    texts.back() = alone.text;
    append(texts.back(), alone.state.pending_bytes, alone.state.pending_count);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Stream start;
  start.state.pending_count = static_cast<uint8_t>(in.byte() % 5);
  for (uint8_t& byte : start.state.pending_bytes) byte = in.byte();
  const size_t cut = in.byte();
  std::vector<int32_t> ids;
  while (!in.empty()) {
    const uint8_t kind = in.byte();
    ids.push_back(kind < 0xF0 ? kind : kind < 0xFE ? 256 + in.byte() % 64 : static_cast<int32_t>(in.word()));
  }

  sslm_status expected = start.state.pending_count > 3 ? SSLM_INVALID_ARGUMENT : SSLM_OK;
  Bytes whole;
  if (expected == SSLM_OK) {
    append(whole, start.state.pending_bytes, start.state.pending_count);
  }
  for (size_t i = 0; i < ids.size() && expected == SSLM_OK; ++i) {
    if (ids[i] < 0 || ids[i] >= info.vocab) {
      expected = SSLM_INVALID_ARGUMENT;
    } else if (ids[i] >= info.tokenizer_size || texts[static_cast<size_t>(ids[i])].empty()) {
      expected = SSLM_TOKEN_ID_UNMAPPED;
    } else {
      const Bytes& text = texts[static_cast<size_t>(ids[i])];
      append(whole, text.data(), text.size());
    }
  }

  Stream at_once = start;
  REQUIRE_EQ(call(at_once, ids.data(), ids.size(), cut % 4 == 0), expected);
  if (expected != SSLM_OK) return 0;
  check(at_once, whole);
  Stream in_parts = start;
  const size_t step = 1 + cut % 7;
  for (size_t i = 0; i < ids.size(); i += step) {
    REQUIRE_EQ(call(in_parts, ids.data() + i, ids.size() - i < step ? ids.size() - i : step, false), SSLM_OK);
  }
  if (ids.empty()) in_parts = at_once;
  check(in_parts, whole);
  return 0;
}
