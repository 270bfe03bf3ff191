// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// The tiers that this processor family has. A tier's file is compiled for its own instruction set; it must
// not run, nor lend an inline function, before dispatch has seen that the processor has it.
#pragma once

#include "kernels/kernels.h"

#if defined(__x86_64__) || defined(_M_X64)
#define SSLM_KERNELS_X86 1
#elif defined(__aarch64__) || defined(_M_ARM64)
#define SSLM_KERNELS_ARM64 1
#elif defined(__wasm_simd128__)
#define SSLM_KERNELS_WASM_SIMD128 1
#endif

namespace superslm::kernels {

#if defined(SSLM_KERNELS_X86)
extern const Kernels kSse2;
extern const Kernels kSse41;
extern const Kernels kAvx2;
extern const Kernels kAvxVnni;
extern const Kernels kAvx512;
extern const Kernels kAvx512Vnni;
#elif defined(SSLM_KERNELS_ARM64)
extern const Kernels kNeon;
extern const Kernels kNeonDotprod;
#elif defined(SSLM_KERNELS_WASM_SIMD128)
extern const Kernels kSimd128;
#endif

}  // namespace superslm::kernels
