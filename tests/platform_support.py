# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Running what was built for another platform: Windows programs under Wine, other processors under qemu-user."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import dev
import pytest

C_SOURCES = Path(__file__).resolve().parent / "c"
WINE_FOLDER = "/usr/lib/wine"  # Debian's package wine64 puts nothing on PATH
ARM_SYSROOT = "/usr/aarch64-linux-gnu"
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]


def need(program: str, package: str, places: str = "") -> str:
    """Path of a program. Skips the test without it, or fails it where nothing may be missing."""
    found = shutil.which(program, path=os.pathsep.join([os.environ["PATH"], places]))
    if not found:
        (pytest.fail if dev.STRICT else pytest.skip)(f"{program} was not found: apt install {package}")
    return found


def built(variant: str) -> Path:
    """The library of a variant of tools/dev.py. Skips the test without its compilers, or fails it; see `need`."""
    for compiler in dev.VARIANTS[variant][:2]:
        if compiler:
            need(compiler, compiler.replace("clang++", "clang"))
    return dev.build(variant)


def run(command: list[str], env: Mapping[str, str] | None = None) -> str:
    """Runs a command and returns what it prints; fails the test with what it says."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )
    if done.returncode != 0:
        said = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
        pytest.fail(f"{shlex.join(command)} ended with {done.returncode}\n{said}", pytrace=False)
    return done.stdout


def emulated(processor: str, program: Path, *arguments: object, env: Mapping[str, str] | None = None) -> str:
    """Runs an ARM program on an emulated processor and returns what it prints."""
    emulator = need("qemu-aarch64", "qemu-user")
    return run([emulator, "-cpu", processor, "-L", ARM_SYSROOT, str(program), *map(str, arguments)], env)


def build_program(folder: Path, name: str, library: Path, compiler: str, *flags: str) -> Path:
    """Compiles tests/c/NAME.cpp against the static library beside a shared one."""
    windows = library.suffix == ".dll"
    archive = library.parent / ("libsuperslm_static.a" if windows else "libsuperslm.a")
    program = folder / (f"{name}.exe" if windows else name)
    command = [*shlex.split(compiler), "-std=c++20", "-O1", "-g", f"-I{dev.ROOT / 'c_abi'}", *flags]
    run([*command, str(C_SOURCES / f"{name}.cpp"), str(archive), "-pthread", "-o", str(program)])
    return program


class Wine:
    """Windows programs with a DLL folder on their search path; the prefix stays in the build folder."""

    def __init__(self) -> None:
        self.program = need("wine64", "wine64", WINE_FOLDER)
        self.server = need("wineserver64", "wine64", WINE_FOLDER)
        self.env = {"WINEPREFIX": str(dev.BUILD / "wine"), "WINEDEBUG": "-all", "DISPLAY": ""}

    def run(
        self, program: Path, *arguments: object, dll: Path | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """Runs a program that needs the given DLL and returns what it prints."""
        search = {"WINEPATH": "Z:" + str(dll.parent).replace("/", "\\")} if dll else {}
        return run([self.program, str(program), *map(str, arguments)], {**self.env, **search, **(env or {})})

    def close(self) -> None:
        """Ends the processes of this prefix."""
        subprocess.run([self.server, "-k"], env={**os.environ, **self.env}, check=False)


def states_here(folder: Path, library: Path, artifact: Path) -> Iterator[tuple[list[str], list[str]]]:
    """What engine_golden prints on this machine, layer by layer and in chunks, for others to print as well.

    Yields:
        arguments of engine_golden; its lines (digests of residuals, K, V and logits, and the tokens) but the last,
        which names the tier.
    """
    program = build_program(folder, "engine_golden", library, os.environ.get("CXX", "c++"))
    for how in ("decode", "4", "11"):
        words = [str(artifact), how, *map(str, PROMPT)]
        yield words, run([str(program), *words]).splitlines()[:-1]


def check_golden(golden: SimpleNamespace, printed: str, tier: str) -> None:
    """What engine_golden printed for SmolLM2 has the committed digests, and was computed by the given tier.

    K and V have digests of all tokens together, so they are compared only when all were fed.
    """
    found: dict[str, list[str]] = {}
    for name, value, *_ in map(str.split, printed.splitlines()):
        found.setdefault(name, []).append(value)
    steps = golden.steps[: len(found["argmax"])]
    assert found["tier"] == [tier]
    assert [int(token) for token in found["argmax"]] == [step[1] for step in steps]
    for column, name in ((2, "residuals"), (3, "final"), (4, "logits")):
        assert [digest[:16] for digest in found[name]] == [step[column] for step in steps], name
    for name in ("k", "v") if len(steps) == len(golden.steps) else ():
        assert [digest[:16] for digest in found[name]] == getattr(golden, name), name
