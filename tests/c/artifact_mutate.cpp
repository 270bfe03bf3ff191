// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Mutates artifacts in memory, repairs their digests and reads them: each is accepted, or refused with a
// message that names a section or tensor and a field. An accepted one runs a short forward pass with
// --decode. With --base the files are adapters of that model.
//
//   artifact_mutate [--decode] [--show] [--base MODEL] SEED COUNT FILE...
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "artifact/adapter_reader.h"
#include "artifact/container.h"
#include "artifact/reader.h"
#include "artifact_forward.h"
#include "base/memory.h"
#include "mutation.h"

namespace {

constexpr size_t kMaxHeap = size_t{64} << 20;
size_t heap_now = 0, heap_peak = 0;

}  // namespace

// The library's heap, watched.
namespace superslm::base {

void* allocate(size_t bytes) noexcept {
  auto* block = static_cast<size_t*>(std::malloc(bytes + 16));
  if (block == nullptr) return nullptr;
  block[0] = bytes;
  heap_now += bytes;
  if (heap_now > heap_peak) heap_peak = heap_now;
  return block + 2;
}

void deallocate(void* block) noexcept {
  if (block == nullptr) return;
  auto* head = static_cast<size_t*>(block) - 2;
  heap_now -= head[0];
  std::free(head);
}

}  // namespace superslm::base

namespace {

using namespace superslm;
using base::load_le;
using base::store_le;

[[noreturn]] void fail(uint64_t seed, const char* file, const char* what, const char* detail) {
  std::printf("FAILED: %s: mutation %llu: %s %s\n", file, static_cast<unsigned long long>(seed), what,
              detail);
  std::exit(1);
}

// A splitmix64 stream.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(next() % n); }
};

struct Bytes {
  uint8_t* data = nullptr;
  size_t size = 0;
};

Bytes read_file(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) fail(0, path, "cannot be opened", "");
  std::fseek(file, 0, SEEK_END);
  Bytes out;
  out.size = static_cast<size_t>(std::ftell(file));
  out.data = static_cast<uint8_t*>(std::malloc(out.size));
  std::rewind(file);
  if (std::fread(out.data, 1, out.size, file) != out.size) fail(0, path, "cannot be read", "");
  std::fclose(file);
  return out;
}

// A place in the intact file that mutations aim at.
struct Region {
  size_t begin, size;
};

struct Map {
  Region sections[28];
  size_t section_count = 0;
  Region tensors = {}, data = {};
};

Map map_of(const Bytes& file) {
  Map map;
  map.section_count = load_le<uint32_t>(file.data + 24);
  for (size_t i = 0; i < map.section_count; ++i) {
    const uint8_t* entry = file.data + 128 + 32 * i;
    map.sections[i] = Region{static_cast<size_t>(load_le<uint64_t>(entry + 8)),
                             static_cast<size_t>(load_le<uint64_t>(entry + 16))};
    if (std::memcmp(entry, "TENS", 4) == 0) map.tensors = map.sections[i];
    if (std::memcmp(entry, "DATA", 4) == 0) map.data = map.sections[i];
  }
  return map;
}

uint64_t hostile(Random& random, uint64_t old, size_t file_size) {
  const size_t choice = random.below(test::kHostileNumbers + 2);
  if (choice < test::kHostileNumbers) return test::hostile_number(choice, old, file_size);
  return choice == test::kHostileNumbers ? 0xfffffffe : old ^ uint64_t { 1 } << random.below(64);
}

// Replaces a number of 2, 4 or 8 bytes at a multiple of its size inside a region.
void poke(Random& random, Bytes file, Region region) {
  const size_t width = size_t{2} << random.below(3);
  if (region.size < width) return;
  uint8_t* at = file.data + region.begin + random.below(region.size / width) * width;
  uint64_t value = 0;
  std::memcpy(&value, at, width);
  value = hostile(random, value, file.size);
  std::memcpy(at, &value, width);
}

// One element of a number array or multiplier array of DATA, or of the sub-scales of tiles: the values a scan
// must see.
void poke_element(Random& random, Bytes file, const Map& map) {
  const uint8_t* entry = file.data + map.tensors.begin + 64 * random.below(map.tensors.size / 64);
  const uint32_t format = load_le<uint32_t>(entry + 8);
  const size_t rows = load_le<uint32_t>(entry + 16), cols = load_le<uint32_t>(entry + 20);
  if (format == 3 && random.below(2) == 0) {
    const size_t scales = (rows + 15) / 16 * 16 * ((cols + 31) / 32);
    file.data[map.data.begin + static_cast<size_t>(load_le<uint64_t>(entry + 32)) + random.below(scales)] =
        static_cast<uint8_t>(random.below(18));
    return;
  }
  const bool matrix = format <= 3;
  const uint64_t offset = load_le<uint64_t>(entry + (matrix ? 40 : 24));
  const size_t element = format == 17 ? 2 : format == 18 ? 8 : 4;
  const size_t count = matrix ? rows : rows * cols;
  poke(random, file,
       Region{map.data.begin + static_cast<size_t>(offset) + element * random.below(count), element});
}

void mutate_table(Random& random, Bytes file, const Map& map) {
  const size_t count = map.tensors.size / 64;
  uint8_t* a = file.data + map.tensors.begin + 64 * random.below(count);
  uint8_t* b = file.data + map.tensors.begin + 64 * random.below(count);
  uint8_t copy[64];
  std::memcpy(copy, a, 64);
  switch (random.below(3)) {
    case 0:  // swap two entries
      std::memcpy(a, b, 64);
      std::memcpy(b, copy, 64);
      break;
    case 1:  // give one tensor the bytes of another
      std::memcpy(b + 24, copy + 24, 24);
      break;
    default:  // repeat an entry
      std::memcpy(b, copy, 64);
  }
}

// Cuts or lengthens the file; the header follows half of the time, the last section's size sometimes.
Bytes resize(Random& random, Bytes file, const Map& map) {
  Bytes out;
  const bool grow = random.below(4) == 0;
  out.size = grow ? file.size + 1 + random.below(4096) : random.below(file.size);
  if (!grow && random.below(2) == 0)
    out.size = file.size - 1 - random.below(file.size < 256 ? file.size : 256);
  out.data = static_cast<uint8_t*>(std::calloc(out.size + 1, 1));
  std::memcpy(out.data, file.data, grow ? file.size : out.size);
  if (out.size >= artifact::kModelStart && random.below(2) == 0) {
    store_le<uint64_t>(out.data + 16, out.size);
    const Region last = map.sections[map.section_count - 1];
    if (random.below(2) == 0 && out.size > last.begin) {
      store_le<uint64_t>(out.data + 128 + 32 * (map.section_count - 1) + 16, out.size - last.begin);
    }
  }
  std::free(file.data);
  return out;
}

// The mutated copy, and whether its digests were repaired.
Bytes mutate(Random& random, const Bytes& original, const Map& map) {
  Bytes file{static_cast<uint8_t*>(std::malloc(original.size)), original.size};
  std::memcpy(file.data, original.data, original.size);
  const size_t rounds = 1 + random.below(3);
  const size_t kind = random.below(20);
  for (size_t i = 0; i < rounds; ++i) {
    const Region section = map.sections[random.below(map.section_count)];
    if (kind < 4) {
      file.data[random.below(file.size)] ^= static_cast<uint8_t>(1 << random.below(8));
    } else if (kind < 6) {
      poke(random, file, Region{0, 128});
    } else if (kind < 8) {
      poke(random, file, Region{128, 32 * map.section_count});
    } else if (kind < 12) {
      poke(random, file, section);
    } else if (kind < 14) {
      poke(random, file, map.tensors);
    } else if (kind < 16) {
      poke_element(random, file, map);
    } else if (kind < 17) {
      mutate_table(random, file, map);
    } else if (kind < 18 && section.size > 0) {
      file.data[section.begin + random.below(section.size)] ^= static_cast<uint8_t>(1 << random.below(8));
    }
  }
  if (kind >= 18) file = resize(random, file, map);
  if (random.below(32) != 0) test::repair_digests(file.data, file.size);
  return file;
}

bool names_field(const char* message) {
  const char* colon = std::strstr(message, ": ");
  return colon != nullptr && colon != message && colon[2] != 0;
}

struct Tally {
  unsigned long long accepted = 0, refused = 0, ran = 0;
  char messages[1000][64];
  int distinct = 0;

  // Counts messages that differ in more than their numbers.
  void note(const char* text) {
    char shape[64] = {};
    for (size_t i = 0, n = 0; text[i] != 0 && n + 1 < sizeof(shape); ++i) {
      const bool digit = text[i] >= '0' && text[i] <= '9';
      if (!digit || n == 0 || shape[n - 1] != '#') shape[n++] = digit ? '#' : text[i];
    }
    for (int i = 0; i < distinct; ++i) {
      if (std::strcmp(messages[i], shape) == 0) return;
    }
    if (distinct < 1000) std::memcpy(messages[distinct++], shape, sizeof(shape));
  }
};

// What the reader under test says of some bytes, and whether a short run over what it accepted ends well.
struct Verdict {
  artifact::ReadResult result;
  bool ran = false;
};

Verdict read_model(Bytes file, bool decode, base::Message* why) {
  artifact::Model model;
  Verdict verdict{artifact::read(file.data, file.size, &model, why)};
  if (verdict.result == artifact::ReadResult::ok) {
    verdict.ran = decode && test::run_forward(model.view);
    artifact::release(&model);
  }
  return verdict;
}

Verdict read_adapter(const artifact::ModelView& base, Bytes file, bool decode, base::Message* why) {
  artifact::Adapter adapter;
  Verdict verdict{artifact::read_adapter(file.data, file.size, base, &adapter, why)};
  if (verdict.result == artifact::ReadResult::ok) {
    verdict.ran = decode && test::run_forward(base, &adapter.view);
    artifact::release(&adapter);
  }
  return verdict;
}

void try_one(uint64_t seed, const char* name, const artifact::ModelView* base, Bytes file, bool decode,
             Tally& tally) {
  const size_t shift = seed % 4;  // any alignment
  const size_t heap_before = heap_now;
  auto* block = static_cast<uint8_t*>(std::malloc(file.size + shift));
  if (file.size != 0) std::memcpy(block + shift, file.data, file.size);
  heap_peak = heap_now;
  const Bytes moved{block + shift, file.size};
  base::Message why;
  const Verdict verdict =
      base != nullptr ? read_adapter(*base, moved, decode, &why) : read_model(moved, decode, &why);
  if (heap_peak > kMaxHeap) fail(seed, name, "used too much heap", why.text);
  if (verdict.result == artifact::ReadResult::ok) {
    ++tally.accepted;
    if (why.length != 0) fail(seed, name, "was accepted with a message:", why.text);
    if (verdict.ran) ++tally.ran;
  } else {
    ++tally.refused;
    if (verdict.result == artifact::ReadResult::out_of_memory) fail(seed, name, "ran out of memory", "");
    if (!names_field(why.text)) fail(seed, name, "was refused without naming a field:", why.text);
    tally.note(why.text);
  }
  if (heap_now != heap_before) fail(seed, name, "left memory behind", why.text);
  std::free(block);
}

}  // namespace

int main(int argc, char** argv) {
  bool decode = false, show = false;
  Bytes base_file;
  artifact::Model base;
  int arg = 1;
  for (; arg < argc && argv[arg][0] == '-'; ++arg) {
    decode = decode || std::strcmp(argv[arg], "--decode") == 0;
    show = show || std::strcmp(argv[arg], "--show") == 0;
    if (std::strcmp(argv[arg], "--base") != 0) continue;
    base_file = read_file(argv[++arg]);
    base::Message why;
    if (artifact::read(base_file.data, base_file.size, &base, &why) != artifact::ReadResult::ok)
      fail(0, argv[arg], "is no base:", why.text);
  }
  const artifact::ModelView* base_view = base_file.data == nullptr ? nullptr : &base.view;
  if (argc - arg < 3) return 2;
  const uint64_t seed = std::strtoull(argv[arg], nullptr, 10),
                 count = std::strtoull(argv[arg + 1], nullptr, 10);
  const int files = argc - arg - 2;
  Tally tally;
  clock_t slowest = 0;
  for (int f = 0; f < files; ++f) {
    const char* name = argv[arg + 2 + f];
    const Bytes original = read_file(name);
    const Map map = map_of(original);
    const unsigned long long before = tally.accepted;
    try_one(0, name, base_view, original, decode, tally);
    if (tally.accepted != before + 1) fail(0, name, "is refused as it stands", "");
    for (uint64_t i = seed + static_cast<uint64_t>(f); i < seed + count; i += static_cast<uint64_t>(files)) {
      Random random{i};
      const Bytes mutated = mutate(random, original, map);
      const clock_t begin = clock();
      try_one(i, name, base_view, mutated, decode, tally);
      const clock_t taken = clock() - begin;
      if (taken > slowest) slowest = taken;
      if (taken > 10 * CLOCKS_PER_SEC) fail(i, name, "took more than ten seconds", "");
      std::free(mutated.data);
    }
    std::free(original.data);
  }
  artifact::release(&base);
  std::free(base_file.data);
  std::printf("accepted %llu, refused %llu with %d messages, ran %llu, slowest %ld ms\n", tally.accepted,
              tally.refused, tally.distinct, tally.ran, static_cast<long>(slowest / (CLOCKS_PER_SEC / 1000)));
  for (int i = 0; show && i < tally.distinct; ++i) std::printf("  %s\n", tally.messages[i]);
  return 0;
}
