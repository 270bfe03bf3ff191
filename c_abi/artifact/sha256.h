// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// SHA-256 (FIPS 180-4), with the processor's instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace superslm::artifact {

struct Digest {
  uint8_t bytes[32] = {};
  bool operator==(const Digest& other) const;
};

class Sha256 {
 public:
  Sha256();
  Sha256& update(const void* data, size_t size);
  Digest finish();

 private:
  uint32_t state_[8];
  uint64_t length_ = 0;
  uint8_t tail_[64];
};

Digest sha256(const void* data, size_t size);

// Digests of two messages of the same size, their rounds interleaved so that both use idle execution slots.
void sha256_pair(const uint8_t* first, const uint8_t* second, size_t size, Digest out[2]);

// Compression functions: `blocks` consecutive blocks of 64 bytes into `state`. Two streams for the pair form.
using CompressFn = void (*)(uint32_t state[8], const uint8_t* data, size_t blocks);
using CompressPairFn = void (*)(uint32_t first_state[8], const uint8_t* first, uint32_t second_state[8],
                                const uint8_t* second, size_t blocks);

struct Sha256Kernel {
  const char* name;
  CompressFn compress;
  CompressPairFn compress_pair;
};

extern const Sha256Kernel kSha256Portable;
extern const uint32_t kSha256Rounds[64];
// This processor's accelerated kernel, or null; defined once per architecture.
const Sha256Kernel* sha256_hardware();
// The kernel in use: hardware where present.
const Sha256Kernel& sha256_kernel();

}  // namespace superslm::artifact
