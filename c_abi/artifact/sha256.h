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

// ---- Kernels ----

constexpr int kMaxSha256Lanes = 8;

// One way to compress blocks of 64 bytes. `lanes` messages go side by side at the price of little more than
// one.
struct Sha256Kernel {
  const char* name;
  void (*compress)(uint32_t state[8], const uint8_t* data, size_t blocks);
  int lanes;
  void (*compress_lanes)(uint32_t (*states)[8], const uint8_t* const* data, size_t blocks);
};

extern const Sha256Kernel kSha256Portable;
extern const uint32_t kSha256Rounds[64];
void sha256_compress_portable(uint32_t state[8], const uint8_t* data, size_t blocks);

// Kernels this processor cannot run are null.
const Sha256Kernel* sha256_extension();  // SHA instructions of x86 or ARMv8
const Sha256Kernel* sha256_avx2();

// The fastest one this processor runs.
const Sha256Kernel& sha256_kernel();

// Digests of `kernel.lanes` messages of one size.
void sha256_lanes(const Sha256Kernel& kernel, const uint8_t* const* messages, size_t size, Digest* out);

}  // namespace superslm::artifact
