# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Tables the engine reads from the model file, computed in exact or 60-digit arithmetic.

No value depends on a platform's math library: trigonometric and exponential functions are evaluated
with `decimal` or integers and rounded once.
"""

from __future__ import annotations

import functools
import math
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np

DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def rope_frequencies(base: Decimal | float, rotated: int, head_dim: int) -> list[Decimal]:
    """Plain rotary frequencies `base^(-2f/rotated)`, zero for pairs that are not rotated.

    Args:
        base: the rotary base (theta).
        rotated: rotated channels of a head.
        head_dim: channels of a head.
    Returns:
        head_dim / 2 frequencies in radians per position.
    """
    with localcontext() as context:
        context.prec = DIGITS
        log_base = Decimal(base).ln()
        plain = [(-(log_base * (2 * f)) / rotated).exp() for f in range(rotated // 2)]
    return plain + [Decimal(0)] * ((head_dim - rotated) // 2)


def scale_linear(frequencies: list[Decimal], factor: float) -> list[Decimal]:
    """Frequencies of position interpolation: every one divided by `factor`."""
    with localcontext() as context:
        context.prec = DIGITS
        return [f / Decimal(factor) for f in frequencies]


def scale_llama3(
    frequencies: list[Decimal], factor: float, low_freq: float, high_freq: float, original_context: int
) -> list[Decimal]:
    """Frequencies of `llama3` scaling: long waves divided by `factor`, short ones kept, a ramp between.

    Args:
        frequencies: plain frequencies in radians per position.
        factor: divisor of the long waves.
        low_freq: waves longer than original_context / low_freq are divided.
        high_freq: waves shorter than original_context / high_freq are kept.
        original_context: positions of the first training.
    """
    with localcontext() as context:
        context.prec = DIGITS
        low, high, divisor = Decimal(low_freq), Decimal(high_freq), Decimal(factor)
        scaled = []
        for frequency in frequencies:
            turns = original_context * frequency / (2 * PI)  # full turns within the original context
            if turns > high:
                scaled.append(frequency)
            elif turns < low:
                scaled.append(frequency / divisor)
            else:
                smooth = (turns - low) / (high - low)
                scaled.append((1 - smooth) * frequency / divisor + smooth * frequency)
    return scaled


def step_table(frequencies: tuple[Decimal, ...] | list[Decimal]) -> np.ndarray:
    """STEP: `round(2^64 * theta / (2 pi))` per pair, uint64."""
    with localcontext() as context:
        context.prec = DIGITS
        steps = [
            int((f * (1 << 64) / (2 * PI)).to_integral_value(ROUND_HALF_EVEN)) % (1 << 64)
            for f in frequencies
        ]
    return np.array(steps, dtype=np.uint64)


@functools.cache
def _sine_quarter() -> tuple[int, ...]:
    """round(2^30 * sin(2 pi i / 4096)) for i = 0..1024, from the Taylor series in 160-bit fixed point."""
    bits = 160
    one = 1 << bits
    with localcontext() as context:
        context.prec = DIGITS + 10
        step = int(PI * one / 2048)
    values = []
    for i in range(1025):
        x = step * i
        square = x * x >> bits
        term = total = x
        n = 1
        while term:
            term = (term * square >> bits) // ((n + 1) * (n + 2))
            n += 2
            total += term if n % 4 == 1 else -term
        values.append((total + (1 << (bits - 31))) >> (bits - 30))
    return tuple(values)


def sine_table() -> np.ndarray:
    """SIN: `round(2^30 * sin(2 pi i / 4096))`, i = 0..4096, int32 in Q30."""
    quarter = np.array(_sine_quarter(), dtype=np.int64)
    half = np.concatenate([quarter, quarter[-2::-1]])
    return np.concatenate([half, -half[1:]]).astype(np.int32)


@functools.cache
def _sigmoid_values() -> tuple[int, ...]:
    with localcontext() as context:
        context.prec = DIGITS
        return tuple(
            int((Decimal(1 << 30) / (1 + (Decimal(i) / 64).exp())).to_integral_value(ROUND_HALF_EVEN))
            for i in range(1025)
        )


def sigmoid_table() -> np.ndarray:
    """SIG: `round(2^30 / (1 + exp(i/64)))`, i = 0..1024, int32 in Q30."""
    return np.array(_sigmoid_values(), dtype=np.int32)


def _sine_of_phase(phase: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Q30 sine of a 32-bit phase by linear interpolation, exactly as the engine computes it."""
    index = phase >> 20
    fraction = (phase >> 4) & 65535
    low = table[index]
    return low + (((table[index + 1] - low) * fraction + 32768) >> 16)


def position_table(step: np.ndarray, cap: int) -> np.ndarray:
    """T: `rsh(cos, 16)` of all pairs, then `rsh(sin, 16)`, per position: int16 [cap, 2 * pairs] in Q14."""
    table = sine_table().astype(np.int64)
    positions = np.arange(cap, dtype=np.uint64)[:, None]
    phase = ((positions * step[None, :]) >> np.uint64(32)).astype(np.int64)  # uint64 products wrap mod 2^64
    sine = _sine_of_phase(phase, table)
    cosine = _sine_of_phase((phase + (1 << 30)) & 0xFFFFFFFF, table)
    return ((np.concatenate([cosine, sine], axis=1) + 32768) >> 16).astype(np.int16)


LOG2_E = 1.4426950408889634  # float64 nearest to log2(e)


def ceil_log2(x: float) -> float:
    """`ceil(log2(x))`, exact; minus infinity for zero."""
    if x == 0.0:
        return -math.inf
    mantissa, exponent = math.frexp(x)
    return exponent - 1 if mantissa == 0.5 else exponent
