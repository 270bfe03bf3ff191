# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The engine without handles: every kernel tier against scalar, and what must not change a bit."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import dev
import pytest
from kernel_tiers import TIERS

C_SOURCES = Path(__file__).resolve().parent / "c"
SANITIZERS = {"seams": (), "sanitized": ("-fsanitize=address,undefined",), "tsan": ("-fsanitize=thread",)}

# Emulated processors and the tiers that dispatch must find there; later ones must be named as lacking.
EMULATED = {"qemu64": TIERS[:2], "Nehalem": TIERS[:3], "Haswell": TIERS[:4]}


def build_program(folder: Path, name: str, variant: str) -> Path:
    """Builds tests/c/NAME.cpp against the static library of a build variant and returns the program."""
    archive = next(dev.build(variant).parent.rglob("libsuperslm.a"))
    program = folder / f"{name}-{variant}"
    command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-O1", "-g", *SANITIZERS[variant]]
    command += [f"-I{dev.ROOT / 'c_abi'}", str(C_SOURCES / f"{name}.cpp"), str(archive)]
    subprocess.run([*command, "-o", str(program), "-pthread"], check=True)
    return program


def run(command: list[str]) -> list[str]:
    """Runs a program and returns the lines it prints; fails the test with what it says when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout.splitlines()


@pytest.mark.parametrize("variant", ["seams", "sanitized"])
def test_every_tier_gives_the_bits_of_scalar(tmp_path: Path, variant: str) -> None:
    """Random and extreme inputs of every size, between unreadable pages; lacking tiers are named, none is left out."""
    lines = run([str(build_program(tmp_path, "engine_kernels", variant))])
    assert [line.removeprefix("ok ").removeprefix("skipped ").split(":")[0] for line in lines] == list(TIERS)


@pytest.mark.long
@pytest.mark.parametrize("processor", EMULATED)
def test_lesser_processors_use_the_tiers_they_have(tmp_path: Path, processor: str) -> None:
    """The same test on emulated processors."""
    emulator = shutil.which("qemu-x86_64")
    assert emulator, "qemu-x86_64 is needed: Debian's package qemu-user"
    program = build_program(tmp_path, "engine_kernels", "seams")
    lines = run([emulator, "-cpu", processor, str(program)])
    found = tuple(line.removeprefix("ok ") for line in lines if line.startswith("ok "))
    assert found == EMULATED[processor]
    assert len(lines) == len(TIERS)


@pytest.mark.parametrize("variant", ["seams", "sanitized", "tsan"])
def test_cuts_and_failures_change_no_bit(tmp_path: Path, variant: str) -> None:
    """Chunks, slices, batches, pages, tasks, threads, failing hooks and hostile models, on random small models."""
    assert run([str(build_program(tmp_path, "engine_invariants", variant))]) == ["ok"]
