# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The contract's cells as programs: which ones there are, their artifacts, and how to run one cell."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

C_SOURCES = Path(__file__).resolve().parent / "c"

# Program -> the fixtures whose artifacts it takes, in its order.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "cell_arguments": ("cells", "cells_other", "cap32768", "cap32768_hd128", "cap65"),
    "cell_lifecycle": ("cells",),
    "cell_prefill": ("cells", "cap40", "sat_gateup"),
    "cell_decode": ("cells", "cells_other", "cap40", "equal_logits"),
    "cell_threads": ("cells",),
    "cell_hook": ("wide",),
    "cell_text": ("talking", "cells"),
    "cell_pages": ("cells", "cap64", "cap65", "cap40", "cap32768", "cap32768_hd128"),
    "cell_save": ("cells", "cells_other"),
}


def cells_of(program: str) -> list[str]:
    """The names of a program's cells, from its table."""
    source = (C_SOURCES / f"{program}.c").read_text()
    return re.findall(r"^\s*CELL\((\w+)\),", source, re.MULTILINE)


def all_cells(programs: tuple[str, ...] = tuple(PROGRAMS)) -> Iterator[tuple[str, str]]:
    """Every (program, cell)."""
    for program in programs:
        for cell in cells_of(program):
            yield program, cell


def compile_preload(folder: Path) -> Path:
    """The allocator that counts, to be preloaded."""
    target = folder / "count_allocations.so"
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O1", "-shared", "-fPIC"]
    command += [str(C_SOURCES / "count_allocations.c"), "-o", str(target), "-ldl"]
    subprocess.run(command, check=True)
    return target


def run_cell(
    program: Path,
    artifacts: list[Path],
    cell: str | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    """Runs one cell, or all of a program. Fails the test with the program's own words."""
    command = [str(program), *map(str, artifacts), *([cell] if cell else [])]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode != 0:
        pytest.fail(f"{shlex.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}", False)
    return done.stdout


@functools.cache
def talking_artifact() -> Path:
    """A random model with a small tokenizer and, behind it, ids without text."""
    from make_checkpoint import make_quantized, spec_of
    from superslm.convert.tokenizer import build_tokenizer
    from superslm.convert.writer import write_artifact
    from tokenizer_support import small_source

    model = make_quantized(dataclasses.replace(spec_of("tiny"), name="talking", vocab=512), "w8")
    model.tokenizer = build_tokenizer(small_source(), 512)
    path = Path(tempfile.mkdtemp()) / "talking.sslm"
    write_artifact(model, path)
    return path


def artifacts_of(program: str, fixture_artifact: Callable[..., Path], weights: str = "w8") -> list[Path]:
    """The artifacts of a program, made where they are missing."""
    return [
        talking_artifact() if name == "talking" else fixture_artifact(name, weights)
        for name in PROGRAMS[program]
    ]
