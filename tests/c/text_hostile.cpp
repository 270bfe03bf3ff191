// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Mutates a tokenizer section; what the parser accepts must then survive texts and ids of all kinds. Built
// with sanitizers, each mutant in a block of exactly its size.
//   text_hostile SECTION VOCAB ROUNDS SEED
// Prints "accepted N refused M"; a refusal must carry a message.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "text/tokenizer.h"

using namespace superslm;

namespace {

uint64_t state;

uint64_t random_below(uint64_t bound) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % bound;
}

void mutate(std::vector<uint8_t>& bytes) {
  constexpr uint32_t kExtremes[] = {0,          1,          2,          255,      0x7FFFFFFF,
                                    0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x10FFFF, 0xD800};
  const size_t header = 32 + 16 * 8;
  for (uint64_t n = 1 + random_below(3); n > 0; --n) {
    const size_t range = random_below(3) == 0 && bytes.size() > header ? header : bytes.size();
    const size_t at = random_below(range);
    switch (random_below(4)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1u << random_below(8));
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>(random_below(256));
        break;
      case 2: {
        const uint32_t word = kExtremes[random_below(sizeof(kExtremes) / sizeof(kExtremes[0]))];
        if (at / 4 * 4 + 4 <= bytes.size()) std::memcpy(bytes.data() + at / 4 * 4, &word, 4);
        break;
      }
      case 3: {
        uint32_t word = 0;
        if (at / 4 * 4 + 4 > bytes.size()) break;
        std::memcpy(&word, bytes.data() + at / 4 * 4, 4);
        word += static_cast<uint32_t>(random_below(9)) - 4;
        std::memcpy(bytes.data() + at / 4 * 4, &word, 4);
        break;
      }
    }
  }
  if (random_below(20) == 0) bytes.resize(random_below(bytes.size()) + 1);
}

void use(const text::Tokenizer& t, const char* sample, size_t size) {
  size_t count = 0;
  const auto* utf8 = reinterpret_cast<const uint8_t*>(sample);
  std::vector<int32_t> ids(size * 4 + 16);
  for (bool control : {false, true}) {
    if (text::tokenize(t, utf8, size, control, ids.data(), ids.size(), &count) != text::Result::kOk)
      std::abort();
    if (count > ids.size()) continue;
    for (size_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || static_cast<uint32_t>(ids[i]) >= t.size) std::abort();
    }
    uint8_t pending[3] = {}, pending_count = 0;
    size_t required = 0;
    text::detokenize(t, ids.data(), count, pending, &pending_count, nullptr, 0, &required);
    std::vector<uint8_t> out(required + 1);
    text::detokenize(t, ids.data(), count, pending, &pending_count, out.data(), required, &required);
  }
}

void use_all(const text::Tokenizer& t) {
  const char plain[] = "Hello the world, don't sing <|im_start|>x<tool>s 1234\r\n\r\n   caf\xC3\xA9 <|im_";
  const char marks[] =
      "e\xCC\x81\xCC\x96\xCC\x81 \xEA\xB0\x80\xE1\x86\xA8 \xF0\x9D\x85\x9E \xE0\xBE\x82 a\xCD\x85\xCC\x80";
  const char broken[] = "\xF0\x9F\x98 \xC3 \xFF\xFE\x80\xED\xA0\x80 \xF4\x90\x80\x80 \x04\xF3\xA0\x81\xA7";
  use(t, plain, sizeof(plain) - 1);
  use(t, marks, sizeof(marks) - 1);
  use(t, broken, sizeof(broken));
  std::vector<char> run(600, 'a');
  use(t, run.data(), run.size());
  for (size_t i = 0; i + 1 < run.size(); i += 2) std::memcpy(run.data() + i, "\xCC\x81", 2);
  use(t, run.data(), run.size());
  for (uint32_t role = 0; role < text::kChatRoles; ++role) {
    for (uint32_t part = 0; part < text::kChatParts; ++part) {
      const auto span = text::chat_ids(t, static_cast<text::Role>(role), static_cast<text::Part>(part));
      for (size_t i = 0; i < span.count; ++i) {
        if (span.ids[i] >= t.size) std::abort();
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::FILE* file = std::fopen(argv[1], "rb");
  if (file == nullptr) return 2;
  std::vector<uint8_t> original;
  for (int c; (c = std::fgetc(file)) != EOF;) original.push_back(static_cast<uint8_t>(c));
  std::fclose(file);
  const uint32_t vocab = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  const long rounds = std::strtol(argv[3], nullptr, 10);
  state = 0x9E3779B97F4A7C15u ^ std::strtoull(argv[4], nullptr, 10);
  long accepted = 0, refused = 0;
  for (long round = 0; round < rounds; ++round) {
    std::vector<uint8_t> mutant = original;
    mutate(mutant);
    uint8_t* exact = static_cast<uint8_t*>(std::malloc(mutant.size()));
    std::memcpy(exact, mutant.data(), mutant.size());
    text::Tokenizer tokenizer;
    base::Message why;
    if (text::parse(exact, mutant.size(), vocab, &tokenizer, &why)) {
      ++accepted;
      use_all(tokenizer);
    } else {
      ++refused;
      if (std::strncmp(why.text, "tokenizer ", 10) != 0) std::abort();
    }
    std::free(exact);
  }
  std::printf("accepted %ld refused %ld\n", accepted, refused);
  return 0;
}
