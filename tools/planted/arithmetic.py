# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Bugs in the arithmetic and in the kernels of the tiers."""

from __future__ import annotations

from planted.mutant import Mutant


def _numerics() -> tuple[Mutant, ...]:
    """Rounding, clamps, ties; the tiers against scalar."""
    witness = "tests/test_bit_equality.py::test_any_layer_budget_gives_the_witness_tokens_and_resting_states"
    return (
        Mutant(
            "rounding: shifts round down",
            "c_abi/base/fixed_point.h",
            "if (shift > 0) return (x + (int64_t{1} << (shift - 1))) >> shift;",
            "if (shift > 0) return x >> shift;",
            f"{witness}[tiny-w8]",
        ),
        Mutant(
            "rounding: a product's first shift rounds down",
            "c_abi/kernels/scalar.cpp",
            "acc[r] = rsh(rsh(acc[r], 4) * w[r], shift);",
            "acc[r] = rsh((acc[r] >> 4) * w[r], shift);",
            "engine:engine_kernels",
        ),
        Mutant(
            "rounding: ties of a negative activation go up in AVX2",
            "c_abi/kernels/avx2.h",
            "const __m256i one = _mm256_set1_epi32(shift > 0 ? 1 : 0);",
            "const __m256i one = _mm256_set1_epi32(0);",
            "engine:engine_kernels",
        ),
        Mutant(
            "clamp: a landed row may hold -128",
            "c_abi/base/fixed_point.h",
            "  if (x < -127) {",
            "  if (x < -128) {",
            "engine:engine_kernels",
        ),
        Mutant(
            "clamp: AVX2 saturates at -2^31",
            "c_abi/kernels/avx2.h",
            "bottom = _mm256_set1_epi64x(-0x7fffffff);",
            "bottom = _mm256_set1_epi64x(-0x7fffffff - 1);",
            "engine:engine_kernels",
        ),
        Mutant(
            "clamp: the clamps of gate and up are not counted",
            "c_abi/decode/counts.h",
            "              c.gate_up + c.mlp;",
            "              c.mlp;",
            f"{witness}[sat_gateup-w8]",
        ),
        Mutant(
            "tie rule: equal logits choose the highest id",
            "c_abi/kernels/scalar.cpp",
            "x[i] > x[best] ? i : best;",
            "x[i] >= x[best] ? i : best;",
            "engine:engine_kernels",
        ),
        Mutant(
            "softmax: the smallest weight is dropped",
            "c_abi/kernels/scalar.h",
            "if (z >= uint64_t{31} * 65536) return 0;",
            "if (z >= uint64_t{29} * 65536) return 0;",
            "engine:engine_kernels",
        ),
        Mutant(
            "softmax: AVX2 takes one position too few at the end",
            "c_abi/kernels/avx2.h",
            "const int64_t n = count - j < 8 ? count - j : 8;",
            "const int64_t n = count - j < 8 ? count - j - (j > 0) : 8;",
            "engine:engine_kernels",
        ),
        Mutant(
            "values: more positions than an int32 lane holds",
            "c_abi/kernels/attention.h",
            "const int64_t n = count - j < 512 ? count - j : 512;",
            "const int64_t n = count - j;",
            "engine:engine_kernels",
        ),
        Mutant(
            "4-bit weights: the nibbles are exchanged",
            "c_abi/kernels/scalar.cpp",
            "out[i] = static_cast<int16_t>(s * (q[i] & 15) - offset);",
            "out[i] = static_cast<int16_t>(s * (q[i] >> 4) - offset);",
            "engine:engine_kernels",
        ),
        Mutant(
            "attention: every K/V head takes the first one's value scale",
            "c_abi/forward/attention.cpp",
            "layer.value_scale.from(static_cast<size_t>(kv_head) *",
            "layer.value_scale.from(static_cast<size_t>(kv_head * 0) *",
            f"{witness}[bias-w8]",
        ),
        Mutant(
            "rotation: the position of every row is the first one's",
            "c_abi/decode/prefill.cpp",
            "s.row[i] = Row{residual, position + i, kv, adapter, {}};",
            "s.row[i] = Row{residual, position, kv, adapter, {}};",
            "cell:cell_prefill/chunks_of_eight_consume_eight_eight_four_and_equal_one_call",
        ),
    )


def _byte_planes() -> tuple[Mutant, ...]:
    """4-bit rows against two planes of bytes, and VNNI with 256 bits; a processor without AVX-VNNI lets those live."""
    rows, vnni = "c_abi/kernels/nibble_rows.h", "c_abi/kernels/avxvnni.cpp"
    return (
        Mutant(
            "byte planes: the high one weighs no more than the low one",
            rows,
            "Isa::shift_left_8(Isa::widen_sum(sums.high))",
            "Isa::widen_sum(sums.high)",
            "engine:engine_kernels",
        ),
        Mutant(
            "byte planes: the high plane is not rounded in AVX2",
            "c_abi/kernels/avx2.h",
            "_mm256_srai_epi16(_mm256_add_epi16(x, _mm256_set1_epi16(128)), 8);",
            "_mm256_srai_epi16(x, 8);",
            "engine:engine_kernels",
        ),
        Mutant(
            "byte planes: every group takes the first one's sub-scales",
            rows,
            "Isa::group_scales(scales + 2 * b, kGroup)",
            "Isa::group_scales(scales, kGroup)",
            "engine:engine_kernels",
        ),
        Mutant(
            "byte planes: a last group of one block is skipped",
            rows,
            "    if (b < blocks) {",
            "    if (b + 1 < blocks) {",
            "engine:engine_kernels",
        ),
        Mutant(
            "byte planes: the offset is added",
            rows,
            "out.sum_high[b] = static_cast<int16_t>(-high);",
            "out.sum_high[b] = static_cast<int16_t>(high);",
            "engine:engine_kernels",
        ),
        Mutant(
            "byte planes: the lowest sum of a block wraps in int16",
            rows,
            "const int32_t high = part > most ? most : part < -most ? -most : part;",
            "const int32_t high = part > most ? most : part;",
            "engine:engine_kernels",
        ),
        Mutant(
            "byte planes: more blocks than an int32 lane holds",
            rows,
            "static constexpr int32_t kHeldBlocks = 320;",
            "static constexpr int32_t kHeldBlocks = 640;",
            "engine:engine_kernels",
        ),
        Mutant(
            "AVX-VNNI: a product forgets the sum before it",
            vnni,
            "static __m256i dot(__m256i sum, __m256i w, __m256i a) {\n",
            "static __m256i dot(__m256i sum, __m256i w, __m256i a) {\n    sum = _mm256_setzero_si256();\n",
            "engine:engine_kernels",
        ),
        Mutant(
            "AVX-VNNI: the tier takes AVX2's name",
            vnni,
            'avx2_table<VexVnniDot>("avxvnni")',
            'avx2_table<VexVnniDot>("avx2")',
            "tests/test_axes.py::test_every_kernel_tier_plays_the_scene[avxvnni-w8]",
        ),
    )


ARITHMETIC = (*_numerics(), *_byte_planes())
