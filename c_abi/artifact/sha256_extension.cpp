// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// SHA-256 with the SHA extensions of x86 and of ARMv8; other processors have none.
#include "artifact/cpuid.h"
#include "artifact/sha256.h"

#if defined(SUPERSLM_X86)
#include <immintrin.h>
#define SUPERSLM_SHA SUPERSLM_TARGET("sha,sse4.1,ssse3")
#elif defined(__aarch64__) || defined(_M_ARM64)
#define SUPERSLM_ARM64 1
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__clang__)
#define SUPERSLM_SHA __attribute__((target("sha2")))
#elif defined(__GNUC__)
#define SUPERSLM_SHA __attribute__((target("+crypto")))
#else
#define SUPERSLM_SHA
#endif
#endif

namespace superslm::artifact {

#if defined(SUPERSLM_X86)

namespace {

// One stream: the two state registers in the order the instructions want, and the last 16 schedule words.
struct Stream {
  __m128i abef, cdgh, abef_start, cdgh_start;
  __m128i w[4];
};

SUPERSLM_SHA inline void open(Stream& s, const uint32_t state[8]) {
  const auto* in = reinterpret_cast<const __m128i*>(state);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(in), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(in + 1), 0x1b);
  s.abef = _mm_alignr_epi8(cdab, efgh, 8);
  s.cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
}

SUPERSLM_SHA inline void close(const Stream& s, uint32_t state[8]) {
  auto* out = reinterpret_cast<__m128i*>(state);
  const __m128i feba = _mm_shuffle_epi32(s.abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);
  _mm_storeu_si128(out, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(out + 1, _mm_alignr_epi8(dchg, feba, 8));
}

SUPERSLM_SHA inline void load(Stream& s, const uint8_t* block) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  for (int i = 0; i < 4; ++i) {
    s.w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + i), swap);
  }
  s.abef_start = s.abef;
  s.cdgh_start = s.cdgh;
}

// Rounds n .. n+3 with n % 16 == 4 * I; w[I] then becomes the words of rounds n+16 .. n+19.
template <int I>
SUPERSLM_SHA inline void four_rounds(Stream& s, int n) {
  const __m128i k = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kSha256Rounds + n));
  __m128i& w0 = s.w[I];
  const __m128i w1 = s.w[(I + 1) % 4], w2 = s.w[(I + 2) % 4], w3 = s.w[(I + 3) % 4];
  const __m128i wk = _mm_add_epi32(w0, k);
  s.cdgh = _mm_sha256rnds2_epu32(s.cdgh, s.abef, wk);
  s.abef = _mm_sha256rnds2_epu32(s.abef, s.cdgh, _mm_shuffle_epi32(wk, 0x0e));
  if (n >= 48) return;
  const __m128i partial = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
  w0 = _mm_sha256msg2_epu32(partial, w3);
}

SUPERSLM_SHA inline void add_start(Stream& s) {
  s.abef = _mm_add_epi32(s.abef, s.abef_start);
  s.cdgh = _mm_add_epi32(s.cdgh, s.cdgh_start);
}

SUPERSLM_SHA void compress(uint32_t state[8], const uint8_t* data, size_t blocks) {
  Stream s;
  open(s, state);
  for (size_t b = 0; b < blocks; ++b) {
    load(s, data + 64 * b);
    for (int n = 0; n < 64; n += 16) {
      four_rounds<0>(s, n);
      four_rounds<1>(s, n + 4);
      four_rounds<2>(s, n + 8);
      four_rounds<3>(s, n + 12);
    }
    add_start(s);
  }
  close(s, state);
}

// Two messages: the rounds of one fill the waits of the other.
SUPERSLM_SHA void compress_lanes(uint32_t (*states)[8], const uint8_t* const* data, size_t blocks) {
  Stream s, t;
  open(s, states[0]);
  open(t, states[1]);
  for (size_t b = 0; b < blocks; ++b) {
    load(s, data[0] + 64 * b);
    load(t, data[1] + 64 * b);
    for (int n = 0; n < 64; n += 16) {
      four_rounds<0>(s, n), four_rounds<0>(t, n);
      four_rounds<1>(s, n + 4), four_rounds<1>(t, n + 4);
      four_rounds<2>(s, n + 8), four_rounds<2>(t, n + 8);
      four_rounds<3>(s, n + 12), four_rounds<3>(t, n + 12);
    }
    add_start(s);
    add_start(t);
  }
  close(s, states[0]);
  close(t, states[1]);
}

constexpr Sha256Kernel kExtension = {"sha-ni", compress, 2, compress_lanes};

}  // namespace

const Sha256Kernel* sha256_extension() { return has_sha_extension() ? &kExtension : nullptr; }

#elif defined(SUPERSLM_ARM64)

namespace {

struct Stream {
  uint32x4_t abcd, efgh;
  uint32x4_t w[4];
};

SUPERSLM_SHA inline void block(Stream& s, const uint8_t* data) {
  const uint32x4_t abcd = s.abcd, efgh = s.efgh;
  for (int i = 0; i < 4; ++i) s.w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
  for (int i = 0; i < 16; ++i) {
    uint32x4_t& w0 = s.w[i % 4];
    const uint32x4_t wk = vaddq_u32(w0, vld1q_u32(kSha256Rounds + 4 * i));
    const uint32x4_t old = s.abcd;
    s.abcd = vsha256hq_u32(old, s.efgh, wk);
    s.efgh = vsha256h2q_u32(s.efgh, old, wk);
    if (i < 12)
      w0 = vsha256su1q_u32(vsha256su0q_u32(w0, s.w[(i + 1) % 4]), s.w[(i + 2) % 4], s.w[(i + 3) % 4]);
  }
  s.abcd = vaddq_u32(s.abcd, abcd);
  s.efgh = vaddq_u32(s.efgh, efgh);
}

SUPERSLM_SHA void compress(uint32_t state[8], const uint8_t* data, size_t blocks) {
  Stream s;
  s.abcd = vld1q_u32(state);
  s.efgh = vld1q_u32(state + 4);
  for (size_t b = 0; b < blocks; ++b) block(s, data + 64 * b);
  vst1q_u32(state, s.abcd);
  vst1q_u32(state + 4, s.efgh);
}

void compress_lanes(uint32_t (*states)[8], const uint8_t* const* data, size_t blocks) {
  compress(states[0], data[0], blocks);
}

// Every 64-bit Apple and Windows processor has the instructions; Linux says so.
bool has_sha2() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & (1u << 6)) != 0;  // HWCAP_SHA2
#else
  return true;
#endif
}

constexpr Sha256Kernel kExtension = {"armv8-sha2", compress, 1, compress_lanes};

}  // namespace

const Sha256Kernel* sha256_extension() { return has_sha2() ? &kExtension : nullptr; }

#else

const Sha256Kernel* sha256_extension() { return nullptr; }

#endif

}  // namespace superslm::artifact
