# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""SmolLM2 against the results of an independent engine (tests/golden/, made by tools/make_golden.py).

Fed the same calibration record, the converter must make the same tensors, and both the NumPy witness and the
C++ engine the same residuals, K/V bytes, logits and saturation counts for 24 tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from make_golden import layer_digest, short, tensor_digest
from saved import parse, with_pending
from superslm.artifact import load_quantized
from superslm.convert.quantized import Matrix, MatrixW8, QuantizedModel
from superslm.reference import ReferenceModel

GOLDEN = Path(__file__).parent / "golden"
SCENE = json.loads((GOLDEN / "scene.json").read_text())  # what test_axes.py plays
EXPECTED = json.loads((GOLDEN / "smollm2.json").read_text())


def sha256(array: np.ndarray, kind: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array, kind).tobytes()).hexdigest()


@pytest.fixture(scope="session", params=["w8", "w4"])
def golden(request: pytest.FixtureRequest, smollm2_of_record: Callable[[str], Path]) -> SimpleNamespace:
    """The converter's model from the committed record, through the artifact, and what it must equal."""
    path = smollm2_of_record(request.param)
    return SimpleNamespace(path=path, model=load_quantized(path), **EXPECTED[request.param])


def digest_of(m: Matrix) -> str:
    parts = {"E": m.E, "W_sha256": sha256(m.W, "<i4")}
    if isinstance(m, MatrixW8):
        parts |= {"v_sha256": sha256(m.v, np.int8), "s_sha256": sha256(m.s, np.uint8)}
    else:
        parts |= {"v_sha256": sha256(m.q, np.uint8), "s_sha256": sha256(m.s, np.uint8)}
        parts["u_sha256"] = sha256(m.u, np.uint8)
    return tensor_digest(parts)


def test_every_tensor_of_the_converter_has_the_golden_digest(golden: SimpleNamespace) -> None:
    made = {"embedding_and_head": digest_of(golden.model.embedding)}
    for index, layer in enumerate(golden.model.layers):
        made |= {f"layer{index}.{n}": digest_of(getattr(layer, n)) for n in "WQ WK WV WO WG WU WD".split()}
    wrong = [name for name in golden.tensors if made[name] != golden.tensors[name]]
    assert golden.model.head is None and made.keys() == golden.tensors.keys() and not wrong


def test_every_parameter_of_the_converter_is_the_golden_one(golden: SimpleNamespace) -> None:
    m = golden.model
    assert (m.R, m.EPS, short(*m.STEP.tolist())) == (golden.R, golden.EPS, golden.STEP)
    made = []
    for x in m.layers:
        arrays = dict(N1=x.N1.G, N2=x.N2.G, MK=x.MK, MV=x.MV, MQ=x.MQ, SV=x.SV, MC=x.MC, BK=x.BK)
        scalars = dict(EG1=x.N1.EG, EG2=x.N2.EG, SK=x.SK, SVsh=x.SV_sh, FQ=x.FQ, ESV=x.ESV, QH=x.QH, EC=x.EC)
        made.append(layer_digest(scalars | {f"{n}_sha256": sha256(a, "<i4") for n, a in arrays.items()}))
    wrong = [index for index, digest in enumerate(golden.layers) if made[index] != digest]
    assert len(made) == len(golden.layers) and not wrong


def check_rows(golden: SimpleNamespace, k: np.ndarray, v: np.ndarray) -> None:
    """K and V of all 24 positions, [layers, positions, kv_heads, head_dim]."""
    for name, rows in (("k", k), ("v", v)):
        made = [sha256(layer, np.int8)[:16] for layer in rows]
        wrong = [index for index, digest in enumerate(getattr(golden, name)) if made[index] != digest]
        assert len(made) == len(golden.k) and not wrong, f"{name} rows differ in layers {wrong}"


def test_the_numpy_witness_gives_the_golden_results(golden: SimpleNamespace) -> None:
    reference = ReferenceModel(golden.model)
    sequence = reference.new_sequence(trace=True)
    sequence.prefill([step[0] for step in golden.steps])
    for position, (_, argmax, residuals, final, logits) in enumerate(golden.steps):
        where, traced = f"position {position}", sequence.layer_residuals[position]
        assert sha256(traced, "<i4")[:16] == residuals, where
        assert sha256(traced[-1], "<i4")[:16] == final, where
        row, _ = reference.logits(traced[-1].astype(np.int64))
        assert int(row.argmax()) == argmax and sha256(row, "<i4")[:16] == logits, where
    check_rows(golden, sequence.k, sequence.v)
    # A traced sequence runs the whole last layer everywhere; its extra sites clamp nothing on this model.
    assert {name: int(sequence.counters[name]) for name in golden.saturation} == golden.saturation


def test_the_engine_gives_the_golden_results(golden: SimpleNamespace, library_path: Path) -> None:
    from superslm.engine import Model

    tokens = [step[0] for step in golden.steps]
    with Model.load(golden.path) as model, model.pool(contexts=1) as pool:
        with pool.sequence(budget=len(tokens)) as sequence:
            for position, (token, argmax, _, final, logits) in enumerate(golden.steps):
                sequence.prefill([token])
                saved = parse(sequence.save(), golden.model)
                where = f"position {position}"
                assert sha256(saved.residual, "<i4")[:16] == final, where
                row = sequence.logits()
                assert int(row.argmax()) == argmax and sha256(row, "<i4")[:16] == logits, where
            check_rows(golden, saved.k, saved.v)
            total, v_land, k_land, rope_q, rope_k = saved.counts
        counts = golden.saturation
        assert (v_land, k_land) == (counts["v_land"], counts["k_land"])
        assert (rope_q, rope_k) == (counts["rope_q"], counts["rope_k"])
        assert total == sum(n for name, n in counts.items() if name not in ("emb", "logit"))


def layer_residuals(
    model: Any, pool: Any, quantized: QuantizedModel, before: bytes, token: int
) -> np.ndarray:
    """The residual after each layer of one token, [layers, hidden]: decode sliced into single layers."""
    rows = []
    with pool.restore(with_pending(before, token)) as sequence:
        for _ in quantized.layers:
            sequence.decode(layer_budget=1)
            rows.append(parse(sequence.save(), quantized).residual)
    return np.stack(rows)


def test_the_engine_gives_the_golden_residual_after_every_layer(
    golden: SimpleNamespace, library_path: Path
) -> None:
    from superslm.engine import Model

    with Model.load(golden.path) as model, model.pool(contexts=1) as pool:
        with pool.sequence(budget=len(golden.steps)) as sequence:
            sequence.prefill([golden.steps[0][0]])
            for token, _, residuals, _, _ in golden.steps[1:]:
                rows = layer_residuals(model, pool, golden.model, sequence.save(), token)
                assert sha256(rows, "<i4")[:16] == residuals
                sequence.prefill([token])
