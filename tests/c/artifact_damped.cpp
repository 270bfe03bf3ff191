// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// artifact_damped: reads "derive M E" and "check Q_LN2 Q_B Q_C WIDTH" from standard input, answers one line
// each.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/damped_constants.h"

int main() {
  using namespace superslm::base;
  char word[16];
  while (std::scanf("%15s", word) == 1) {
    DampedConstants c;
    if (std::strcmp(word, "derive") == 0) {
      int64_t m = 0, e = 0;
      if (std::scanf("%" SCNd64 " %" SCNd64, &m, &e) != 2) return 2;
      if (derive_damped_constants(m, e, &c)) {
        std::printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", c.q_ln2, c.q_b, c.q_c);
      } else {
        std::printf("refused\n");
      }
    } else {
      int64_t width = 0;
      if (std::scanf("%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &c.q_ln2, &c.q_b, &c.q_c, &width) != 4)
        return 2;
      std::printf("%d %d\n", damped_peak_in_domain(c) ? 1 : 0, damped_width_in_domain(c, width) ? 1 : 0);
    }
  }
  return 0;
}
