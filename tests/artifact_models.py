# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Small random integer models for the artifact tests; every value lies in the range the reader demands."""

from __future__ import annotations

import numpy as np

from superslm.convert.quantized import BLOCK, Layer, Matrix, MatrixW4, MatrixW8, Norm, QuantizedModel, padded


def random_model(
    seed: int = 0,
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    mlp: int = 96,
    vocab: int = 101,
    cap: int = 40,
    weights: str = "w8",
    tied: bool = True,
    biases: bool = False,
    qk_norm: bool = False,
    centred: bool = False,
    **extra,
) -> QuantizedModel:
    """A model of the given shape; `weights` is "w8", "w4" or "mixed" (w4 layers, w8 embedding and head)."""
    rng = np.random.default_rng(seed)
    big = "w4" if weights == "w4" else "w8"
    small = "w8" if weights == "w8" else "w4"
    inputs, kv = heads * head_dim, kv_heads * head_dim

    def gains(n: int) -> np.ndarray:
        return rng.integers(-(1 << 24), 1 << 24, n, dtype=np.int32)

    def layer() -> Layer:
        per_head = (kv_heads, head_dim)
        key_bias = biases or (centred and not qk_norm)
        return Layer(
            N1=Norm(gains(hidden), 20),
            N2=Norm(gains(hidden), 21),
            WQ=_matrix(rng, small, inputs, hidden),
            WK=_matrix(rng, small, kv, hidden),
            WV=_matrix(rng, small, kv, hidden),
            WO=_matrix(rng, small, hidden, inputs),
            WG=_matrix(rng, small, mlp, hidden),
            WU=_matrix(rng, small, mlp, hidden),
            WD=_matrix(rng, small, hidden, mlp),
            BQ=gains(inputs) if biases else None,
            BK=gains(kv) if key_bias else None,
            BV=gains(kv) if biases else None,
            NQ=gains(head_dim) if qk_norm else None,
            NK=gains(head_dim) if qk_norm else None,
            CK=rng.integers(-90000, 90000, per_head, dtype=np.int32) if centred and qk_norm else None,
            MK=rng.integers(1 << 26, 1 << 30, per_head, dtype=np.int32),
            SK=44,
            MV=rng.integers(1 << 26, 1 << 30, per_head, dtype=np.int32),
            SV_sh=43,
            MQ=rng.integers(1 << 26, 1 << 30, (heads, head_dim), dtype=np.int32),
            FQ=19,
            SV=rng.integers(0, 1 << 23, per_head, dtype=np.int32),
            ESV=19,
            MC=rng.integers(-(1 << 28), 1 << 28, per_head, dtype=np.int32) if centred else None,
            EC=27 if centred else 0,
            QH=18,
        )

    ramp = np.arange(4097) / 4096
    return QuantizedModel(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=mlp,
        vocab=vocab,
        cap=cap,
        R=14,
        EPS=1546188,
        EPS_head=1374390 if qk_norm else 0,
        embedding=_matrix(rng, big, vocab, hidden),
        head=None if tied else _matrix(rng, big, vocab, hidden),
        NF=Norm(gains(hidden), 22),
        layers=[layer() for _ in range(layers)],
        STEP=rng.integers(0, 1 << 62, head_dim // 2, dtype=np.uint64),
        SIN=np.round(np.sin(2 * np.pi * ramp) * (1 << 30)).astype(np.int32),
        SIG=np.round((1 << 30) / (1 + np.exp(np.arange(1025) / 64))).astype(np.int32),
        T=rng.integers(-16384, 16385, (cap, head_dim), dtype=np.int16) if centred else None,
        **{"stop_ids": [0, 2], "provenance": {"source": "random", "seed": seed}, **extra},
    )


def _matrix(rng: np.random.Generator, kind: str, rows: int, cols: int) -> Matrix:
    shape, blocks = (rows, padded(cols)), (rows, padded(cols) // BLOCK)
    W = rng.integers(1 << 20, 1 << 23, rows, dtype=np.int32, endpoint=True)
    if kind == "w8":
        v = rng.integers(-127, 128, shape, dtype=np.int8)
        v[:, cols:] = 0
        return MatrixW8(cols, v, rng.integers(1, 16, blocks, dtype=np.uint8), W, 34)
    q = rng.integers(0, 16, shape, dtype=np.uint8)
    q[:, cols:] = 0
    s = rng.integers(1, 256, blocks, dtype=np.uint8)
    return MatrixW4(cols, q, s, rng.integers(0, 256, blocks, dtype=np.uint8), W, 38)
