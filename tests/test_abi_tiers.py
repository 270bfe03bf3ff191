# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""A kernel tier keeps its instructions to itself.

An inline function that a tier's object shares with another would be merged by the linker, and a processor without the
tier's instructions could meet them in code that every machine runs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kernel_tiers import TIERS
from platform_support import built

OWN_INSTRUCTIONS = (*TIERS[2:], "neon_dotprod")


def weak_symbols(file: Path) -> set[str]:
    """Names that the linker may merge with those of other objects."""
    text = subprocess.run(
        ["nm", "--defined-only", str(file)], capture_output=True, text=True, check=True
    ).stdout
    fields = [line.split() for line in text.splitlines()]
    return {entry[2] for entry in fields if len(entry) == 3 and entry[1] in "WVu"}


@pytest.mark.parametrize("variant", ["gcc", "clang", "gcc-O0"])
def test_no_tier_shares_a_function_with_other_objects(variant: str) -> None:
    folder = built(variant).parent
    symbols = {path: weak_symbols(path) for path in folder.rglob("*.o")}
    tiers = [
        path
        for path in symbols
        if path.parent.name == "kernels" and path.name.partition(".")[0] in OWN_INSTRUCTIONS
    ]
    assert tiers
    for tier in tiers:
        others = set().union(*(names for path, names in symbols.items() if path != tier))
        assert symbols[tier] & others == set(), tier
