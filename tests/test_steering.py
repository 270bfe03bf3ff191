# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Steering through the library: hostile schema sections, damped greedy and sampling against their references."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import room_programs
from artifact_support import run, sanitized
from kernel_tiers import TIERS
from make_checkpoint import make_quantized, spec_of
from schema_cases import SHOP, hand_written
from schema_fixtures import schemas, with_schemas
from superslm import Damped, Model, PagePool, Sampling, Sequence, errors
from superslm.artifact import Artifact
from superslm.convert.schema import (
    Choices,
    JsonSchema,
    Regex,
    Vocabulary,
    compile_schema,
    pack,
)
from superslm.convert.schema.section import CLASS_TABLE, ENTRY, HEADER
from superslm.convert.schema.tokens import NO_STATE
from superslm.convert.tokenizer import build_tokenizer
from superslm.convert.writer import set_section, write_artifact
from superslm.reference import damped as reference_damped
from superslm.reference import sampling as reference_sampling
from superslm.selection import SamplingArray, damped_params
from tokenizer_support import small_source

PROMPT = [1, 2, 3]
CHI_SQUARE_DRAWS = 4000


@pytest.fixture(scope="module")
def model(
    library_path: Path, fixture_artifact: Callable[..., Path], tmp_path_factory: Any
) -> Iterator[Model]:
    """The model of the contract's cells with the schemas of `schema_fixtures`."""
    source = fixture_artifact("cells")
    path = tmp_path_factory.mktemp("steering") / "cells.sslm"
    with Model.load(with_schemas(source, path, spec_of("cells").vocab)) as loaded:
        yield loaded


@pytest.fixture
def pool(model: Model) -> Iterator[PagePool]:
    with model.pool(contexts=4) as made:
        yield made


def ready(pool: PagePool, prompt: list[int] = PROMPT, schema: str | None = None) -> Sequence:
    sequence = pool.sequence()
    sequence.bind_schema(schema)
    sequence.prefill(prompt)
    return sequence


def settle(sequence: Sequence) -> None:
    """Moves the pending token into the context, so that the logits can be read."""
    sequence.prefill([])


def legal_of(model: Model, sequence: Sequence) -> np.ndarray | None:
    if sequence.schema is None:
        return None
    automaton = model.schemas[sequence.schema].automaton
    return automaton.next[sequence.walk][automaton.classes] != NO_STATE


# ---- the schema section ----


def test_adding_a_schema_keeps_the_model_digest_and_old_saves(
    library_path: Path, fixture_artifact: Callable[..., Path], model: Model
) -> None:
    with Model.load(fixture_artifact("cells")) as old, old.pool() as pool, pool.sequence() as sequence:
        assert old.info.model_digest == model.info.model_digest
        assert old.info.file_digest != model.info.file_digest
        sequence.prefill(PROMPT)
        sequence.decode()
        blob = sequence.save()
        expected = [sequence.decode() for _ in range(5)]
    with model.pool() as pool, pool.restore(blob) as restored:
        assert [restored.decode() for _ in range(5)] == expected


def word(value: int) -> bytes:
    return struct.pack("<I", value)


def test_a_hostile_section_is_refused_by_name(
    library_path: Path, fixture_artifact: Callable[..., Path], tmp_path: Path
) -> None:
    """One defect each; the file digest is right, so only the section's reader stands in the way."""
    vocab = spec_of("cells").vocab
    section = pack(schemas(vocab))
    count, tables = 3, HEADER.unpack_from(section)[3]
    assert tables == 3
    entry = HEADER.size + tables * CLASS_TABLE.size
    names = entry + count * ENTRY.size
    classes = -(-(names + len("chainchoiceparity")) // 64) * 64
    stride = -(-2 * vocab // 64) * 64
    following = classes + tables * stride  # of chain: 4 states of 4 classes
    accepting = following + -(-4 * 4 * 4 // 64) * 64
    path = tmp_path / "hostile.sslm"

    def why(data: bytes, expected: str = "") -> str:
        set_section(fixture_artifact("cells"), "SCHM", data, output=path)
        try:
            Model.load(path).close()
        except errors.ArtifactRejected as refusal:
            return str(refusal)
        pytest.fail(f"accepted, although {expected}")

    def patched(at: int, data: bytes) -> bytes:
        return section[:at] + data + section[at + len(data) :]

    wrong = [
        (section[:31], "ends inside"),
        (patched(0, b"SLSD"), "magic"),
        (patched(4, word(2)), "version is 2"),
        (patched(8, word(vocab + 1)), "vocabulary is"),
        (patched(12, word(0)), "class tables is 0"),
        (patched(12, word(4)), "class tables is 4"),
        (patched(16, word(0)), "schemas is 0"),
        (patched(16, word(65537)), "schemas is 65537"),
        (patched(20, b"\1"), "reserved"),
        (patched(HEADER.size, word(0)), "number of classes is 0"),
        (patched(HEADER.size, word(65536)), "number of classes is 65536"),
        (patched(HEADER.size, word(3)), "class of a token is 3"),
        (patched(HEADER.size + 4, b"\1"), "reserved"),
        (patched(HEADER.size + 8, b"\0" * 32), "digest"),
        (patched(entry, word(0)), "name length is 0"),
        (patched(entry, word(0xFFFFFFFF)), "ends inside"),
        (patched(entry + 4, word(3)), "class table is 3"),
        (patched(entry + 8, word(0)), "states is 0"),
        (patched(entry + 8, word((1 << 20) + 1)), "states is 1048577"),
        (patched(entry + 8, word(1 << 20)), "ends inside"),
        (patched(entry + 12, word(5)), "accepting states is 5"),
        (patched(entry + 16, b"\0" * 32), "digest"),
        (patched(names, b"zzzzz"), "names do not ascend"),
        (section.replace(b"chainchoiceparity", b"chainparityparity"), "names do not ascend"),
        (patched(names + len("chainchoiceparity"), b"\1"), "padding"),
        (patched(classes, struct.pack("<H", 4)), "class of a token is 4"),
        (patched(following, word(4)), "next state is 4"),
        (patched(following, word(0xFFFFFFFE)), "next state is 4294967294"),
        (patched(accepting, word(4)), "accepting state (ascending) is 4"),
        (patched(accepting, word(2)), "digest"),
        (section[:-64], "ends inside"),
        (section + bytes(64), "behind the last table"),
    ]
    for data, words in wrong:
        reason = why(data, words)
        assert words in reason, (words, reason)
    twice = schemas(vocab)
    twice["parity"] = dataclasses.replace(twice["parity"], accepting=np.array([1, 0], np.uint32))
    assert "accepting state (ascending) is 0" in why(pack(twice))
    twice["parity"] = dataclasses.replace(twice["parity"], accepting=np.array([1, 1], np.uint32))
    assert "accepting state (ascending) is 1" in why(pack(twice))
    set_section(fixture_artifact("cells"), "SCHM", section, output=path)
    Model.load(path).close()


def test_a_mutated_section_is_refused_or_harmless(
    library_path: Path, fixture_artifact: Callable[..., Path], tmp_path: Path
) -> None:
    section = bytearray(pack(schemas(spec_of("cells").vocab)))
    rng, path, refused = np.random.default_rng(5), tmp_path / "mutated.sslm", 0
    for _ in range(150):
        data = bytearray(section)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        set_section(fixture_artifact("cells"), "SCHM", bytes(data), output=path)
        try:
            Model.load(path).close()
        except errors.ArtifactRejected:
            refused += 1
    assert refused > 140


def test_no_mutated_section_leads_out_of_its_bytes(c_program: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "section").write_bytes(pack(schemas(263)))
    program = sanitized(c_program, "artifact_schemas")
    (summary,) = run(program, tmp_path / "section", 263, 20_000)
    print(summary)
    assert int(summary.split()[-1]) > 15_000


# ---- damped greedy ----


def test_constants_are_the_exact_quotients(model: Model) -> None:
    params = damped_params(model, 1, Damped())
    own = reference_damped.Constants.derive(1 << 30, -46)
    assert (
        (params.q_ln2, params.q_b, params.q_c) == (own.q_ln2, own.q_b, own.q_c) == (45426, 88670, 4121251740)
    )


@pytest.mark.parametrize(
    ("alpha", "order", "top_k"),
    [(2.0, 2, 6), (6.0, 5, 20), (16.0, 82, 263), (0.0, 1, 6), (31.9, 3, 40), (0.5, 4, 1)],
)
@pytest.mark.parametrize("schema", [None, "parity"])
def test_damped_greedy_equals_its_reference(
    model: Model, pool: PagePool, alpha: float, order: int, top_k: int, schema: str | None
) -> None:
    sequence, history = ready(pool, schema=schema), reference_damped.AntiLm()
    constants = reference_damped.Constants.derive(1 << 30, -46)
    selection = Damped(alpha, order, top_k)
    for step in range(200):
        logits, legal = sequence.logits(), legal_of(model, sequence)
        expected = reference_damped.choose(
            logits, history, constants, alpha=round(alpha * 32768), order=order, top_k=top_k, legal=legal
        )
        assert sequence.decode(selection=selection) == expected, f"step {step}"
        if alpha == 0:
            best = np.where(legal, logits, -(2**31)) if legal is not None else logits
            assert logits[expected] >= best.max() - 2  # theta ties within a step or two of its grid
        settle(sequence)


def test_a_peak_whose_square_alone_overflows_is_a_refused_step(model: Model, pool: PagePool) -> None:
    """q_b^2 is just above 2^63 and q_c brings the peak back into its domain."""
    params = damped_params(model, model.info.layers, Damped())
    params.q_b = 3_037_000_500
    params.q_c = 1000 - params.q_b**2 + 2**47 - 2000
    constants = reference_damped.Constants(params.q_ln2, params.q_b, params.q_c)
    assert 1 <= constants.peak <= 2**47
    sequence = ready(pool)
    with pytest.raises(reference_damped.NumericRefusal):
        reference_damped.choose(sequence.logits(), reference_damped.AntiLm(), constants)
    handles, out = (type(sequence._handle.value) * 1)(sequence._handle.value), (ctypes.c_int32 * 1)(77)
    status = model._lib.sslm_decode_step_v2(model._handle.value, handles, 1, params, None, out)
    assert (status, out[0]) == (26, 77)
    assert sequence.decode(selection=Damped()) >= 0


def test_alpha_zero_is_the_argmax_of_theta(pool: PagePool) -> None:
    """Ties of theta go to the lowest id."""
    constants = reference_damped.Constants.derive(1 << 30, -46)
    sequence = ready(pool)
    for _ in range(60):
        logits = sequence.logits().astype(np.int64)
        weights = [constants.exponential(int(v - logits.max())) for v in logits]
        theta = [(w << 15) // sum(weights) for w in weights]
        assert sequence.decode(selection=Damped(0.0, 2, 263)) == int(np.argmax(theta))
        settle(sequence)


# ---- sampling ----


def as_reference(s: Sampling) -> reference_sampling.Sampling:
    """The same draw as the reference takes it."""
    params = SamplingArray([s]).params[0]
    return reference_sampling.Sampling(
        seed=params.seed,
        inv_t=params.inverse_temperature,
        top_k=params.top_k,
        top_p=params.top_p_q15,
        min_p=params.min_p_q15,
        bias=[(t, round(b * 65536)) for t, b in s.bias.items()],
        penalties=list(s.counts.items()),
        frequency=params.frequency_q16,
        presence=params.presence_q16,
        banned=s.banned,
    )


def random_sampling(rng: np.random.Generator, vocab: int) -> Sampling:
    return Sampling(
        seed=int(rng.integers(0, 2**63)),
        temperature=float(rng.choice([0.2, 0.7, 1.0, 1.5, 8.0])),
        top_p=float(rng.choice([1.0, 0.95, 0.5, 1e-4])),
        top_k=int(rng.choice([0, 1, 7, 50, vocab + 9])),
        min_p=float(rng.choice([0.0, 0.02, 0.5, 1.0])),
        banned=rng.integers(0, vocab, rng.choice([0, 0, 5, 200])).tolist(),
        bias={int(t): float(rng.normal(0, 4)) for t in rng.integers(0, vocab, rng.choice([0, 6]))},
        counts={int(t): int(rng.integers(0, 5)) for t in rng.integers(0, vocab, rng.choice([0, 6]))},
        frequency=float(rng.normal(0, 1)),
        presence=float(rng.normal(0, 1)),
    )


def test_a_draw_equals_the_reference_bit_for_bit(model: Model, pool: PagePool) -> None:
    rng, sequence = np.random.default_rng(3), ready(pool)
    for case in range(400):
        sampling = random_sampling(rng, model.info.vocab)
        length, logits = sequence.stats().context_length, sequence.logits()
        expected = reference_sampling.sample(logits, length, as_reference(sampling))
        assert sequence.decode(selection=sampling) == expected, (case, sampling)
        settle(sequence)


def test_a_draw_inside_a_schema_equals_the_reference(model: Model, pool: PagePool) -> None:
    rng, sequence = np.random.default_rng(4), ready(pool, schema="parity")
    for _ in range(100):
        sampling = dataclasses.replace(random_sampling(rng, model.info.vocab), banned=())
        legal = legal_of(model, sequence)
        masked = dataclasses.replace(as_reference(sampling), banned=np.flatnonzero(~legal).tolist())
        length, logits = sequence.stats().context_length, sequence.logits()
        assert sequence.decode(selection=sampling) == reference_sampling.sample(logits, length, masked)
        settle(sequence)


def test_the_largest_sum_of_weights_is_drawn_from_exactly(tmp_path: Path) -> None:
    """2^19 equal logits: 32768 times the sum of their weights is 2^64 - 2^48."""
    program = room_programs.compile_rooms(tmp_path, "sample_extremes", ("decode/sample.cpp",))
    cases = [(top_p, min_p) for top_p in (1, 20000, 32767, 32768) for min_p in (0, 1, 32768)]
    seed, logits = 2**64 - 1, np.zeros(2**19, np.int32)
    drawn = room_programs.run(program, str(seed), *(str(value) for case in cases for value in case))
    for case, token in zip(cases, drawn.split(), strict=True):
        sampling = reference_sampling.Sampling(seed=seed, inv_t=2**32, top_p=case[0], min_p=case[1])
        assert int(token) == reference_sampling.sample(logits, 7, sampling), case


def test_banning_every_token_is_a_dead_end(model: Model, pool: PagePool) -> None:
    sequence = ready(pool)
    before = sequence.save()
    assert sequence.decode(selection=Sampling(1, banned=range(model.info.vocab))) == -2
    assert sequence.save() == before
    assert sequence.decode(selection=Sampling(1)) >= 0


def test_draws_follow_the_distribution(model: Model, pool: PagePool) -> None:
    """Chi-square against float64 softmax over the most likely tokens; fixed seeds, so it holds or it does not."""
    sequence = ready(pool)
    blob = sequence.save()
    logits = sequence.logits().astype(np.float64) / 65536
    temperature = 0.4
    p = np.exp((logits - logits.max()) / temperature)
    p /= p.sum()
    counts = np.zeros(model.info.vocab)
    for seed in range(CHI_SQUARE_DRAWS):
        counts[sequence.decode(selection=Sampling(seed, temperature))] += 1
        sequence.close()
        sequence = pool.restore(blob)
    frequent = p * CHI_SQUARE_DRAWS >= 5
    observed = np.append(counts[frequent], counts[~frequent].sum())
    expected = np.append(p[frequent], p[~frequent].sum()) * CHI_SQUARE_DRAWS
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    degrees = len(expected) - 1
    print(f"chi-square {statistic:.1f} with {degrees} degrees of freedom")
    assert degrees >= 5
    assert abs(statistic - degrees) < 4 * np.sqrt(2 * degrees)


def drawn(model: Model, cut: str) -> str:
    """A digest over 30 draws of five sequences, in one way of cutting the work."""
    names = [None, "parity", None, "parity", None]
    with model.pool(contexts=5) as pool:
        sequences = [ready(pool, [1 + i, 2, 3 + i], name) for i, name in enumerate(names)]
        samplings = [Sampling(100 + i, 0.6 + 0.2 * i, top_p=1.0 - 0.1 * i, min_p=0.01 * i) for i in range(5)]
        tokens: list[list[int]] = [[] for _ in names]
        for _ in range(30):
            if cut == "batch":
                step = model.decode(sequences, selection=samplings)
            elif cut == "reversed":
                step = model.decode(sequences[::-1], selection=samplings[::-1])[::-1]
            elif cut == "alone":
                step = [s.decode(selection=how) for s, how in zip(sequences, samplings, strict=True)]
            else:
                for _ in range(model.info.layers):
                    step = model.decode(sequences, selection=samplings, layer_budget=1)
                    if None not in step:
                        break
            for kept, token in zip(tokens, step, strict=True):
                kept.append(token)
        digest = hashlib.sha256(json.dumps(tokens).encode())
        for sequence in sequences:
            digest.update(sequence.save())
            sequence.close()
    return digest.hexdigest()


def test_batches_order_and_slices_change_no_draw(model: Model) -> None:
    assert len({drawn(model, cut) for cut in ("batch", "reversed", "alone", "slices")}) == 1


@pytest.mark.parametrize("tier", TIERS)
def test_the_kernel_tier_changes_no_draw(tier: str, model: Model, test_library_path: Path) -> None:
    """The test library refuses to run on another tier than the one that is named."""
    paths = os.pathsep.join(path for path in sys.path if path)
    env = {
        **os.environ,
        "PYTHONPATH": paths,
        "SUPERSLM_LIBRARY": str(test_library_path),
        "SSLM_FORCE_TIER": tier,
    }
    script = f"import test_steering as t; print(t.drawn(t.Model.load({model.name!r}), 'batch'))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False
    )
    if done.returncode == -signal.SIGABRT:
        pytest.skip(f"this processor does not have {tier}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == drawn(model, "batch")


def test_bad_sampling_parameters_are_refused_before_anything_moves(model: Model, pool: PagePool) -> None:
    sequence = ready(pool)
    before = sequence.save()
    out = np.full(1, 77, np.int32)
    bad: list[dict[str, Any]] = [
        {"struct_size": 95},
        {"struct_size": 0},
        {"struct_size": 100},
        {"inverse_temperature": 0},
        {"inverse_temperature": 1 << 47},
        {"top_k": -1},
        {"top_p_q15": 0},
        {"top_p_q15": 32769},
        {"min_p_q15": -1},
        {"min_p_q15": 32769},
        {"reserved": 1},
        {"banned_count": 1},
        {"banned_count": -1},
        {"bias_count": 1},
        {"penalty_count": 1},
    ]
    for change in bad:
        array = SamplingArray([Sampling(1)])
        for name in ("banned", "bias_tokens", "bias_q16", "penalty_tokens", "penalty_counts"):
            setattr(array.params[0], name, None)
        for name, value in change.items():
            setattr(array.params[0], name, value)
        handles = (type(sequence._handle.value) * 1)(sequence._handle.value)
        status = model._lib.sslm_ext_decode_sample(
            model._handle.value,
            handles,
            1,
            model.info.layers,
            array.params,
            None,
            out.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
        )
        assert status == 1, change
    for ids in ([model.info.vocab], [-1]):
        with pytest.raises(errors.InvalidArgument):
            sequence.decode(selection=Sampling(1, banned=ids))
        with pytest.raises(errors.InvalidArgument):
            sequence.decode(selection=Sampling(1, bias={ids[0]: 1.0}))
        with pytest.raises(errors.InvalidArgument):
            sequence.decode(selection=Sampling(1, counts={ids[0]: 1}))
    with pytest.raises(errors.InvalidArgument):
        sequence.decode(selection=Sampling(1, counts={3: -1}))
    assert out[0] == 77 and sequence.save() == before


# ---- generate ----


@pytest.fixture(scope="module")
def speaking(library_path: Path, tmp_path_factory: Any) -> Iterator[Model]:
    """A random model with a tokenizer and schemas."""
    spec = dataclasses.replace(spec_of("tiny"), name="speaking", vocab=331, cap=2048)
    quantized = make_quantized(spec, "w8")
    quantized.tokenizer = build_tokenizer(small_source(), 331)
    path = tmp_path_factory.mktemp("speaking") / "speaking.sslm"
    write_artifact(quantized, path)
    vocabulary = Vocabulary.from_section(Artifact(path).section("TOKN"), 331)
    automata = {f"case{i}": compile_schema(JsonSchema(s), vocabulary) for i, s in enumerate(hand_written())}
    automata["code"] = compile_schema(Regex(r"[A-Z]{2}-\d{3}"), vocabulary)
    automata["answer"] = compile_schema(Choices(("yes", "no", "yes, gladly")), vocabulary)
    set_section(path, "SCHM", pack(automata))
    with Model.load(path) as loaded:
        yield loaded


@pytest.mark.parametrize("jump_forward", [True, False])
def test_generate_returns_the_text_and_its_value(speaking: Model, jump_forward: bool) -> None:
    finished = 0
    with speaking.pool() as pool, pool.sequence() as sequence:
        for i, schema in enumerate(hand_written()):
            for selection in (None, Damped(), Sampling(i, 2.0)):
                sequence.reset()
                result = sequence.generate(
                    "hello", schema=f"case{i}", selection=selection, max_tokens=300, jump_forward=jump_forward
                )
                if result.complete:
                    finished += 1
                    assert json.loads(result.text) == result.value
                    jsonschema.validate(result.value, schema, jsonschema.Draft202012Validator)
                else:
                    assert result.value is None
                assert jump_forward or result.forced == 0
    assert finished > 100


def test_forced_text_goes_in_as_one_span(speaking: Model) -> None:
    assert hand_written()[0] == SHOP
    with speaking.pool() as pool, pool.sequence() as sequence:
        result = sequence.generate("hello", schema="case0", seed=3, max_tokens=300)
        assert result.text.startswith('{"intent":"') and result.forced > 20
        stats = speaking._lib
        out = _stats(speaking, sequence)
        assert stats is not None and out.forced_token_count == result.forced
        assert out.schema_accepting == 1 and result.complete


def _stats(model: Model, sequence: Sequence) -> Any:
    from superslm import _abi

    out = _abi.sslm_stats_out()
    assert model._lib.sslm_stats(model._handle.value, sequence._handle.value, ctypes.byref(out)) == 0
    return out


def test_a_choice_that_may_go_on_ends_where_the_model_would(speaking: Model) -> None:
    with speaking.pool() as pool, pool.sequence() as sequence:
        seen = set()
        for seed in range(12):
            sequence.reset()
            seen.add(sequence.generate("hello", schema="answer", seed=seed, temperature=3.0).text)
        assert seen <= {"yes", "no", "yes, gladly"} and len(seen) > 1
        sequence.reset()
        code = sequence.generate("hello", schema="code", seed=1)
        assert code.complete and code.value is None and len(code.text) == 6


def test_a_schema_is_bound_before_a_prefix_is_adopted(speaking: Model) -> None:
    with speaking.pool() as pool, pool.prefix("hello world", budget=600).freeze() as prefix:
        with pool.sequence(budget=400) as sequence:
            sequence.adopt(prefix)
            with pytest.raises(errors.SchemaBindRejected, match="reset"):
                sequence.generate(" the", schema="case0")
            sequence.reset()
            sequence.bind_schema("case0")
            sequence.adopt(prefix)
            assert sequence.generate(" the", schema="case0", max_tokens=300).complete
            blob = sequence.save()
            with pool.restore(blob, prefix) as restored:
                assert restored.schema == "case0" and restored.walk == sequence.walk
            sequence.reset()
            assert sequence.walk == 0
            with pytest.raises(errors.SchemaNotFound, match="case1"):
                sequence.bind_schema("nothing")


def test_a_seed_and_nothing_else_decides(speaking: Model) -> None:
    with speaking.pool() as pool, pool.sequence() as sequence:

        def text(**options: Any) -> str:
            sequence.reset()
            return sequence.generate("hello", schema="case1", max_tokens=40, **options).text

        assert text(seed=7, temperature=1.5) == text(seed=7, temperature=1.5)
        assert text(seed=7, temperature=1.5) != text(seed=8, temperature=1.5)
        with pytest.raises(ValueError, match="need a seed"):
            text(temperature=0.5)
        with pytest.raises(ValueError, match="not both"):
            text(seed=1, selection=Damped())
        for temperature in (0.0, float("nan"), float("inf"), -1.0):
            with pytest.raises(ValueError, match="temperature"):
                text(seed=1, temperature=temperature)
        with pytest.raises(ValueError, match="nan"):
            text(selection=Sampling(1, bias={3: float("nan")}))
