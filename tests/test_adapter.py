# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Adapters in the engine: bit-equal with the NumPy witness, in every batch, and close to the float model."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dev
import numpy as np
import pytest
import quality
from adapter_support import RANKS, SUBSETS, mean_kl, peft_of, random_file, write_for
from cell_programs import cells_of, run_cell
from make_adapter import AdapterSpec, merged, random_factors, write_peft
from make_checkpoint import FIXTURES, make_checkpoint
from saved import Saved, parse
from superslm import Model, Sequence, SuperslmError, _abi
from superslm.artifact import load_adapter, load_quantized
from superslm.convert import float_model
from superslm.convert.peft import PeftAdapter, load_peft
from superslm.convert.pipeline import load_checkpoint
from superslm.convert.quantized import TARGETS
from superslm.reference import ReferenceModel
from test_quality import MEAN_KL

SMALL = [name for name, spec in FIXTURES.items() if not spec.big]
OWN_RANGE = ("WQ", "WO", "WG", "WU", "WD")  # targets that leave the base's K and V range alone
PROMPT, DECODED = 11, 4


# ---- the witness ----


class Pair:
    """A base in the library and in the witness."""

    def __init__(self, path: Path) -> None:
        self.path, self.quantized = path, load_quantized(path)
        self.reference, self.model = ReferenceModel(self.quantized), Model.load(path)
        self.pool = self.model.pool(pages=4)

    def close(self) -> None:
        self.pool.close()
        self.model.close()

    def compare(self, adapter: Path, prompt: int = PROMPT, decoded: int = DECODED) -> None:
        """Prefill in chunks and decode in slices, against the witness with the same file."""
        rng = np.random.default_rng(prompt)
        ids = rng.integers(0, self.quantized.vocab, prompt, np.int32)
        witness = self.reference.new_sequence(adapter=load_adapter(adapter))
        plain = self.reference.new_sequence()
        witness.prefill(ids)
        plain.prefill(ids)
        with (
            self.model.adapter(adapter) as bound,
            self.pool.sequence(budget=prompt + decoded) as sequence,
        ):
            sequence.set_adapter(bound)
            sequence.prefill(ids, chunk=4)
            logits = witness.logits()
            assert np.array_equal(sequence.logits(), logits)
            self.check(sequence, witness)
            for step in range(decoded):
                budget = 1 + step % len(self.quantized.layers)
                token = None
                while token is None:
                    token = sequence.decode(layer_budget=budget)
                assert token == witness.decode()
            self.check(sequence, witness)

    def check(self, sequence: Any, witness: Any) -> None:
        got: Saved = parse(sequence.save(), self.quantized)
        assert got.counts == witness.counts
        assert np.array_equal(got.residual, witness.residual)
        assert np.array_equal(got.k[:, : got.length], witness.k)
        assert np.array_equal(got.v[:, : got.length], witness.v)


@pytest.fixture(scope="module")
def pair_of(library_path: Path, fixture_artifact: Callable[..., Path]) -> Iterator[Callable[..., Pair]]:
    """`pair_of(name, weights="w8")`."""
    made: dict[tuple[str, str], Pair] = {}

    def get(name: str, weights: str = "w8") -> Pair:
        if (name, weights) not in made:
            made[name, weights] = Pair(fixture_artifact(name, weights))
        return made[name, weights]

    yield get
    for pair in made.values():
        pair.close()


@pytest.mark.parametrize("name", SMALL)
def test_every_fixture_shape_equals_the_witness(
    name: str, pair_of: Callable[..., Pair], tmp_path: Path
) -> None:
    """Ranks and targets take turns over the shapes; odd shapes are also run over 4-bit weights."""
    turn = SMALL.index(name)
    spec = AdapterSpec(rank=RANKS[turn % len(RANKS)], targets=SUBSETS[(37 * turn + 126) % 127], seed=turn)
    pair = pair_of(name)
    pair.compare(random_file(name, pair.path, spec, tmp_path))
    if turn % 4 == 0:
        four = pair_of(name, "w4")
        four.compare(random_file(name, four.path, spec, tmp_path / "w4"))


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", ["deep", "bias", "odd", "partial_bias", "qknorm_centred"])
def test_every_rank_on_all_targets_equals_the_witness(
    name: str, rank: int, pair_of: Callable[..., Pair], tmp_path: Path
) -> None:
    pair = pair_of(name)
    pair.compare(random_file(name, pair.path, AdapterSpec(rank=rank), tmp_path), prompt=6, decoded=3)


def test_every_subset_of_targets_equals_the_witness(pair_of: Callable[..., Pair], tmp_path: Path) -> None:
    pair = pair_of("tiny")
    for number, targets in enumerate(SUBSETS):
        spec = AdapterSpec(rank=RANKS[number % 4], targets=targets, seed=number)
        pair.compare(random_file("tiny", pair.path, spec, tmp_path / str(number)), prompt=4, decoded=2)


def test_pairs_of_different_ranks_in_some_layers_only_equal_the_witness(
    pair_of: Callable[..., Pair], tmp_path: Path
) -> None:
    pair = pair_of("deep")
    checkpoint = make_checkpoint("deep")
    wide = random_factors(checkpoint, AdapterSpec(rank=40, targets=("WQ", "WD")))
    thin = random_factors(checkpoint, AdapterSpec(rank=3, targets=("WG",)))
    factors = {k: v for k, v in (wide | thin).items() if k[0] in (1, 3, 4)}
    spec = AdapterSpec(rank=40, targets=("WQ", "WG", "WD"))
    folder = write_peft(factors, spec, tmp_path / "peft", rank_pattern={"gate_proj": 3})
    peft = load_peft(folder)
    assert peft.pairs[1, "WG"].scale == pytest.approx(32 / 3) and peft.pairs[3, "WQ"].scale == 32 / 40
    path = tmp_path / "adapter.sslm"
    write_for(peft, pair.path, path)
    pair.compare(path)


# ---- cells ----

CELLS = cells_of("cell_adapter")
CELL_SPECS = [
    AdapterSpec(rank=16, seed=1),
    AdapterSpec(rank=33, targets=("WQ", "WV", "WO"), seed=2),
    AdapterSpec(rank=1, targets=("WG", "WU"), seed=3),
    AdapterSpec(rank=256, targets=("WK", "WD"), seed=4),
]


@pytest.fixture(scope="module")
def cell_artifacts(
    fixture_artifact: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    folder, base = tmp_path_factory.mktemp("adapters"), fixture_artifact("wide")
    files = [random_file("wide", base, spec, folder / str(i)) for i, spec in enumerate(CELL_SPECS)]
    return [base, fixture_artifact("tiny"), *files]


@pytest.mark.parametrize("cell", CELLS)
def test_cell(
    cell: str, c_program: Callable[..., Path], cell_artifacts: list[Path], preload: dict[str, str]
) -> None:
    """The promise is the cell's name; a failure names the call and the line."""
    assert f"ok {cell}" in run_cell(c_program("cell_adapter"), cell_artifacts, cell, preload)


@pytest.mark.parametrize("variant", ["sanitized", "tsan"])
def test_cells_are_clean_under_checkers(
    variant: str, c_program: Callable[..., Path], cell_artifacts: list[Path]
) -> None:
    sanitizer = "thread" if variant == "tsan" else "address,undefined"
    built = c_program("cell_adapter", f"-fsanitize={sanitizer}", library=dev.build(variant))
    run_cell(built, cell_artifacts, environment={"ASAN_OPTIONS": "detect_leaks=0"})


# ---- Python ----


@pytest.fixture
def smith(pair_of: Callable[..., Pair], tmp_path: Path) -> Path:
    return random_file("deep", pair_of("deep").path, AdapterSpec(), tmp_path)


def test_an_adapter_is_released_after_the_sequences_it_is_bound_to(
    pair_of: Callable[..., Pair], smith: Path
) -> None:
    with Model.load(pair_of("deep").path) as model, model.pool(pages=2) as pool:
        with model.adapter(smith) as adapter, pool.sequence(20) as sequence:
            assert adapter.residency == smith.stat().st_size and sequence.adapter is None
            sequence.set_adapter(adapter)
            assert sequence.adapter is adapter
            with pytest.raises(SuperslmError, match="ADAPTER_HAS_LIVE_SEQUENCES.*bind another") as refused:
                adapter.close()
            assert refused.value.status == _abi.Status.SSLM_ADAPTER_HAS_LIVE_SEQUENCES
            sequence.reset()
            assert sequence.adapter is adapter
        forgotten = pool.sequence(20)
        forgotten.set_adapter(model.adapter(smith))
        del forgotten
        gc.collect()  # the sequence goes first, or the model could not be closed


def test_a_swap_in_the_middle_of_a_token_is_refused_by_name(
    pair_of: Callable[..., Pair], smith: Path
) -> None:
    pair = pair_of("deep")
    with pair.model.adapter(smith) as adapter, pair.pool.sequence(20) as sequence:
        sequence.prefill([1, 2, 3])
        sequence.decode()
        assert sequence.decode(layer_budget=1) is None
        with pytest.raises(SuperslmError, match="ADAPTER_SWAP_MIDTOKEN_REJECTED"):
            sequence.set_adapter(adapter)
        assert sequence.adapter is None
        while sequence.decode(layer_budget=1) is None:
            pass
        sequence.set_adapter(adapter)
        sequence.set_adapter(None)


# ---- fidelity ----


def engine_rows(model: Model, adapter: Any, ids: list[int]) -> np.ndarray:
    """Logits of every position in nats."""
    with model.pool(pages=model.pages_for(len(ids))) as pool, pool.sequence(len(ids)) as sequence:
        sequence.set_adapter(adapter)
        rows = []
        for token in ids:
            sequence.prefill([token])
            rows.append(sequence.logits() / 65536)
        return np.array(rows)


def float_rows(checkpoint: Any, ids: list[int]) -> np.ndarray:
    (rows,) = float_model.logits(checkpoint, [ids], dtype=np.float64)
    return rows


@pytest.mark.parametrize(
    "name", ["deep", "hd64", "gqa7", "partial", "partial_bias", "qknorm", "bias_untied", "odd"]
)
def test_the_integer_model_with_an_adapter_is_as_close_to_the_float_one_as_the_base_is(
    name: str, pair_of: Callable[..., Pair], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random models are further from their float twins than trained ones: the base itself is the measure."""
    pair, checkpoint = pair_of(name), make_checkpoint(name)
    ids = np.random.default_rng(8).integers(0, pair.quantized.vocab, 48).tolist()
    float_base = float_rows(checkpoint, ids)
    base = mean_kl(float_base, engine_rows(pair.model, None, ids))
    for targets in (OWN_RANGE, TARGETS):
        spec = AdapterSpec(rank=8, targets=targets, strength=0.2)
        peft = peft_of(name, spec, tmp_path / str(len(targets)) / "peft")
        path = tmp_path / f"{len(targets)}.sslm"
        write_for(peft, pair.path, path)
        expected = float_rows(merged(checkpoint, peft), ids)
        with pair.model.adapter(path) as adapter:
            kl = mean_kl(expected, engine_rows(pair.model, adapter, ids))
        moved = mean_kl(float_base, expected)
        what = "q o gate up down" if targets == OWN_RANGE else "all seven"
        with capsys.disabled():
            print(f"\n{name}: {what}: KL {kl:.5f}, base {base:.5f}, the adapter moves it {moved:.3f}", end="")
        assert moved > 20 * kl, "the adapter must be heard"
        if targets == OWN_RANGE:
            assert kl <= max(1.5 * base, MEAN_KL)


@pytest.mark.long
def test_smollm2_with_an_adapter_stays_within_the_kl_bound(
    smollm2_golden: Path, smollm2_gguf: Path, library_path: Path, tmp_path: Path, capsys: Any
) -> None:
    checkpoint = load_checkpoint(smollm2_gguf)
    ids = quality.documents(checkpoint)["dialogue_1"][:512]
    base = float_rows(checkpoint, ids)
    with Model.load(smollm2_golden) as model:
        for targets, bounded in ((OWN_RANGE, True), (("WK", "WV"), False)):
            spec = AdapterSpec(rank=16, targets=targets, strength=0.15)
            folder = tmp_path / str(len(targets))
            peft = load_peft(write_peft(random_factors(checkpoint, spec), spec, folder))
            path = tmp_path / f"{len(targets)}.sslm"
            write_for(peft, smollm2_golden, path)
            expected = float_rows(merged(checkpoint, peft), ids)
            with model.adapter(path) as adapter:
                kl = mean_kl(expected, engine_rows(model, adapter, ids))
            with capsys.disabled():
                names = " ".join(targets)
                print(f"\n{names}: KL {kl:.5f}, the adapter moves the model {mean_kl(base, expected):.4f}")
            assert not bounded or kl <= MEAN_KL


# ---- speed ----

SLOWEST = 1.08  # of the base's time for a token, with an adapter of rank 16


def decode_ratio(plain: Sequence, shaped: Sequence) -> float:
    """Median of the processor time of a token of `shaped` by that of one of `plain`; they take turns."""
    for sequence in (plain, shaped):
        sequence.prefill([1, 2, 3])
        sequence.decode()  # logits only
    ratios = []
    for turn in range(80):
        times = {}
        for sequence in (shaped, plain) if turn % 2 else (plain, shaped):
            start = time.thread_time()
            sequence.decode()
            times[sequence] = time.thread_time() - start
        ratios.append(times[shaped] / times[plain])
    return statistics.median(ratios)


def swap_seconds(sequence: Sequence, adapter: Any) -> float:
    start = time.thread_time()
    for turn in range(100):
        sequence.set_adapter(None if turn % 2 == 0 else adapter)
    return (time.thread_time() - start) / 100


@pytest.fixture
def speed_model(
    request: pytest.FixtureRequest, fixture_artifact: Callable[..., Path]
) -> tuple[Path, Callable[[AdapterSpec, Path], PeftAdapter]]:
    """The base of a name, and what makes a random adapter for it."""
    if request.param != "SmolLM2-135M":
        return fixture_artifact(request.param), lambda spec, folder: peft_of(request.param, spec, folder)
    checkpoint = load_checkpoint(request.getfixturevalue("smollm2_gguf"))
    return request.getfixturevalue("smollm2_golden"), lambda spec, folder: load_peft(
        write_peft(random_factors(checkpoint, spec), spec, folder)
    )


@pytest.mark.long
@pytest.mark.parametrize("speed_model", ["qwen2.5-0.5b", "SmolLM2-135M"], indirect=True)
def test_speed_of_decode_with_an_adapter_and_of_a_swap(
    speed_model: tuple[Path, Callable[[AdapterSpec, Path], PeftAdapter]],
    request: pytest.FixtureRequest,
    library_path: Path,
    tmp_path: Path,
    capsys: Any,
) -> None:
    """Prints processor time; a shared machine is no place for a bound."""
    base, make = speed_model
    for targets in (TARGETS, ("WQ", "WV")):
        path = tmp_path / f"{len(targets)}.sslm"
        write_for(make(AdapterSpec(rank=16, targets=targets), tmp_path / f"peft{len(targets)}"), base, path)
        with (
            Model.load(base) as model,
            model.adapter(path) as adapter,
            model.pool(pages=2 * model.pages_for(99)) as pool,
            pool.sequence(99) as plain,
            pool.sequence(99) as shaped,
        ):
            shaped.set_adapter(adapter)
            ratio, swap = decode_ratio(plain, shaped), swap_seconds(shaped, adapter)
        with capsys.disabled():
            print(
                f"\n{request.node.callspec.id}, rank 16 on {' '.join(targets)}: decode takes {ratio:.3f} of the "
                f"base's time (at most {SLOWEST}), a swap {1e6 * swap:.1f} us",
                end="",
            )
