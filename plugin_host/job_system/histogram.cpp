// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "histogram.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace game {
namespace {

std::vector<int> count_bins(const std::vector<double>& samples, double bin, int bins) {
  std::vector<int> counts(static_cast<size_t>(bins));
  for (const double ms : samples) ++counts[std::min(static_cast<size_t>(ms / bin), counts.size() - 1)];
  return counts;
}

// ---- A picture of palette indices ----

constexpr int kWidth = 640, kHeight = 240, kBottom = 210, kTop = 20, kLeft = 20;
enum Ink : uint8_t { kPaper, kBar, kAxis, kMark };
constexpr std::array<uint8_t, 12> kPalette = {250, 248, 242, 58, 110, 165, 70, 66, 60, 200, 80, 40};

struct Picture {
  std::vector<uint8_t> pixels = std::vector<uint8_t>(kWidth * kHeight, kPaper);
  void fill(int x0, int y0, int x1, int y1, Ink ink) {
    for (int y = std::max(y0, 0); y < std::min(y1, kHeight); ++y) {
      for (int x = std::max(x0, 0); x < std::min(x1, kWidth); ++x) {
        pixels[static_cast<size_t>(y * kWidth + x)] = ink;
      }
    }
  }
  // Digits and a point, 3 by 5 dots of 2 pixels.
  void number(int x, int y, const char* text) {
    static constexpr uint16_t kDigits[] = {075557, 026227, 071747, 071717, 055711,
                                           074717, 074757, 071111, 075757, 075717};
    for (; *text != 0; ++text, x += 8) {
      const unsigned dots = *text == '.' ? 02u : kDigits[*text - '0'];
      for (int i = 0; i < 15; ++i) {
        if ((dots >> (14 - i) & 1) != 0) dot(x + i % 3 * 2, y + i / 3 * 2);
      }
    }
  }

 private:
  void dot(int x, int y) { fill(x, y, x + 2, y + 2, kAxis); }
};

Picture draw(const std::vector<int>& counts, double bin, double budget) {
  Picture picture;
  const auto bins = static_cast<int>(counts.size());
  const int step = (kWidth - 2 * kLeft) / bins,
            most = std::max(1, *std::max_element(counts.begin(), counts.end()));
  for (int i = 0; i < bins; ++i) {
    // A root scale keeps the few late frames visible beside the many good ones.
    const double part = std::sqrt(static_cast<double>(counts[static_cast<size_t>(i)]) / most);
    const int height = static_cast<int>(std::ceil(part * (kBottom - kTop)));
    picture.fill(kLeft + i * step + 1, kBottom - height, kLeft + (i + 1) * step - 1, kBottom, kBar);
    if (i % 4 == 0) {
      char label[16];
      std::snprintf(label, sizeof(label), "%g", i * bin);
      picture.fill(kLeft + i * step, kBottom, kLeft + i * step + 1, kBottom + 5, kAxis);
      picture.number(kLeft + i * step - 3, kBottom + 10, label);
    }
  }
  picture.fill(kLeft, kBottom, kWidth - kLeft, kBottom + 1, kAxis);
  const int mark = kLeft + static_cast<int>(budget / bin * step);
  picture.fill(mark, kTop, mark + 2, kBottom, kMark);
  return picture;
}

// ---- PNG with stored, uncompressed blocks ----

class Png {
 public:
  explicit Png(const Picture& picture) {
    put({0x89, 'P', 'N', 'G', 13, 10, 26, 10});
    std::vector<uint8_t> header;
    big_endian(header, kWidth);
    big_endian(header, kHeight);
    header.insert(header.end(), {2, 3, 0, 0, 0});  // 2 bits per pixel, palette
    chunk("IHDR", header);
    chunk("PLTE", {kPalette.begin(), kPalette.end()});
    chunk("IDAT", zlib(rows(picture)));
    chunk("IEND", {});
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  static std::vector<uint8_t> rows(const Picture& picture) {
    std::vector<uint8_t> out;
    for (int y = 0; y < kHeight; ++y) {
      out.push_back(0);  // no filter
      for (int x = 0; x < kWidth; x += 4) {
        const uint8_t* p = &picture.pixels[static_cast<size_t>(y * kWidth + x)];
        out.push_back(static_cast<uint8_t>(p[0] << 6 | p[1] << 4 | p[2] << 2 | p[3]));
      }
    }
    return out;
  }
  static std::vector<uint8_t> zlib(const std::vector<uint8_t>& data) {
    std::vector<uint8_t> out = {0x78, 0x01};
    uint32_t a = 1, b = 0;
    for (size_t at = 0; at < data.size();) {
      const size_t size = std::min<size_t>(data.size() - at, 65535);
      const auto low = static_cast<uint8_t>(size), high = static_cast<uint8_t>(size >> 8);
      const auto last = static_cast<uint8_t>(at + size == data.size());
      out.insert(out.end(), {last, low, high, static_cast<uint8_t>(~low), static_cast<uint8_t>(~high)});
      for (const size_t end = at + size; at < end; ++at) {
        out.push_back(data[at]);
        a = (a + data[at]) % 65521;
        b = (b + a) % 65521;
      }
    }
    big_endian(out, b << 16 | a);
    return out;
  }
  static uint32_t crc(const std::vector<uint8_t>& data) {
    uint32_t value = ~0u;
    for (const uint8_t byte : data) {
      value ^= byte;
      for (int i = 0; i < 8; ++i) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0u);
    }
    return ~value;
  }
  static void big_endian(std::vector<uint8_t>& out, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
  }
  void put(const std::vector<uint8_t>& data) { bytes_.insert(bytes_.end(), data.begin(), data.end()); }
  void chunk(const char* name, const std::vector<uint8_t>& data) {
    std::vector<uint8_t> body(name, name + 4);
    body.insert(body.end(), data.begin(), data.end());
    big_endian(bytes_, static_cast<uint32_t>(data.size()));
    put(body);
    big_endian(bytes_, crc(body));
  }
  std::vector<uint8_t> bytes_;
};

}  // namespace

double quantile(std::vector<double> samples, double part) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(part * static_cast<double>(samples.size() - 1) + 0.5)];
}

std::string histogram_text(const std::vector<double>& samples, double bin, int bins) {
  const std::vector<int> counts = count_bins(samples, bin, bins);
  const int most = std::max(1, *std::max_element(counts.begin(), counts.end()));
  std::string out;
  for (int i = 0; i < bins; ++i) {
    const int count = counts[static_cast<size_t>(i)];
    const int width = (count * 50 + most - 1) / most;
    char line[128];
    std::snprintf(line, sizeof(line), "%5.1f ms%s |%s %d\n", i * bin, i + 1 == bins ? "+" : " ",
                  std::string(static_cast<size_t>(width), '#').c_str(), count);
    out += line;
  }
  return out;
}

bool histogram_png(const char* path, const std::vector<double>& samples, double bin, int bins,
                   double budget) {
  const Png png(draw(count_bins(samples, bin, bins), bin, budget));
  std::FILE* file = std::fopen(path, "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(png.bytes().data(), 1, png.bytes().size(), file) == png.bytes().size();
  return std::fclose(file) == 0 && written;
}

}  // namespace game
