# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""Primitives of docs/numerics.md, section 1, on NumPy int64 arrays.

Every function is exact. The bounds of section 3 keep each int64 intermediate below 2^63, so NumPy's
silent wrap-around is never reached with a model that the artifact reader accepts.
"""

from __future__ import annotations

import math

import numpy as np

SAT32 = 2**31 - 1


def rsh(x: np.ndarray, s: np.ndarray | int) -> np.ndarray:
    """Shift right by `s` to nearest, ties towards +infinity; a negative `s` shifts left (section 1)."""
    x, s = np.asarray(x, np.int64), np.asarray(s, np.int64)
    right, left = np.maximum(s, 0), np.maximum(-s, 0)
    half = (np.int64(1) << right) >> 1
    return ((x + half) >> right) << left


def bit_length(u: np.ndarray) -> np.ndarray:
    """Bit length of non-negative integers, `bl(0) = 0` (section 1)."""
    u = np.asarray(u).astype(np.uint64)
    high, low = u >> np.uint64(32), u & np.uint64(0xFFFFFFFF)
    # frexp is exact here: a 32-bit half always fits the 53-bit significand.
    bits = np.where(high > 0, 32 + np.frexp(high.astype(np.float64))[1], np.frexp(low.astype(np.float64))[1])
    return bits.astype(np.int64)


def clamp(x: np.ndarray, limit: int) -> tuple[np.ndarray, int]:
    """Clamp to `[-limit, limit]`; returns the values and how many changed (sections 1 and 4)."""
    y = np.clip(x, -limit, limit)
    return y, int(np.count_nonzero(y != x))


def sat32(x: np.ndarray) -> tuple[np.ndarray, int]:
    """Clamp to `[-(2^31-1), 2^31-1]`; returns the values and how many changed (section 1)."""
    return clamp(x, SAT32)


def quant15(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """QUANT15 over the last axis: 15-bit values and one power-of-two shift per row (section 1).

    Args:
        y: int32 range, shape [..., K].

    Returns:
        `a` int64 [..., K] with |a| <= 16384, and `sh` int64 [...], so that `y ~ a * 2^sh`.
    """
    y = np.asarray(y, np.int64)
    sh = np.maximum(bit_length(np.abs(y).max(axis=-1)) - 14, 0)
    return rsh(y, sh[..., None]), sh


def planes(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two int8 planes `lo, hi` with `a = 256*hi + lo` exactly (section 1)."""
    lo = ((a + 128) & 255) - 128
    return lo, (a - lo) >> 8


def norm(x: np.ndarray, gains: np.ndarray, eps: int) -> np.ndarray:
    """NORM over the last axis: RMSNorm with an exact integer square root (section 1).

    Args:
        x: int32 range, shape [..., D], in the residual format (or Q16 for q/k norms).
        gains: int32 [D], in Q_EG.
        eps: `round(eps * D * 2^(2R))`.

    Returns:
        int64 [..., D] in Q_EG.
    """
    x = np.asarray(x, np.int64)
    s = np.maximum(bit_length(np.abs(x).max(axis=-1)) - 23, 0)
    v = (rsh(x, s[..., None]) ** 2).sum(axis=-1) + (np.int64(eps) >> (2 * s))
    v = np.maximum(v, 1)
    lz = (62 - bit_length(v)) & ~1
    t = np.array([math.isqrt(value) for value in (v << lz).ravel().tolist()], np.int64).reshape(v.shape)
    inv = np.int64(2**61) // t
    n = rsh(x * inv[..., None], (31 + s - lz // 2)[..., None])
    return rsh(n * gains.astype(np.int64), 30)


def exp2n(f: np.ndarray) -> np.ndarray:
    """EXP2N: 2^-f in Q16 for f in 0..32767, Q15 (section 1)."""
    f = np.asarray(f, np.int64)
    return 65535 - ((f * (45324 - ((f * (15149 - ((f * 2596) >> 15))) >> 15))) >> 15)


def softmax_weight(z: np.ndarray) -> np.ndarray:
    """Unnormalised weight 2^-z for z in Q16, 0..2^30 - 2^14; zero from z = 31 on (section 2, step 6)."""
    z = np.asarray(z, np.int64)
    whole = np.minimum(z >> 16, 31)
    return np.where(z >= 31 << 16, 0, (exp2n((z >> 1) & 32767) << 14) >> whole)


def silu(g: np.ndarray, sig: np.ndarray) -> np.ndarray:
    """SILU in Q16 from the sigmoid table `SIG` [1025], Q30 (section 1)."""
    g, sig = np.asarray(g, np.int64), sig.astype(np.int64)
    x = np.abs(g)
    inside = np.minimum(x, (16 << 16) - 1)
    i, f = inside >> 10, inside & 1023
    n = np.where(x >= 16 << 16, 0, sig[i] - (((sig[i] - sig[i + 1]) * f) >> 10))
    return rsh(g * np.where(g < 0, n, 2**30 - n), 30)


def trigonometry(positions: np.ndarray, step: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """RoPE tables: cosine and sine in Q30, each [positions, head_dim / 2] (section 1).

    Args:
        positions: token positions [n].
        step: `STEP`, uint64 [head_dim / 2], in turns * 2^64.
        sin: `SIN`, int32 [4097], Q30.
    """
    sin = sin.astype(np.int64)
    # The product wraps modulo 2^64 on purpose: whole turns drop out.
    phase = (np.asarray(positions, np.uint64)[:, None] * step.astype(np.uint64)[None, :]) >> np.uint64(32)
    phase = phase.astype(np.int64)

    def interpolate(p: np.ndarray) -> np.ndarray:
        i, fraction = p >> 20, (p >> 4) & 65535
        return sin[i] + rsh((sin[i + 1] - sin[i]) * fraction, 16)

    return interpolate((phase + 2**30) & 0xFFFFFFFF), interpolate(phase)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, int]:
    """RoPE: rotate channel f with f + head_dim/2, then sat32 (section 1).

    Args:
        x: Q16, [n, heads, head_dim].
        cos: Q30 [n, head_dim / 2].
        sin: the same.

    Returns:
        The rotated values and how many sat32 changed.
    """
    x = np.asarray(x, np.int64)
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[:, None, :], sin[:, None, :]
    return sat32(np.concatenate([rsh(a * c - b * s, 30), rsh(b * c + a * s, 30)], axis=-1))


def trigonometric_rows(count: int, step: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Table `T` of section 9: `(cos >> 16, sin >> 16)` rounded, Q14 int16 [count, head_dim]."""
    cos, sine = trigonometry(np.arange(count), step, sin)
    return rsh(np.concatenate([cos, sine], axis=-1), 16).astype(np.int16)
