# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Small random models: a float64 forward pass, the maxima it sees, and the integer model made from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from superslm.convert.checkpoint import Checkpoint, Config, FloatTensor, expected_shapes
from superslm.convert.quantize import quantize, quantize_matrix
from superslm.convert.quantized import BLOCK, Matrix, MatrixW4, QuantizedModel
from superslm.convert.tables import rope_frequencies
from superslm.reference import Adapter, LowRank

LOG2_E = np.log2(np.e)


@dataclass(frozen=True)
class Shape:
    """What a random model looks like; the defaults are deliberately odd sizes."""

    hidden: int = 40
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    mlp: int = 52
    vocab: int = 61
    layers: int = 2
    rotated: int | None = None  # None: every channel
    tied: bool = True
    bias: bool = False
    qk_norm: bool = False
    centred: bool = False
    weights: str = "w8"
    cap: int = 96
    seed: int = 1

    def config(self) -> Config:
        rotated = self.head_dim if self.rotated is None else self.rotated
        return Config(
            architecture="qwen3" if self.qk_norm else "qwen2" if self.bias else "llama",
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            mlp=self.mlp,
            vocab=self.vocab,
            layers=self.layers,
            eps=1e-5,
            context_length=self.cap,
            tied=self.tied,
            qkv_bias=self.bias,
            qk_norm=self.qk_norm,
            frequencies=tuple(rope_frequencies(10000.0, rotated, self.head_dim)),
        )


def random_tensors(config: Config, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Float64 tensors under the names of the neutral checkpoint, scaled so that activations stay near 1."""
    tensors = {}
    for name, shape in expected_shapes(config):
        part = name.rpartition(".")[2]
        if part[0] == "N":
            tensors[name] = rng.uniform(0.5, 1.5, shape)
        elif part[0] == "B":
            tensors[name] = rng.normal(0, 0.5, shape)
        else:
            fan_in = 1.0 if part == "embedding" else shape[1]
            tensors[name] = rng.normal(0, 1 / np.sqrt(fan_in), shape)
    return tensors


@dataclass
class Record:
    """Maxima of one forward pass, in the form of a calibration record."""

    res: float = 0.0
    layers: list[dict] = field(default_factory=list)


def _rms_norm(x: np.ndarray, gains: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gains


def _rotate(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def float_forward(
    config: Config, tensors: dict[str, np.ndarray], tokens: list[int], centred: bool = False
) -> tuple[np.ndarray, Record]:
    """Logits of every position in nats, float64 [n, vocab], and the maxima seen on the way."""
    c, n = config, len(tokens)
    angles = np.arange(n)[:, None] * np.array([float(f) for f in c.frequencies])
    record = Record(float(np.abs(tensors["embedding"]).max()))
    x = tensors["embedding"][tokens]
    future = np.triu(np.full((n, n), -np.inf), 1)
    for index in range(c.layers):

        def part(name: str, prefix: str = f"layer{index}.") -> np.ndarray | float:
            return tensors.get(prefix + name, 0.0)

        y = _rms_norm(x, part("N1"), c.eps)
        q, k, v = (
            (y @ part("W" + letter).T + part("B" + letter)).reshape(n, -1, c.head_dim) for letter in "QKV"
        )
        if c.qk_norm:
            q, k = _rms_norm(q, part("NQ"), c.eps), _rms_norm(k, part("NK"), c.eps)
        mu = (k.max(0) + k.min(0)) / 2 if centred else np.zeros(k.shape[1:])
        a, b = np.split(k - mu, 2, axis=-1)
        layer = {"v": np.abs(v).max(0), "pk": np.hypot(a, b).max(0)}
        if centred:
            layer["mu"] = mu
        q, k = _rotate(q, angles), _rotate(k, angles)
        group = np.arange(c.heads) * c.kv_heads // c.heads
        scores = np.einsum("ihc,jhc->hij", q, k[:, group]) / np.sqrt(c.head_dim) + future
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhc->ihc", p, v[:, group]).reshape(n, -1) @ part("WO").T
        record.res = max(record.res, float(np.abs(x).max()))
        y = _rms_norm(x, part("N2"), c.eps)
        gate, up = y @ part("WG").T, y @ part("WU").T
        h = gate / (1 + np.exp(-gate)) * up
        layer["h"] = float(np.abs(h).max())
        x = x + h @ part("WD").T
        record.res = max(record.res, float(np.abs(x).max()))
        record.layers.append(layer)
    head = tensors["embedding"] if c.tied else tensors["head"]
    return _rms_norm(x, tensors["NF"], c.eps) @ head.T, record


def _as_float_tensor(name: str, values: np.ndarray) -> FloatTensor:
    return FloatTensor(name, values.shape, lambda rows: values[rows])


def random_model(shape: Shape) -> QuantizedModel:
    """An integer model whose scales come from a float forward pass over random tokens."""
    rng = np.random.default_rng(shape.seed)
    config = shape.config()
    tensors = random_tensors(config, rng)
    tokens = rng.integers(0, config.vocab, min(config.context_length, 64)).tolist()
    _, record = float_forward(config, tensors, tokens, shape.centred)
    checkpoint = Checkpoint(config, {n: _as_float_tensor(n, t) for n, t in tensors.items()}, "random", "")
    return quantize(checkpoint, vars(record), weights=shape.weights, context_cap=shape.cap)


def dequantise(matrix: Matrix) -> np.ndarray:
    """The float64 weights that an integer matrix stands for."""
    s = np.repeat(matrix.s.astype(np.float64), BLOCK, axis=1)
    if isinstance(matrix, MatrixW4):
        w = matrix.q * s - 16.0 * np.repeat(matrix.u.astype(np.float64), BLOCK, axis=1)
    else:
        w = matrix.v * s
    return (w * matrix.W[:, None] * 2.0**-matrix.E)[:, : matrix.cols]


def dequantised_tensors(model: QuantizedModel, adapter: Adapter | None = None) -> dict[str, np.ndarray]:
    """The float model that `model` stands for, with the adapter's product added to its targets."""

    def gains(values: np.ndarray, exponent: int) -> np.ndarray:
        return values / (np.sqrt(len(values)) * 2.0**exponent)

    tensors = {"embedding": dequantise(model.embedding), "NF": gains(model.NF.G, model.NF.EG)}
    if model.head is not None:
        tensors["head"] = dequantise(model.head)
    for index, layer in enumerate(model.layers):
        parts = {"N1": gains(layer.N1.G, layer.N1.EG), "N2": gains(layer.N2.G, layer.N2.EG)}
        for name in ("WQ", "WK", "WV", "WO", "WG", "WU", "WD"):
            parts[name] = dequantise(getattr(layer, name))
            pair = adapter.of(index, name) if adapter else None
            if pair is not None:
                parts[name] = parts[name] + dequantise(pair.B) @ dequantise(pair.A)
        for name in ("BQ", "BK", "BV"):
            if getattr(layer, name) is not None:
                parts[name] = getattr(layer, name) / 2.0**16
        for name in ("NQ", "NK"):
            if getattr(layer, name) is not None:
                parts[name] = gains(getattr(layer, name), 16)
        if layer.MC is not None and layer.CK is None:  # the key bias holds the negated centre
            parts["BK"] = parts["BK"] + (layer.MC * 2.0**-layer.EC / LOG2_E * np.sqrt(model.head_dim)).ravel()
        tensors |= {f"layer{index}.{name}": values for name, values in parts.items()}
    return tensors


def random_adapter(model: QuantizedModel, rank: int, targets: tuple[str, ...], seed: int = 5) -> Adapter:
    """A LoRA adapter on `targets` of every layer, about a third as strong as the weights."""
    rng = np.random.default_rng(seed)

    def pair(matrix: Matrix) -> LowRank:
        a = rng.normal(0, 1 / np.sqrt(matrix.cols), (rank, matrix.cols))
        b = rng.normal(0, 0.3 / np.sqrt(rank), (matrix.rows, rank))
        return LowRank(
            quantize_matrix(_as_float_tensor("A", a), "w8"), quantize_matrix(_as_float_tensor("B", b), "w8")
        )

    return Adapter([{t: pair(getattr(layer, t)) for t in targets} for layer in model.layers])


def overdriven(model: QuantizedModel) -> QuantizedModel:
    """The same model with exponents lowered until every clamp is reached, inside the reader's ranges."""

    def louder(matrix: Matrix, source: int, target: int, bits: int) -> Matrix:
        least = matrix.E + source - 17 - target - 4  # the smallest shift of LIN
        return replace(matrix, E=matrix.E - min(bits, least))

    layers = []
    for layer in model.layers:
        q16 = {n: louder(getattr(layer, n), layer.N1.EG, 16, 17) for n in ("WQ", "WK", "WV")}
        q16 |= {n: louder(getattr(layer, n), layer.N2.EG, 16, 17) for n in ("WG", "WU")}
        layers.append(
            replace(
                layer,
                **q16,
                WO=louder(layer.WO, layer.ESV, model.R, 3),
                WD=louder(layer.WD, layer.QH, model.R, 3),
                SK=layer.SK + (12 if layer.NK is None else -1),  # a normalised key is no louder
                SV_sh=layer.SV_sh + 12,
            )
        )
    return replace(model, layers=layers)
