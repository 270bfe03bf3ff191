# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Artifacts with hand-made automata over plain ids, for models without a tokenizer; and hostile sections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from superslm.convert.schema import pack
from superslm.convert.schema.tokens import NO_STATE, TokenAutomaton
from superslm.convert.writer import set_section


def automaton(
    vocab: int, moves: list[tuple[int, range | list[int], int]], accepting: list[int]
) -> TokenAutomaton:
    """One with moves (state, ids, target); every id of a move must not be in another class of its state."""
    states = 1 + max(max(a, c) for a, _, c in moves)
    table = np.full((states, vocab), NO_STATE, np.uint32)
    for state, ids, target in moves:
        table[state, list(ids)] = target
    columns, classes = np.unique(table, axis=1, return_inverse=True)
    return TokenAutomaton(
        classes.reshape(-1).astype(np.uint16),
        np.ascontiguousarray(columns),
        np.array(accepting, np.uint32),
    )


def schemas(vocab: int, first: int = 10) -> dict[str, TokenAutomaton]:
    """The schemas that tests/c/cell_schema.c names."""
    chain = [(i, [first + i], i + 1) for i in range(3)]
    choice = [(0, range(first + 10, first + 20), 1), (1, [first + 20], 2)]
    parity = [(0, range(0, vocab, 2), 1), (1, range(1, vocab, 2), 0)]
    return {
        "chain": automaton(vocab, chain, [3]),
        "choice": automaton(vocab, choice, [2]),
        "parity": automaton(vocab, parity, [0]),
    }


def with_schemas(source: Path, target: Path, vocab: int, first: int = 10) -> Path:
    """A copy of an artifact with these schemas."""
    set_section(source, "SCHM", pack(schemas(vocab, first)), output=target)
    return target
