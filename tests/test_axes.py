# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""One constant for every compiler, kernel tier and way to cut the work.

SmolLM2 plays 64 tokens along one axis at a time; every combination of the axes plays on a model of three layers.
Compared are the tokens and one digest over their logits and the K/V bytes at the end. The constants are the NumPy
witness's, so nothing is compared with itself.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuts import Cut, Hook, Played, kv_bytes, play, play_elsewhere, witness
from kernel_tiers import TIERS
from platform_support import built
from superslm.artifact import Artifact, load_quantized
from superslm.reference import ReferenceModel
from test_golden import SCENE

MAX_TASKS = (1, 2, 4, 8, 256)
LAYERS = 30  # of SmolLM2
BATCH = 8

PROMPT: list[int] = SCENE["prompt"]
WANTED = {
    weights: Played(one["tokens"], one["digest"]) for weights, one in (("w8", SCENE), ("w4", SCENE["w4"]))
}
COUNT = len(WANTED["w8"].tokens)


def library_of(variant: str) -> Path:
    """The library of a variant, by the compiler that its name says."""
    path = built(variant)
    assert (b"clang version" in path.read_bytes()) == variant.startswith("clang")
    return path


# ---- SmolLM2, one axis at a time ----


@pytest.fixture(scope="module", params=["w8", "w4"])
def scene(
    request: pytest.FixtureRequest, library_path: Path, smollm2_of_record: Callable[[str], Path]
) -> Iterator[Callable[[Cut], None]]:
    """`scene(cut)` plays the scene on the release library and demands the constant of every sequence."""
    from superslm import Model

    with Model.load(smollm2_of_record(request.param)) as model:
        assert model.info.layers == LAYERS

        def check(cut: Cut) -> None:
            (played,) = play(model, [PROMPT] * cut.batch, COUNT, [cut])
            assert played == [WANTED[request.param]] * cut.batch

        yield check


def check_elsewhere(library: Path, environment: dict[str, str], artifact: Path, weights: str) -> str:
    """Plays the scene in a process with another library; returns the tier that ran."""
    found = play_elsewhere(library, environment, artifact, [PROMPT], COUNT, [Cut()])
    assert found.library == str(library)
    assert found.played == [[WANTED[weights]]]
    return found.tier


@pytest.mark.parametrize("weights", ["w8", "w4"])
@pytest.mark.parametrize("tier", TIERS)
def test_every_kernel_tier_plays_the_scene(
    tier: str,
    weights: str,
    test_library_path: Path,
    smollm2_of_record: Callable[[str], Path],
    forced_tier: Callable[..., dict[str, str]],
) -> None:
    environment = forced_tier(test_library_path, tier)
    assert check_elsewhere(test_library_path, environment, smollm2_of_record(weights), weights) == tier


@pytest.mark.parametrize("weights", ["w8", "w4"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_library_of_every_compiler_plays_the_scene(
    compiler: str, weights: str, smollm2_of_record: Callable[[str], Path]
) -> None:
    check_elsewhere(library_of(compiler), {}, smollm2_of_record(weights), weights)


@pytest.mark.parametrize("tasks", MAX_TASKS)
def test_the_scene_is_the_same_with_any_max_tasks(scene: Callable[[Cut], None], tasks: int) -> None:
    scene(Cut(Hook(tasks, bit=True, extension=True)))


@pytest.mark.parametrize("extension", [False, True], ids=["extension_off", "extension_on"])
@pytest.mark.parametrize("bit", [False, True], ids=["bit_off", "bit_on"])
def test_the_scene_is_the_same_whatever_the_hook_may_split(
    scene: Callable[[Cut], None], bit: bool, extension: bool
) -> None:
    scene(Cut(Hook(4, bit, extension)))


@pytest.mark.parametrize("layers", range(1, LAYERS + 1))
def test_the_scene_is_the_same_in_slices_of_any_number_of_layers(
    scene: Callable[[Cut], None], layers: int
) -> None:
    scene(Cut(layers=layers))


@pytest.mark.parametrize("batch", [1, BATCH])
def test_the_scene_is_the_same_alone_and_in_a_batch(scene: Callable[[Cut], None], batch: int) -> None:
    scene(Cut(batch=batch))


def test_the_golden_record_of_the_artifact_is_the_scene(smollm2_golden: Path) -> None:
    record = Artifact(smollm2_golden).golden_record()
    assert (list(record.prompt), list(record.tokens)) == (PROMPT, WANTED["w8"].tokens)
    assert record.digest.hex() == WANTED["w8"].digest


@pytest.mark.long
@pytest.mark.parametrize("weights", ["w8", "w4"])
def test_the_numpy_witness_plays_the_scene(weights: str, smollm2_of_record: Callable[[str], Path]) -> None:
    """Fed all tokens at once; each must be the one that the row before it chooses."""
    reference = ReferenceModel(load_quantized(smollm2_of_record(weights)))
    sequence, wanted = reference.new_sequence(trace=True), WANTED[weights]
    sequence.prefill(PROMPT + wanted.tokens[:-1])
    digest = hashlib.sha256()
    for residual, token in zip(sequence.layer_residuals[len(PROMPT) - 1 :], wanted.tokens, strict=True):
        row, _ = reference.logits(residual[-1].astype(np.int64))
        assert int(row.argmax()) == token
        digest.update(row.astype("<i4").tobytes())
    digest.update(kv_bytes(sequence.k, sequence.v))
    assert digest.hexdigest() == wanted.digest


# ---- Three layers, every combination ----

CROSSED = 2  # tokens after each prompt; the layers run for the second one
LENGTHS = (9, 2, 1, 1, 1, 1, 1, 1)  # of the prompts; of one token too, which the bit splits
BUILDS = ("gcc", "clang", "gcc-O0", "clang-O0")


def all_cuts(layers: int) -> list[Cut]:
    """Every combination of max_tasks, bit, extension, slices and batch."""
    hooks = itertools.starmap(Hook, itertools.product(MAX_TASKS, (False, True), (False, True)))
    return list(itertools.starmap(Cut, itertools.product(hooks, range(1, layers + 1), (1, BATCH))))


@pytest.fixture(scope="module")
def crossed(fixture_artifact: Callable[..., Path]) -> Callable[[str], tuple[Path, list[Any], list[Played]]]:
    """A model of which the hook splits every group, prompts, and what the witness says to them."""

    @functools.cache
    def make(weights: str) -> tuple[Path, list[Any], list[Played]]:
        path = fixture_artifact("wide", weights)
        quantized = load_quantized(path)
        assert len(quantized.layers) == 3
        order = np.random.default_rng(1)
        prompts = [order.integers(0, quantized.vocab, length).tolist() for length in LENGTHS]
        wanted = [witness(quantized, prompt, CROSSED) for prompt in prompts]
        assert len({one.digest for one in wanted}) == BATCH
        return path, prompts, wanted

    return make


def crossings() -> Iterator[Any]:
    """Every build with every tier. Without optimisation only the first and the last tier are quick enough."""
    for build, weights in (*((build, "w8") for build in BUILDS), ("gcc", "w4"), ("clang", "w4")):
        for tier in TIERS:
            slow = build.endswith("-O0") and tier not in (TIERS[0], TIERS[-1])
            yield pytest.param(build, weights, tier, marks=[pytest.mark.long] if slow else [])


@pytest.mark.parametrize(("build", "weights", "tier"), list(crossings()))
def test_every_combination_of_the_axes_gives_what_the_witness_says(
    build: str,
    weights: str,
    tier: str,
    crossed: Callable[[str], tuple[Path, list[Any], list[Played]]],
    forced_tier: Callable[..., dict[str, str]],
) -> None:
    library = library_of(f"{build}-seams")
    environment, cuts = forced_tier(library, tier), all_cuts(layers=3)
    artifact, prompts, wanted = crossed(weights)
    found = play_elsewhere(library, environment, artifact, prompts, CROSSED, cuts)
    assert (found.library, found.tier) == (str(library), tier)
    pairs = zip(cuts, found.played, strict=True)
    wrong = [cut for cut, played in pairs if played != wanted[: cut.batch]]
    assert not wrong, f"{len(wrong)} of {len(cuts)}, the first: {wrong[0]}"
