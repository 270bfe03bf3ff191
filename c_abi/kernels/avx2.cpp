// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "kernels/tiers.h"

#if defined(SSLM_KERNELS_X86)

#include "kernels/avx2.h"

namespace superslm::kernels {

const Kernels kAvx2 = avx2_table<Avx2Dot>("avx2");

}  // namespace superslm::kernels

#endif
