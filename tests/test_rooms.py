# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The code keeps to the rooms of docs/architecture.md, and tools/check_rooms.py finds what does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import check_rooms
import dev
import pytest


def test_the_code_keeps_to_its_rooms() -> None:
    assert check_rooms.check() == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the check reads."""
    for name in ("c_abi", "python_binding/superslm"):
        shutil.copytree(dev.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    shutil.copy(dev.ROOT / "docs/architecture.md", tmp_path / "docs")
    return tmp_path


# File, text put in front of it, words of the complaint.
PLANTED = [
    ("c_abi/kernels/scalar.cpp", '#include "forward/engine.h"', "kernels/ may not use forward/"),
    ("c_abi/kv/pool.cpp", '#include "artifact/reader.h"', "kv/ may not use artifact/"),
    ("c_abi/base/load.h", '#include "base/memory.h"', None),
    ("c_abi/base/memory.h", '#include "base/lock.h"\n#include "base/memory.h"', "a circle of includes"),
    ("c_abi/decode/decode.h", '#include "superslm/sslm_abi.h"', "which only abi/ may know"),
    ("c_abi/forward/layer.cpp", "#include <cmath>", "includes <cmath>"),
    ("c_abi/abi/pool.cpp", "#include <vector>", "includes <vector>"),
    ("c_abi/text/bpe.cpp", "#include <immintrin.h>", "includes <immintrin.h>"),
    ("c_abi/forward/linear.cpp", "static float scale = 1;", "1: float: floating point"),
    ("c_abi/forward/linear.cpp", "// a float in a comment is a word", None),
    ("c_abi/kv/rows.cpp", "int* leak() { return new int; }", "1: new: the C++ runtime's heap"),
    ("c_abi/decode/select.cpp", "static sslm_status last;", "handles and statuses belong to abi/"),
    ("c_abi/blob/write.cpp", "static __int128 wide;", "a type that not every compiler has"),
    (
        "python_binding/superslm/reference/linear.py",
        "from superslm import engine",
        "reference may not use engine",
    ),
    ("python_binding/superslm/engine.py", "from superslm import cli", "engine may not use commands"),
    (
        "python_binding/superslm/artifact.py",
        "from .convert.writer import write_artifact",
        "may not use convert",
    ),
    ("python_binding/superslm/selection.py", "import rich", "importing superslm imports rich"),
    ("python_binding/superslm/convert/schema/tokens.py", "import gguf", "importing superslm imports gguf"),
    ("python_binding/superslm/convert/tables.py", "from .quantize import quantize", "a circle of imports"),
    ("python_binding/superslm/stray.py", "import os", "no room of docs/architecture.md holds superslm.stray"),
    ("c_abi/text/bpe.h", "\n" * 701, "at most 700 may be"),
    ("c_abi/attic/old.cpp", "int x;", "c_abi/ has the rooms"),
]


@pytest.mark.parametrize(("file", "text", "words"), PLANTED, ids=range(len(PLANTED)))
def test_a_planted_violation_is_found(file: str, text: str, words: str | None, tree: Path) -> None:
    path = tree / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n" + (path.read_text("utf-8") if path.exists() else ""))
    found = check_rooms.check(tree)
    assert found == [] if words is None else any(words in line for line in found), found


def test_a_table_that_points_upwards_is_found(tree: Path) -> None:
    page = tree / "docs/architecture.md"
    row = "| `base/` |"
    before = page.read_text("utf-8")
    page.write_text(before.replace("the hook | nothing |", "the hook | kernels |"))
    assert row in before and any(
        "base uses kernels, which stands above it" in x for x in check_rooms.check(tree)
    )
