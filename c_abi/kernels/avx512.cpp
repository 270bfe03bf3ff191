// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_X86)

#include "kernels/avx512_attention.h"

namespace superslm::kernels {

const Kernels kAvx512 = avx512_table<MaddDot>("avx512");

}  // namespace superslm::kernels

#endif
