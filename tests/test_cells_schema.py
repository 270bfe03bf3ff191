# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The contract's cells about schemas and damped greedy, as C programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from cell_programs import cells_of, run_cell
from make_checkpoint import FIXTURES, make_quantized
from schema_fixtures import with_schemas
from superslm.convert.writer import write_artifact

PROGRAMS = ("cell_schema", "cell_damped", "cell_restore")


@pytest.fixture(scope="module")
def artifacts(
    fixture_artifact: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Path]]:
    """The artifacts of each program, in its order."""
    folder = tmp_path_factory.mktemp("schemas")
    vocab = FIXTURES["cells"].vocab
    cells, other = fixture_artifact("cells"), fixture_artifact("cells_other")
    own = with_schemas(cells, folder / "own.sslm", vocab)
    tables = with_schemas(cells, folder / "tables.sslm", vocab, first=11)
    another = with_schemas(other, folder / "another.sslm", vocab)
    equal = with_schemas(fixture_artifact("equal_logits"), folder / "equal.sslm", vocab)
    scaleless = folder / "scaleless.sslm"
    write_artifact(dataclasses.replace(make_quantized("tiny", "w8"), DGC1=None), scaleless)
    return {
        "cell_schema": [own, tables, another],
        "cell_damped": [own, scaleless],
        "cell_restore": [own, another, equal],
    }


@pytest.mark.parametrize(("program", "cell"), [(p, c) for p in PROGRAMS for c in cells_of(p)])
def test_cell(
    program: str,
    cell: str,
    c_program: Callable[..., Path],
    artifacts: dict[str, list[Path]],
    preload: dict[str, str],
) -> None:
    """The promise is the cell's name; a failure names the call and the line."""
    assert f"ok {cell}" in run_cell(c_program(program), artifacts[program], cell, preload)


@pytest.mark.parametrize("program", PROGRAMS)
def test_cells_are_clean_under_checkers(
    program: str, c_program: Callable[..., Path], artifacts: dict[str, list[Path]]
) -> None:
    """No memory error, no undefined behaviour."""
    built = c_program(program, "-fsanitize=address,undefined", library=dev.build("sanitized"))
    run_cell(built, artifacts[program], environment={"ASAN_OPTIONS": "detect_leaks=0"})
