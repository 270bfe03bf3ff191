# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Pages, pools and holders, tested as a room of their own: known bytes stand in for a model's rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from room_programs import compile_rooms, run


@pytest.mark.parametrize("program", ["kv_holders", "kv_cohort", "kv_random"])
def test_pages_keep_their_promises(tmp_path: Path, program: str) -> None:
    """Each promise is a function of the C++ program; the first broken one names itself."""
    assert run(compile_rooms(tmp_path, program, ("kv",)))


def test_pools_and_sizes_keep_their_promises(tmp_path: Path) -> None:
    """The page rule, the sizes and the order of the create verbs' refusals."""
    assert run(compile_rooms(tmp_path, "kv_pool", ("kv", "base/memory.cpp")))


@pytest.mark.parametrize("sanitize", ["thread", "address,undefined"])
def test_threads_share_prefixes_without_a_race(tmp_path: Path, sanitize: str) -> None:
    """Sixteen threads over shared prefixes, under the thread checker and the memory checker."""
    assert run(compile_rooms(tmp_path, "kv_threads", ("kv",), sanitize))
