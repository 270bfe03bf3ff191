# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The C++ engine against the NumPy witness, bit for bit, on every small fixture and both weight formats.

Compared are tokens, logits, K/V bytes, the residual and the five counts, however the work is cut: chunks
1..64, layer budgets 1..L, batches 1..8 with repeated and dead entries, with and without a workspace.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_tiers import TIERS
from make_checkpoint import FIXTURES
from saved import Saved, parse
from superslm import _abi
from superslm.artifact import load_quantized
from superslm.convert.quantized import QuantizedModel
from superslm.reference import MID_TOKEN, ReferenceModel, ReferenceSequence

SMALL = [name for name, spec in FIXTURES.items() if not spec.big]
LARGE = [name for name, spec in FIXTURES.items() if spec.big]
PROMPT = 70  # tokens, so that a chunk of 64 is not the whole prompt; fewer where the cap is small
DECODED = 5
BATCH = 8
DEAD = -3


@dataclass
class Pair:
    """One fixture in both engines, and where the C++ one gets its memory."""

    quantized: QuantizedModel
    reference: ReferenceModel
    model: Any  # superslm.Model
    pool: Any
    spaces: dict[str, Any]  # workspace handles by name; None: heap

    def space(self, number: int) -> Any:
        """The workspaces by turns."""
        return list(self.spaces.values())[number % len(self.spaces)]

    # ---- the verbs, without the convenience of the Python layer ----

    def prefill(self, sequence: Any, ids: np.ndarray, chunk: int, space: Any) -> None:
        done, consumed = 0, ctypes.c_int32()
        while done < len(ids):
            rest = np.ascontiguousarray(ids[done:], np.int32)
            status = self.model._lib.sslm_prefill(
                self.model._handle.value,
                sequence._handle.value,
                pointer(rest),
                len(rest),
                chunk,
                0,
                space,
                ctypes.byref(consumed),
            )
            assert status == 0 and consumed.value == min(chunk, len(rest))
            done += consumed.value

    def decode(self, handles: list[Any], budget: int, space: Any) -> list[int]:
        params = _abi.sslm_decode_params()
        params.layer_budget = budget
        out = np.full(len(handles), -9, np.int32)
        array = (_abi.sslm_seq * len(handles))(*handles)
        status = self.model._lib.sslm_decode_step(
            self.model._handle.value, array, len(handles), ctypes.byref(params), space, pointer(out)
        )
        assert status == 0
        return out.tolist()

    def state(self, sequence: Any) -> Saved:
        return parse(sequence.save(), self.quantized)

    def prompt(self, length: int, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, self.quantized.vocab, length, np.int32)


def pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


def make_pair(path: Path) -> Iterator[Pair]:
    from superslm import Model

    quantized = load_quantized(path)
    pages = 3 * (BATCH + 1)  # a prompt needs at most two pages and the reserve one more
    with (
        Model.load(path) as model,
        model.pool(pages=pages) as pool,
        model.workspace(max_batch=BATCH + 2, max_chunk=64) as covering,
        model.workspace(max_batch=1, max_chunk=1, max_layers=1) as small,
    ):
        spaces = {"covering": covering._handle.value, "none": None, "small": small._handle.value}
        yield Pair(quantized, ReferenceModel(quantized), model, pool, spaces)


@pytest.fixture(scope="module", params=[f"{name}-{weights}" for name in SMALL for weights in ("w8", "w4")])
def pair(
    request: pytest.FixtureRequest, library_path: Path, fixture_artifact: Callable[..., Path]
) -> Iterator[Pair]:
    name, _, weights = request.param.rpartition("-")
    yield from make_pair(fixture_artifact(name, weights))


def check(pair: Pair, sequence: Any, witness: ReferenceSequence, what: str) -> None:
    """A sequence of the library rests in the state of the witness."""
    got = pair.state(sequence)
    assert got.length == witness.length, what
    assert got.counts == witness.counts, f"{what}: counts"
    assert np.array_equal(got.residual, witness.residual), f"{what}: residual"
    assert np.array_equal(got.k[:, : got.length], witness.k), f"{what}: K rows"
    assert np.array_equal(got.v[:, : got.length], witness.v), f"{what}: V rows"
    assert got.ready == witness.ready, f"{what}: ready"
    assert got.pending == (-1 if witness.pending is None else witness.pending), f"{what}: pending token"


def test_any_chunking_of_a_prompt_gives_the_witness_state(pair: Pair) -> None:
    ids = pair.prompt(min(PROMPT, pair.quantized.cap - DECODED), 1)
    witness = pair.reference.new_sequence()
    witness.prefill(ids)
    logits = witness.logits()
    for chunk in range(1, 65):
        with pair.pool.sequence(budget=len(ids)) as sequence:
            pair.prefill(sequence, ids, chunk, pair.space(chunk))
            check(pair, sequence, witness, f"chunk {chunk}")
            assert np.array_equal(sequence.logits(), logits), f"chunk {chunk}: logits"


def test_any_layer_budget_gives_the_witness_tokens_and_resting_states(pair: Pair) -> None:
    layers = len(pair.quantized.layers)
    ids = pair.prompt(9, 2)
    for budget in range(1, layers + 1):
        witness = pair.reference.new_sequence()
        witness.prefill(ids)
        with pair.pool.sequence(budget=len(ids) + DECODED) as sequence:
            pair.prefill(sequence, ids, 64, pair.space(budget))
            emitted = 0
            while emitted < DECODED:
                (token,) = pair.decode([sequence._handle.value], budget, pair.space(emitted))
                assert token == witness.decode(layer_budget=budget), f"budget {budget}, token {emitted}"
                check(pair, sequence, witness, f"budget {budget}, token {emitted}")
                emitted += token != MID_TOKEN


def test_mixed_layer_budgets_give_the_witness_tokens(pair: Pair) -> None:
    layers = len(pair.quantized.layers)
    ids, order = pair.prompt(7, 3), np.random.default_rng(3)
    witness = pair.reference.new_sequence()
    witness.prefill(ids)
    wanted = [witness.decode() for _ in range(DECODED)]
    got = []
    with pair.pool.sequence(budget=len(ids) + DECODED) as sequence:
        pair.prefill(sequence, ids, 64, pair.spaces["covering"])
        while len(got) < DECODED:
            got += pair.decode([sequence._handle.value], int(order.integers(1, layers + 1)), None)
            if got[-1] == MID_TOKEN:
                got.pop()
        assert got == wanted
        check(pair, sequence, witness, "mixed budgets")


def test_any_batch_gives_each_sequence_its_witness_tokens(pair: Pair) -> None:
    prompts = [pair.prompt(2 + i, 10 + i) for i in range(BATCH)]
    for size in range(1, BATCH + 1):
        witnesses = [pair.reference.new_sequence() for _ in range(size)]
        sequences = [pair.pool.sequence(budget=len(prompts[i]) + 6) for i in range(size)]
        dead = pair.pool.sequence(budget=4)
        dead_handle = dead._handle.value
        pair.prefill(dead, prompts[0][:2], 4, None)
        dead.close()
        for i in range(size):
            witnesses[i].prefill(prompts[i])
            pair.prefill(sequences[i], prompts[i], 64, None)
        # Every sequence once, the first one a second time, and a released one between them.
        order = [*range(size // 2), None, *range(size // 2, size), 0]
        for call in range(2):
            handles = [dead_handle if i is None else sequences[i]._handle.value for i in order]
            got = pair.decode(handles, len(pair.quantized.layers), pair.space(call + size))
            wanted = [DEAD if i is None else witnesses[i].decode() for i in order]
            assert got == wanted, f"batch of {size}, call {call}"
        for i in range(size):
            check(pair, sequences[i], witnesses[i], f"batch of {size}, sequence {i}")
            sequences[i].close()


@pytest.mark.parametrize("name", ["cap4096-w8", "cap32768-w4"])
def test_a_long_context_in_pages_equals_the_witness(
    name: str, library_path: Path, fixture_artifact: Callable[..., Path]
) -> None:
    """More rows than attention reads ahead, over an adopted prefix that ends inside a page."""
    from superslm import Model

    path = fixture_artifact(*name.split("-"))
    quantized = load_quantized(path)
    with (
        Model.load(path) as model,
        model.pool(pages=24) as pool,
        model.workspace(max_chunk=64) as space,
    ):
        spaces = {"covering": space._handle.value}
        pair = Pair(quantized, ReferenceModel(quantized), model, pool, spaces)
        ids = pair.prompt(640, 6)
        witness = pair.reference.new_sequence()
        witness.prefill(ids)
        with (
            pool.prefix(ids[:300].tolist(), budget=300).freeze() as prefix,
            pool.sequence(budget=len(ids) + DECODED) as sequence,
        ):
            sequence.adopt(prefix)
            pair.prefill(sequence, ids[300:], 64, pair.space(0))
            check(pair, sequence, witness, "after the prompt")
            for step in range(DECODED):
                (token,) = pair.decode([sequence._handle.value], model.info.layers, pair.space(0))
                assert token == witness.decode()
                check(pair, sequence, witness, f"token {step}")


def test_each_saturating_fixture_moves_its_own_counter(pair: Pair, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["pair"].rpartition("-")[0]
    if not name.startswith("sat_"):
        return  # nothing to promise
    witness = pair.reference.new_sequence()
    witness.prefill(pair.prompt(40, 1))
    assert witness.counters[name.removeprefix("sat_")] > 0


@pytest.mark.long
@pytest.mark.parametrize("weights", ["w8", "w4"])
@pytest.mark.parametrize("name", LARGE)
def test_two_tokens_of_a_large_shape_equal_the_witness(
    name: str, weights: str, library_path: Path, fixture_artifact: Callable[..., Path]
) -> None:
    for pair in make_pair(fixture_artifact(name, weights)):
        ids = pair.prompt(1, 4)
        witness = pair.reference.new_sequence()
        witness.prefill(ids)
        with pair.pool.sequence(budget=4) as sequence:
            pair.prefill(sequence, ids, 1, pair.spaces["covering"])
            check(pair, sequence, witness, "after the prompt")
            assert np.array_equal(sequence.logits(), witness.logits())
            for step in range(2):
                (token,) = pair.decode([sequence._handle.value], pair.model.info.layers, None)
                assert token == witness.decode()
                check(pair, sequence, witness, f"token {step}")


@pytest.mark.long
@pytest.mark.parametrize("tier", TIERS)
def test_every_kernel_tier_equals_the_witness_on_every_fixture(
    tier: str, test_library_path: Path, forced_tier: Callable[..., dict[str, str]]
) -> None:
    """The tests above, on the test library, which refuses to run on another tier than the one that is named."""
    forced = forced_tier(test_library_path, tier)
    env = {**os.environ, "SUPERSLM_LIBRARY": str(test_library_path), **forced}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
