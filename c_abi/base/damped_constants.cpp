// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "base/damped_constants.h"

namespace superslm::base {

namespace {

// floor(x * 2^30)
constexpr uint64_t kLn2 = 744261117;  // ln 2
constexpr uint64_t kB = 1452772687;   // 1.353
constexpr uint64_t kC = 1030312935;   // 0.344 / 0.3585
constexpr int64_t kMaxPeak = int64_t{1} << 47;
constexpr int64_t kMaxLn2 = INT64_MAX / 30;

// floor(numerator * 2^shift / divisor) for divisor < 2^63, one bit of the quotient at a time; false above
// INT64_MAX.
bool divide(uint64_t numerator, int64_t shift, uint64_t divisor, int64_t* out) {
  if (shift < 0) numerator = shift > -64 ? numerator >> -shift : 0;
  uint64_t quotient = numerator / divisor;
  uint64_t rest = numerator % divisor;
  for (; shift > 0; --shift) {
    if (quotient > static_cast<uint64_t>(INT64_MAX) / 2) return false;
    rest *= 2;
    const bool carry = rest >= divisor;
    quotient = 2 * quotient + (carry ? 1 : 0);
    if (carry) rest -= divisor;
  }
  *out = static_cast<int64_t>(quotient);
  return true;
}

// q_b^2 + q_c where it lies in [0, 2^47]; false elsewhere, whatever the operands.
bool peak_of(const DampedConstants& c, int64_t* out) {
  const uint64_t b = c.q_b < 0 ? uint64_t{0} - static_cast<uint64_t>(c.q_b) : static_cast<uint64_t>(c.q_b);
  if (b >= uint64_t{1} << 32) return false;  // the square would exceed 2^47 + 2^63
  const uint64_t square = b * b;
  if (c.q_c < 0) {
    const uint64_t minus = uint64_t{0} - static_cast<uint64_t>(c.q_c);
    if (square < minus || square - minus > static_cast<uint64_t>(kMaxPeak)) return false;
    *out = static_cast<int64_t>(square - minus);
    return true;
  }
  if (square > static_cast<uint64_t>(kMaxPeak) || c.q_c > kMaxPeak - static_cast<int64_t>(square))
    return false;
  *out = static_cast<int64_t>(square) + c.q_c;
  return true;
}

}  // namespace

bool derive_damped_constants(int64_t mantissa, int64_t exponent, DampedConstants* out) {
  constexpr int64_t kFarExponent = 1 << 20;  // far outside any usable scale; keeps the shifts below exact
  if (mantissa < int64_t{1} << 30 || mantissa >= int64_t{1} << 31) return false;
  if (exponent < -kFarExponent || exponent > kFarExponent) return false;
  const auto m = static_cast<uint64_t>(mantissa);
  DampedConstants c;
  const bool fits = divide(kLn2, -30 - exponent, m, &c.q_ln2) && divide(kB, -30 - exponent, m, &c.q_b) &&
                    divide(kC, -30 - 2 * exponent, m * m, &c.q_c);
  if (!fits || c.q_ln2 < 1 || c.q_ln2 > kMaxLn2) return false;
  *out = c;
  return true;
}

bool damped_peak_in_domain(const DampedConstants& c) {
  int64_t peak = 0;
  return c.q_ln2 >= 1 && c.q_ln2 <= kMaxLn2 && peak_of(c, &peak) && peak >= 1;
}

bool damped_width_in_domain(const DampedConstants& c, int64_t width) {
  int64_t peak = 0;
  if (!peak_of(c, &peak)) return false;
  return peak == 0 || width <= INT64_MAX / peak;
}

}  // namespace superslm::base
