# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Fuzzing for a while, and the cells under the memory sanitizer; `tools/dev.py fuzz` runs what is marked so."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from cell_programs import PROGRAMS, artifacts_of, run_cell
from fuzz import SEEDS, SEEN, SOURCES, TARGETS

SMOKE_SECONDS = 120
LONG_SECONDS = 900
MOST_SEED_BYTES = 64 << 10


def fuzz(seconds: int, checker: str, seed: int = 0) -> None:
    """Runs tools/fuzz.py with its output shown; fails the test with its exit code. Seed 0: another in every run."""
    command = [
        sys.executable,
        str(dev.ROOT / "tools/fuzz.py"),
        "--seconds",
        str(seconds),
        "--checker",
        checker,
        "--seed",
        str(seed),
    ]
    print(flush=True)
    assert subprocess.run(command, check=False).returncode == 0


def test_every_target_has_small_seeds_and_every_source_is_a_target() -> None:
    names = {target.name for target in TARGETS}
    assert {path.name for path in SEEDS.iterdir()} == names
    assert {path.stem for path in SOURCES.glob("fuzz_*.cpp")} == {f"fuzz_{name}" for name in names}
    files = [path for path in SEEDS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_SEED_BYTES


def test_the_seeds_of_the_verbs_name_the_steps_in_their_order() -> None:
    sys.path.insert(0, str(SOURCES))
    from seeds import STEPS

    source = (SOURCES / "fuzz_verbs.cpp").read_text()
    assert tuple(re.findall(r"&World::(\w+),", source)) == STEPS


@pytest.mark.fuzz
def test_two_minutes_of_fuzzing_find_nothing() -> None:
    """Two runs of one tree make the same choices; the longer ones explore."""
    fuzz(SMOKE_SECONDS, "address", seed=1)


@pytest.mark.fuzz
def test_fuzzing_reads_no_uninitialised_memory() -> None:
    fuzz(SMOKE_SECONDS // 4, "memory", seed=1)


@pytest.mark.fuzz
@pytest.mark.parametrize("program", PROGRAMS)
def test_cells_read_no_uninitialised_memory(
    program: str, c_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    built = c_program(program, "-fsanitize=memory", library=dev.build("msan"), compiler="clang-19")
    run_cell(built, artifacts_of(program, fixture_artifact), environment=SEEN)


@pytest.mark.long
@pytest.mark.parametrize("checker", ["address", "memory"])
def test_longer_fuzzing_finds_nothing(checker: str) -> None:
    fuzz(LONG_SECONDS, checker)
