// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Reads artifacts named on the command line and prints, one line each, "ok ..." or "rejected: reason".
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "artifact/reader.h"

namespace {

void print_hex(const uint8_t* bytes) {
  for (int i = 0; i < 32; ++i) std::printf("%02x", bytes[i]);
}

// The whole file at a chosen misalignment, in a block with no byte behind it.
uint8_t* load(const char* path, size_t shift, size_t* size, uint8_t** block) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) return nullptr;
  std::fseek(file, 0, SEEK_END);
  *size = static_cast<size_t>(std::ftell(file));
  std::rewind(file);
  *block = static_cast<uint8_t*>(std::malloc(shift + *size + 1));
  const size_t got = std::fread(*block + shift, 1, *size, file);
  std::fclose(file);
  return got == *size ? *block + shift : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    size_t size = 0;
    uint8_t* block = nullptr;
    const uint8_t* data = load(argv[i], static_cast<size_t>(i % 4), &size, &block);
    if (data == nullptr) {
      std::printf("unreadable\n");
      return 1;
    }
    superslm::artifact::Model model;
    superslm::base::Message why;
    const auto result = superslm::artifact::read(data, size, &model, &why);
    if (result == superslm::artifact::ReadResult::ok) {
      const auto& m = model.view;
      std::printf("ok %d %d %d %d %d %d %d %d ", m.hidden, m.layer_count, m.heads, m.kv_heads, m.head_dim,
                  m.mlp, m.vocab, m.cap);
      print_hex(m.model_digest);
      std::printf("\n");
      superslm::artifact::release(&model);
    } else {
      std::printf("%s: %s\n",
                  result == superslm::artifact::ReadResult::rejected ? "rejected" : "out of memory",
                  why.text);
    }
    std::free(block);
  }
  return 0;
}
