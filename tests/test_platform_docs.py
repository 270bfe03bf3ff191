# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""docs/platforms.md names tests that exist, every target of the release script, and the committed digests."""

from __future__ import annotations

import re

import dev
import release
from test_golden import EXPECTED, SCENE

PAGE = (dev.ROOT / "docs/platforms.md").read_text("utf-8")


def section(title: str) -> str:
    """The text under a headline."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_row_of_what_ran_names_a_test_that_is_there() -> None:
    rows = re.findall(r"^\| (?!platform|---)(.+) \|$", section("What has run"), re.M)
    assert len(rows) > 8
    for row in rows:
        named = re.findall(r"tests/[\w/]+\.py", row)
        assert named and all((dev.ROOT / name).is_file() for name in named), row


def test_a_release_target_stands_in_one_table() -> None:
    linked = set(re.findall(r"`([\w-]+)` \|$", section("What was linked and not run"), re.M))
    ran = {"linux-x64", "linux-x64-musl", "linux-arm64", "win-x64"}
    assert linked | ran == set(release.TARGETS) and not linked & ran


def test_the_digests_are_the_committed_ones() -> None:
    assert SCENE["digest"] in PAGE
    for weights in ("w8", "w4"):
        assert EXPECTED[weights]["steps"][-1][4] in PAGE, weights
