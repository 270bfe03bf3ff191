# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Baked prefixes from Python, and `superslm memory`: its plan is what a pool of the library admits."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from superslm import errors
from superslm.cli import main
from superslm.cli_memory import Cast, Geometry, make_plan
from superslm.cli_output import CommandError
from superslm.page_map import COLOURS, Group, page_map_svg, page_map_text, pages_per_cell

PROMPT = [5, 17, 3, 42, 8, 100, 7]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def model(library_path: Path, fixture_artifact: Callable[..., Path]) -> Iterator[Any]:
    from superslm import Model

    with Model.load(fixture_artifact("cells")) as model:
        yield model


# ---- prefixes as blobs ----


def long_prompt(length: int, seed: int) -> list[int]:
    return [(seed * 31 + 7 * i) % 263 for i in range(length)]


def test_a_baked_world_and_persona_continue_as_the_prefilled_ones(model: Any) -> None:
    with (
        model.pool(pages=40) as studio,
        studio.prefix(long_prompt(150, 1), budget=150).freeze() as world,
        world.nested(long_prompt(60, 2), budget=60).freeze() as persona,
        studio.sequence(budget=20) as sequence,
    ):
        sequence.adopt(persona)
        said = [sequence.decode() for _ in range(10)]
        blobs = world.save(), persona.save()
    with (
        model.pool(pages=40) as player,
        player.restore_prefix(blobs[0]) as world,
        player.restore_prefix(blobs[1], world) as persona,
        player.sequence(budget=20) as sequence,
    ):
        assert player.stats().shared_pages == 2
        assert (world.save(), persona.save()) == blobs
        sequence.adopt(persona)
        assert [sequence.decode() for _ in range(10)] == said
        with pytest.raises(errors.PrefixFrozenRejected):
            persona.prefill([1])


def test_a_nested_blob_needs_the_parent_it_names(model: Any) -> None:
    with (
        model.pool(pages=60) as pool,
        pool.prefix(long_prompt(100, 1), budget=100).freeze() as world,
        pool.prefix(long_prompt(100, 2), budget=100).freeze() as other,
        world.nested(PROMPT, budget=8).freeze() as persona,
    ):
        blob = persona.save()
        used = pool.stats().free_pages
        for parent in (None, other):
            with pytest.raises(errors.InvalidArgument, match="parent"):
                pool.restore_prefix(blob, parent)
        for damaged in (b"", blob[:-1], blob + b"\0", b"SSB6" + blob[4:]):
            with pytest.raises(errors.InvalidArgument, match="sslm_ext_prefix_restore"):
                pool.restore_prefix(damaged, world)
        assert pool.stats().free_pages == used


def test_an_open_prefix_cannot_be_saved(model: Any) -> None:
    with (
        model.pool(pages=10) as pool,
        pool.prefix(PROMPT, budget=8) as prefix,
        pytest.raises(errors.InvalidArgument, match="freeze it"),
    ):
        prefix.save()


# ---- the plan ----

CASTS = {
    "one sequence": Cast(sequences=1, budget=100),
    "sequences on a world": Cast(world=150, sequences=3, budget=64),
    "personas without a world": Cast(personas=2, persona=130, sequences=4, budget=30),
    "prefixes alone": Cast(world=200, personas=3, persona=70),
    "a world of whole pages": Cast(world=128, personas=2, persona=64, sequences=4, budget=100),
    "a nested cast": Cast(world=200, personas=2, persona=70, sequences=4, budget=100),
    "a budget to the cap": Cast(world=10, sequences=2, budget=4096),
}


def play(model: Any, cast: Cast, keep_world: bool, pages: int) -> int | None:
    """Makes the cast in a pool; the pages it holds in the end, or None where the pool was too small."""
    from superslm.sequence import Prefix, Sequence

    made: list[Any] = []
    with model.pool(pages=pages) as pool:
        try:
            world = None
            if cast.world:
                world = pool.prefix(long_prompt(cast.world, 1), budget=cast.world).freeze()
                made.append(world)
            for i in range(cast.personas):
                text = long_prompt(cast.persona, 2 + i)
                if world is None:
                    persona = pool.prefix(text, budget=cast.persona)
                else:
                    persona = world.nested(text, budget=cast.persona)
                made.append(persona.freeze())
            if world is not None and cast.personas and not keep_world:
                made.remove(world)
                world.close()
            prefixes = [p for p in made if isinstance(p, Prefix)][-max(cast.personas, 1) :]
            for i in range(cast.sequences):
                sequence: Sequence = pool.sequence(budget=cast.budget)
                made.append(sequence)
                if prefixes:
                    sequence.adopt(prefixes[i % len(prefixes)])
            stats = pool.stats()
            return stats.page_count - stats.free_pages
        except errors.KvPoolExhausted:
            return None
        finally:
            for holder in made:
                holder.close()


@pytest.mark.parametrize("keep_world", [False, True])
@pytest.mark.parametrize("name", CASTS)
def test_a_pool_of_the_planned_pages_admits_the_cast_and_one_page_less_does_not(
    model: Any, name: str, keep_world: bool
) -> None:
    cast = CASTS[name]
    plan = make_plan(Geometry(model.page_positions, model.page_size, model.info.cap), cast, keep_world)
    assert play(model, cast, keep_world, plan.pages) == plan.resting
    assert play(model, cast, keep_world, plan.pages - 1) is None


def test_the_worked_cohort_has_the_pages_of_the_contract() -> None:
    geometry = Geometry(64, 64 * 6144, 4096)
    plan = make_plan(geometry, Cast(1000, 10, 200, 50, 512))
    assert (plan.world, plan.persona, plan.sequence) == (15, 4, 9)
    assert plan.pages == plan.resting == 505
    assert plan.pages * geometry.page_size == 193920 * 1024
    assert plan.resting + 50 * plan.materialized == 1405
    assert plan.holders * 24 == 1440


@pytest.mark.parametrize(
    ("cast", "words"),
    [
        (Cast(world=4000, personas=1, persona=97), "4097 positions"),
        (Cast(sequences=1, budget=4097), "budget of 4097"),
        (Cast(), "nobody"),
    ],
)
def test_what_does_not_fit_is_refused(cast: Cast, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        make_plan(Geometry(64, 64 * 6144, 4096), cast)


def test_a_context_of_one_page_shares_nothing() -> None:
    plan = make_plan(Geometry(64, 1000, 64), Cast(30, 2, 10, 3, 20), keep_world=True)
    assert (plan.world, plan.persona, plan.sequence, plan.materialized) == (1, 1, 1, 0)


# ---- the command ----


def test_the_command_prints_the_plan_and_draws_the_map(
    library_path: Path,
    fixture_artifact: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    artifact, picture = str(fixture_artifact("cast")), tmp_path / "map.svg"
    cast = ["--world", "1000", "--personas", "10x200", "--sequences", "50x512"]
    assert main(["memory", artifact, *cast, "--svg", str(tmp_path / "map.png")]) != 0  # it would hold no PNG
    assert main(["memory", artifact, *cast, "--svg", str(picture)]) == 0
    shown = capsys.readouterr().out
    for words in ("505 pages, 189.4 MiB", "60 x 24.0 MiB: 1,440.0 MiB", "1,405 pages", "10 x 4 pages"):
        assert words in shown
    assert (
        sum(line.count(c) for line in shown.splitlines() if set(line) <= set("WwPpSs") for c in "Ss") == 450
    )
    boxes = [box.get("fill") for box in xml.parse(picture).getroot().iter(f"{SVG}rect")]
    assert boxes.count(COLOURS["persona"]) == 40 + 1  # and the legend
    assert boxes.count(COLOURS["sequence"]) == 450 + 1
    assert main(["memory", artifact, *cast, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["size"] == 505 * 384 * 1024


@pytest.mark.parametrize(
    "bad", [["--world", "0"], ["--personas", "10"], ["--sequences", "5x0"], ["--world", "-3"]]
)
def test_a_malformed_cast_is_wrong_usage(bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["memory", "model.sslm", *bad])
    assert stop.value.code == 2
    assert "such as" in capsys.readouterr().err


def test_a_large_map_stays_readable() -> None:
    groups = [Group("sequence", 20_000, 9)]
    each = pages_per_cell(groups)
    assert each > 1
    assert f"a letter is {each} pages" in page_map_text(groups)
    assert len(list(xml.fromstring(page_map_svg(groups, "<large>")).iter(f"{SVG}rect"))) <= 64 * 64 + 2
