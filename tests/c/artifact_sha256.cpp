// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// artifact_sha256 FILE SIZE...: the kernel's name, then the digest of each prefix of the file. Before that,
// the kernel in use is compared with the portable one, singly and in pairs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "artifact/sha256.h"

using namespace superslm::artifact;

namespace {

bool kernels_agree(const std::vector<uint8_t>& bytes) {
  const Sha256Kernel& kernel = sha256_kernel();
  for (size_t blocks = 0; 64 * blocks + 65 <= bytes.size() / 2 && blocks < 40; ++blocks) {
    uint32_t want[2][8], single[8], pair[2][8];
    for (uint32_t i = 0; i < 8; ++i)
      want[0][i] = want[1][i] = single[i] = pair[0][i] = pair[1][i] = i * 0x01234567u;
    const uint8_t* a = bytes.data() + blocks % 64;
    const uint8_t* b = bytes.data() + bytes.size() / 2;
    kSha256Portable.compress(want[0], a, blocks);
    kSha256Portable.compress(want[1], b, blocks);
    kernel.compress(single, a, blocks);
    kernel.compress_pair(pair[0], a, pair[1], b, blocks);
    if (std::memcmp(single, want[0], 32) != 0 || std::memcmp(pair, want, 64) != 0) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::FILE* file = argc > 1 ? std::fopen(argv[1], "rb") : nullptr;
  if (file == nullptr) return 2;
  std::vector<uint8_t> bytes(1 << 20);
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
  std::fclose(file);
  if (!kernels_agree(bytes)) {
    std::printf("kernels differ\n");
    return 1;
  }
  std::printf("%s\n", sha256_kernel().name);
  for (int i = 2; i < argc; ++i) {
    const auto size = static_cast<size_t>(std::atol(argv[i]));
    Digest digests[3];
    digests[0] = sha256(bytes.data(), size);
    Sha256 parts;  // fed in uneven steps
    for (size_t at = 0, step = 1; at < size; at += step, step = step * 3 % 211 + 1) {
      parts.update(bytes.data() + at, step < size - at ? step : size - at);
    }
    digests[1] = parts.finish();
    Digest pair[2];
    sha256_pair(bytes.data(), bytes.data(), size, pair);
    digests[2] = pair[1];
    if (!(digests[0] == digests[1]) || !(digests[0] == digests[2]) || !(pair[0] == pair[1])) return 1;
    for (const uint8_t b : digests[0].bytes) std::printf("%02x", b);
    std::printf("\n");
  }
  return 0;
}
