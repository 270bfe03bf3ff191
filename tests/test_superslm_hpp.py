# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""superslm.hpp: RAII handles, spans and results, without exceptions and with them, in two compilers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from adapter_support import random_file
from make_adapter import AdapterSpec

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
CELLS = (
    "handles_move_and_release_once",
    "a_refusal_carries_its_status",
    "a_model_in_use_stays_owned",
    "decode_agrees_with_the_c_verbs",
    "save_and_restore_continue_alike",
    "prefixes_are_adopted_and_nested",
    "the_hook_runs_the_logits",
    "an_adapter_is_bound_swapped_and_released",
)
CAST_CELLS = (
    "prefixes_are_baked",
    "restores_refuse_what_does_not_fit",
    "a_cast_fits_the_pages_of_its_plan",
    "a_save_shares_its_persona_again",
)


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
def test_every_class_of_the_header_does_what_its_comment_says(
    compiler: str,
    c_program: Callable[..., Path],
    library_path: Path,
    smollm2_golden: Path,
    fixture_artifact: Callable[..., Path],
    tmp_path: Path,
) -> None:
    if shutil.which(compiler) is None:
        assert not dev.STRICT, f"{compiler} was not found"
        compiler = "c++"
    flags = (*STRICT, "-fno-exceptions", "-fno-rtti")
    program = c_program("hpp_talk", *flags, library=library_path, compiler=compiler)
    deep = fixture_artifact("deep")
    adapter = random_file("deep", deep, AdapterSpec(), tmp_path)
    command = [program, smollm2_golden, deep, adapter]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.removeprefix("ok ") for line in done.stdout.splitlines()] == list(CELLS)


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
@pytest.mark.parametrize("mode", ["-fno-exceptions", "-DSUPERSLM_HPP_EXCEPTIONS"])
def test_a_cast_is_baked_restored_saved_and_counted(
    compiler: str,
    mode: str,
    c_program: Callable[..., Path],
    library_path: Path,
    fixture_artifact: Callable[..., Path],
) -> None:
    if shutil.which(compiler) is None:
        assert not dev.STRICT, f"{compiler} was not found"
        compiler = "c++"
    program = c_program("hpp_cast", *STRICT, mode, library=library_path, compiler=compiler)
    command = [program, fixture_artifact("cells")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.removeprefix("ok ") for line in done.stdout.splitlines()] == list(CAST_CELLS)


def test_a_refused_value_throws_where_exceptions_are_asked_for(
    c_program: Callable[..., Path], library_path: Path
) -> None:
    program = c_program("hpp_exceptions", *STRICT, library=library_path)
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"ok a_refused_value_throws\n"


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
def test_an_older_language_is_refused_by_name(compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "old.cpp"
    source.write_text('#include "superslm/superslm.hpp"\n')
    if shutil.which(compiler) is None:
        assert not dev.STRICT, f"{compiler} was not found"
        compiler = "c++"
    command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{dev.ROOT / 'include'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "superslm.hpp needs C++20" in done.stderr


def test_a_refused_value_aborts_where_they_are_not(
    c_program: Callable[..., Path], library_path: Path, tmp_path: Path
) -> None:
    source = tmp_path / "aborts.cpp"
    source.write_text(
        '#include "superslm/superslm.hpp"\n'
        "int main() { std::byte bad[8] = {}; (void)sslm::Model::map(bad).value(); return 0; }\n"
    )
    program = tmp_path / "aborts"
    flags = ["-std=c++20", "-fno-exceptions", f"-I{dev.ROOT / 'include'}", str(source), str(library_path)]
    subprocess.run(["c++", *flags, f"-Wl,-rpath,{library_path.parent}", "-o", str(program)], check=True)
    assert subprocess.run([program], check=False).returncode < 0
