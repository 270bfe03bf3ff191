# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""Exact matrix products: DOT and LIN of section 1, the embedding row of section 2, LoRA of section 11."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from superslm.convert.quantized import BLOCK, LowRank, Matrix, MatrixW8, padded

from .primitives import quant15, rsh, sat32

ACTIVATION_BOUND = 16384  # |a| after QUANT15
QA = 16  # Q format of the inner product of an adapter


def exact_matmul(a: np.ndarray, b: np.ndarray, largest_product: int) -> np.ndarray:
    """Integer product `a @ b` in int64.

    A float64 GEMM is exact, in any order of addition, while every partial sum stays below 2^53;
    otherwise the product runs in int64.

    Args:
        a: [..., n, K], integer values.
        b: [..., K, m], integer values.
        largest_product: bound of |a_i * b_i|.
    """
    if largest_product * a.shape[-1] < 2**53:
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    return np.matmul(a.astype(np.int64), b.astype(np.int64))


def expand(matrix: Matrix, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
    """Weights times sub-scales, `v*s` or `q*s - 16*u`, as int16 [rows, padded K] (section 1, DOT)."""
    s = np.repeat(matrix.s[rows].astype(np.int16), BLOCK, axis=1)
    if isinstance(matrix, MatrixW8):
        return matrix.v[rows].astype(np.int16) * s
    w = matrix.q[rows].astype(np.int16) * s - np.repeat(16 * matrix.u[rows].astype(np.int16), BLOCK, axis=1)
    w[:, matrix.cols :] = 0  # a padded input is 0, whatever offset its block has
    return w


class Dot:
    """DOT of section 1 for whole matrices, keeping expanded weights up to a memory budget."""

    _BLOCK_VALUES = 1 << 22  # rows are expanded in blocks of about this many values

    def __init__(self, cache_bytes: int = 2 << 30) -> None:
        """Start with an empty cache that holds at most `cache_bytes` of expanded float64 weights."""
        self._left = cache_bytes
        self._cache: dict[int, tuple[Matrix, list[np.ndarray]]] = {}

    def __call__(self, a: np.ndarray, matrix: Matrix) -> np.ndarray:
        """Accumulators int64 [n, rows] of activations `a` [n, K], |a| <= 16384."""
        width = padded(matrix.cols)
        a = np.pad(np.asarray(a, np.int64), ((0, 0), (0, width - a.shape[1])))
        largest = ACTIVATION_BOUND * 4080  # a W4 weight reaches 4080, a W8 weight 1905
        return np.concatenate([exact_matmul(a, w.T, largest) for w in self._blocks(matrix, width)], axis=1)

    def _blocks(self, matrix: Matrix, width: int) -> Iterable[np.ndarray]:
        kept = self._cache.get(id(matrix))
        if kept is not None:
            return kept[1]
        step = max(1, self._BLOCK_VALUES // width)
        blocks = (expand(matrix, slice(i, i + step)).astype(np.float64) for i in range(0, matrix.rows, step))
        size = 8 * matrix.rows * width
        if size > self._left:
            return blocks  # consumed once, so only one block is alive at a time
        self._left -= size
        # The matrix is kept beside its blocks so that its id cannot be reused.
        self._cache[id(matrix)] = (matrix, list(blocks))
        return self._cache[id(matrix)][1]


def lin(
    dot: Dot,
    a: np.ndarray,
    sh: np.ndarray,
    q_in: int,
    matrix: Matrix,
    q_out: int,
    bias: np.ndarray | None = None,
    low_rank: LowRank | None = None,
) -> np.ndarray:
    """LIN of section 1, with the adapter term of section 11 where `low_rank` is given.

    Args:
        dot: the product engine.
        a: activations of QUANT15 [n, K].
        sh: their shifts [n].
        q_in: Q format of the input before QUANT15.
        matrix: the tensor.
        q_out: Q format of the result.
        bias: int32 [rows] in `q_out`, or None.
        low_rank: LoRA pair of this tensor, or None.

    Returns:
        int64 [n, rows] in `q_out`, not saturated.
    """
    y = _scaled(dot(a, matrix), matrix, q_in, sh, q_out)
    if low_rank is not None:
        t, _ = sat32(_scaled(dot(a, low_rank.A), low_rank.A, q_in, sh, QA))
        b, sb = quant15(t)
        y = y + _scaled(dot(b, low_rank.B), low_rank.B, QA, sb, q_out)
    return y if bias is None else y + bias.astype(np.int64)


def _scaled(acc: np.ndarray, matrix: Matrix, q_in: int, sh: np.ndarray, q_out: int) -> np.ndarray:
    shift = matrix.E + q_in - sh - q_out - 4
    return rsh(rsh(acc, 4) * matrix.W.astype(np.int64), shift[:, None])


def embed(matrix: Matrix, tokens: np.ndarray, residual_exponent: int) -> tuple[np.ndarray, int]:
    """Embedding rows in Q_R, int64 [n, hidden], and how many values sat32 changed (section 2, step 1)."""
    w = expand(matrix, tokens)[:, : matrix.cols].astype(np.int64)
    return sat32(rsh(w * matrix.W[tokens].astype(np.int64)[:, None], matrix.E - residual_exponent))
