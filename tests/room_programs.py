# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Compiles a test program together with the sources of the rooms it tests, under sanitizers, without the library."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STRICT = (
    "-std=c++20",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)


def compile_rooms(
    folder: Path,
    name: str,
    rooms: tuple[str, ...],
    sanitize: str = "address,undefined",
    flags: tuple[str, ...] = (),
) -> Path:
    """Builds tests/c/NAME.cpp with every source of the given rooms and returns the program.

    Args:
        folder: where the program goes.
        name: the source's name without its ending.
        rooms: folders under c_abi/, or patterns of files.
        sanitize: sanitizers of the build; empty for none.
        flags: more compiler flags.

    Raises:
        pytest.fail.Exception: when it does not compile.
    """
    sources = [ROOT / "tests" / "c" / f"{name}.cpp"]
    for room in rooms:
        sources += sorted((ROOT / "c_abi").glob(f"{room}/*.cpp" if "." not in room else room))
    program = folder / f"{name}-{sanitize.replace(',', '-') or 'plain'}"
    command = [*shlex.split(os.environ.get("CXX", "c++")), *STRICT, *flags, "-DSUPERSLM_TEST_SEAMS=1"]
    if sanitize:
        command.append(f"-fsanitize={sanitize}")
    command += [
        f"-I{ROOT / 'c_abi'}",
        f"-I{ROOT / 'tests' / 'c'}",
        *map(str, sources),
        "-o",
        str(program),
        "-pthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{shlex.join(command)}\n{done.stderr}", pytrace=False)
    return program


def run(program: Path, *arguments: str) -> str:
    """Runs a test program and returns its output; fails the test with the output when it fails."""
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = done.stdout[-2000:] + done.stderr[-8000:]
        pytest.fail(f"{program.name} ended with {done.returncode}\n{tail}", pytrace=False)
    return done.stdout
