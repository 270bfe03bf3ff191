// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Every tier gives the scalar kernels' bits, on random and extreme inputs of every size, at odd addresses,
// with unreadable pages on both sides of every input. A tier that this processor lacks is named as skipped.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "guarded.h"
#include "kernels/kernels.h"

namespace {

using namespace superslm::kernels;

const char* tier_name;
const char* kernel_name;
std::string shape;

struct Random {
  uint64_t state;
  uint64_t next() {  // splitmix64
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  // Mostly the ends of a range when extreme.
  int64_t pick(int64_t low, int64_t high, bool extreme) {
    if (!extreme || next() % 4 == 0) return between(low, high);
    return next() % 2 ? low : high;
  }
};

Random random_bits{1};

// Elements that end (or begin) exactly at unreadable memory.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, bool at_end = random_bits.next() % 4 != 0)
      : count_(count), bytes_(count * sizeof(T), at_end) {}
  T* data() { return reinterpret_cast<T*>(bytes_.data()); }
  void set(size_t i, T value) { std::memcpy(bytes_.data() + i * sizeof(T), &value, sizeof(T)); }
  void fill(int64_t low, int64_t high, bool extreme) {
    for (size_t i = 0; i < count_; ++i) set(i, static_cast<T>(random_bits.pick(low, high, extreme)));
  }
  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(bytes_.data()); }

 private:
  size_t count_;
  superslm::tests::GuardedBytes bytes_;
};

template <typename T>
void expect_equal(const T* expected, const T* got, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (expected[i] == got[i]) continue;
    std::fprintf(stderr, "%s %s %s: element %zu of %zu is %lld, scalar gives %lld\n", tier_name, kernel_name,
                 shape.c_str(), i, count, static_cast<long long>(got[i]),
                 static_cast<long long>(expected[i]));
    std::exit(1);
  }
}

template <typename T>
void expect_equal(T expected, T got) {
  expect_equal(&expected, &got, 1);
}

template <typename... Numbers>
void describe(Numbers... numbers) {
  shape.clear();
  ((shape += std::to_string(numbers) + " "), ...);
}

// With `all` every activation is that, and every weight the one that fills a lane most.
void check_products(const Kernels& k, int32_t blocks, int32_t rows, int32_t tokens, bool four_bit,
                    bool extreme, bool with_panel, int64_t all = 0) {
  describe(blocks, rows, tokens, four_bit, extreme, with_panel, all);
  WeightRows w{};
  w.blocks = blocks;
  w.four_bit = four_bit;
  const size_t b = static_cast<size_t>(blocks), r = static_cast<size_t>(rows),
               t = static_cast<size_t>(tokens);
  w.value_stride = b * (four_bit ? 16 : 32);
  w.scale_stride = four_bit ? b * 2 : (b + 1) / 2;
  Guarded<uint8_t> values(w.value_stride * r), scales(w.scale_stride * r);
  values.fill(0, 255, false);
  scales.fill(0, 255, extreme);
  if (extreme) values.fill(four_bit ? 0 : 0x80, four_bit ? 0xff : 0x80, true);
  if (extreme) scales.fill(255, 255, true);
  w.values = values.bytes();
  w.scales = scales.bytes();
  Guarded<int16_t> a(b * 32 * t), panel(kPanelElements);
  a.fill(-16384, 16384, extreme);
  if (extreme && random_bits.next() % 2) a.fill(16384, 16384, true);
  if (all != 0) a.fill(all, all, true);
  if (all != 0 && four_bit) values.fill(0xff, 0xff, true);
  const Activations x{a.data(), b * 32, tokens};
  std::vector<int64_t> expected(t * kTileRows, -1), got(t * kTileRows, -1);
  kScalar.products(w, rows, x, expected.data(), kTileRows, nullptr);
  k.products(w, rows, x, got.data(), kTileRows, with_panel ? panel.data() : nullptr);
  expect_equal(expected.data(), got.data(), expected.size());
}

void products(const Kernels& k) {
  kernel_name = "products (blocks rows tokens four_bit extreme panel all)";
  for (int32_t blocks = 1; blocks <= 70; ++blocks) {
    for (int i = 0; i < 4; ++i) {
      check_products(k, blocks, static_cast<int32_t>(random_bits.between(1, kTileRows)),
                     static_cast<int32_t>(random_bits.between(1, 20)), i & 1, i & 2, random_bits.next() % 2);
      check_products(k, blocks, 7, 1, i & 1, i & 2, false);
    }
  }
  for (int32_t tokens = 1; tokens <= 40; ++tokens) {
    for (int i = 0; i < 8; ++i) {
      check_products(k, static_cast<int32_t>(random_bits.between(1, 40)), i % 3 ? kTileRows : 5, tokens,
                     i & 1, i & 2, i & 4);
    }
  }
  for (int32_t rows = 1; rows <= kTileRows; ++rows) check_products(k, 1, rows, 1, false, rows & 1, false);
  for (int32_t blocks : {28, 152, 280, 319, 320, 321, 2048}) {
    for (int i = 0; i < 4; ++i)
      check_products(k, blocks, blocks > 300 ? 4 : kTileRows, 1 + 11 * (i / 2), i & 1, true, true);
    // Also the ends of a byte plane: 16256 is 64 * 256 - 128.
    for (int32_t all : {16384, -16384, 16256, -16256}) {
      for (int i = 0; i < 4; ++i) check_products(k, blocks, 4, 1 + i / 2, i & 1, true, false, all);
    }
  }
}

void low_rank(const Kernels& k, int32_t rank, bool extreme) {
  kernel_name = "add_low_rank (rank first rows extreme shift)";
  const int32_t pairs = (rank + 1) / 2, most_rows = 150,
                tiles = (most_rows + kLowRankTile - 1) / kLowRankTile;
  const size_t lanes = static_cast<size_t>(tiles) * kLowRankTile;
  Guarded<uint8_t> values(lanes * 2 * static_cast<size_t>(pairs));
  Guarded<uint8_t> scales(lanes * static_cast<size_t>((rank + 31) / 32));
  Guarded<int32_t> w(static_cast<size_t>(most_rows));
  Guarded<int16_t> b(2 * static_cast<size_t>(pairs));
  values.fill(0, 255, false);
  if (extreme) values.fill(0x80, 0x80, true);
  scales.fill(0, 15, extreme);
  w.fill(1, 1 << 23, extreme);
  b.fill(-16384, 16384, extreme);
  if (extreme && random_bits.next() % 2) b.fill(16384, 16384, true);
  const LowRankRows m{values.bytes(), scales.bytes(), w.bytes(), pairs};
  for (int32_t shift : {17, 40, 62}) {
    const int32_t rows = static_cast<int32_t>(random_bits.between(1, kTileRows));
    const int32_t first = random_bits.next() % 3
                              ? most_rows - rows
                              : static_cast<int32_t>(random_bits.between(0, most_rows - rows));
    describe(rank, first, rows, extreme, shift);
    Guarded<int64_t> y(static_cast<size_t>(rows));
    y.fill(-(int64_t{1} << 45), int64_t{1} << 45, extreme);
    std::vector<int64_t> expected(y.data(), y.data() + rows);
    kScalar.add_low_rank(m, first, rows, b.data(), shift, expected.data());
    k.add_low_rank(m, first, rows, b.data(), shift, y.data());
    expect_equal(expected.data(), y.data(), expected.size());
  }
}

void epilogues(const Kernels& k, int32_t n, bool extreme) {
  const size_t size = static_cast<size_t>(n);
  describe(n, extreme);
  Guarded<int64_t> acc(size), y(size);
  Guarded<int32_t> w(size), bias(size), out(size);
  std::vector<int64_t> expected(size);
  std::vector<int32_t> expected_out(size);
  const int64_t most = int64_t{1} << 42;
  for (int32_t shift : {0, 1, 31, 32, 45, 62}) {
    kernel_name = "scale";
    acc.fill(-most, most, extreme);
    w.fill(1, 1 << 23, extreme);
    std::memcpy(expected.data(), acc.data(), size * sizeof(int64_t));
    kScalar.scale(expected.data(), w.bytes(), n, shift);
    k.scale(acc.data(), w.bytes(), n, shift);
    expect_equal(expected.data(), acc.data(), size);
  }
  for (int pass = 0; pass < 2; ++pass) {
    const int64_t far = pass ? int64_t{1} << 62 : int64_t{3} << 31;
    y.fill(-far, far, extreme);
    bias.fill(INT32_MIN, INT32_MAX, extreme);
    kernel_name = "saturate";
    for (const uint8_t* b :
         {static_cast<const uint8_t*>(nullptr), static_cast<const uint8_t*>(bias.bytes())}) {
      expect_equal(kScalar.saturate(y.data(), b, n, expected_out.data()),
                   k.saturate(y.data(), b, n, out.data()));
      expect_equal(expected_out.data(), out.data(), size);
    }
    kernel_name = "add";
    out.fill(INT32_MIN, INT32_MAX, extreme);
    std::memcpy(expected_out.data(), out.data(), size * sizeof(int32_t));
    expect_equal(kScalar.add(y.data(), n, expected_out.data()), k.add(y.data(), n, out.data()));
    expect_equal(expected_out.data(), out.data(), size);
  }
}

void vectors(const Kernels& k, int32_t n, int32_t bits, bool extreme) {
  const size_t size = static_cast<size_t>(n);
  describe(n, bits, extreme);
  const int64_t top = (int64_t{1} << bits) - 1, low = bits == 31 ? INT32_MIN : -top;
  Guarded<int32_t> x(size), m(size), out(size);
  Guarded<int16_t> a(size);
  Guarded<int8_t> landed(size);
  x.fill(low, top, extreme);
  m.fill(-(1 << 30), 1 << 30, extreme);
  std::vector<int32_t> expected(size);
  kernel_name = "norm";
  for (uint64_t epsilon : {uint64_t{0}, uint64_t{1}, uint64_t{1546188}, (uint64_t{1} << 61) - 1}) {
    kScalar.norm(x.data(), m.bytes(), n, epsilon, expected.data());
    k.norm(x.data(), m.bytes(), n, epsilon, out.data());
    expect_equal(expected.data(), out.data(), size);
  }
  kernel_name = "quantise";
  std::vector<int16_t> expected_a(size);
  expect_equal(kScalar.quantise(x.data(), n, expected_a.data()), k.quantise(x.data(), n, a.data()));
  expect_equal(expected_a.data(), a.data(), size);
  kernel_name = "scale_query";
  kScalar.scale_query(x.data(), m.bytes(), n, expected.data());
  k.scale_query(x.data(), m.bytes(), n, out.data());
  expect_equal(expected.data(), out.data(), size);
  kernel_name = "land";
  std::vector<int8_t> expected_landed(size);
  for (int32_t shift : {1, 30, 41, 62}) {
    expect_equal(kScalar.land(x.data(), m.bytes(), n, shift, expected_landed.data()),
                 k.land(x.data(), m.bytes(), n, shift, landed.data()));
    expect_equal(expected_landed.data(), landed.data(), size);
  }
  kernel_name = "argmax";
  expect_equal(kScalar.argmax(x.data(), n), k.argmax(x.data(), n));
}

void rotations(const Kernels& k, int32_t half, bool extreme) {
  kernel_name = "rotate";
  describe(half, extreme);
  const size_t size = static_cast<size_t>(half) * 6;
  Guarded<int32_t> x(size), c(static_cast<size_t>(half)), s(static_cast<size_t>(half));
  x.fill(INT32_MIN, INT32_MAX, extreme);
  c.fill(-(1 << 30), 1 << 30, extreme);
  s.fill(-(1 << 30), 1 << 30, extreme);
  std::vector<int32_t> expected(x.data(), x.data() + size);
  expect_equal(kScalar.rotate(expected.data(), 3, 2 * half, c.data(), s.data()),
               k.rotate(x.data(), 3, 2 * half, c.data(), s.data()));
  expect_equal(expected.data(), x.data(), size);
}

void silu(const Kernels& k, int32_t n, int32_t bits, bool extreme) {
  kernel_name = "silu_multiply";
  describe(n, bits, extreme);
  const size_t size = static_cast<size_t>(n);
  Guarded<int32_t> sigmoid(1025), gate(size), up(size);
  int32_t value = 1 << 30;
  for (size_t i = 0; i <= 1024; ++i) {  // non-increasing, steps up to 2^22, down to 0
    sigmoid.set(i, value);
    const int64_t step = random_bits.pick(0, 1 << 22, extreme);
    value = value > step ? value - static_cast<int32_t>(step) : 0;
  }
  gate.fill(-((int64_t{1} << bits) - 1), (int64_t{1} << bits) - 1, extreme);
  up.fill(-INT32_MAX, INT32_MAX, extreme);
  for (int32_t shift : {2, 12, 32}) {
    std::vector<int32_t> expected(gate.data(), gate.data() + size);
    expect_equal(kScalar.silu_multiply(expected.data(), up.data(), n, sigmoid.bytes(), shift),
                 k.silu_multiply(gate.data(), up.data(), n, sigmoid.bytes(), shift));
    expect_equal(expected.data(), gate.data(), size);
  }
}

void scores(const Kernels& k, int32_t head_dim, int64_t count, int32_t heads, bool centred, bool extreme) {
  kernel_name = "scores";
  describe(head_dim, count, heads, centred, extreme);
  const size_t hd = static_cast<size_t>(head_dim), n = static_cast<size_t>(count),
               h = static_cast<size_t>(heads);
  Guarded<int8_t> keys(n * hd);
  Guarded<int16_t> trig(n * hd), query(h * hd), center(2 * h * hd);
  keys.fill(-128, 127, extreme);
  trig.fill(-16384, 16384, extreme);
  query.fill(-16384, 16384, extreme);
  for (size_t i = 0; i < h * hd; ++i) {
    const size_t at = i / hd * 2 * hd + i % hd;
    center.data()[at] = static_cast<int16_t>(random_bits.pick(-64, 64, extreme));
    center.data()[at + hd] = static_cast<int16_t>(random_bits.pick(-128, 127, extreme));
  }
  std::vector<int64_t> expected(n * h, -1), got(n * h, -1);
  std::vector<Query> a, b;
  for (size_t i = 0; i < h; ++i) {
    const int32_t shift = static_cast<int32_t>(random_bits.pick(0, 62, extreme));
    const int32_t center_shift = static_cast<int32_t>(random_bits.pick(0, 62, extreme));
    a.push_back({query.data() + i * hd, centred ? center.data() + 2 * i * hd : nullptr, shift, center_shift,
                 expected.data() + i * n});
    b.push_back(a.back());
    b.back().scores = got.data() + i * n;
    b.back().next_keys = i == 0 ? keys.data() : nullptr;
  }
  kScalar.scores(a.data(), heads, keys.data(), centred ? trig.bytes() : nullptr, count, head_dim);
  k.scores(b.data(), heads, keys.data(), centred ? trig.bytes() : nullptr, count, head_dim);
  expect_equal(expected.data(), got.data(), expected.size());
}

uint64_t digest(uint64_t hash, const void* bytes, size_t size) {  // FNV-1a
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001b3u;
  return hash;
}

// Widths at and around every boundary a kernel or a buffer might have.
std::vector<int64_t> softmax_widths() {
  std::vector<int64_t> widths;
  for (int64_t n = 1; n <= 300; ++n) widths.push_back(n);
  for (int64_t n : {4095, 4096, 4097, 16383, 16384, 16385, 32766, 32767, 32768, 32769, 100000})
    widths.push_back(n);
  return widths;
}

uint64_t softmax(const Kernels& k) {
  uint64_t hash = 0xcbf29ce484222325u;
  Random saved = random_bits;
  random_bits = Random{4242};
  for (int64_t n : softmax_widths()) {
    const size_t size = static_cast<size_t>(n);
    Guarded<int64_t> s(size, true);
    Guarded<int16_t> high(size, true), low(size, true);
    std::vector<int16_t> expected_high(size), expected_low(size);
    for (int32_t exponent : {22, 16, 20, 15, -13, 60, 48}) {
      kernel_name = "weigh";
      describe(n, exponent);
      const int32_t bits = exponent < 17 ? 20 : exponent < 40 ? exponent + 4 : 38;
      s.fill(-(int64_t{1} << bits), int64_t{1} << bits, false);
      if (exponent == 60) s.fill(7, 7, false);
      const uint64_t total = kScalar.weigh(s.data(), n, exponent, expected_high.data(), expected_low.data());
      expect_equal(total, k.weigh(s.data(), n, exponent, high.data(), low.data()));
      expect_equal(expected_high.data(), high.data(), size);
      expect_equal(expected_low.data(), low.data(), size);
      hash = digest(digest(digest(hash, &total, 8), high.data(), size * 2), low.data(), size * 2);
    }
  }
  random_bits = saved;
  return hash;
}

void values(const Kernels& k, int32_t head_dim, int64_t count, int32_t heads, bool extreme) {
  kernel_name = "values";
  describe(head_dim, count, heads, extreme);
  const size_t hd = static_cast<size_t>(head_dim), n = static_cast<size_t>(count),
               h = static_cast<size_t>(heads);
  Guarded<int8_t> v(n * hd);
  Guarded<int16_t> high(n * h), low(n * h);
  v.fill(-128, 127, extreme);
  high.fill(0, 32767, extreme);
  low.fill(0, 32767, extreme);
  if (extreme && random_bits.next() % 2) {
    v.fill(-128, -128, true);
    high.fill(32767, 32767, true);
    low.fill(32767, 32767, true);
  }
  std::vector<int64_t> expected(hd * h), got;
  for (int64_t& sum : expected) sum = random_bits.between(-(int64_t{1} << 50), int64_t{1} << 50);
  got = expected;
  std::vector<ValueSum> a, b;
  for (size_t i = 0; i < h; ++i) {
    a.push_back({high.data() + i * n, low.data() + i * n, expected.data() + i * hd});
    b.push_back({high.data() + i * n, low.data() + i * n, got.data() + i * hd, i == 0 ? v.data() : nullptr});
  }
  kScalar.values(a.data(), heads, v.data(), count, head_dim);
  k.values(b.data(), heads, v.data(), count, head_dim);
  expect_equal(expected.data(), got.data(), expected.size());
}

void check_tier(const Kernels& k) {
  products(k);
  for (int32_t n = 1; n <= kTileRows; ++n) {
    epilogues(k, n, false);
    epilogues(k, n, true);
    for (int32_t rank : {n, 256 - n}) low_rank(k, rank, n % 2);
  }
  for (int32_t rank : {1, 16, 31, 32, 33, 256}) {
    low_rank(k, rank, false);
    low_rank(k, rank, true);
  }
  for (int32_t n = 1; n <= 300; ++n) {
    for (int32_t bits : {1, 7, 14, 15, 22, 23, 30, 31}) vectors(k, n, bits, n % 2);
    rotations(k, n % 256 + 1, n % 2);
    silu(k, n, n % 2 ? 20 : 31, n % 3 == 0);
  }
  for (int32_t n : {576, 896, 1536, 4864, 32768}) {
    for (int32_t bits : {7, 23, 30}) vectors(k, n, bits, false);
    vectors(k, n, 31, true);
  }
  for (int32_t head_dim : {2, 6, 16, 32, 64, 66, 80, 96, 128, 512}) {
    for (int32_t heads : {1, 2, 3, 4, 5, 6, 7, 8, 11}) {
      for (int64_t count : {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 129}) {
        for (int i = 0; i < 4; ++i) scores(k, head_dim, count, heads, i & 1, i & 2);
        values(k, head_dim, count, heads, count % 2);
      }
    }
    for (int64_t count : {511, 512, 513, 1025, 2000}) {
      values(k, head_dim, count, 3, true);
      scores(k, head_dim, count, 3, true, true);
    }
  }
  tier_name = k.name;
  const uint64_t hash = softmax(k);
  if (hash != 0x6a497e13ddd04025u) {
    std::fprintf(stderr, "%s: softmax digest is %016llx\n", k.name, static_cast<unsigned long long>(hash));
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Tier all[kMostTiers];
  const int32_t count = tiers(all);
  for (int32_t i = 0; i < count; ++i) {
    if (argc > 1 && std::strcmp(argv[1], all[i].name) != 0) continue;
    tier_name = all[i].name;
    if (all[i].kernels == nullptr) {
      std::printf("skipped %s: this processor lacks it\n", all[i].name);
      continue;
    }
    check_tier(*all[i].kernels);
    std::printf("ok %s\n", all[i].name);
  }
  return 0;
}
