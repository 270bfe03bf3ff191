# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The guard of the frozen surface: binaries of every format are read, and a type that changes is found.

Needs Debian's packages abigail-tools, clang-19, lld-19 and llvm-19.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import abi_binary
import abi_header
import check_abi
import pytest
from platform_support import built, need

FROZEN = abi_header.read(check_abi.INCLUDE, abi_header.FROZEN_HEADERS)
NAMES = ("sslm_one", "sslm_two")
SOURCE = "int sslm_one(void) { return 1; }\nint sslm_two(void) { return 2; }\nstatic int three(void) { return 3; }\n"


def run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True)


# ---- Formats ----


def build_elf(source: Path) -> Path:
    run("gcc", "-shared", "-fPIC", source, "-o", source.with_suffix(".so"))
    return source.with_suffix(".so")


def build_macho(source: Path) -> Path:
    object_file, library = source.with_suffix(".o"), source.with_suffix(".dylib")
    run(need("clang-19", "clang-19"), "--target=arm64-apple-macos11", "-c", source, "-o", object_file)
    version = ["-platform_version", "macos", "11.0", "11.0"]
    run(need("ld64.lld-19", "lld-19"), "-dylib", "-arch", "arm64", *version, object_file, "-o", library)
    return library


def build_dll(source: Path) -> Path:
    library = source.with_suffix(".dll")
    compiler = need("x86_64-w64-mingw32-gcc", "g++-mingw-w64-x86-64")
    run(compiler, "-shared", source, "-o", library)
    return library


def build_wasm(source: Path) -> Path:
    library = source.with_suffix(".wasm")
    compiler = need("clang-19", "clang-19")
    need("wasm-ld-19", "lld-19")
    link = ["-nostdlib", "-Wl,--no-entry", *(f"-Wl,--export={name}" for name in NAMES)]
    run(compiler, "--target=wasm32", *link, source, "-o", library)
    return library


@pytest.mark.parametrize("build", [build_elf, build_macho, build_dll, build_wasm])
def test_exports_are_read_from_every_format(build: Callable[[Path], Path], tmp_path: Path) -> None:
    need("llvm-readobj-19", "llvm-19")
    (tmp_path / "two.c").write_text(SOURCE)
    library = build(tmp_path / "two.c")
    assert abi_binary.format_of(library) == build.__name__.removeprefix("build_").replace("dll", "pe")
    assert sorted(abi_binary.exports_of(library)) == list(NAMES)


def test_a_file_that_is_no_library_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "libsuperslm.so"
    path.write_text("not a library")
    with pytest.raises(ValueError, match="libsuperslm.so is no shared library"):
        abi_binary.exports_of(path)
    assert check_abi.check_game_library(path) == [f"{path} is no shared library: " + abi_binary.FORMATS]


# ---- Types ----


def test_the_baseline_is_the_frozen_surface_and_names_no_machine() -> None:
    text = abi_binary.BASELINE.read_text()
    assert len(text) < 200_000
    assert sorted(re.findall(r"<function-decl name='(\w+)'", text)) == sorted(FROZEN.functions)
    assert sorted(re.findall(r"<elf-symbol name='(\w+)'", text)) == sorted(FROZEN.functions)
    assert not re.findall(r"path='/", text) and "sslm_ext_" not in text
    visible = set(re.findall(r"<class-decl name='(\w+)' size-in-bits", text))
    assert visible == set(FROZEN.structs)


@pytest.mark.parametrize("variant", ["gcc-O0", "clang-O0"])
def test_the_library_has_the_baselines_types(variant: str) -> None:
    need("abidiff", "abigail-tools")
    library = built(variant)
    assert abi_binary.has_debug_info(library)
    assert check_abi.check_types(library, check_abi.INCLUDE) == []


def library_of_headers(folder: Path, old: str = "", new: str = "") -> Path:
    """A library with the headers' functions and types, after one text was replaced."""
    shutil.copytree(check_abi.INCLUDE / "superslm", folder / "superslm")
    for name in abi_header.FROZEN_HEADERS:
        path = folder / "superslm" / name
        text = path.read_text().replace(old, new) if old else path.read_text()
        path.write_text(re.sub(r"^SSLM_LAYOUT_(SIZE|FIELD)\(.*\n", "", text, flags=re.M))
    header = abi_header.read(folder, abi_header.FROZEN_HEADERS)
    lines = ['#include "superslm/sslm_abi.h"']
    for f in header.functions.values():
        parameters = ", ".join(f"{p.type} {p.name}" for p in f.parameters)
        lines.append(f"{f.result} {f.name}({parameters}) {{ return ({f.result})0; }}")
    (folder / "all.cpp").write_text("\n".join(lines) + "\n")
    link = ["-shared", "-Wl,-soname,libsuperslm.so.1", "-o", folder / "liball.so"]
    run("g++", "-g", "-fPIC", f"-I{folder}", folder / "all.cpp", *link)
    return folder / "liball.so"


def test_headers_without_a_change_have_the_baselines_types(tmp_path: Path) -> None:
    need("abidiff", "abigail-tools")
    assert check_abi.check_types(library_of_headers(tmp_path), tmp_path) == []


DRIFTS = {
    "a parameter becomes wider": ("int32_t budget, sslm_prefix* out)", "int64_t budget, sslm_prefix* out)"),
    "a parameter is dropped": ("int32_t index, char* buf", "char* buf"),
    "a function goes away": ("sslm_schema_count(", "sslm_schemas_count("),
    "a field becomes wider": ("uint32_t reserve_pages;", "uint64_t reserve_pages;"),
    "a field changes its place": ("  int32_t mode; ", "  int32_t top; int32_t mode; "),
    "a status is renumbered": ("SSLM_MISALIGNED_BUFFER = 3", "SSLM_MISALIGNED_BUFFER = 33"),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_changed_type_is_found(drift: str, tmp_path: Path) -> None:
    need("abidiff", "abigail-tools")
    old, new = DRIFTS[drift]
    assert old in "".join((check_abi.INCLUDE / "superslm" / n).read_text() for n in abi_header.FROZEN_HEADERS)
    assert check_abi.check_types(library_of_headers(tmp_path, old, new), tmp_path) != []


# ---- In a game's CI ----


@pytest.fixture
def game(tmp_path: Path) -> Path:
    """A game's repository with its own copy of the headers and of the checking program."""
    tools = check_abi.ROOT / "tools"
    shutil.copytree(check_abi.INCLUDE / "superslm", tmp_path / "third_party/superslm")
    shutil.copytree(tools / "exports", tmp_path / "ci/exports")
    for path in [tools / "check_abi.py", *tools.glob("abi_*.py")]:
        shutil.copy(path, tmp_path / "ci")
    return tmp_path


def check_game(game: Path, *libraries: Path) -> subprocess.CompletedProcess[str]:
    """Runs the copied program, with nothing of this tree to be found."""
    env = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "ci/check_abi.py", "--game", "--include", "third_party", *map(str, libraries)]
    return subprocess.run(command, cwd=game, env=env, capture_output=True, text=True, check=False)


def test_a_game_checks_its_own_copy_with_the_copied_program(game: Path, library_path: Path) -> None:
    done = check_game(game, library_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok     verbs of {library_path.resolve()}" in done.stdout


def test_a_game_learns_that_its_library_lost_a_verb(game: Path) -> None:
    names = list(FROZEN.functions)[1:]
    (game / "old.c").write_text("\n".join(f"int {name}(void) {{ return 0; }}" for name in names))
    done = check_game(game, build_elf(game / "old.c"))
    assert done.returncode == 1
    assert f"{list(FROZEN.functions)[0]} is not exported" in done.stdout


def test_a_game_learns_that_its_header_was_edited(game: Path, library_path: Path) -> None:
    header = game / "third_party/superslm/sslm_abi.h"
    header.write_text(header.read_text().replace("SSLM_MISALIGNED_BUFFER = 3", "SSLM_MISALIGNED_BUFFER = 33"))
    done = check_game(game, library_path)
    assert done.returncode == 1 and "sslm_status" in done.stdout
