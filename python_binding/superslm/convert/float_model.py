# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The float model: a plain NumPy forward pass over a checkpoint.

Calibration observes it, and quality figures compare the integer engine with its logits. Layers stream:
every context passes layer l before layer l + 1 is read, so one layer's weights are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .checkpoint import Checkpoint, Config, ConvertError

Observe = Callable[[str, np.ndarray], None]
Progress = Callable[[float, str], None]


def embed(checkpoint: Checkpoint, ids: Sequence[int], dtype: Any = np.float64) -> np.ndarray:
    """Embedding rows of token ids, [n, hidden].

    Raises ConvertError for an id outside the vocabulary.
    """
    wanted = np.asarray(ids, np.int64)
    if wanted.size and not 0 <= wanted.min() <= wanted.max() < checkpoint.config.vocab:
        raise ConvertError(
            f"token id {int(wanted.max())} lies outside the vocabulary of {checkpoint.config.vocab}",
            "token ids",
            "Tokenizer and weights do not belong together; fetch both from one revision.",
        )
    table = checkpoint["embedding"]
    used, place = np.unique(wanted, return_inverse=True)
    rows = np.concatenate([table.rows(int(i), int(i) + 1) for i in used]) if used.size else np.empty((0, 0))
    return rows.astype(dtype)[place]


def read_layer(checkpoint: Checkpoint, index: int, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """All weights of one layer by their short names."""
    return {name: tensor.read().astype(dtype) for name, tensor in checkpoint.layer(index).items()}


def rotation(config: Config, count: int, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of positions 0..count-1, each [count, head_dim / 2]."""
    angle = np.arange(count)[:, None] * np.array([float(f) for f in config.frequencies])[None, :]
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def rms_norm(x: np.ndarray, gains: np.ndarray, eps: float) -> np.ndarray:
    """RMSNorm over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(eps)) * gains


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotary embedding of [n, heads, head_dim] in half-split order."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = cos[:, None, :], sin[:, None, :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention. q [n, heads, hd], k and v [n, kv_heads, hd] -> [n, heads * hd]."""
    n, heads, width = q.shape
    group = heads // k.shape[1]
    hidden_future = np.triu(np.ones((n, n), bool), 1)
    out = np.empty_like(q)
    for head in range(heads):
        score = q[:, head] @ k[:, head // group].T
        score /= np.sqrt(q.dtype.type(width))
        score[hidden_future] = -np.inf
        score -= score.max(axis=1, keepdims=True)
        np.exp(score, out=score)
        score /= score.sum(axis=1, keepdims=True)
        out[:, head] = score @ v[:, head // group]
    return out.reshape(n, heads * width)


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x), without overflow warnings at either end."""
    small = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1, small) / (1 + small)


def layer_forward(
    config: Config,
    w: dict[str, np.ndarray],
    x: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    observe: Observe | None = None,
) -> np.ndarray:
    """One decoder layer over a context that starts at position 0.

    Args:
        config: the model's shape.
        w: the layer's weights from `read_layer`.
        x: residual [n, hidden].
        cos, sin: at least n rows of `rotation`.
        observe: called with `residual` (after each add), `key` (before rotation), `value` and `ffn` arrays.
    Returns:
        The residual after the layer, [n, hidden].
    """
    c, n = config, len(x)
    look = observe or (lambda name, array: None)

    def project(y: np.ndarray, weight: str, bias: str, heads: int) -> np.ndarray:
        result = y @ w[weight].T
        return (result + w[bias] if bias in w else result).reshape(n, heads, c.head_dim)

    y = rms_norm(x, w["N1"], c.eps)
    q, k, v = (
        project(y, "WQ", "BQ", c.heads),
        project(y, "WK", "BK", c.kv_heads),
        project(y, "WV", "BV", c.kv_heads),
    )
    if c.qk_norm:
        q, k = rms_norm(q, w["NQ"], c.eps), rms_norm(k, w["NK"], c.eps)
    look("key", k)
    look("value", v)
    x = x + attend(rotate(q, cos[:n], sin[:n]), rotate(k, cos[:n], sin[:n]), v) @ w["WO"].T
    look("residual", x)
    y = rms_norm(x, w["N2"], c.eps)
    h = silu(y @ w["WG"].T) * (y @ w["WU"].T)
    look("ffn", h)
    x = x + h @ w["WD"].T
    look("residual", x)
    return x


def logits(
    checkpoint: Checkpoint,
    contexts: Sequence[Sequence[int]],
    *,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Iterator[np.ndarray]:
    """Teacher-forced logits of several contexts, each starting at position 0.

    Args:
        checkpoint: the float model.
        contexts: token ids per context.
        dtype: float32 or float64, of weights and arithmetic.
        progress: called with a fraction 0..1 and what is being done.
    Yields:
        Per context an array [len(context), vocab] in nats.
    """
    c = checkpoint.config
    states = [embed(checkpoint, ids, dtype) for ids in contexts]
    cos, sin = rotation(c, max((len(s) for s in states), default=0), dtype)
    for index in range(c.layers):
        weights = read_layer(checkpoint, index, dtype)
        states = [layer_forward(c, weights, x, cos, sin) for x in states]
        if progress is not None:
            progress((index + 1) / (c.layers + 1), f"Float layer {index + 1} of {c.layers}")
    gains = checkpoint["NF"].read().astype(dtype)
    head = checkpoint["embedding" if c.tied else "head"].read().astype(dtype)
    for x in states:
        yield rms_norm(x, gains, c.eps) @ head.T
    if progress is not None:
        progress(1.0, "Float logits")
