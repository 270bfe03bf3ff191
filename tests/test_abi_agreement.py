# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Cells 1 and 2: headers, export lists, library, ctypes, cffi and ctypeslib2 agree, and a drift in any is found."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import abi_header
import check_abi
import pytest

FROZEN = abi_header.read(check_abi.INCLUDE, abi_header.FROZEN_HEADERS)
BOTH = abi_header.read(check_abi.INCLUDE, (*abi_header.FROZEN_HEADERS, *abi_header.EXTENSION_HEADERS))


def changed_header(tmp_path: Path, file: str, old: str, new: str) -> abi_header.Header:
    """The headers with one text replaced."""
    shutil.copytree(check_abi.INCLUDE / "superslm", tmp_path / "superslm")
    path = tmp_path / "superslm" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return abi_header.read(tmp_path, (*abi_header.FROZEN_HEADERS, *abi_header.EXTENSION_HEADERS))


def test_the_layouts_are_the_contracts_in_every_standard() -> None:
    assert check_abi.check_compilers(BOTH) == []


def test_the_export_lists_are_those_of_the_headers() -> None:
    drafts = abi_header.read(check_abi.INCLUDE, abi_header.EXTENSION_HEADERS)
    assert len(FROZEN.functions) == 51
    assert check_abi.check_lists(FROZEN, drafts) == []


def test_the_library_exports_exactly_the_two_lists_and_a_consumer_resolves_all(library_path: Path) -> None:
    assert check_abi.check_library(library_path, BOTH) == []


def test_the_library_needs_libc_and_nothing_else(library_path: Path) -> None:
    text = subprocess.run(
        ["readelf", "-d", str(library_path)], capture_output=True, text=True, check=True
    ).stdout
    needed = [line.split("[")[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line]
    assert set(needed) <= {"libc.so.6", "libm.so.6"}, needed
    assert "Library soname: [libsuperslm.so.1]" in text
    imports = subprocess.run(
        ["nm", "-D", "-u", str(library_path)], capture_output=True, text=True, check=True
    ).stdout
    assert not [line for line in imports.splitlines() if " _Z" in line or "__cxa_guard" in line], imports


def test_the_release_exports_no_seam(library_path: Path, test_library_path: Path) -> None:
    assert not [name for name in check_abi.exports_of(library_path) if name.startswith("sslm_test_")]
    seams = [name for name in check_abi.exports_of(test_library_path) if name not in BOTH.functions]
    assert seams and all(name.startswith("sslm_test_") for name in seams), seams


def test_the_ctypes_layer_is_that_of_the_headers() -> None:
    assert check_abi.check_ctypes(BOTH) == []


def test_cffi_compiles_the_declarations_against_the_headers(library_path: Path) -> None:
    assert check_abi.check_cffi(BOTH, library_path) == []


def test_ctypeslib2_generates_the_same_structs(library_path: Path) -> None:
    assert check_abi.check_ctypeslib(BOTH, library_path) == []


def test_the_docs_name_every_function() -> None:
    assert check_abi.check_docs(BOTH) == []


DRIFTS = {
    "a parameter becomes wider": (
        "sslm_abi.h",
        "int32_t budget, sslm_prefix* out)",
        "int64_t budget, sslm_prefix* out)",
    ),
    "a verb is renamed": ("sslm_abi.h", "sslm_schema_count(", "sslm_schemas_count("),
    "a field is renamed": ("sslm_abi.h", "uint32_t free_pages;", "uint32_t pages_free;"),
    "a macro changes": ("parallel_for.h", "MAX_TASKS 256", "MAX_TASKS 255"),
    "a draft struct grows": ("sslm_ext.h", "int32_t schema_count;", "int64_t schema_count;"),
    "two fields change places": (
        "sslm_abi.h",
        "uint32_t page_count;    /* pages of the pool */\n  uint32_t free_pages;",
        "uint32_t free_pages;    /* pages of the pool */\n  uint32_t page_count;",
    ),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_ctypes_drift_is_found(drift: str, tmp_path: Path) -> None:
    assert check_abi.check_ctypes(changed_header(tmp_path, *DRIFTS[drift])) != []


def test_an_export_too_many_or_too_few_is_found(tmp_path: Path) -> None:
    names = [*list(BOTH.functions)[1:], "sslm_planted"]
    source = tmp_path / "exports.c"
    source.write_text("\n".join(f"int {name}(void) {{ return 0; }}" for name in names))
    library = tmp_path / "libplanted.so"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    problems = "\n".join(check_abi.check_library(library, BOTH))
    assert "sslm_model_map is missing" in problems
    assert "sslm_planted is not in the headers" in problems


def test_ordinals_out_of_place_are_found(tmp_path: Path) -> None:
    header = changed_header(tmp_path, "sslm_abi.h", "X(SSLM_OK)  ", "X(SSLM_INVALID_ARGUMENT)  ")
    assert any("ENUM_LIST" in problem for problem in check_abi.check_names(header, abi_header.Header()))


def test_the_binding_loads_the_library_and_names_its_refusals(library_path: Path) -> None:
    from superslm import _abi, _library, errors

    library = _library.library(str(library_path))
    assert library.sslm_ext_status_name(_abi.SSLM_KV_BUDGET_EXCEEDED) == b"SSLM_KV_BUDGET_EXCEEDED"
    model = _abi.sslm_model()
    status = library.sslm_model_map(b"garbage", 7, ctypes.byref(model))
    with pytest.raises(errors.ArtifactRejected, match="sslm_model_map: SSLM_ARTIFACT_REJECTED: seven bytes"):
        _library.check(status, "sslm_model_map", "seven bytes")


def test_every_status_has_a_name_and_other_values_have_none(library_path: Path) -> None:
    from superslm import _abi, _library

    library = _library.library(str(library_path))
    for status in _abi.Status:
        assert library.sslm_ext_status_name(status) == status.name.encode()
    assert {library.sslm_ext_status_name(value) for value in (-1, 30, 1 << 30)} == {b"unknown status"}
