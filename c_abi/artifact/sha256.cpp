// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "artifact/sha256.h"

#include <atomic>
#include <cstring>

namespace superslm::artifact {

namespace {

constexpr uint32_t kInitialState[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

inline uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

inline uint32_t load_be32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 |
         static_cast<uint32_t>(p[2]) << 8 | static_cast<uint32_t>(p[3]);
}

inline void store_be32(uint8_t* p, uint32_t x) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(x >> (24 - 8 * i));
}

void compress_block(uint32_t state[8], const uint8_t* data) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = load_be32(data + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (int i = 0; i < 64; ++i) {
    const uint32_t t1 =
        h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kSha256Rounds[i] + w[i];
    const uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void compress_lanes(uint32_t (*states)[8], const uint8_t* const* data, size_t blocks) {
  sha256_compress_portable(states[0], data[0], blocks);
}

// Writes the closing 0x80, zeros and bit length behind a tail; returns 1 or 2 blocks.
size_t pad(uint8_t out[128], const uint8_t* tail, size_t tail_size, uint64_t length) {
  std::memset(out, 0, 128);
  if (tail_size != 0) std::memcpy(out, tail, tail_size);
  out[tail_size] = 0x80;
  const size_t blocks = tail_size < 56 ? 1 : 2;
  store_be32(out + 64 * blocks - 8, static_cast<uint32_t>(length >> 29));
  store_be32(out + 64 * blocks - 4, static_cast<uint32_t>(length << 3));
  return blocks;
}

Digest digest_of(const uint32_t state[8]) {
  Digest digest;
  for (int i = 0; i < 8; ++i) store_be32(digest.bytes + 4 * i, state[i]);
  return digest;
}

}  // namespace

const uint32_t kSha256Rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

const Sha256Kernel kSha256Portable = {"portable", sha256_compress_portable, 1, compress_lanes};

void sha256_compress_portable(uint32_t state[8], const uint8_t* data, size_t blocks) {
  for (size_t i = 0; i < blocks; ++i) compress_block(state, data + 64 * i);
}

const Sha256Kernel& sha256_kernel() {
  static std::atomic<const Sha256Kernel*> chosen{nullptr};  // a race stores the same answer twice
  const Sha256Kernel* kernel = chosen.load(std::memory_order_relaxed);
  if (kernel != nullptr) return *kernel;
  kernel = sha256_extension();
  if (kernel == nullptr) kernel = sha256_avx2();
  if (kernel == nullptr) kernel = &kSha256Portable;
  chosen.store(kernel, std::memory_order_relaxed);
  return *kernel;
}

bool Digest::operator==(const Digest& other) const {
  return std::memcmp(bytes, other.bytes, sizeof(bytes)) == 0;
}

Sha256::Sha256() { std::memcpy(state_, kInitialState, sizeof(state_)); }

Sha256& Sha256::update(const void* data, size_t size) {
  if (size == 0) return *this;
  const auto compress = sha256_kernel().compress;
  const auto* bytes = static_cast<const uint8_t*>(data);
  const size_t filled = static_cast<size_t>(length_ % 64);
  length_ += size;
  if (filled != 0) {
    const size_t room = 64 - filled;
    const size_t taken = size < room ? size : room;
    std::memcpy(tail_ + filled, bytes, taken);
    if (taken < room) return *this;
    compress(state_, tail_, 1);
    bytes += taken, size -= taken;
  }
  compress(state_, bytes, size / 64);
  if (size % 64 != 0) std::memcpy(tail_, bytes + size / 64 * 64, size % 64);
  return *this;
}

Digest Sha256::finish() {
  uint8_t last[128];
  const size_t blocks = pad(last, tail_, static_cast<size_t>(length_ % 64), length_);
  sha256_kernel().compress(state_, last, blocks);
  return digest_of(state_);
}

Digest sha256(const void* data, size_t size) { return Sha256().update(data, size).finish(); }

void sha256_lanes(const Sha256Kernel& kernel, const uint8_t* const* messages, size_t size, Digest* out) {
  uint32_t states[kMaxSha256Lanes][8];
  for (int i = 0; i < kernel.lanes; ++i) std::memcpy(states[i], kInitialState, sizeof(kInitialState));
  const size_t whole = size / 64;
  kernel.compress_lanes(states, messages, whole);
  for (int i = 0; i < kernel.lanes; ++i) {
    uint8_t last[128];
    kernel.compress(states[i], last, pad(last, messages[i] + 64 * whole, size % 64, size));
    out[i] = digest_of(states[i]);
  }
}

}  // namespace superslm::artifact
