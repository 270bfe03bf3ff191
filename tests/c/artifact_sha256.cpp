// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// artifact_sha256 FILE SIZE...: the kernels of this processor, then the digest of each prefix of the file.
// Before that, every kernel is compared with the portable one.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "artifact/sha256.h"

using namespace superslm::artifact;

namespace {

bool agrees(const Sha256Kernel& kernel, const std::vector<uint8_t>& bytes) {
  for (size_t blocks = 0; blocks < 40; ++blocks) {
    uint32_t want[kMaxSha256Lanes][8], lanes[kMaxSha256Lanes][8], single[8];
    const uint8_t* data[kMaxSha256Lanes];
    for (uint32_t lane = 0; lane < kMaxSha256Lanes; ++lane) {
      for (uint32_t i = 0; i < 8; ++i) want[lane][i] = lanes[lane][i] = (i + 8 * lane + 1) * 0x01234567u;
      data[lane] = bytes.data() + 4001 * lane + blocks;
    }
    std::memcpy(single, want[0], sizeof(single));
    for (int lane = 0; lane < kernel.lanes; ++lane) sha256_compress_portable(want[lane], data[lane], blocks);
    kernel.compress(single, data[0], blocks);
    kernel.compress_lanes(lanes, data, blocks);
    if (std::memcmp(single, want[0], sizeof(single)) != 0 || std::memcmp(lanes, want, sizeof(want)) != 0)
      return false;
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
  std::printf("kernels:");
  const Sha256Kernel* const kernels[] = {sha256_extension(), sha256_avx2(), &kSha256Portable};
  for (const Sha256Kernel* kernel : kernels) {
    if (kernel == nullptr) continue;
    if (!agrees(*kernel, bytes)) {
      std::printf(" %s differs from portable\n", kernel->name);
      return 1;
    }
    std::printf(" %s", kernel->name);
  }
  std::printf("\n");
  for (int i = 2; i < argc; ++i) {
    const auto size = static_cast<size_t>(std::atol(argv[i]));
    const Digest digest = sha256(bytes.data(), size);
    Sha256 parts;  // fed in uneven steps
    for (size_t at = 0, step = 1; at < size; at += step, step = step * 3 % 211 + 1) {
      parts.update(bytes.data() + at, step < size - at ? step : size - at);
    }
    if (!(parts.finish() == digest)) return 1;
    for (const Sha256Kernel* kernel : kernels) {
      const uint8_t* messages[kMaxSha256Lanes];
      Digest lanes[kMaxSha256Lanes];
      for (const uint8_t*& message : messages) message = bytes.data();
      if (kernel != nullptr) sha256_lanes(*kernel, messages, size, lanes);
      if (kernel != nullptr && !(lanes[kernel->lanes - 1] == digest)) return 1;
    }
    for (const uint8_t b : digest.bytes) std::printf("%02x", b);
    std::printf("\n");
  }
  return 0;
}
