// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Mutates and cuts a schema section in a buffer of its exact size: each is refused with a reason, or every
// table lies inside it.
//
//   artifact_schemas SECTION VOCABULARY COUNT
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "artifact/schemas.h"
#include "base/memory.h"

namespace {

using namespace superslm;

// Reads the ends of every table of an accepted section.
void touch(const artifact::SchemaView* views, int32_t count, int32_t vocab) {
  uint64_t sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    const artifact::SchemaView& view = views[i];
    const size_t cells = size_t{view.state_count} * view.class_count;
    sum += view.next[cells - 1] + view.classes[static_cast<size_t>(vocab) - 1] + view.digest[31];
    sum += static_cast<unsigned char>(view.name[view.name_length - 1]);
    if (view.accepting_count > 0) sum += view.accepting[view.accepting_count - 1];
  }
  if (sum == 1) std::printf(" ");  // the reads stay
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> section{std::istreambuf_iterator<char>(file), {}};
  const int32_t vocab = std::atoi(argv[2]);
  std::mt19937 random(1);
  int accepted = 0, refused = 0;
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    const size_t size = random() % 3 == 0 ? random() % (section.size() + 1) : section.size();
    auto* bytes = static_cast<uint8_t*>(std::malloc(size > 0 ? size : 1));
    std::memcpy(bytes, section.data(), size);
    for (unsigned changes = 1 + random() % 4; changes > 0 && size > 0; --changes) {
      const size_t head = size < 400 ? size : 400;
      bytes[random() % 2 == 0 ? random() % size : random() % head] = static_cast<uint8_t>(random());
    }
    artifact::SchemaView* views = nullptr;
    int32_t count = 0;
    base::Message why;
    if (artifact::read_schemas({bytes, size}, vocab, &views, &count, &why) == artifact::SchemaResult::kOk) {
      ++accepted;
      touch(views, count, vocab);
      base::deallocate(views);
    } else {
      ++refused;
      if (why.length == 0) return 1;
    }
    std::free(bytes);
  }
  std::printf("accepted %d, refused %d\n", accepted, refused);
  return 0;
}
