// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Draws from the largest vocabulary with all logits equal, where the sum of the weights is the largest there
// is. Prints a token for each pair of top_p and min_p.
//
//   sample_extremes SEED TOP_P MIN_P [TOP_P MIN_P]...
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "decode/select.h"

int main(int argc, char** argv) {
  using namespace superslm::decode;
  constexpr int32_t kVocab = 1 << 19;
  if (argc < 4 || argc % 2 != 0) return 2;
  std::vector<int32_t> logits(kVocab), candidates(kVocab);
  std::vector<uint32_t> weights(kVocab);
  const LogitRow row{logits.data(), candidates.data(), weights.data(), kVocab, 0};
  SequenceState state;
  state.length = 7;
  Sampling sampling;
  sampling.seed = std::strtoull(argv[1], nullptr, 10);
  sampling.inverse_temperature = uint64_t{1} << 32;
  for (int i = 2; i < argc; i += 2) {
    sampling.top_p = std::atoi(argv[i]);
    sampling.min_p = std::atoi(argv[i + 1]);
    std::printf("%d\n", sample(sampling, nullptr, state, row));
  }
  return 0;
}
