// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Any text through the tokenizers of all families: ids in range, exact counts, no control token from plain
// text, and the text comes back. The first byte chooses the tokenizer and the flag; the rest is the text.
#include "fuzz.h"

using namespace superslm::fuzz;

namespace {

constexpr const char* kNames[] = {"qwen2", "gpt2", "smollm", "llama3"};
constexpr int kFamilies = 4;

struct Family {
  sslm_model model = nullptr;
  sslm_ext_model_info_out info = {};
  std::vector<int32_t> control;  // ids that plain text must never yield
};
Family* families = new Family[kFamilies];  // never destroyed

// One call with room enough; `curious` asks for the count first, and then with room for one too few.
std::vector<int32_t> tokenize(const Family& f, const Bytes& bytes, uint32_t flags, bool curious) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const size_t size = bytes.size();
  size_t n = 3 * size;  // NFC can lengthen a text, never by more
  std::vector<int32_t> ids(n + 1, -77);
  if (curious) {
    size_t count = 0;
    REQUIRE_EQ(sslm_ext_tokenize(f.model, text, size, flags, nullptr, &count), SSLM_BUFFER_TOO_SMALL);
    if (count > 0) {
      size_t less = count - 1;
      REQUIRE_EQ(sslm_ext_tokenize(f.model, text, size, flags, ids.data(), &less), SSLM_BUFFER_TOO_SMALL);
      REQUIRE_EQ(less, count);
      REQUIRE_EQ(ids[0], -77);
    }
    n = count;
  }
  REQUIRE_EQ(sslm_ext_tokenize(f.model, text, size, flags, ids.data(), &n), SSLM_OK);
  REQUIRE_EQ(ids[n], -77);
  ids.resize(n);
  for (const int32_t id : ids) REQUIRE(id >= 0 && id < f.info.tokenizer_size);
  return ids;
}

Bytes detokenize(const Family& f, const std::vector<int32_t>& ids) {
  constexpr size_t kLongest = 64;  // bytes of a token
  sslm_detok_state state = {};
  Bytes text(kLongest * ids.size() + 1);
  auto size = static_cast<int32_t>(text.size());
  auto* out = reinterpret_cast<char*>(text.data());
  const auto n = static_cast<int32_t>(ids.size());
  REQUIRE_EQ(sslm_detokenize_stream(f.model, &state, ids.data(), n, out, &size), SSLM_OK);
  text.resize(static_cast<size_t>(size));
  append(text, state.pending_bytes, state.pending_count);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (int i = 0; i < kFamilies; ++i) {
    Family& f = families[i];
    f.model = map_base(kNames[i]);
    f.info = info_of(f.model);
    for (const char* text : {"<|im_start|>", "<|im_end|>"}) {
      const auto ids = tokenize(f, Bytes(text, text + std::strlen(text)), SSLM_EXT_TOKENIZE_SPECIAL, true);
      REQUIRE_EQ(ids.size(), 1);
      f.control.push_back(ids[0]);
    }
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const uint8_t choice = in.byte();
  const Family& f = families[choice % kFamilies];
  const uint32_t flags = choice / kFamilies % 2 == 1 ? SSLM_EXT_TOKENIZE_SPECIAL : 0;
  Bytes text(in.rest(), in.rest() + in.left());

  const std::vector<int32_t> ids = tokenize(f, text, flags, choice / 8 % 4 == 0);
  if (flags == 0) {
    for (const int32_t id : ids) REQUIRE(id != f.control[0] && id != f.control[1]);
  }
  const Bytes back = detokenize(f, ids);
  const bool normalizes = choice % kFamilies == 0;
  if (!normalizes) {
    REQUIRE(back == text);
  } else {
    REQUIRE(detokenize(f, tokenize(f, back, flags, false)) == back);
  }
  if (flags == 0 || choice / 8 % 4 != 1) return 0;
  // The frozen verb reads up to the first NUL.
  text.push_back(0);
  const auto* words = reinterpret_cast<const char*>(text.data());
  const std::vector<int32_t> whole = tokenize(f, Bytes(words, words + std::strlen(words)), flags, false);
  auto n = static_cast<int32_t>(whole.size());
  std::vector<int32_t> out(whole.size() + 1);
  REQUIRE_EQ(sslm_tokenize(f.model, words, out.data(), &n), SSLM_OK);
  REQUIRE_EQ(n, whole.size());
  out.resize(whole.size());
  REQUIRE(out == whole);
  return 0;
}
