# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The NumPy witness against unbounded integers, against float64, and against itself under every chunking."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scalar_numerics as scalar
from random_models import (
    Shape,
    dequantised_tensors,
    float_forward,
    overdriven,
    random_adapter,
    random_model,
)
from superslm.convert.tables import sigmoid_table, sine_table, step_table
from superslm.reference import (
    DEAD_END,
    INV_T_ONE,
    MID_TOKEN,
    TARGETS,
    ReferenceModel,
    Sampling,
    greedy,
    inverse_temperature,
    linear,
    log_probabilities,
    primitives,
    sample,
    sampling,
)

EDGE32 = [0, 1, -1, 2, 8191, 16383, 16384, -16385, 2**23, 2**30, -(2**30), 2**31 - 1, -(2**31) + 1]

SHAPES = {
    "plain": Shape(),
    "grouped 8 to 1": Shape(heads=8, kv_heads=1, head_dim=8),
    "one head per kv head": Shape(heads=3, kv_heads=3),
    "biases": Shape(bias=True),
    "q/k norms": Shape(qk_norm=True),
    "partial rotation": Shape(rotated=8),
    "untied": Shape(tied=False, vocab=67),
    "centred": Shape(centred=True),
    "centred with biases": Shape(centred=True, bias=True),
    "centred with q/k norms": Shape(centred=True, qk_norm=True),
    "four bits": Shape(weights="w4"),
    "four bits, centred": Shape(weights="w4", centred=True),
    "one layer": Shape(layers=1),
}


def shapes(*names: str) -> pytest.MarkDecorator:
    chosen = {n: SHAPES[n] for n in names} if names else SHAPES
    return pytest.mark.parametrize("shape", chosen.values(), ids=chosen.keys())


def tokens_for(shape: Shape, count: int, seed: int = 9) -> list[int]:
    return np.random.default_rng(seed).integers(0, shape.vocab, count).tolist()


def ready_sequence(model, tokens, **options):
    sequence = ReferenceModel(model).new_sequence(**options)
    sequence.prefill(tokens)
    return sequence


def assert_same_state(a, b, what: str) -> None:
    assert a.length == b.length, what
    for name in ("residual", "k", "v"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), f"{what}: {name} differs"
    assert a.counters == b.counters, what
    assert np.array_equal(a.logits(), b.logits()), f"{what}: logits differ"


# Primitives


def test_rounding_shift_rounds_to_nearest_with_ties_towards_plus_infinity():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.integers(-(2**61), 2**61, 500), EDGE32, [2**62, -(2**62), 2**61]])
    for s in range(63):
        expected = [scalar.rsh(v, s) for v in x.tolist()]
        assert primitives.rsh(x, s).tolist() == expected, f"shift {s}"
        exact = [math.floor(v / 2**s + 0.5) for v in range(-9, 10)]
        assert primitives.rsh(np.arange(-9, 10), s).tolist() == exact, f"shift {s}"
    assert primitives.rsh(np.array([3, -3]), -5).tolist() == [96, -96]


def test_bit_length_is_exact_at_every_power_of_two():
    values = sorted({v for b in range(64) for v in (2**b - 1, 2**b, 2**b + 1)})
    assert primitives.bit_length(np.array(values, np.uint64)).tolist() == [v.bit_length() for v in values]


def test_activations_fit_15_bits_and_two_int8_planes():
    rng = np.random.default_rng(1)
    for bits in range(32):
        y = rng.integers(-(2**bits) + 1, 2**bits, (4, 33))
        y[0, 0] = 2**bits - 1
        a, sh = primitives.quant15(y)
        for row in range(4):
            assert (a[row].tolist(), int(sh[row])) == scalar.quant15(y[row].tolist())
        assert np.abs(a).max() <= 16384
        lo, hi = primitives.planes(a)
        assert np.array_equal(256 * hi + lo, a)
        assert lo.min() >= -128 and lo.max() <= 127 and np.abs(hi).max() <= 64


def test_norm_equals_unbounded_integers_at_every_magnitude():
    rng = np.random.default_rng(2)
    for bits in range(32):
        for dimension in (1, 7, 64):
            x = rng.integers(-(2**bits) + 1, 2**bits, (3, dimension))
            x[0] = 2**bits - 1
            gains = rng.integers(-(2**30), 2**30 + 1, dimension)
            for eps in (0, 1, 1546188, 2**61 - 1):
                got = primitives.norm(x, gains, eps)
                for row in range(3):
                    expected = scalar.norm(x[row].tolist(), gains.tolist(), eps)
                    assert got[row].tolist() == expected, (bits, dimension, eps)


def test_norm_equals_float_rms_norm():
    rng = np.random.default_rng(3)
    x = rng.normal(0, 3, 576)
    gains = rng.uniform(0.2, 2, 576)
    y = primitives.norm(np.rint(x * 2**14), np.rint(gains * 24 * 2**20), round(1e-5 * 576 * 2**28)) / 2**20
    assert np.abs(y - x / np.sqrt((x**2).mean() + 1e-5) * gains).max() < 1e-3


def test_exp2n_has_a_relative_error_of_at_most_1_3e_4():
    f = np.arange(32768)
    exact = 2.0 ** (16 - f / 32768)
    assert np.abs(primitives.exp2n(f) / exact - 1).max() <= 1.3e-4
    assert primitives.exp2n(f).tolist() == [scalar.exp2n(v) for v in range(32768)]
    assert np.all(np.diff(primitives.exp2n(f)) <= 0)


def test_softmax_weights_end_at_31_octaves_and_start_below_one():
    z = np.array([0, 1, 65535, 65536, 31 * 65536 - 1, 31 * 65536, 2**61])
    assert primitives.softmax_weight(z).tolist() == [scalar.weight(v) for v in z.tolist()]
    assert primitives.softmax_weight(z)[0] == 2**30 - 2**14 and primitives.softmax_weight(z)[-2] == 0


def test_silu_equals_unbounded_integers_and_float():
    table = sigmoid_table()
    rng = np.random.default_rng(4)
    g = np.concatenate([np.arange(-(17 << 16), 17 << 16, 97), rng.integers(-(2**31) + 1, 2**31, 500), EDGE32])
    got = primitives.silu(g, table)
    assert got.tolist() == [scalar.silu(v, table.tolist()) for v in g.tolist()]
    x = np.arange(-(15 << 16), 15 << 16, 97)
    exact = x / 65536 / (1 + np.exp(-x / 65536))
    assert np.abs(primitives.silu(x, table) / 65536 - exact).max() < 4e-5


def test_rotation_angles_are_right_to_the_last_position_of_a_long_context():
    shape = Shape(head_dim=64)
    frequencies = [float(f) for f in shape.config().frequencies]
    step, sin = step_table(shape.config().frequencies), sine_table()
    positions = np.array([0, 1, 2, 77, 4095, 32767, 1 << 24])
    cos, sine = primitives.trigonometry(positions, step, sin)
    for i, pos in enumerate(positions.tolist()):
        pairs = [scalar.trig(pos, s, sin.tolist()) for s in step.tolist()]
        assert list(zip(cos[i].tolist(), sine[i].tolist(), strict=True)) == pairs
    angle = positions[:6, None] * np.array(frequencies)
    assert np.abs(cos[:6] / 2**30 - np.cos(angle)).max() < 4e-7
    assert np.abs(sine[:6] / 2**30 - np.sin(angle)).max() < 4e-7


def test_the_rows_of_a_centred_model_are_the_rotation_in_14_bits():
    model = random_model(SHAPES["centred"])
    assert np.array_equal(model.T, primitives.trigonometric_rows(model.cap, model.STEP, model.SIN))
    for position, row in enumerate(model.T.tolist()):
        pairs = [scalar.trig(position, step, model.SIN.tolist()) for step in model.STEP.tolist()]
        assert row == [scalar.rsh(c, 16) for c, _ in pairs] + [scalar.rsh(s, 16) for _, s in pairs]


def test_unrotated_pairs_are_left_exactly_as_they_are():
    cos, sin = primitives.trigonometry(np.arange(50), np.zeros(4, np.uint64), sine_table())
    x = np.random.default_rng(5).integers(-(2**31) + 1, 2**31, (50, 2, 8))
    rotated, clipped = primitives.rotate(x, cos, sin)
    assert np.array_equal(rotated, x) and clipped == 0


def test_products_are_the_same_in_float64_and_in_int64():
    rng = np.random.default_rng(6)
    a = rng.integers(-16384, 16385, (3, 700))
    b = rng.integers(-4080, 3826, (700, 5))
    exact = [[sum(int(x) * int(y) for x, y in zip(r, c, strict=True)) for c in b.T] for r in a]
    assert linear.exact_matmul(a, b, 16384 * 4080).tolist() == exact
    assert linear.exact_matmul(a, b, 2**53).tolist() == exact  # a bound this large selects int64


@pytest.mark.parametrize("weights", ["w8", "w4"])
def test_dot_at_extreme_weights_equals_unbounded_integers(weights):
    rng = np.random.default_rng(7)
    matrix = random_model(Shape(weights=weights)).layers[0].WD  # 52 inputs: the last block is padded
    if weights == "w8":
        matrix.v[:, : matrix.cols] = rng.choice([-127, 127], (matrix.rows, matrix.cols))
        matrix.s[:] = 15
    else:
        matrix.q[:, : matrix.cols] = rng.choice([0, 15], (matrix.rows, matrix.cols))
        matrix.s[:], matrix.u[:] = 255, rng.choice([0, 255], matrix.u.shape)
    a = rng.choice([-16384, 16384], (2, matrix.cols))
    for cache in (0, 1 << 30):
        got = linear.Dot(cache)(a, matrix)
        for n in range(2):
            assert got[n].tolist() == [scalar.dot(a[n].tolist(), matrix, r) for r in range(matrix.rows)]


# The forward pass


@shapes()
def test_every_residual_key_value_and_logit_equals_unbounded_integers(shape):
    model = random_model(shape)
    compare_with_scalar(model, tokens_for(shape, 7))


@shapes("plain", "biases", "q/k norms", "centred", "centred with q/k norms", "four bits")
def test_an_overdriven_model_clamps_and_counts_like_unbounded_integers(shape):
    model = overdriven(random_model(shape))
    counters = compare_with_scalar(model, tokens_for(shape, 7))
    for site in ("res", "gateup", "ffn", "k_land", "v_land", "qkv"):
        assert counters[site] > 0, site


def test_both_rotations_can_clamp():
    model = overdriven(random_model(SHAPES["biases"]))
    counters = compare_with_scalar(model, tokens_for(SHAPES["biases"], 12))
    assert counters["rope_q"] > 0 and counters["rope_k"] > 0


@pytest.mark.parametrize("targets", [("WQ", "WV"), TARGETS], ids=["q and v", "all"])
def test_an_adapter_equals_unbounded_integers(targets):
    model = random_model(Shape(bias=True, centred=True))
    adapter = random_adapter(model, rank=3, targets=targets)
    compare_with_scalar(model, tokens_for(Shape(), 6), adapter)
    with_adapter = ready_sequence(model, [1, 2, 3], adapter=adapter)
    assert not np.array_equal(with_adapter.logits(), ready_sequence(model, [1, 2, 3]).logits())


def compare_with_scalar(model, tokens, adapter=None) -> dict[str, int]:
    """Compare everything a sequence holds after `tokens`; returns the counters."""
    sequence = ready_sequence(model, tokens, adapter=adapter, trace=True, chunk=4)
    plain = ready_sequence(model, tokens, adapter=adapter)
    expected = scalar.ScalarSequence(model, adapter)
    for token in tokens:
        expected.feed(token)
    assert np.array_equal(sequence.layer_residuals, expected.residuals)
    assert np.array_equal(sequence.k, expected.k) and np.array_equal(sequence.v, expected.v)
    assert sequence.logits().tolist() == expected.logits()
    counters = {site: sequence.counters[site] for site in expected.counters}
    assert counters == expected.counters
    eight = sum(counters[site] for site in scalar.SITES)
    order = ("v_land", "k_land", "rope_q", "rope_k")
    assert sequence.counts == [eight, *(counters[site] for site in order)]
    assert_same_state(plain, sequence, "trace")
    return sequence.counters


@shapes()
def test_logits_stay_close_to_the_float_model_the_integers_stand_for(shape):
    model = random_model(shape)
    tokens = tokens_for(shape, 48)
    exact, _ = float_forward(shape.config(), dequantised_tensors(model), tokens)
    sequence = ReferenceModel(model).new_sequence()
    got = np.empty_like(exact)
    for position, token in enumerate(tokens):
        sequence.prefill([token])
        got[position] = sequence.logits() / 65536
    error = np.sqrt(((got - exact) ** 2).mean())
    assert error < 0.03 * exact.std(), f"rms error {error:.4f} against a spread of {exact.std():.3f}"


def test_an_adapter_stays_close_to_the_float_model_with_merged_weights():
    shape = Shape()
    model = random_model(shape)
    adapter = random_adapter(model, rank=4, targets=("WQ", "WO", "WG", "WU", "WD"))
    tokens = tokens_for(shape, 12)
    exact, _ = float_forward(shape.config(), dequantised_tensors(model, adapter), tokens)
    got = ready_sequence(model, tokens, adapter=adapter).logits() / 65536
    assert np.sqrt(((got - exact[-1]) ** 2).mean()) < 0.05 * exact.std()


# Sequences


@shapes("plain", "centred", "four bits", "one layer")
def test_no_chunking_changes_a_bit_or_a_count(shape):
    model = overdriven(random_model(shape))
    tokens = tokens_for(shape, 65)
    whole = ready_sequence(model, tokens, chunk=65)
    for chunk in (1, 2, 7, 63, 64):
        assert_same_state(whole, ready_sequence(model, tokens, chunk=chunk), f"chunk {chunk}")
    calls = ReferenceModel(model).new_sequence()
    for start in range(0, 65, 9):
        calls.prefill(tokens[start : start + 9])
    assert_same_state(whole, calls, "several calls")


@shapes("plain", "centred with biases", "one layer")
def test_a_decoded_token_leaves_the_same_state_as_a_prefilled_one(shape):
    model = overdriven(random_model(shape))
    decoded = ready_sequence(model, [5, 6])
    emitted = [decoded.decode() for _ in range(8)]
    prefilled = ready_sequence(model, [5, 6, *emitted[:-1]])
    assert decoded.pending == emitted[-1] and not decoded.ready and prefilled.ready
    assert_same_state(decoded, prefilled, "decode against prefill")


def test_layer_budgets_never_change_a_result():
    model = overdriven(random_model(Shape(layers=5)))
    whole = ready_sequence(model, [1, 2, 3])
    expected = [whole.decode() for _ in range(6)]
    for budget in range(1, 7):
        sliced = ready_sequence(model, [1, 2, 3])
        got, calls = [], 0
        while len(got) < 6:
            token = sliced.decode(layer_budget=budget)
            calls += 1
            if token != MID_TOKEN:
                got.append(token)
        assert got == expected and calls == 1 + 5 * -(-5 // budget), f"budget {budget}"
        assert_same_state(whole, sliced, f"budget {budget}")


def test_prefill_drops_a_pending_token_and_rewrites_an_unfinished_row():
    model = random_model(Shape(layers=3))
    pending = ready_sequence(model, [1, 2])
    assert pending.decode() == pending.pending
    pending.prefill([7])
    unfinished = ready_sequence(model, [1, 2])
    unfinished.decode()
    assert unfinished.decode(layer_budget=2) == MID_TOKEN and not unfinished.ready
    unfinished.prefill([7])
    flat = ready_sequence(model, [1, 2, 7])
    for sequence in (pending, unfinished):
        assert np.array_equal(sequence.k, flat.k) and np.array_equal(sequence.logits(), flat.logits())


def test_a_sequence_refuses_what_it_cannot_hold():
    model = random_model(Shape(cap=5))
    sequence = ReferenceModel(model).new_sequence()
    with pytest.raises(ValueError, match="empty"):
        sequence.decode()
    with pytest.raises(ValueError, match="no finished position"):
        sequence.logits()
    with pytest.raises(ValueError, match="0..60"):
        sequence.prefill([61])
    with pytest.raises(ValueError, match="context cap 5"):
        sequence.prefill([1] * 6)
    sequence.prefill([1] * 4)
    assert sequence.decode() >= 0 and sequence.decode() >= 0  # ready, then row 4
    with pytest.raises(ValueError, match="context cap 5"):
        sequence.decode()
    assert sequence.pending is not None and sequence.length == 5


def test_taking_logits_twice_changes_nothing():
    model = random_model(Shape(seed=3))
    model.NF.EG -= 20  # loud enough for the logits to saturate
    sequence = ready_sequence(model, [1, 2])
    first = sequence.logits().copy()
    assert np.abs(first.astype(np.int64)).max() == 2**31 - 1 and sequence.counters["logit"] > 0
    counters = dict(sequence.counters)
    assert np.array_equal(sequence.logits(), first) and sequence.counters == counters
    assert sequence.counts == [0, 0, 0, 0, 0] or sequence.counts[0] == sum(sequence.counts[1:3])


def test_a_small_cache_changes_nothing_but_time():
    model = random_model(Shape())
    small, large = (ReferenceModel(model, cache_bytes=size).new_sequence() for size in (0, 1 << 30))
    for sequence in (small, large):
        sequence.prefill([3, 1, 4, 1, 5])
    assert_same_state(small, large, "cache")


# Choosing a token


def test_philox_gives_the_published_known_answers():
    ones = 0xFFFFFFFF
    assert sampling.philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert sampling.philox((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert sampling.philox(*pi) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_greedy_takes_the_lowest_id_of_equal_logits():
    assert greedy(np.array([-5, 7, 3, 7], np.int32)) == 1


def scalar_candidates(logits: list[int], s: Sampling) -> list[tuple[int, int]]:
    """Kept (token, weight) in rank order, on unbounded integers."""

    def sat(v: int) -> int:
        return max(-(2**31) + 1, min(2**31 - 1, v))

    row = list(logits)
    for token, bias in s.bias:
        row[token] = sat(row[token] + bias)
    for token, count in s.penalties:
        row[token] = sat(row[token] - s.frequency * count - s.presence)
    ranks = sorted((-v, i) for i, v in enumerate(row) if i not in set(s.banned))
    ranks = ranks[: s.top_k or None]
    weights = []
    for v, token in ranks:
        d = v - ranks[0][0]
        weights.append((token, scalar.weight(d * (s.inv_t >> 32) + ((d * (s.inv_t & 0xFFFFFFFF)) >> 32))))
    total, cum, kept = sum(w for _, w in weights), 0, []
    for token, w in weights:
        kept.append((token, w))
        cum += w
        if cum * 32768 >= s.top_p * total:
            break
    return [(t, w) for t, w in kept if w * 32768 >= s.min_p * kept[0][1]]


def test_sampling_equals_unbounded_integers_for_any_parameters():
    rng = np.random.default_rng(11)
    for _ in range(300):
        vocab = int(rng.integers(1, 200))
        spread = 2.0 ** rng.integers(0, 31)
        logits = np.clip(rng.normal(0, spread, vocab).round(-1), -(2**31) + 1, 2**31 - 1).astype(np.int64)
        s = Sampling(
            seed=int(rng.integers(0, 2**63)) * 2 + 1,
            inv_t=int(2 ** rng.uniform(0, 46.9)),
            top_k=int(rng.choice([0, 1, 5, 500])),
            top_p=int(rng.choice([1, 16384, 29491, 32768])),
            min_p=int(rng.choice([0, 1, 1638, 32768])),
            bias=[(int(t), int(rng.integers(-(2**31), 2**31))) for t in rng.integers(0, vocab, 3)],
            penalties=[(int(t), int(rng.integers(0, 9))) for t in rng.integers(0, vocab, 4)],
            frequency=int(rng.integers(-(2**20), 2**28)),
            presence=int(rng.integers(0, 2**20)),
            banned=rng.integers(0, vocab, int(rng.integers(0, 3))).tolist(),
        )
        expected = scalar_candidates(logits.tolist(), s)
        ids, p = sampling.candidates(logits, s)
        assert list(zip(ids.tolist(), p.tolist(), strict=True)) == expected
        length = int(rng.integers(0, 2**40))
        if not expected:
            assert sample(logits, length, s) == DEAD_END
            continue
        out = sampling.philox((length % 2**32, length >> 32, 0, 0), (s.seed % 2**32, s.seed >> 32))
        r = ((out[0] + (out[1] << 32)) * sum(w for _, w in expected)) >> 64
        for token, w in expected:  # noqa: B007
            r -= w
            if r < 0:
                break
        assert sample(logits, length, s) == token


def test_draws_follow_the_softmax_at_their_temperature():
    logits = np.rint(np.array([1.0, 0.5, 0.0, -1.0, -3.0]) * 65536).astype(np.int32)
    s = Sampling(seed=42, inv_t=inverse_temperature(0.8))
    draws = np.bincount([sample(logits, n, s) for n in range(20000)], minlength=5)
    p = np.exp(logits / 65536 / 0.8)
    expected = p / p.sum() * 20000
    assert ((draws - expected) ** 2 / expected).sum() < 18.5  # chi-square, 4 degrees, 0.1 %


def test_every_vocabulary_size_keeps_the_running_sum_below_64_bits():
    ids, p = sampling.candidates(np.zeros(2**19, np.int32), Sampling())
    assert ids.size == 2**19 and int(p.sum()) == (2**30 - 2**14) << 19


def test_a_temperature_that_cannot_be_expressed_is_refused():
    assert inverse_temperature(1.0) == INV_T_ONE == 6196328019
    for temperature in (0.0, -1.0, 1e-9, 1e11):
        with pytest.raises(ValueError, match="temperature"):
            inverse_temperature(temperature)


def test_log2_is_right_to_a_unit_in_the_last_place():
    rng = np.random.default_rng(12)
    values = [
        2**30 - 2**14,
        2**30,
        2**31,
        2**32 - 1,
        2**49 - 1,
        *rng.integers(2**30 - 2**14, 2**49, 2000).tolist(),
    ]
    for value in values:
        error = sampling.log2_q16(value) / 65536 - math.log2(value)
        assert -2.0 / 65536 < error <= 1e-9, value


def test_the_logarithm_of_a_weight_sum_is_right_to_5_3e_5_nats():
    rng = np.random.default_rng(12)
    for total in [2**30 - 2**14, 2**49 - 1, *rng.integers(2**30 - 2**14, 2**49, 5000).tolist()]:
        nats = (((sampling.log2_q16(total) - 30 * 65536) * 45426) >> 16) / 65536
        assert abs(nats - math.log(total / 2**30)) <= 5.3e-5, total


def test_log_probabilities_are_right_to_the_error_of_the_weights():
    rng = np.random.default_rng(13)
    for vocab in (2, 61, 1000, 49152, 151936):
        for spread in (0.0, 0.5, 2.0, 4.0, 10.0):
            logits = np.rint(rng.normal(0, spread, vocab) * 65536)
            exact = logits / 65536 - logits.max() / 65536
            exact -= np.log(np.exp(exact).sum())
            error = np.abs(log_probabilities(logits) / 65536 - exact).max()
            assert error <= 1.3e-4 + 5.3e-5, (vocab, spread)
