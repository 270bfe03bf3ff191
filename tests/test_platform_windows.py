# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The Windows DLL of MinGW's compiler: its export and import tables, and the contract's cells under Wine.

Needs Debian's packages g++-mingw-w64-x86-64, llvm-19 and wine64.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import abi_binary
import check_abi
import check_no_float
import dev
import pytest
from cell_programs import PROGRAMS, artifacts_of, cells_of
from platform_support import C_SOURCES, Wine, build_program, check_golden, need, run
from test_adapter import cell_artifacts  # noqa: F401
from test_cells_schema import PROGRAMS as SCHEMA_PROGRAMS
from test_cells_schema import artifacts as schema_artifacts  # noqa: F401
from test_golden import SCENE, golden  # noqa: F401

C_COMPILER = "x86_64-w64-mingw32-gcc"
CXX_COMPILER = "x86_64-w64-mingw32-g++-posix"  # the one with std::thread
PACKAGE = "g++-mingw-w64-x86-64"
SYSTEM_DLLS = {"kernel32.dll", "msvcrt.dll"}
CONSUMER = Path(__file__).resolve().parent / "consumer"
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
CELL_PROGRAMS = [
    *PROGRAMS,
    *SCHEMA_PROGRAMS,
    "cell_adapter",
    pytest.param("cell_cast", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def dll() -> Path:
    """The DLL with test seams."""
    need(CXX_COMPILER, PACKAGE)
    return dev.build("mingw")


@pytest.fixture(scope="module")
def release() -> Path:
    """The DLL as it is shipped."""
    need(CXX_COMPILER, PACKAGE)
    return dev.build("mingw-package")


@pytest.fixture(scope="module")
def wine() -> Iterator[Wine]:
    """Wine, ended after the last test."""
    made = Wine()
    yield made
    made.close()


# ---- The file ----


def test_the_dll_exports_exactly_the_two_lists(release: Path) -> None:
    need("llvm-readobj-19", "llvm-19")
    listed = [*check_abi.list_file("frozen.txt"), *check_abi.list_file("ext.txt")]
    assert sorted(abi_binary.exports_of(release)) == sorted(listed)


def test_the_dll_needs_nothing_but_the_system(dll: Path, release: Path) -> None:
    for library in (dll, release):
        assert set(map(str.lower, abi_binary.needed(library))) <= SYSTEM_DLLS


def test_no_vector_lies_on_the_stack_as_if_it_were_aligned(dll: Path) -> None:
    """GCC does not align the stack for 32 and 64 byte vectors on Windows, so that an aligned move would crash."""
    moved = 0
    for tier in dll.parent.rglob("avx*.cpp.obj"):
        text = run([check_no_float.disassembler(), "-d", "--no-show-raw-insn", str(tier)])
        moved += len(re.findall(r"\svmov\w+.*%[yz]mm.*\(%rsp", text))
        assert not re.findall(
            r"\svmov(?:dqa\d*|aps|apd)\s.*%[yz]mm.*\(%r[sb]p.*|\svmov(?:dqa\d*|aps|apd)\s.*\(%r[sb]p.*%[yz]mm",
            text,
        )
    assert moved, "no object of a vector tier was read"


@pytest.mark.long
def test_the_dll_computes_without_floats(dll: Path) -> None:
    findings, files, _ = check_no_float.check([dll.parent])
    assert files > 50 and not findings


# ---- Under Wine ----


@pytest.mark.parametrize("program", CELL_PROGRAMS)
def test_cells_hold_on_windows(
    program: str,
    dll: Path,
    wine: Wine,
    fixture_artifact: Callable[..., Path],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """Every promise of the contract, through the public headers and the DLL."""
    if program in PROGRAMS:
        artifacts = artifacts_of(program, fixture_artifact)
    elif program == "cell_cast":
        artifacts = [fixture_artifact("cast")]
    elif program == "cell_adapter":
        artifacts = request.getfixturevalue("cell_artifacts")
    else:
        artifacts = request.getfixturevalue("schema_artifacts")[program]
    built, includes = tmp_path / f"{program}.exe", [f"-I{dev.ROOT / 'include'}", f"-I{C_SOURCES}"]
    compile_c = [
        C_COMPILER,
        "-std=c11",
        "-g",
        "-O1",
        "-Wall",
        "-Wextra",
        *includes,
        str(C_SOURCES / f"{program}.c"),
    ]
    run([*compile_c, "-static", str(dll), "-lpthread", "-o", str(built)])
    printed = wine.run(built, *artifacts, dll=dll)
    assert re.findall(r"^ok (\w+)", printed, re.M) == cells_of(program)


@pytest.fixture(scope="module")
def windows_program(dll: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`windows_program(name)`: tests/c/NAME.cpp for Windows."""
    folder = tmp_path_factory.mktemp("windows")
    return functools.cache(lambda name: build_program(folder, name, dll, CXX_COMPILER, "-static"))


def test_every_tier_gives_the_bits_of_scalar(wine: Wine, windows_program: Callable[[str], Path]) -> None:
    lines = wine.run(windows_program("engine_kernels")).splitlines()
    assert lines[:3] == ["ok scalar", "ok sse2", "ok sse41"], lines


def test_cuts_and_failures_change_no_bit(wine: Wine, windows_program: Callable[[str], Path]) -> None:
    assert wine.run(windows_program("engine_invariants")).splitlines() == ["ok"]


@pytest.mark.parametrize("weights", ["w8", "w4"])
def test_both_systems_compute_the_same_states(
    weights: str,
    wine: Wine,
    windows_program: Callable[[str], Path],
    test_library_path: Path,
    fixture_artifact: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Digests of residuals, K, V and logits, and the tokens: layer by layer and in chunks."""
    native = build_program(tmp_path, "engine_golden", test_library_path, os.environ.get("CXX", "c++"))
    program = windows_program("engine_golden")
    for fixture in ("deep", "bias", "odd"):
        for how in ("decode", "11"):
            words = [str(fixture_artifact(fixture, weights)), how, *map(str, PROMPT)]
            assert wine.run(program, *words) == run([str(native), *words]), fixture


def test_smollm2_gives_the_golden_digests_on_windows(
    golden: SimpleNamespace,  # noqa: F811
    wine: Wine,
    windows_program: Callable[[str], Path],
    library_path: Path,
) -> None:
    """The committed digests of an independent engine: residuals, logits, K and V of 24 tokens, W8 and W4."""
    from superslm import _library

    tier = _library.library(str(library_path)).sslm_ext_kernel_tier().decode()
    tokens = [step[0] for step in golden.steps]
    check_golden(golden, wine.run(windows_program("engine_golden"), golden.path, "decode", *tokens), tier)


def test_the_shipped_dll_plays_the_scene(
    release: Path, wine: Wine, smollm2_golden: Path, tmp_path: Path
) -> None:
    """The record in an artifact whose digest is committed, with the DLL as it is shipped."""
    program = tmp_path / "play_scene.exe"
    compile_c = [C_COMPILER, "-std=c99", "-O1", f"-I{dev.ROOT / 'include'}", str(C_SOURCES / "play_scene.c")]
    run([*compile_c, "-static", str(release), "-o", str(program)])
    played = wine.run(program, smollm2_golden, dll=release)
    assert played.startswith(f"verified {len(SCENE['tokens'])} tokens (")


def test_find_package_works_for_windows(release: Path, wine: Wine, tmp_path: Path) -> None:
    """An outside program of the MinGW compiler, shared and static, from an installed tree."""
    prefix, folder = tmp_path / "installed", tmp_path / "consumer"
    run([dev.tool("cmake"), "--install", str(release.parent.parent), "--prefix", str(prefix)])
    toolchain = dev.ROOT / "cmake/toolchains/x86_64-w64-mingw32.cmake"
    configure = [
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={dev.tool('ninja')}",
        f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
    ]
    configure += [f"-Dsuperslm_DIR={prefix / 'lib/cmake/superslm'}"]
    run([dev.tool("cmake"), "-S", str(CONSUMER), "-B", str(folder), *configure])
    run([dev.tool("cmake"), "--build", str(folder)])
    installed = prefix / "bin" / release.name
    assert wine.run(folder / "consumer_shared.exe", dll=installed).startswith("superslm ")
    assert wine.run(folder / "consumer_static.exe").startswith("superslm ")
    assert release.name not in abi_binary.needed(folder / "consumer_static.exe")
