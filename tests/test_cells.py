# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The behavioural contract, cell by cell, as C programs that see nothing but the public headers and the seams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from cell_programs import PROGRAMS, all_cells, artifacts_of, run_cell


@pytest.mark.parametrize(("program", "cell"), list(all_cells()))
def test_cell(
    program: str,
    cell: str,
    c_program: Callable[..., Path],
    fixture_artifact: Callable[..., Path],
    preload: dict[str, str],
) -> None:
    """The promise is the cell's name; a failure names the call and the line."""
    artifacts = artifacts_of(program, fixture_artifact)
    assert f"ok {cell}" in run_cell(c_program(program), artifacts, cell, preload)


@pytest.mark.parametrize("program", ["cell_prefill", "cell_decode"])
def test_cells_hold_with_four_bit_weights(
    program: str, c_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    """The same promises over the other storage of weights."""
    run_cell(c_program(program), artifacts_of(program, fixture_artifact, "w4"))


CHECKED = [(program, "sanitized") for program in PROGRAMS]
CHECKED += [("cell_threads", "tsan"), ("cell_hook", "tsan")]


@pytest.mark.parametrize(("program", "variant"), CHECKED)
def test_cells_are_clean_under_checkers(
    program: str,
    variant: str,
    c_program: Callable[..., Path],
    fixture_artifact: Callable[..., Path],
) -> None:
    """No memory error, no undefined behaviour, no race."""
    sanitizer = "thread" if variant == "tsan" else "address,undefined"
    built = c_program(program, f"-fsanitize={sanitizer}", library=dev.build(variant))
    quiet = {"ASAN_OPTIONS": "detect_leaks=0"}  # programs never free their buffers
    run_cell(built, artifacts_of(program, fixture_artifact), environment=quiet)


@pytest.mark.long
def test_cells_of_a_model_of_real_size(
    c_program: Callable[..., Path], fixture_artifact: Callable[..., Path], preload: dict[str, str]
) -> None:
    """The hook's calls on Qwen2.5-0.5B's shape, and what mapping 0.5 GB costs."""
    artifact = fixture_artifact("qwen2.5-0.5b")
    run_cell(c_program("cell_large"), [artifact])
    mapping = "a_read_only_mapping_costs_little_heap_and_an_unaligned_copy_talks_the_same"
    run_cell(c_program("cell_lifecycle"), [artifact], mapping, preload)
