# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Calibration: the maxima of docs/numerics.md, section 5, from one float64 pass over a text.

Maxima are rounded up to 8 significant bits, so that thread counts and math libraries, which move the last
bits of a float sum, do not move the record. The record is plain JSON and can be kept and reused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np

from .checkpoint import Checkpoint, ConvertError
from .float_model import embed, layer_forward, read_layer, rotation
from .quantize import landing_scales

Progress = Callable[[float, str], None]
Render = Callable[[list[dict[str, str]]], str]

CHUNK = 512  # positions per context; each context starts at position 0, where the massive activations are
MINIMUM_TOKENS = 4000  # of a calibration text; fewer miss too many of the large values
CENTRING_GAIN = 0.9  # a centre is written when it brings the mean K scale down to this share


def default_calibration_text(render: Render | None = None) -> str:
    """The text that ships with the package: dialogue in the chat format, prose, and code.

    Args:
        render: turns one conversation, a list of {"role", "content"}, into the model's chat format; the
            default is ChatML. A model must see its own delimiters in calibration.
    """
    folder = resources.files(__package__) / "calibration_text"
    dialogues = json.loads((folder / "dialogue.json").read_text(encoding="utf-8"))
    chats = [(render or chatml)(messages).strip("\n") for messages in dialogues]
    plain = [(folder / name).read_text(encoding="utf-8") for name in ("prose.txt", "code.txt")]
    return "\n".join(chats) + "\n" + "\n".join(plain)


def chatml(messages: list[dict[str, str]]) -> str:
    """A conversation in ChatML."""
    return "\n".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>" for m in messages)


def round_up(values: Any) -> np.ndarray:
    """Non-negative float64 values rounded up to 8 significant bits."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.ceil(mantissa * 256), exponent - 8)


def round_nearest(values: Any) -> np.ndarray:
    """Float64 values rounded to 8 significant bits, ties to even; never minus zero."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.rint(mantissa * 256), exponent - 8) + 0.0


def _pair_norm(keys: np.ndarray) -> np.ndarray:
    """Largest norm of every channel pair over all positions: [n, kv_heads, hd] -> [kv_heads, hd / 2]."""
    half = keys.shape[-1] // 2
    a, b = keys[..., :half], keys[..., half:]
    return round_up(np.sqrt(a * a + b * b).max(axis=0))


class _LayerMaxima:
    """Collects what one layer contributes to the record."""

    def __init__(self) -> None:
        self.residual = self.ffn = np.float64(0)
        self.keys: list[np.ndarray] = []
        self.value: np.ndarray | None = None

    def observe(self, name: str, array: np.ndarray) -> None:
        if name == "key":
            self.keys.append(array)
            return
        size = np.abs(array)
        if name == "value":
            largest = size.max(axis=0)
            self.value = largest if self.value is None else np.maximum(self.value, largest)
        elif name == "ffn":
            self.ffn = np.maximum(self.ffn, size.max())  # unlike max(), keeps a NaN
        else:
            self.residual = np.maximum(self.residual, size.max())

    def record(self, always_centre: bool) -> dict[str, Any]:
        keys = np.concatenate(self.keys)
        norms = _pair_norm(keys)
        mu = round_nearest((keys.max(axis=0) + keys.min(axis=0)) / 2)
        centred = _pair_norm(keys - mu)
        gains = landing_scales(centred).mean() <= CENTRING_GAIN * landing_scales(norms).mean()
        result = {"h": float(round_up(self.ffn)), "v": round_up(self.value).tolist(), "pk": norms.tolist()}
        if mu.any() and (always_centre or gains):
            result |= {"pk": centred.tolist(), "mu": mu.tolist()}
        return result


def calibrate(
    checkpoint: Checkpoint, ids: Sequence[int], *, chunk: int = CHUNK, progress: Progress | None = None
) -> dict[str, Any]:
    """The calibration record of a model on a text.

    Args:
        checkpoint: the float model.
        ids: token ids of the calibration text.
        chunk: positions per context.
        progress: called with a fraction 0..1 and what is being done.
    Returns:
        `{"res", "layers": [{"h", "v", "pk", "mu"?}]}` as in docs/numerics.md, section 5.
    Raises:
        ConvertError: no tokens, a foreign token id, or activations that overflow.
    """
    if not ids:
        raise ConvertError("there are no tokens", "calibration text", "Give a text in the model's language.")
    c = checkpoint.config
    table = checkpoint["embedding"]
    strip = max(1, (1 << 23) // c.hidden)
    residual = max(
        float(np.abs(table.rows(a, min(a + strip, c.vocab))).max()) for a in range(0, c.vocab, strip)
    )
    states = [embed(checkpoint, ids[a : a + chunk]) for a in range(0, len(ids), chunk)]
    cos, sin = rotation(c, min(chunk, len(ids)))
    layers = []
    for index in range(c.layers):
        weights = read_layer(checkpoint, index)
        maxima = _LayerMaxima()
        for number, x in enumerate(states):
            with np.errstate(over="ignore", invalid="ignore"):  # looked for below
                states[number] = layer_forward(c, weights, x, cos, sin, maxima.observe)
            if progress is not None:
                done = (index + (number + 1) / len(states)) / c.layers
                progress(done, f"Calibrating layer {index + 1} of {c.layers}")
        if not np.isfinite([maxima.residual, maxima.ffn]).all():
            raise ConvertError(
                "activations overflow",
                f"layer {index}",
                "The weights are damaged; fetch the checkpoint again.",
            )
        residual = max(residual, maxima.residual)
        layers.append(maxima.record(always_centre=c.qkv_bias))
    return {"res": float(round_up(residual)), "layers": layers}
