#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""LoRA adapters of the fixtures in PEFT's layout: random ones of any rank and targets, and a trained one.

Nothing is stored: an adapter is made from its spec, always the same (a trained one up to the last bits of the
machine's float sums).

    python tools/make_adapter.py deep --rank 16 --targets q v -o DIR       random factors
    python tools/make_adapter.py tiny --train -o DIR                       learns to recite a line of tokens
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

try:
    import superslm.convert.quantized  # noqa: F401
except ImportError:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python_binding"))

from make_checkpoint import make_checkpoint
from superslm.convert import float_model
from superslm.convert.checkpoint import (
    Checkpoint,
    Config,
    FloatTensor,
    expected_shapes,
    head_slots,
    row_order,
)
from superslm.convert.peft import CONFIG, MODULES, WEIGHTS, PeftAdapter
from superslm.convert.quantized import TARGETS

SHORT = dict(zip(TARGETS, "q k v o gate up down".split(), strict=True))
Factors = dict[tuple[int, str], tuple[np.ndarray, np.ndarray]]  # (layer, target) -> A, B


@dataclass(frozen=True)
class AdapterSpec:
    """A random adapter. `strength` is the size of its change beside the base weights'."""

    rank: int = 16
    targets: tuple[str, ...] = TARGETS
    alpha: float = 32.0
    rslora: bool = False
    strength: float = 0.3
    seed: int = 1

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)


def random_factors(checkpoint: Checkpoint, spec: AdapterSpec) -> Factors:
    """Float32 factors for every layer; A as PEFT initialises it, B large enough to be heard."""
    shapes = dict(expected_shapes(checkpoint.config))
    factors = {}
    for layer in range(checkpoint.config.layers):
        for target in spec.targets:
            rows, columns = shapes[f"layer{layer}.{target}"]
            rng = np.random.default_rng([spec.seed, spec.rank, layer, zlib.crc32(target.encode())])
            a = rng.uniform(-1, 1, (spec.rank, columns)) / math.sqrt(columns)
            b = rng.normal(0, 2.5 * spec.strength / (spec.scale * math.sqrt(spec.rank)), (rows, spec.rank))
            factors[layer, target] = a.astype(np.float32), b.astype(np.float32)
    return factors


def write_peft(factors: Factors, spec: AdapterSpec, folder: Path, **settings: Any) -> Path:
    """Writes the directory that PEFT's `save_pretrained` would; `settings` go into its configuration."""
    modules = {target: module for module, target in MODULES.items()}
    tensors = {}
    for (layer, target), pair in factors.items():
        for half, values in zip("AB", pair, strict=True):
            name = f"base_model.model.model.layers.{layer}.{modules[target]}.lora_{half}.weight"
            tensors[name] = values
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "",
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "use_rslora": spec.rslora,
        "use_dora": False,
        "bias": "none",
        "modules_to_save": None,
        "target_modules": [f"{SHORT[target]}_proj" for target in spec.targets],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(config | settings, indent=2))
    write_safetensors(tensors, folder / WEIGHTS)
    return folder


def write_safetensors(tensors: dict[str, np.ndarray], path: Path) -> None:
    """A safetensors file of float32 tensors, or of bfloat16 ones given as uint16."""
    header, at = {}, 0
    for name, values in tensors.items():
        kind = "BF16" if values.dtype == np.uint16 else "F32"
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_suffix(".part")  # the tensors may still be mapped from the file itself
    with part.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            stream.write(np.ascontiguousarray(values).tobytes())
    part.replace(path)


def merged(checkpoint: Checkpoint, adapter: PeftAdapter) -> Checkpoint:
    """The float model with the adapter's products added to its weights."""
    c = checkpoint.config
    rotated = 2 * sum(f != 0 for f in c.frequencies)
    slots = head_slots(c.head_dim, rotated, interleaved=False)
    orders = {"WQ": row_order(c.heads, slots), "WK": row_order(c.kv_heads, slots)}
    tensors = dict(checkpoint.tensors)
    for (layer, target), pair in adapter.pairs.items():
        product = pair.scale * (pair.b.read().astype(np.float64) @ pair.a.read().astype(np.float64))
        order = orders.get(target)
        name = f"layer{layer}.{target}"
        tensors[name] = _sum(tensors[name], product if order is None else product[order])
    return dataclasses.replace(checkpoint, tensors=tensors)


def _sum(tensor: FloatTensor, addend: np.ndarray) -> FloatTensor:
    whole = tensor.read() + addend
    return FloatTensor(tensor.name, tensor.shape, lambda rows: whole[rows])


# ---- training ----


@dataclass
class Trained:
    """Factors of the last layer, and the mean loss in nats before and after."""

    factors: Factors
    spec: AdapterSpec
    first_loss: float
    last_loss: float


def line_of_tokens(vocab: int, length: int = 24, seed: int = 3) -> list[int]:
    """What the trained adapter learns to recite."""
    return np.random.default_rng(seed).permutation(vocab)[:length].tolist()


def train(
    checkpoint: Checkpoint, ids: Sequence[int], *, rank: int = 4, steps: int = 80, rate: float = 0.02
) -> Trained:
    """Teaches the last layer's o, gate, up and down to predict each of `ids` from those before it (Adam)."""
    spec = AdapterSpec(rank=rank, targets=("WO", "WG", "WU", "WD"), alpha=2.0 * rank)
    layer = checkpoint.config.layers - 1
    start = random_factors(checkpoint, spec)
    values = [np.array(m, np.float64) for t in spec.targets for m in start[layer, t]]
    for b in values[1::2]:
        b[:] = 0  # as PEFT starts: the adapter changes nothing yet
    last = _LastLayer(checkpoint, ids)
    moments = [(np.zeros_like(v), np.zeros_like(v)) for v in values]
    losses = []
    for step in range(1, steps + 1):
        loss, gradients = last.loss_and_gradients(values, spec.scale)
        losses.append(loss)
        for v, g, (m, s) in zip(values, gradients, moments, strict=True):
            m += 0.1 * (g - m)
            s += 0.001 * (g * g - s)
            v -= rate * (m / (1 - 0.9**step)) / (np.sqrt(s / (1 - 0.999**step)) + 1e-8)
    losses.append(last.loss_and_gradients(values, spec.scale)[0])
    halves = [v.astype(np.float32) for v in values]
    factors = {(layer, t): (halves[2 * i], halves[2 * i + 1]) for i, t in enumerate(spec.targets)}
    return Trained(factors, spec, losses[0], losses[-1])


class _LastLayer:
    """Everything in front of the last layer's output projection, computed once, and the rest with gradients."""

    def __init__(self, checkpoint: Checkpoint, ids: Sequence[int]) -> None:
        c = checkpoint.config
        self.eps, self.next, n = c.eps, np.array(ids[1:]), len(ids) - 1
        cos, sin = float_model.rotation(c, n)
        x = float_model.embed(checkpoint, ids[:-1])
        for index in range(c.layers - 1):
            x = float_model.layer_forward(c, float_model.read_layer(checkpoint, index), x, cos, sin)
        self.w = float_model.read_layer(checkpoint, c.layers - 1)
        self.x = x
        self.attention = self._attention(c, cos, sin)
        self.gains = checkpoint["NF"].read().astype(np.float64)
        self.head = checkpoint["embedding" if c.tied else "head"].read().astype(np.float64)

    def _attention(self, c: Config, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        """What the output projection reads, [n, heads * head_dim]."""
        w, n = self.w, len(self.x)
        y = float_model.rms_norm(self.x, w["N1"], c.eps)

        def heads(name: str, count: int) -> np.ndarray:
            return (y @ w["W" + name].T + w.get("B" + name, 0)).reshape(n, count, c.head_dim)

        q, k, v = heads("Q", c.heads), heads("K", c.kv_heads), heads("V", c.kv_heads)
        if c.qk_norm:
            q = float_model.rms_norm(q, w["NQ"], c.eps)
            k = float_model.rms_norm(k, w["NK"], c.eps)
        return float_model.attend(float_model.rotate(q, cos, sin), float_model.rotate(k, cos, sin), v)

    def loss_and_gradients(self, values: list[np.ndarray], scale: float) -> tuple[float, list[np.ndarray]]:
        """Mean loss and the gradient of each factor; `values` is A, B of WO, WG, WU, WD."""
        pairs = list(zip(values[0::2], values[1::2], strict=True))
        wo, wg, wu, wd = (
            self.w[name] + scale * (b @ a)
            for name, (a, b) in zip(("WO", "WG", "WU", "WD"), pairs, strict=True)
        )
        x1 = self.x + self.attention @ wo.T
        y = float_model.rms_norm(x1, self.w["N2"], self.eps)
        gate, up = y @ wg.T, y @ wu.T
        sigmoid = 1 / (1 + np.exp(-gate))
        h = gate * sigmoid * up
        x2 = x1 + h @ wd.T
        logits = float_model.rms_norm(x2, self.gains, self.eps) @ self.head.T
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        at = np.arange(len(p)), self.next
        loss = float(-np.log(p[at]).mean())
        p[at] -= 1
        dx2 = self._norm_gradient(p @ self.head / len(p), x2, self.gains)
        dh = dx2 @ wd
        dgate = dh * up * sigmoid * (1 + gate * (1 - sigmoid))
        dup = dh * gate * sigmoid
        dx1 = dx2 + self._norm_gradient(dgate @ wg + dup @ wu, x1, self.w["N2"])
        whole = (dx1.T @ self.attention, dgate.T @ y, dup.T @ y, dx2.T @ h)
        return loss, [
            g for (a, b), d in zip(pairs, whole, strict=True) for g in (scale * b.T @ d, scale * d @ a.T)
        ]

    def _norm_gradient(self, dy: np.ndarray, x: np.ndarray, gains: np.ndarray) -> np.ndarray:
        """The gradient of RMSNorm with respect to its input."""
        rms = np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.eps)
        scaled = dy * gains
        return scaled / rms - x * np.mean(scaled * x, axis=1, keepdims=True) / rms**3


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make a LoRA adapter of a fixture, in PEFT's layout.")
    parser.add_argument("fixture", help="a fixture of tools/make_checkpoint.py")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--alpha", type=float, default=32.0)
    parser.add_argument("--rslora", action="store_true", help="scale by alpha / sqrt(rank)")
    parser.add_argument("--targets", nargs="+", choices=SHORT.values(), default=list(SHORT.values()))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", action="store_true", help="train it to recite a line of tokens")
    parser.add_argument("-o", "--output", type=Path, required=True, help="directory to write into")
    options = parser.parse_args()
    checkpoint = make_checkpoint(options.fixture)
    if options.train:
        trained = train(checkpoint, line_of_tokens(checkpoint.config.vocab), rank=options.rank)
        print(f"loss {trained.first_loss:.3f} -> {trained.last_loss:.3f} nats per token")
        factors, spec = trained.factors, trained.spec
    else:
        chosen = tuple(target for target, name in SHORT.items() if name in options.targets)
        spec = AdapterSpec(options.rank, chosen, options.alpha, options.rslora, seed=options.seed)
        factors = random_factors(checkpoint, spec)
    print(write_peft(factors, spec, options.output, base_model_name_or_path=options.fixture))
    return 0


if __name__ == "__main__":
    sys.exit(main())
