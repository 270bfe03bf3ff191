# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Save blobs, tested as a room of their own: layouts, round trips, every refusal in order, mutations."""

from __future__ import annotations

from pathlib import Path

import pytest
from room_programs import compile_rooms, run

ROOMS = ("blob", "kv", "artifact/sha256*.cpp")


@pytest.mark.parametrize("program", ["blob_roundtrip", "blob_refusals", "blob_mutations", "blob_prefix"])
def test_blobs_keep_their_promises(tmp_path: Path, program: str) -> None:
    """Each promise is a function of the C++ program; the first broken one names itself."""
    assert run(compile_rooms(tmp_path, program, ROOMS))
