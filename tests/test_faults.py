# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Faults from outside: memory that runs out, memory that cannot be written, little stack, uninitialised bytes."""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from adapter_support import random_file
from cell_programs import C_SOURCES, PROGRAMS, artifacts_of, run_cell
from make_adapter import AdapterSpec
from make_checkpoint import make_quantized, spec_of
from schema_fixtures import schemas
from superslm.convert.schema import pack
from superslm.convert.tokenizer import build_tokenizer
from superslm.convert.writer import set_section, write_artifact
from tokenizer_support import small_source

STACK_BYTES = 64 << 10  # what docs/threading.md promises to be enough


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model with every section, and an adapter of it."""
    folder = tmp_path_factory.mktemp("everything")
    spec = dataclasses.replace(spec_of("tiny"), name="everything", vocab=512)
    model = make_quantized(spec, "w8")
    model.tokenizer = build_tokenizer(small_source(), spec.vocab)
    path = folder / "everything.sslm"
    write_artifact(model, path)
    set_section(path, "SCHM", pack(schemas(spec.vocab)))
    record = struct.pack("<2I", 2, spec.cap - 2) + bytes(32) + bytes(4 * spec.cap)  # of the right form only
    set_section(path, "GOLD", record)
    return [path, random_file(spec, path, AdapterSpec(rank=2), folder / "adapter")]


def test_memory_that_runs_out_anywhere_in_any_verb_changes_nothing(
    c_program: Callable[..., Path], everything: list[Path]
) -> None:
    """ALLOCATION_FAILED, a null handle, pages and content as before, and success right afterwards."""
    run_cell(c_program("cell_allocation"), everything)


def test_the_table_of_failing_allocations_has_every_verb() -> None:
    source = (C_SOURCES / "cell_allocation.c").read_text()
    table = source[source.index("} verbs[] = {") :]
    tested = {f"sslm_{name}" for name in re.findall(r"VERB\((\w+), [01]\)", table)}
    tested |= set(re.findall(r'\{"(sslm_\w+)"', table))
    headers = "".join(
        (dev.ROOT / "include/superslm" / name).read_text() for name in ("sslm_abi.h", "sslm_ext.h")
    )
    declared = set(re.findall(r"^SUPERSLM_API [\w *]+?\b(sslm_\w+)\(", headers, re.MULTILINE))
    assert len(declared) >= 67
    assert tested == declared


@pytest.mark.parametrize("program", PROGRAMS)
def test_cells_hold_on_a_read_only_artifact_and_a_small_stack(
    program: str, c_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    """Nothing is ever written to the mapping, and 64 KiB of stack are enough for every verb and the cell itself."""
    built = c_program(program, "-D_DEFAULT_SOURCE", "-DCHECK_READ_ONLY", f"-DCHECK_STACK_BYTES={STACK_BYTES}")
    run_cell(built, artifacts_of(program, fixture_artifact))
