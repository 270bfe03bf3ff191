# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Models made to hurt: every exponent, multiplier, weight, gain and table at an end of what the reader accepts.

No converter writes such numbers, but a hostile artifact may: the library must compute what the NumPy witness does.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from make_checkpoint import FixtureSpec, make_quantized
from saved import parse
from superslm.convert.quantized import Layer, Matrix, MatrixW4, MatrixW8, Norm, QuantizedModel, padded
from superslm.convert.writer import write_artifact
from superslm.reference import ReferenceModel

SMALL = FixtureSpec(
    "bounds", "as small as it goes", hidden=16, head_dim=8, mlp=16, vocab=32, layers=2, cap=20
)
KINDS = (
    {},
    {"architecture": "qwen2"},
    {"architecture": "qwen3"},
    {"architecture": "qwen3", "centred": True},
    {"centred": True},
    {"architecture": "qwen2", "tied": False},
)
SEEDS = 36
STATE = 16  # q, k, v, gate, up and logits are Q16
UNIT = 1 << 30


class Ends:
    """Draws from the ends of ranges."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        """An end of a range, or now and then something between."""
        return int(self.rng.choice([low, high, self.rng.integers(low, high + 1)]))

    def array(self, shape: int | tuple[int, ...], *choices: tuple[int, ...]) -> np.ndarray:
        """Every element from one of the choices, which one is drawn once."""
        return self.rng.choice(np.array(choices[self.rng.integers(len(choices))], np.int64), shape)

    def matrix(self, rows: int, cols: int, low: int, high: int) -> Matrix:
        """A matrix of either format whose exponent lies in a range."""
        exponent, blocks = self.number(low, high), padded(cols) // 32
        multipliers = self.array(rows, (1 << 23,), (1,), (1, 1 << 23)).astype(np.int32)

        def scales(*choices: tuple[int, ...]) -> np.ndarray:
            return self.array((rows, blocks), *choices).astype(np.uint8)

        if self.rng.integers(2):
            v = self.array((rows, padded(cols)), (-128,), (127,), (-128, 127), (-128, 127, 0, 1))
            return MatrixW8(cols, v.astype(np.int8), scales((15,), (0, 15), (1,)), multipliers, exponent)
        q = self.array((rows, padded(cols)), (0,), (15,), (0, 15)).astype(np.uint8)
        s, u = scales((255,), (0,), (0, 255)), scales((255,), (0,), (0, 255))
        return MatrixW4(cols, q, s, u, multipliers, exponent)

    def projection(self, rows: int, cols: int, q_in: int, q_out: int) -> Matrix:
        """A matrix whose shifts reach the ends that docs/sslm_format.md allows."""
        offset = q_in - q_out - 4
        return self.matrix(rows, cols, 17 - offset, 62 - offset)

    def unit(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.array(shape, (UNIT,), (-UNIT,), (UNIT, -UNIT, 0, 1)).astype(np.int32)

    def norm(self, size: int) -> Norm:
        return Norm(self.unit((size,)), int(self.rng.choice([0, 30])))

    def any32(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.array(shape, (-(2**31), 2**31 - 1, 0, 1)).astype(np.int32)

    def epsilon(self) -> int:
        return int(self.rng.choice([0, 1, UNIT, 2**61 - 1]))


def push_layer(ends: Ends, model: QuantizedModel, layer: Layer) -> None:
    """Moves every number of a layer to an end of its range."""
    hidden, mlp, R = model.hidden, model.mlp, model.R
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    layer.N1, layer.N2 = ends.norm(hidden), ends.norm(hidden)
    layer.SK, layer.SV_sh, layer.FQ = ends.number(1, 62), ends.number(1, 62), ends.number(4, 60)
    layer.ESV, layer.QH = ends.number(0, 30), ends.number(0, 30)
    layer.WQ = ends.projection(q, hidden, layer.N1.EG, STATE)
    layer.WK, layer.WV = (ends.projection(kv, hidden, layer.N1.EG, STATE) for _ in range(2))
    layer.WO = ends.projection(hidden, q, layer.ESV, R)
    layer.WG, layer.WU = (ends.projection(mlp, hidden, layer.N2.EG, STATE) for _ in range(2))
    layer.WD = ends.projection(hidden, mlp, layer.QH, R)
    for names, draw in (
        (("BQ", "BK", "BV", "CK"), ends.any32),
        (("NQ", "NK", "MK", "MV", "MQ", "MC"), ends.unit),
    ):
        for name in names:
            if (old := getattr(layer, name)) is not None:
                setattr(layer, name, draw(old.shape))
    layer.SV = ends.array(layer.SV.shape, (0, 1 << 23, 1)).astype(np.int32)
    if layer.MC is not None:
        layer.EC = ends.number(8, 60)


def hostile_model(seed: int) -> QuantizedModel:
    """A model of one of the six kinds with all its numbers at an end."""
    ends, kind = Ends(seed), seed % len(KINDS)
    model = make_quantized(dataclasses.replace(SMALL, name=f"bounds{kind}", **KINDS[kind]), "w8")
    model.R, model.EPS = ends.number(0, 20), ends.epsilon()
    model.EPS_head = ends.epsilon() if model.EPS_head else 0
    model.NF = ends.norm(model.hidden)
    offset = model.NF.EG - STATE - 4
    if model.head is None:
        low, high = max(model.R, 17 - offset), min(model.R + 62, 62 - offset)
        model.embedding = ends.matrix(model.vocab, model.hidden, low, high)
    else:
        model.embedding = ends.matrix(model.vocab, model.hidden, model.R, model.R + 62)
        model.head = ends.projection(model.vocab, model.hidden, model.NF.EG, STATE)
    model.SIN = ends.array(4097, (UNIT, -UNIT)).astype(np.int32)
    model.STEP = ends.rng.integers(0, 2**64, model.head_dim // 2, dtype=np.uint64)
    if model.T is not None:
        model.T = ends.array(model.T.shape, (16384,), (16384, -16384)).astype(np.int16)
    for layer in model.layers:
        push_layer(ends, model, layer)
    return model


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_model_at_the_ends_of_its_ranges_computes_what_the_witness_computes(
    seed: int, library_path: Path, tmp_path: Path
) -> None:
    from superslm import Model

    quantized, path = hostile_model(seed), tmp_path / "bounds.sslm"
    write_artifact(quantized, path)
    ids = np.random.default_rng(seed).integers(0, quantized.vocab, 9, np.int32)
    witness = ReferenceModel(quantized).new_sequence()
    witness.prefill(ids)
    with Model.load(path) as model, model.pool(pages=4) as pool, pool.sequence() as sequence:
        sequence.prefill(ids)
        assert np.array_equal(sequence.logits(), witness.logits())
        assert [sequence.decode() for _ in range(5)] == [witness.decode() for _ in range(5)]
        got = parse(sequence.save(), quantized)
    assert got.counts == witness.counts
    assert np.array_equal(got.residual, witness.residual)
    assert np.array_equal(got.k[:, : got.length], witness.k)
    assert np.array_equal(got.v[:, : got.length], witness.v)
