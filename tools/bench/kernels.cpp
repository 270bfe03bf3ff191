// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Speed of single kernels on every tier that this processor has, in time of the thread: products against a
// plain read of the same bytes, attention per position and query head, work on one row per element.
//
//     c++ -std=c++20 -O2 -Ic_abi tools/bench/kernels.cpp build/seams/c_abi/libsuperslm.a -o kernels
//     ./kernels [TIER ...] [products] [attention] [rows]      all of them when none is named
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"

namespace {

using namespace superslm::kernels;

constexpr int kRounds = 7;

// Lines of memory whose values do not matter to speed; real tensors lie at any alignment of 64.
class Bytes {
 public:
  explicit Bytes(size_t size)
      : data_(static_cast<uint8_t*>(std::aligned_alloc(64, (size + 4095) / 64 * 64))) {
    if (data_ == nullptr) std::abort();
    uint64_t state = size;
    for (size_t i = 0; i + 8 <= size; i += 8) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(data_ + i, &state, 8);
    }
  }
  Bytes(const Bytes&) = delete;
  ~Bytes() { std::free(data_); }
  uint8_t* data() { return data_; }
  int16_t* halves() { return reinterpret_cast<int16_t*>(data_); }
  int32_t* words() { return reinterpret_cast<int32_t*>(data_); }

 private:
  uint8_t* data_;
};

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The best of a few rounds.
template <typename F>
double seconds(F work) {
  double best = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    const double begin = now();
    work();
    const double time = now() - begin;
    best = time < best ? time : best;
  }
  return best;
}

// A plain read, four lines at a time.
uint64_t read_all(const uint8_t* bytes, size_t size) {
  uint64_t sum[4] = {};
  for (size_t i = 0; i + 256 <= size; i += 256) {
    for (size_t u = 0; u < 4; ++u) {
      uint64_t line;
      std::memcpy(&line, bytes + i + 64 * u, 8);
      sum[u] += line;
    }
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

// Products of a matrix too large for any cache.
void bench_products(const Kernels& k, int32_t inputs, bool four_bit) {
  constexpr size_t kMatrixBytes = size_t{160} << 20;
  WeightRows w{};
  w.blocks = inputs / kBlock;
  w.four_bit = four_bit;
  const size_t blocks = static_cast<size_t>(w.blocks);
  w.value_stride = blocks * (four_bit ? 16 : 32);
  w.scale_stride = four_bit ? blocks * 2 : (blocks + 1) / 2;
  const size_t rows = kMatrixBytes / w.value_stride / kTileRows * kTileRows;
  Bytes values(rows * w.value_stride), scales(rows * w.scale_stride), panel(kPanelElements * sizeof(int16_t));
  const double bytes = static_cast<double>(rows * (w.value_stride + w.scale_stride));
  uint64_t sink = 0;
  const double read = seconds([&] {
    sink += read_all(values.data(), rows * w.value_stride) + read_all(scales.data(), rows * w.scale_stride);
  });
  std::printf("%-11s read            %5d %3s %21.1f GB/s%s\n", k.name, inputs, four_bit ? "W4" : "W8",
              bytes / read / 1e9, sink == 42 ? " " : "");
  for (int32_t tokens : {1, 2, 4, 8, 9, 12, 16, 32, 128}) {
    const size_t part = tokens > 8 ? rows / static_cast<size_t>(tokens) * 4 / kTileRows * kTileRows : rows;
    const size_t stride = static_cast<size_t>(inputs) + 32;
    Bytes a(stride * static_cast<size_t>(tokens) * 2);
    for (size_t i = 0; i < stride * static_cast<size_t>(tokens); ++i) a.halves()[i] /= 2;
    std::vector<int64_t> acc(static_cast<size_t>(tokens) * kTileRows);
    const Activations x{a.halves(), stride, tokens};
    const double time = seconds([&] {
      for (size_t r = 0; r < part; r += kTileRows) {
        WeightRows tile = w;
        tile.values = values.data() + r * w.value_stride;
        tile.scales = scales.data() + r * w.scale_stride;
        k.products(tile, kTileRows, x, acc.data(), kTileRows, tokens > kFewRows ? panel.halves() : nullptr);
      }
    });
    const double share = static_cast<double>(part) / static_cast<double>(rows);
    std::printf("%-11s products x %-4d %5d %3s %8.1f GMAC/s %5.1f GB/s\n", k.name, tokens, inputs,
                four_bit ? "W4" : "W8", static_cast<double>(part) * inputs * tokens / time / 1e9,
                share * bytes / time / 1e9);
  }
}

// Attention of some query heads over positions whose keys lie in cache, in runs of a page.
void bench_attention(const Kernels& k, int32_t heads, int32_t head_dim, bool centred) {
  constexpr int64_t kPositions = 2048, kPage = 64;
  const size_t hd = static_cast<size_t>(head_dim), n = kPositions, h = static_cast<size_t>(heads);
  Bytes rows(n * hd), trig(n * hd * 2), query(h * hd * 2), center(h * hd * 4), scores(h * n * 8);
  Bytes high(h * n * 2), low(h * n * 2), sums(h * hd * 8);
  for (size_t i = 0; i < h * hd; ++i) query.halves()[i] /= 2;
  for (size_t i = 0; i < 2 * h * hd; ++i) center.halves()[i] /= 256;
  for (size_t i = 0; i < n * hd; ++i) trig.halves()[i] /= 2;
  for (size_t i = 0; i < h * n; ++i) high.halves()[i] &= 32767;
  for (size_t i = 0; i < h * n; ++i) low.halves()[i] &= 32767;
  std::vector<Query> queries(h);
  std::vector<ValueSum> value_sums(h);
  int64_t* all_scores = reinterpret_cast<int64_t*>(scores.data());
  const double per = 1e9 / static_cast<double>(n * h);
  const double score = seconds([&] {
    for (int64_t j = 0; j < kPositions; j += kPage) {
      const size_t at = static_cast<size_t>(j);
      for (size_t i = 0; i < h; ++i) {
        queries[i] = {query.halves() + i * hd, centred ? center.halves() + 2 * i * hd : nullptr, 4, 6,
                      all_scores + i * n + at};
      }
      k.scores(queries.data(), heads, reinterpret_cast<int8_t*>(rows.data()) + at * hd,
               centred ? trig.data() + at * hd * 2 : nullptr, kPage, head_dim);
    }
  });
  const double weigh = seconds([&] {
    for (size_t i = 0; i < h; ++i) {
      k.weigh(all_scores + i * n, kPositions, 20, high.halves() + i * n, low.halves() + i * n);
    }
  });
  const double value = seconds([&] {
    for (int64_t j = 0; j < kPositions; j += kPage) {
      const size_t at = static_cast<size_t>(j);
      for (size_t i = 0; i < h; ++i) {
        value_sums[i] = {high.halves() + i * n + at, low.halves() + i * n + at,
                         reinterpret_cast<int64_t*>(sums.data()) + i * hd};
      }
      k.values(value_sums.data(), heads, reinterpret_cast<int8_t*>(rows.data()) + at * hd, kPage, head_dim);
    }
  });
  std::printf(
      "%-11s attention of %d heads of %d%s: scores %.2f, weigh %.2f, values %.2f ns per position and head\n",
      k.name, heads, head_dim, centred ? ", centred" : "", score * per, weigh * per, value * per);
}

void bench_rows(const Kernels& k) {
  constexpr int32_t kWidth = 4864, kTimes = 20;
  const size_t n = kWidth;
  Bytes x(n * 4), y(n * 4), gains(n * 4), out(n * 4), sigmoid(1025 * 4);
  std::vector<int64_t> acc(n);
  for (size_t i = 0; i < n; ++i) x.words()[i] >>= 13;  // Q16 values up to 4, which no site clamps
  for (size_t i = 0; i < n; ++i) y.words()[i] >>= 13;
  for (size_t i = 0; i < 1025; ++i) sigmoid.words()[i] = 1 << 20;
  const auto per_element = [&](const char* name, auto work) {
    const double time = seconds([&] {
      for (int i = 0; i < kTimes; ++i) work();
    });
    std::printf("%-11s %-15s %6.3f ns per element\n", k.name, name, 1e9 * time / kTimes / kWidth);
  };
  per_element("norm", [&] { k.norm(x.words(), gains.data(), kWidth, 1, out.words()); });
  per_element("quantise", [&] { k.quantise(x.words(), kWidth, out.halves()); });
  per_element("silu_multiply", [&] {
    std::memcpy(out.data(), x.data(), n * 4);
    k.silu_multiply(out.words(), y.words(), kWidth, sigmoid.data(), 12);
  });
  per_element("scale", [&] { k.scale(acc.data(), gains.data(), kWidth, 20); });
  per_element("saturate", [&] { k.saturate(acc.data(), gains.data(), kWidth, out.words()); });
  per_element("argmax", [&] { k.argmax(x.words(), kWidth); });
}

// Whether one of the arguments names it, or none of its kind is named.
bool wanted(const char* name, const std::vector<const char*>& named) {
  for (const char* other : named) {
    if (std::strcmp(name, other) == 0) return true;
  }
  return named.empty();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<const char*> parts, names;
  for (int i = 1; i < argc; ++i) {
    const bool part = std::strcmp(argv[i], "products") == 0 || std::strcmp(argv[i], "attention") == 0 ||
                      std::strcmp(argv[i], "rows") == 0;
    (part ? parts : names).push_back(argv[i]);
  }
  Tier all[kMostTiers];
  const int32_t count = tiers(all);
  for (int32_t i = 0; i < count; ++i) {
    if (all[i].kernels == nullptr || !wanted(all[i].name, names)) continue;
    const Kernels& k = *all[i].kernels;
    if (wanted("products", parts)) {
      bench_products(k, 896, false);
      bench_products(k, 4864, false);
      bench_products(k, 896, true);
    }
    if (wanted("attention", parts)) {
      bench_attention(k, 7, 64, true);
      bench_attention(k, 3, 64, false);
    }
    if (wanted("rows", parts)) bench_rows(k);
    std::fflush(stdout);
  }
  return 0;
}
