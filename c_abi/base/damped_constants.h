// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Constants of damped greedy: the integer exponential of I-BERT (arXiv 2101.01321) on a logit scale S = m *
// 2^e.
#pragma once

#include <cstdint>

namespace superslm::base {

struct DampedConstants {
  int64_t q_ln2 = 0;  // ln 2 / S
  int64_t q_b = 0;    // 1.353 / S
  int64_t q_c = 0;    // (0.344 / 0.3585) / S^2
};

// Exact floors of the quotients. False when m is outside [2^30, 2^31), q_ln2 outside 1..INT64_MAX / 30 or a
// constant does not fit int64.
bool derive_damped_constants(int64_t mantissa, int64_t exponent, DampedConstants* out);

// The exponential's value at 0, q_b^2 + q_c, lies in [1, 2^47], and q_ln2 in 1..INT64_MAX / 30.
bool damped_peak_in_domain(const DampedConstants& constants);

// q_b^2 + q_c lies in [0, 2^47] and `width` (>= 0) times it fits int64.
bool damped_width_in_domain(const DampedConstants& constants, int64_t width);

}  // namespace superslm::base
