# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One bug: `old` stands exactly once in `file` and becomes `new`; then `test` must fail.

    test: cell:PROGRAM/CELL (a cell of the contract), room:PROGRAM/TEST (a room's sources alone),
    engine:PROGRAM (a program with the static library), or a pytest node.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
