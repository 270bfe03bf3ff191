// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// SHA-256 of eight messages at once, for x86 processors with AVX2 but without SHA instructions.
#include "artifact/cpuid.h"
#include "artifact/sha256.h"

#if defined(SUPERSLM_X86)
#include <immintrin.h>
#endif

namespace superslm::artifact {

#if defined(SUPERSLM_X86)

namespace {

#define SUPERSLM_AVX2 SUPERSLM_TARGET("avx2")

// Word i of eight messages; lane l belongs to message l.
using Words = __m256i;

template <int N>
SUPERSLM_AVX2 inline Words rotr(Words x) {
  return _mm256_or_si256(_mm256_srli_epi32(x, N), _mm256_slli_epi32(x, 32 - N));
}

SUPERSLM_AVX2 inline Words add(Words a, Words b) { return _mm256_add_epi32(a, b); }
SUPERSLM_AVX2 inline Words exor(Words a, Words b) { return _mm256_xor_si256(a, b); }

// Turns eight rows (one per message) of eight words into eight vectors (one per word).
SUPERSLM_AVX2 inline void transpose(Words r[8]) {
  Words t[8], u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}

SUPERSLM_AVX2 inline void load(const uint8_t* const* data, size_t offset, Words w[16]) {
  const Words swap = _mm256_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 3, 2, 1, 0, 7, 6,
                                      5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
  for (size_t half = 0; half < 2; ++half) {
    Words* rows = w + 8 * half;
    for (int lane = 0; lane < 8; ++lane) {
      const auto* at = reinterpret_cast<const __m256i*>(data[lane] + offset + 32 * half);
      rows[lane] = _mm256_shuffle_epi8(_mm256_loadu_si256(at), swap);
    }
    transpose(rows);
  }
}

// Word n of the schedule (n % 16 == i), replacing word n - 16.
SUPERSLM_AVX2 inline Words schedule(Words w[16], int i) {
  const Words old = w[(i + 1) & 15], late = w[(i + 14) & 15];
  const Words s0 = exor(exor(rotr<7>(old), rotr<18>(old)), _mm256_srli_epi32(old, 3));
  const Words s1 = exor(exor(rotr<17>(late), rotr<19>(late)), _mm256_srli_epi32(late, 10));
  return w[i] = add(add(w[i], s0), add(w[(i + 9) & 15], s1));
}

SUPERSLM_AVX2 inline void round(Words v[8], int n, Words w) {
  // The eight working variables rotate by name instead of by copy: a is v[(8 - n) & 7].
  Words &a = v[(8 - n) & 7], &b = v[(9 - n) & 7], &c = v[(10 - n) & 7], &d = v[(11 - n) & 7];
  Words &e = v[(12 - n) & 7], &f = v[(13 - n) & 7], &g = v[(14 - n) & 7], &h = v[(15 - n) & 7];
  const Words choose = exor(g, _mm256_and_si256(e, exor(f, g)));
  const Words majority = exor(b, _mm256_and_si256(exor(a, b), exor(b, c)));
  const Words s1 = exor(exor(rotr<6>(e), rotr<11>(e)), rotr<25>(e));
  const Words s0 = exor(exor(rotr<2>(a), rotr<13>(a)), rotr<22>(a));
  const Words t1 = add(add(h, s1), add(choose, w));
  d = add(d, t1);
  h = add(t1, add(s0, majority));
}

template <int I>
SUPERSLM_AVX2 inline void sixteen_rounds(Words v[8], Words w[16], int first) {
  if constexpr (I < 16) {
    const Words word = first == 0 ? w[I] : schedule(w, I);
    round(v, I, add(word, _mm256_set1_epi32(static_cast<int>(kSha256Rounds[first + I]))));
    sixteen_rounds<I + 1>(v, w, first);
  }
}

SUPERSLM_AVX2 void compress_lanes(uint32_t (*states)[8], const uint8_t* const* data, size_t blocks) {
  Words state[8], v[8], w[16];
  for (int lane = 0; lane < 8; ++lane)
    state[lane] = _mm256_loadu_si256(reinterpret_cast<__m256i*>(states[lane]));
  transpose(state);
  for (size_t b = 0; b < blocks; ++b) {
    load(data, 64 * b, w);
    for (int i = 0; i < 8; ++i) v[i] = state[i];
    for (int first = 0; first < 64; first += 16) sixteen_rounds<0>(v, w, first);
    for (int i = 0; i < 8; ++i) state[i] = add(state[i], v[i]);
  }
  transpose(state);
  for (int lane = 0; lane < 8; ++lane)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(states[lane]), state[lane]);
}

constexpr Sha256Kernel kAvx2 = {"avx2", sha256_compress_portable, 8, compress_lanes};

}  // namespace

const Sha256Kernel* sha256_avx2() { return has_avx2() ? &kAvx2 : nullptr; }

#else

const Sha256Kernel* sha256_avx2() { return nullptr; }

#endif

}  // namespace superslm::artifact
