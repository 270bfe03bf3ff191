# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Older x86-64 processors under qemu-user: without SSE4.1, without AVX2, and without AVX-512.

Needs Debian's package qemu-user.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from platform_support import build_program, check_golden, need, run
from test_golden import golden  # noqa: F401

# Emulated processor -> the tier that dispatch must choose.
BEST = {"qemu64": "sse2", "Nehalem": "sse41", "Haswell": "avx2"}
ALL = 24
CASES = [("qemu64", 6), ("Nehalem", 6), *(pytest.param(p, ALL, marks=pytest.mark.long) for p in BEST)]


@pytest.mark.parametrize(("processor", "count"), CASES)
def test_smollm2_gives_the_golden_digests_on_older_processors(
    golden: SimpleNamespace,  # noqa: F811
    processor: str,
    count: int,
    test_library_path: Path,
    tmp_path: Path,
) -> None:
    """The committed digests of an independent engine: residuals and logits of the first tokens, W8 and W4."""
    emulator = need("qemu-x86_64", "qemu-user")
    program = build_program(tmp_path, "engine_golden", test_library_path, os.environ.get("CXX", "c++"))
    tokens = [str(step[0]) for step in golden.steps[:count]]
    printed = run([emulator, "-cpu", processor, str(program), str(golden.path), "decode", *tokens])
    check_golden(golden, printed, BEST[processor])
