# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""Attention of one layer: landing, query, scores, weights, values (section 2, steps 3 to 7; section 9)."""

from __future__ import annotations

import numpy as np

from superslm.convert.quantized import Layer

from .linear import exact_matmul
from .primitives import bit_length, clamp, quant15, rsh, softmax_weight


def land(x: np.ndarray, multiplier: np.ndarray, shift: int) -> tuple[np.ndarray, int]:
    """K or V landing: int8 [n, kv_heads, head_dim] and how many values clamp127 changed (step 3)."""
    landed, clipped = clamp(rsh(x * multiplier.astype(np.int64), shift), 127)
    return landed.astype(np.int8), clipped


def quantise_query(q: np.ndarray, layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Query in 15 bits, [n, heads, head_dim], and the score format F, [n, heads] (step 4)."""
    a, qs = quant15(rsh(q * layer.MQ.astype(np.int64), 31))
    return a, layer.FQ - qs


def quantise_centre(q: np.ndarray, layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """The centre as a second query: `w` [n, heads, head_dim] against T, and FD [n, heads] (section 9)."""
    group = q.shape[1] // layer.MC.shape[0]
    mc = np.repeat(layer.MC.astype(np.int64), group, axis=0)
    half = q.shape[-1] // 2
    qa, qb, ma, mb = q[..., :half], q[..., half:], mc[:, :half], mc[:, half:]
    terms = np.concatenate([rsh(qa * ma + qb * mb, 32), rsh(qb * ma - qa * mb, 32)], axis=-1)
    w, cs = quant15(terms)
    return w, layer.EC - 2 - cs


def add_centre(s: np.ndarray, f: np.ndarray, d: np.ndarray, fd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centred scores and their format Fm from scores `s` in Q_F and `d` in Q_FD (section 9)."""
    fm = np.minimum(np.minimum(f, fd), 20)
    # A shift above 62 counts as 62: both give 0.
    return rsh(s, np.minimum(f - fm, 62)[..., None]) + rsh(d, np.minimum(fd - fm, 62)[..., None]), fm


def weigh(s: np.ndarray, f: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Unnormalised 30-bit weights of scores in Q_f; zero where not `visible` (step 6).

    Args:
        s: scores int64 [rows, positions].
        f: score format per row [rows].
        visible: bool [rows, positions]; each row sees at least one position.
    """
    largest = np.where(visible, s, np.iinfo(np.int64).min).max(axis=-1, keepdims=True)
    t = np.minimum(np.where(visible, largest - s, 0), 2**32 - 1)
    f = f[:, None]
    z = (t >> np.maximum(f - 16, 0)) << np.maximum(16 - f, 0)
    return np.where(visible, softmax_weight(z), 0)


def mix_values(p: np.ndarray, v8: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Weighted mean of values in Q_ESV, int64 [rows, head_dim] (step 7).

    Args:
        p: weights of `weigh`, [rows, positions].
        v8: int8 [positions, head_dim].
        scale: `SV` of the head, int32 [head_dim].
    """
    o = exact_matmul(p, v8, 2**30 * 128)
    total = p.sum(axis=-1)
    n = bit_length(total)
    normalised = (total >> np.maximum(n - 31, 0)) << np.maximum(31 - n, 0)
    reciprocal = np.int64(2**61) // normalised
    u = rsh(rsh(o, (n - 24)[:, None]) * reciprocal[:, None], 30)
    return rsh(u * scale.astype(np.int64), 24)


def attend(
    q: np.ndarray,
    k8: np.ndarray,
    v8: np.ndarray,
    positions: np.ndarray,
    layer: Layer,
    table: np.ndarray | None,
) -> np.ndarray:
    """Attention output in Q_ESV, int64 [n, heads * head_dim] (steps 4 to 7).

    Args:
        q: rotated query, Q16 [n, heads, head_dim].
        k8: int8 [rows, kv_heads, head_dim], all rows up to the last position.
        v8: the same for V.
        positions: position of each query [n].
        layer: scales of the layer.
        table: `T`, int16 [cap, head_dim]; used by a centred layer only.
    """
    n, heads, head_dim = q.shape
    rows, kv_heads = k8.shape[:2]
    group = heads // kv_heads
    a, f = quantise_query(q, layer)
    if layer.MC is not None:
        w, fd = quantise_centre(q, layer)
    visible = np.repeat(np.arange(rows) <= positions[:, None], group, axis=0)
    out = np.empty((n, heads, head_dim), np.int64)
    for kv in range(kv_heads):
        own = slice(kv * group, (kv + 1) * group)  # query head h reads KV head floor(h * KV / H)
        s = exact_matmul(a[:, own].reshape(-1, head_dim), k8[:, kv].T, 2**14 * 128)
        fm = f[:, own].ravel()
        if layer.MC is not None:
            d = exact_matmul(w[:, own].reshape(-1, head_dim), table[:rows].T, 2**28)
            s, fm = add_centre(s, fm, d, fd[:, own].ravel())
        o = mix_values(weigh(s, fm, visible), v8[:, kv], layer.SV[kv])
        out[:, own] = o.reshape(n, group, head_dim)
    return out.reshape(n, heads * head_dim)
