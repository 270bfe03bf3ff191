# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The contract's cells on every kernel tier of the machine; a tier that it lacks is skipped with that reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cell_programs import PROGRAMS, artifacts_of, cells_of, run_cell
from kernel_tiers import TIERS
from test_adapter import cell_artifacts  # noqa: F401
from test_cells_schema import PROGRAMS as SCHEMA_PROGRAMS
from test_cells_schema import artifacts as schema_artifacts  # noqa: F401

ALL = (*PROGRAMS, *SCHEMA_PROGRAMS, "cell_adapter", "cell_cast")
FLAGS = {
    "cell_cast": ["-DCAST_TALKING=1"]
}  # of the speakers one talks to its limit; all are admitted and restored


@pytest.fixture(scope="module")
def artifacts(
    fixture_artifact: Callable[..., Path],
    schema_artifacts: dict[str, list[Path]],  # noqa: F811
    cell_artifacts: list[Path],  # noqa: F811
) -> dict[str, list[Path]]:
    """The artifacts of each program."""
    found = {program: artifacts_of(program, fixture_artifact) for program in PROGRAMS}
    others = {"cell_adapter": cell_artifacts, "cell_cast": [fixture_artifact("cast")]}
    return {**found, **schema_artifacts, **others}


@pytest.mark.parametrize("program", ALL)
@pytest.mark.parametrize("tier", TIERS)
def test_all_cells_hold_on_the_tier(
    tier: str,
    program: str,
    c_program: Callable[..., Path],
    artifacts: dict[str, list[Path]],
    preload: dict[str, str],
    test_library_path: Path,
    forced_tier: Callable[..., dict[str, str]],
) -> None:
    """The program says on which tier it ran, and names each cell that held."""
    environment = {**preload, **forced_tier(test_library_path, tier)}
    printed = run_cell(
        c_program(program, *FLAGS.get(program, [])), artifacts[program], environment=environment
    )
    assert re.findall(r"^tier (\w+)$", printed, re.MULTILINE) == [tier]
    assert re.findall(r"^ok (\w+)$", printed, re.MULTILINE) == cells_of(program)
