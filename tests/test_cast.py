# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Fifty speakers over ten personas and one world in 505 pages: admissions, saves, restores, unchanged tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cell_programs import run_cell


def test_the_cast_fits_its_pages_and_five_speakers_talk_to_their_limit(
    c_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    """All fifty are admitted, saved and restored; five emit their 513 tokens."""
    run_cell(c_program("cell_cast"), [fixture_artifact("cast")])


@pytest.mark.long
@pytest.mark.parametrize("geometry", ["cast", "cast_wide"])
def test_all_fifty_speakers_talk_to_their_limit(
    geometry: str, c_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    """Both saves of every speaker continue as the speaker that was never saved."""
    run_cell(c_program("cell_cast", "-DCAST_TALKING=50"), [fixture_artifact(geometry)])
