# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The quantiser against a plain scalar reading of docs/numerics.md, section 5, and its tables against exact values."""

from __future__ import annotations

import copy
import math
from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_checkpoint import make_checkpoint, make_quantized, make_record
from superslm.convert import quantize as module
from superslm.convert.checkpoint import ConvertError, FloatTensor
from superslm.convert.quantize import landing_scales, quantize, quantize_matrix, quantize_norm
from superslm.convert.tables import (
    PI,
    ceil_log2,
    position_table,
    rope_frequencies,
    sigmoid_table,
    sine_table,
    step_table,
)


def tensor(values: np.ndarray) -> FloatTensor:
    return FloatTensor("w", values.shape, lambda rows: values[rows])


# ---- Section 5, one weight at a time ----


def clamp(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def block_error(errors: list[float]) -> float:
    squares = [e * e for e in errors] + [0.0] * (32 - len(errors))
    lanes = [squares[i] + squares[i + 8] + squares[i + 16] + squares[i + 24] for i in range(8)]
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))


def w8_row(row: list[float]) -> tuple[list[int], list[int], float]:
    blocks = [row[i : i + 32] for i in range(0, len(row), 32)]
    R = max(max(max(abs(w) for w in b) / 127 for b in blocks) / 15, 1e-20)
    values, scales = [], []
    for block in blocks:
        s0 = clamp(math.ceil(max(abs(w) for w in block) / 127 / R - 1e-9), 1, 15)
        best = None
        for s in (s0, s0 - 1, s0 + 1, s0 + 2):
            if not 1 <= s <= 15:
                continue
            v = [clamp(round(w / (R * s)), -127, 127) for w in block]
            error = block_error([w - x * (R * s) for w, x in zip(block, v, strict=True)])
            if best is None or error < best[0]:
                best = (error, s, v)
        values += [int(x) for x in best[2]]
        scales.append(int(best[1]))
    return values, scales, R


def w4_row(row: list[float]) -> tuple[list[int], list[int], list[int], float]:
    blocks = [row[i : i + 32] for i in range(0, len(row), 32)]
    R = max(max((max(*b, 0.0) - min(*b, 0.0)) / 15 for b in blocks) / 255, 1e-20)
    values, scales, offsets = [], [], []
    for block in blocks:
        low, high = min(*block, 0.0), max(*block, 0.0)
        best = None
        for high_factor in (0.85, 0.92, 1.0):
            for low_factor in (0.85, 0.92, 1.0):
                h, lo = high * high_factor, low * low_factor
                s = clamp(round((h - lo) / 15 / R), 1, 255)
                u = clamp(round(-lo / R / 16), 0, 255)
                q = [clamp(round((w / R + 16 * u) / s), 0, 15) for w in block]
                error = block_error([w - (x * s - 16 * u) * R for w, x in zip(block, q, strict=True)])
                if best is None or error < best[0]:
                    best = (error, s, u, q)
        scales.append(int(best[1]))
        offsets.append(int(best[2]))
        values += [int(x) for x in best[3]]
    return values, scales, offsets, R


def sample(kind: str, rows: int, columns: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((rows, columns)) * 0.05
    if kind == "outliers":
        w[rng.random(w.shape) < 0.02] *= 60
    elif kind == "one sign":
        w = np.abs(w)
    elif kind == "coarse":  # many exact ties between candidates
        w = np.round(w * 64) / 64
    elif kind == "sparse":
        w[rng.random(w.shape) < 0.9] = 0
    elif kind == "tiny":
        w *= 1e-30
    elif kind == "blocks of very different size":
        w *= np.repeat(4.0 ** rng.integers(-8, 3, (rows, -(-columns // 32))), 32, axis=1)[:, :columns]
    return w.astype(np.float32)


KINDS = ["normal", "outliers", "one sign", "coarse", "sparse", "tiny", "blocks of very different size"]


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 83, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_eight_bit_blocks_follow_the_rule_weight_by_weight(kind: str, columns: int) -> None:
    w = sample(kind, 6, columns, columns)
    m = quantize_matrix(tensor(w), "w8")
    rows = [w8_row([float(x) for x in row]) for row in w]
    assert m.v[:, :columns].tolist() == [r[0] for r in rows] and not m.v[:, columns:].any()
    assert m.s.tolist() == [r[1] for r in rows]
    check_multipliers(m, w, [r[2] for r in rows])


@pytest.mark.parametrize("columns", [2, 31, 32, 33, 83, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_four_bit_blocks_follow_the_rule_weight_by_weight(kind: str, columns: int) -> None:
    w = sample(kind, 6, columns, columns)
    m = quantize_matrix(tensor(w), "w4")
    rows = [w4_row([float(x) for x in row]) for row in w]
    assert m.q[:, :columns].tolist() == [r[0] for r in rows] and not m.q[:, columns:].any()
    assert (m.s.tolist(), m.u.tolist()) == ([r[1] for r in rows], [r[2] for r in rows])
    check_multipliers(m, w, [r[3] for r in rows])


def check_multipliers(m: Any, w: np.ndarray, scales: list[float]) -> None:
    assert m.E == (23 - ceil_log2(max(scales)) if w.any() else 23)
    assert m.W.tolist() == [max(1, round(r * 2.0**m.E)) for r in scales]
    assert m.W.max() <= 1 << 23


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=70))
def test_any_row_follows_both_rules(row: list[float]) -> None:
    w = np.array([row], np.float32)
    if np.abs(w).max() / 127 / 15 <= 1e-20:
        return
    eight, four = quantize_matrix(tensor(w), "w8"), quantize_matrix(tensor(w), "w4")
    want8, want4 = w8_row(row), w4_row(row)
    assert (eight.v[0, : len(row)].tolist(), eight.s[0].tolist()) == want8[:2]
    assert (four.q[0, : len(row)].tolist(), four.s[0].tolist(), four.u[0].tolist()) == want4[:3]


@pytest.mark.parametrize("weights", ["w8", "w4"])
def test_a_tensor_of_zeros_has_fixed_multipliers(weights: str) -> None:
    m = quantize_matrix(tensor(np.zeros((3, 40), np.float32)), weights)
    assert m.E == 23 and m.W.tolist() == [1, 1, 1] and m.s.min() == 1


@pytest.mark.parametrize("weights", ["w8", "w4"])
def test_the_size_of_a_strip_changes_nothing(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = sample("outliers", 50, 83, 3)
    whole = quantize_matrix(tensor(w), weights)
    monkeypatch.setattr(module, "STRIP", 300)
    monkeypatch.setattr(module, "READ", 1000)
    parts = quantize_matrix(tensor(w), weights)
    for name, value in vars(whole).items():
        assert np.array_equal(value, getattr(parts, name)), name


@pytest.mark.parametrize("weights", ["w8", "w4"])
def test_the_integers_stay_close_to_the_weights(weights: str) -> None:
    w = sample("normal", 64, 256, 5)
    m = quantize_matrix(tensor(w), weights)
    shape = (64, -1, 32)
    if weights == "w8":
        ints = m.v.reshape(shape).astype(float) * m.s[..., None]
    else:
        ints = m.q.reshape(shape).astype(float) * m.s[..., None] - 16.0 * m.u[..., None]
    back = (ints * m.W[:, None, None] * 2.0**-m.E).reshape(64, -1)
    error = np.sqrt(np.mean((back - w) ** 2)) / np.sqrt(np.mean(w.astype(float) ** 2))
    assert error < (0.006 if weights == "w8" else 0.08)


# ---- Tables ----


def exact_sine(x: Decimal) -> Decimal:
    term = total = x
    n = 1
    while abs(term) > Decimal(10) ** -45:
        term = -term * x * x / ((n + 1) * (n + 2))
        n += 2
        total += term
    return total


def test_tables_are_correctly_rounded() -> None:
    getcontext().prec = 50
    sine, sigmoid = sine_table(), sigmoid_table()
    for i in (*range(0, 4097, 37), 1023, 1024, 1025, 2048, 3072, 4095, 4096):
        want = exact_sine(2 * PI * i / 4096) * (1 << 30)
        assert abs(Decimal(int(sine[i])) - want) <= Decimal("0.5000000001"), i
    for i in range(0, 1025, 31):
        want = Decimal(1 << 30) / (1 + (Decimal(i) / 64).exp())
        assert abs(Decimal(int(sigmoid[i])) - want) <= Decimal("0.5"), i
    assert len(sine) == 4097 and sine[1024] == 1 << 30 and sine[3072] == -(1 << 30) and sine[2048] == 0
    assert len(sigmoid) == 1025 and sigmoid[0] == 1 << 29
    assert (np.diff(sigmoid) <= 0).all() and -np.diff(sigmoid).min() <= 1 << 22


def test_pi_has_the_digits_it_claims() -> None:
    getcontext().prec = 75

    def arctan_of_inverse(x: int) -> Decimal:
        total, power, n = Decimal(0), Decimal(1) / x, 1
        while power > Decimal(10) ** -74:
            total += power / n if n % 4 == 1 else -power / n
            power /= x * x
            n += 2
        return total

    assert abs(16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239) - PI) < Decimal(10) ** -70


def test_steps_are_rounded_from_more_than_eighty_bits() -> None:
    getcontext().prec = 70
    steps = step_table(rope_frequencies(1e6, 128, 128))
    for f in range(64):
        want = (Decimal(2) ** 64) * (Decimal(10) ** (Decimal(-12 * f) / 128)) / (2 * PI)
        assert abs(int(steps[f]) - want) <= Decimal("0.5000001"), f
    assert step_table(rope_frequencies(1e4, 16, 32)).tolist()[8:] == [0] * 8


def test_the_position_table_is_the_engines_sine_rounded_to_fourteen_bits() -> None:
    frequencies = rope_frequencies(1e4, 32, 32)
    table = position_table(step_table(frequencies), 4096)
    assert table.shape == (4096, 32) and table.dtype == np.int16 and np.abs(table.astype(int)).max() <= 16384
    positions = np.arange(4096)[:, None]
    angle = positions * np.array([float(f) for f in frequencies])
    want = np.concatenate([np.cos(angle), np.sin(angle)], axis=1) * 16384
    assert np.abs(table - want).max() < 0.51


# ---- Norms, scales, whole models ----


def test_ceil_log2_is_exact_at_powers_of_two() -> None:
    assert [ceil_log2(x) for x in (1.0, 2.0, 0.5, math.nextafter(4.0, 9), 4.0, 0.75)] == [0, 1, -1, 3, 2, 0]
    assert ceil_log2(0.0) == -math.inf


def test_norm_gains_use_the_largest_exponent_that_fits() -> None:
    norm = quantize_norm(np.array([1.0, -2.0, 0.25, 0.0], np.float32), "N")
    assert norm.EG == 29 - 2 and norm.G.tolist() == [2**28, -(2**29), 2**26, 0]
    assert quantize_norm(np.zeros(4, np.float32), "N").EG == 30
    with pytest.raises(ConvertError, match="too large"):
        quantize_norm(np.full(4, 1e9, np.float32), "N")


def test_landing_scales_have_both_floors() -> None:
    assert landing_scales(np.array([[127.0, 0.0]])).tolist() == [[1.1, 2**-12 * 1.1]]
    assert landing_scales(np.zeros((1, 2))).tolist() == [[1e-6, 1e-6]]


def test_parameters_of_a_centred_layer() -> None:
    record, model = make_record("centred"), make_quantized("centred")
    for got, layer in zip(model.layers, record["layers"], strict=True):
        mu = np.array(layer["mu"])
        assert got.BK.tolist() == (-np.rint(mu * 65536)).reshape(-1).astype(int).tolist()
        assert np.abs(got.MC).max() <= 1 << 30 and np.abs(got.MC).max() > 1 << 29
        assert np.array_equal(got.MK[:, :16], got.MK[:, 16:])
    assert model.T is not None and model.T.shape == (model.cap, model.head_dim)


def test_a_centre_with_head_norms_is_subtracted_after_them() -> None:
    model = make_quantized("qknorm_centred")
    assert all(
        layer.BK is None and layer.CK is not None and layer.CK.shape == (2, 32) for layer in model.layers
    )
    assert model.EPS_head == round(1e-5 * 32 * 2.0**32)


def test_a_centre_of_zeros_is_no_centre() -> None:
    record = make_record("tiny")
    for layer in record["layers"]:
        layer["mu"] = np.zeros((1, 32)).tolist()
    model = quantize(make_checkpoint("tiny"), record)
    assert model.T is None and all(layer.MC is None and layer.EC == 0 for layer in model.layers)


def test_all_zero_maxima_take_the_largest_exponents() -> None:
    record = make_record("tiny")
    record["res"] = 0.0
    for layer in record["layers"]:
        layer["h"] = 0.0
    model = quantize(make_checkpoint("tiny"), record)
    assert model.R == 20 and {layer.QH for layer in model.layers} == {20}


def test_four_bit_models_keep_embedding_head_and_what_is_asked_for_at_eight() -> None:
    model = quantize(make_checkpoint("untied"), make_record("untied"), weights="w4", keep_8bit=("WD", "WV"))
    kinds = {n: type(getattr(model.layers[1], n)).__name__[-2:] for n in module.MATRIX_NAMES}
    assert kinds == {n: "W8" if n in ("WD", "WV") else "W4" for n in module.MATRIX_NAMES}
    assert type(model.embedding).__name__ == type(model.head).__name__ == "MatrixW8"


def test_matrices_kept_at_eight_bits_need_names_and_four_bits() -> None:
    for weights, names, words in (("w8", ("WD",), "no meaning"), ("w4", ("down",), "unknown matrix")):
        with pytest.raises(ConvertError, match=words):
            quantize(make_checkpoint("tiny"), make_record("tiny"), weights=weights, keep_8bit=names)


def test_the_cap_is_the_trained_length_unless_given() -> None:
    record = make_record("tiny")
    assert quantize(make_checkpoint("tiny"), record).cap == 64
    assert quantize(make_checkpoint("tiny"), record, context_cap=17).cap == 17
    with pytest.raises(ConvertError, match="cap"):
        quantize(make_checkpoint("tiny"), record, context_cap=0)


def test_progress_ends_at_one() -> None:
    seen: list[float] = []
    quantize(make_checkpoint("odd_bias"), make_record("odd_bias"), progress=lambda f, text: seen.append(f))
    assert seen == sorted(seen) and seen[-1] == pytest.approx(1.0)


BROKEN = {
    "layers": (lambda r: r["layers"].pop(), "layers"),
    "shape": (lambda r: r["layers"][0]["v"].pop(), "layer 0 v has shape"),
    "missing": (lambda r: r["layers"][1].pop("h"), "layer 1 has no h"),
    "text": (lambda r: r.update(res="big"), "not numeric"),
    "nan": (lambda r: r["layers"][0].update(h=math.nan), "non-finite"),
    "negative": (lambda r: r.update(res=-1.0), "negative"),
    "huge residual": (lambda r: r.update(res=2.0**40), "residual"),
    "huge product": (lambda r: r["layers"][0].update(h=2.0**40), "too large"),
    "huge keys": (lambda r: r["layers"][0].update(pk=[[2.0**60] * 16]), "lies outside"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_that_does_not_fit_is_refused(name: str) -> None:
    change, match = BROKEN[name]
    record = copy.deepcopy(make_record("tiny"))
    change(record)
    with pytest.raises(ConvertError, match=match):
        quantize(make_checkpoint("tiny"), record)


def test_weights_beyond_the_shifts_are_refused() -> None:
    checkpoint = make_checkpoint("tiny")
    big = np.full((64, 64), 1e30, np.float32)
    checkpoint.tensors["layer0.WO"] = FloatTensor("o_proj", (64, 32), lambda rows: big[rows, :32])
    with pytest.raises(ConvertError, match="o_proj.*shifts"):
        quantize(checkpoint, make_record("tiny"))
