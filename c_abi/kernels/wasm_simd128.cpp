// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// WebAssembly with 128-bit vectors. A module that holds a vector instruction loads only where there are some,
// so this tier is a choice of the build.
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_WASM_SIMD128)

#include <wasm_simd128.h>

#include "kernels/attention.h"
#include "kernels/low_rank.h"

namespace superslm::kernels {

namespace {

struct Simd128Isa : PlainScales {
  using Vec = v128_t;
  static constexpr int kLanes = 8, kAccumulators = 8, kTokens = 2;
  static void prefetch(const uint8_t*) {}
  static Vec zero() { return wasm_i64x2_const_splat(0); }
  static Vec load(const int16_t* p) { return wasm_v128_load(p); }
  static void store(int16_t* p, Vec v) { wasm_v128_store(p, v); }
  static Vec widen(const uint8_t* p) { return wasm_i16x8_load8x8(p); }
  static void nibbles(const uint8_t* p, Vec* out) {
    const Vec both = wasm_v128_load(p);
    const Vec low = wasm_v128_and(both, wasm_i8x16_const_splat(15)), high = wasm_u8x16_shr(both, 4);
    out[0] = wasm_u16x8_extend_low_u8x16(low);
    out[1] = wasm_u16x8_extend_high_u8x16(low);
    out[2] = wasm_u16x8_extend_low_u8x16(high);
    out[3] = wasm_u16x8_extend_high_u8x16(high);
  }
  static Vec spread(uint32_t pair) { return wasm_u32x4_splat(pair); }
  static Vec mul(Vec a, Vec b) { return wasm_i16x8_mul(a, b); }
  static Vec sub(Vec a, Vec b) { return wasm_i16x8_sub(a, b); }
  static Vec dot(Vec sum, Vec w, Vec a) { return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w, a)); }
  static Vec add32(Vec a, Vec b) { return wasm_i32x4_add(a, b); }
  static Vec zip_low(Vec a, Vec b) { return wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
  static Vec zip_high(Vec a, Vec b) { return wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
  static Vec widen_sum(Vec v) {
    return wasm_i64x2_add(wasm_i64x2_extend_low_i32x4(v), wasm_i64x2_extend_high_i32x4(v));
  }
  static void add_planes(int64_t* out, Vec high, Vec low) {
    const auto add = [](int64_t* two, Vec h, Vec l) {
      const Vec sum = wasm_i64x2_add(wasm_i64x2_shl(h, 15), l);
      wasm_v128_store(two, wasm_i64x2_add(wasm_v128_load(two), sum));
    };
    add(out, wasm_i64x2_extend_low_i32x4(high), wasm_i64x2_extend_low_i32x4(low));
    add(out + 2, wasm_i64x2_extend_high_i32x4(high), wasm_i64x2_extend_high_i32x4(low));
  }
  static Vec add64(Vec a, Vec b) { return wasm_i64x2_add(a, b); }
  static int64_t sum(Vec v) { return wasm_i64x2_extract_lane(v, 0) + wasm_i64x2_extract_lane(v, 1); }
  static void add_sums(Vec a, Vec b, Vec c, Vec d, int64_t* out) {
    const auto pair = [](Vec x, Vec y) {
      return wasm_i64x2_add(wasm_i64x2_shuffle(x, y, 0, 2), wasm_i64x2_shuffle(x, y, 1, 3));
    };
    wasm_v128_store(out, wasm_i64x2_add(wasm_v128_load(out), pair(a, b)));
    wasm_v128_store(out + 2, wasm_i64x2_add(wasm_v128_load(out + 2), pair(c, d)));
  }
  static void store_sums(Vec a, Vec b, Vec c, Vec d, int32_t* out) {
    const auto pair = [](Vec x, Vec y) {
      return wasm_i32x4_add(wasm_i32x4_shuffle(x, y, 0, 2, 4, 6), wasm_i32x4_shuffle(x, y, 1, 3, 5, 7));
    };
    wasm_v128_store(out, pair(pair(a, b), pair(c, d)));
  }
};

constexpr Kernels table() {
  Kernels k = kScalarTable;
  k.name = "simd128";
  k.products = Products<Simd128Isa>::products;
  k.add_low_rank = LowRank<Simd128Isa, scalar::scale>::add;
  k.scores = Attention<Simd128Isa>::scores;
  k.values = Attention<Simd128Isa>::values;
  return k;
}

}  // namespace

const Kernels kSimd128 = table();

}  // namespace superslm::kernels

#endif
