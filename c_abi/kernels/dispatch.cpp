// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kernels/kernels.h"

namespace superslm::kernels {

const Tier* tiers(int32_t* count) {
  static const Tier kTiers[] = {{"scalar", &kScalar}};
  *count = static_cast<int32_t>(sizeof(kTiers) / sizeof(kTiers[0]));
  return kTiers;
}

const Kernels& active() { return kScalar; }

}  // namespace superslm::kernels
