# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Cell 1 and the headers' own rules: they compile alone everywhere, and every verb is explained in a few lines."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import abi_header
import check_abi
import pytest
from platform_support import need

INCLUDE = check_abi.INCLUDE
HEADERS = sorted(path.name for path in (INCLUDE / "superslm").glob("*.h"))
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", f"-I{INCLUDE}"]
TAGS = ("[pure]", "[excl: ", "[seq-lock", "[pool-lock")


def compile_text(compiler: str, standard: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles a text as a translation unit of its own."""
    need(compiler, "g++-mingw-w64-x86-64" if "mingw" in compiler else compiler.replace("clang++", "clang"))
    source = folder / ("unit.cpp" if "++" in compiler else "unit.c")
    source.write_text(text)
    return subprocess.run(
        [compiler, f"-std={standard}", *STRICT, str(source)], capture_output=True, text=True
    )


@pytest.mark.parametrize(("compiler", "standard"), check_abi.COMPILERS)
@pytest.mark.parametrize("header", HEADERS)
def test_each_header_compiles_alone(header: str, compiler: str, standard: str, tmp_path: Path) -> None:
    opt_in = "#define SSLM_ENABLE_DRAFT_EXTENSIONS\n" if header == "sslm_ext.h" else ""
    text = f'{opt_in}#include "superslm/{header}"\n#include "superslm/{header}"\nint main(void) {{ return 0; }}\n'
    done = compile_text(compiler, standard, text, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("compiler", "standard"), check_abi.COMPILERS)
def test_enum_only_gives_types_and_a_later_include_the_functions_once(
    compiler: str, standard: str, tmp_path: Path
) -> None:
    types_only = (
        "#define SUPERSLM_ABI_ENUM_ONLY\n"
        '#include "superslm/sslm_abi.h"\n'
        "static int sslm_model_unmap(sslm_model model) { return model == 0 ? (int)SSLM_OK : 1; }\n"
        "int main(void) { return sslm_model_unmap((sslm_model)0); }\n"
    )
    done = compile_text(compiler, standard, types_only, tmp_path)
    assert done.returncode == 0, done.stderr
    then_functions = (
        "#define SUPERSLM_ABI_ENUM_ONLY\n"
        '#include "superslm/sslm_abi.h"\n'
        "#undef SUPERSLM_ABI_ENUM_ONLY\n"
        '#include "superslm/sslm_abi.h"\n'
        '#include "superslm/sslm_abi.h"\n'
        "int main(void) { return sslm_model_unmap((sslm_model)0) == SSLM_STATUS_NEXT_FREE; }\n"
    )
    done = compile_text(compiler, standard, then_functions, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_draft_header_asks_to_be_enabled(tmp_path: Path) -> None:
    done = compile_text(
        "gcc", "c99", '#include "superslm/sslm_ext.h"\nint main(void) { return 0; }\n', tmp_path
    )
    assert done.returncode != 0
    assert "SSLM_ENABLE_DRAFT_EXTENSIONS" in done.stderr


def test_a_struct_with_another_layout_does_not_compile(tmp_path: Path) -> None:
    folder = tmp_path / "superslm"
    folder.mkdir()
    for header in HEADERS:
        text = (INCLUDE / "superslm" / header).read_text()
        (folder / header).write_text(text.replace("int32_t max_chunk_budget;", "int64_t max_chunk_budget;"))
    for compiler, standard in check_abi.COMPILERS:
        if not check_abi.shutil.which(compiler):
            continue
        source = tmp_path / ("unit.cpp" if "++" in compiler else "unit.c")
        source.write_text('#include "superslm/sslm_abi.h"\nint main(void) { return 0; }\n')
        command = [compiler, f"-std={standard}", "-fsyntax-only", f"-I{tmp_path}", str(source)]
        assert subprocess.run(command, capture_output=True).returncode != 0, (compiler, standard)


@pytest.mark.parametrize("header", ["sslm_abi.h", "sslm_ext.h"])
def test_every_verb_has_a_short_comment_that_ends_with_its_thread_rule(header: str) -> None:
    text = (INCLUDE / "superslm" / header).read_text()
    comments = re.findall(r"/\* ((?:(?!\*/).)*?)\*/\nSUPERSLM_API [^;]*?(sslm_\w+)\(", text, re.S)
    assert [name for _, name in comments] == list(abi_header.read(INCLUDE, (header,)).functions)
    for comment, name in comments:
        assert comment.count("\n") + 1 <= 8, f"{name}: more than eight lines"
        last = comment.strip().rsplit("[", 1)[-1]
        assert any(tag in comment for tag in TAGS) and last.endswith("]"), (
            f"{name}: no thread rule at the end"
        )


def test_the_status_list_and_the_enum_are_one() -> None:
    header = abi_header.read(INCLUDE, abi_header.FROZEN_HEADERS)
    assert check_abi.check_names(header, abi_header.read(INCLUDE, abi_header.EXTENSION_HEADERS)) == []
    assert header.enums["sslm_status"]["SSLM_STATUS_NEXT_FREE"] == 30
