# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""From an automaton over bytes to one over token ids, with tokens that always act alike in one class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .automaton import NONE, Dfa, SchemaError

NO_STATE = 0xFFFFFFFF
MAX_STATES = 1 << 20
MAX_CLASSES = 65535
MAX_CELLS = 1 << 28  # of the table while it is made


@dataclass(frozen=True)
class TokenAutomaton:
    """An automaton over token ids.

    classes: uint16 [vocab]. next: uint32 [states, classes], `NO_STATE` where a token is not legal. accepting:
    uint32, ascending. The start is state 0.
    """

    classes: np.ndarray
    next: np.ndarray
    accepting: np.ndarray

    def step(self, state: int, token: int) -> int | None:
        """The state behind a token, None where it is not legal."""
        target = int(self.next[state, self.classes[token]])
        return None if target == NO_STATE else target

    def accepts(self, state: int) -> bool:
        """Whether the text may end here."""
        return state in self.accepting

    def longest(self) -> int | None:
        """The most tokens of an accepted text, None when there is no bound."""
        return _longest(self.next)


def over_tokens(automaton: Dfa, texts: Sequence[bytes], path: str = "$") -> TokenAutomaton:
    """Carries an automaton over to a vocabulary.

    Args:
        automaton: minimal, over bytes.
        texts: each id's bytes; empty: the id is never legal.
        path: of the schema, for errors.

    Raises:
        SchemaError: the vocabulary cannot spell any accepted text, or the tables exceed their limits.
    """
    function_of, functions = _token_functions(automaton, texts)
    used, classes = np.unique(function_of, return_inverse=True)
    table = _dense([functions[f] for f in used], len(automaton.next))
    table, accepting, states = _reachable(table, automaton.accepting)
    alive = _alive(table, accepting)
    if not alive[0]:
        raise SchemaError(
            _why_stuck(automaton, texts), path, "Choose other texts, or a model whose vocabulary has it."
        )
    del states
    target = np.append(alive, False)[table]
    table = np.where(target, table, NONE)
    table, accepting, _ = _reachable(table, accepting)
    rows, column_of = np.unique(table, axis=0, return_inverse=True)
    classes = column_of.reshape(-1)[classes.reshape(-1)]
    # Classes in the order of their first token, so that equal input gives equal bytes.
    first = np.full(len(rows), len(classes), np.int64)
    np.minimum.at(first, classes, np.arange(len(classes)))
    order = np.argsort(first)
    number = np.empty(len(rows), np.int64)
    number[order] = np.arange(len(rows))
    if len(rows) > MAX_CLASSES or table.shape[1] > MAX_STATES:
        raise SchemaError("the token automaton is too large", path, "Lower maxLength, maxItems or recursion.")
    following = np.ascontiguousarray(rows[order].T)
    result = TokenAutomaton(
        number[classes].astype(np.uint16),
        np.where(following == NONE, NO_STATE, following).astype(np.uint32),
        np.flatnonzero(accepting).astype(np.uint32),
    )
    prove(result, path)
    return result


def prove(automaton: TokenAutomaton, path: str) -> None:
    """Checks on the finished tables that every state is reached and can still reach acceptance.

    Raises SchemaError, which names the tokens that lead to the state.
    """
    following = automaton.next.astype(np.int64)
    following[following == NO_STATE] = NONE
    came_from, order = {0: (0, 0)}, [0]
    for state in order:
        for target, column in zip(
            *map(np.ndarray.tolist, np.unique(following[state], return_index=True)), strict=True
        ):
            if target != NONE and target not in came_from:
                came_from[target] = (state, column)
                order.append(target)
    alive = np.zeros(len(following), bool)
    alive[automaton.accepting] = True
    for state in _towards(following, alive):
        alive[state] = True
    for state in range(len(following)):
        if state in came_from and alive[state]:
            continue
        tokens = []
        while state in came_from and state != 0:
            state, column = came_from[state]
            tokens.append(int(np.flatnonzero(automaton.classes == column)[0]))
        raise SchemaError(
            f"the tokens {tokens[::-1]} lead to a state without an end", path, "Report this schema."
        )


def _towards(following: np.ndarray, goal: np.ndarray) -> Iterator[int]:
    """States from which a goal is reached, by a breadth-first search against the moves."""
    source, column = np.nonzero(following != NONE)
    target = following[source, column]
    order = np.argsort(target, kind="stable")
    source, begin = source[order], np.searchsorted(target[order], np.arange(len(following) + 1))
    seen = goal.copy()
    queue = np.flatnonzero(goal).tolist()
    for state in queue:
        for before in np.unique(source[begin[state] : begin[state + 1]]).tolist():
            if not seen[before]:
                seen[before] = True
                queue.append(before)
                yield before


# A function says where a text leads from every state: the states it is possible in, and where they lead.
_Function = tuple[np.ndarray, np.ndarray]


def _token_functions(automaton: Dfa, texts: Sequence[bytes]) -> tuple[np.ndarray, list[_Function]]:
    """The number of each token's function, and the functions; number 0 is possible nowhere."""
    classes = automaton.classes.tolist()
    columns = [np.ascontiguousarray(column) for column in automaton.next.T]
    everywhere = np.arange(len(automaton.next), dtype=np.int32)
    functions: list[_Function] = [(everywhere[:0], everywhere[:0]), (everywhere, everywhere)]
    number = {_key(f): i for i, f in enumerate(functions)}
    known: dict[tuple[int, int], int] = {}

    def then(function: int, column: int) -> int:
        result = known.get((function, column))
        if result is None:
            states, targets = functions[function]
            targets = columns[column][targets]
            live = targets != NONE
            composed = (states[live], targets[live])
            result = number.setdefault(_key(composed), len(functions))
            if result == len(functions):
                functions.append(composed)
            known[function, column] = result
        return result

    out = np.zeros(len(texts), np.int64)
    before, path = b"", [1]  # path[i]: the function of the first i bytes
    for token in sorted(range(len(texts)), key=texts.__getitem__):
        text = texts[token]
        if not text:
            continue
        shared = 0
        while shared < min(len(before), len(text), len(path) - 1) and before[shared] == text[shared]:
            shared += 1
        del path[shared + 1 :]
        for byte in text[shared:]:
            if path[-1] == 0:
                break
            path.append(then(path[-1], classes[byte]))
        before = text
        out[token] = path[-1] if path[-1] == 0 or len(path) == len(text) + 1 else 0
    return out, functions


def _key(function: _Function) -> bytes:
    return function[0].tobytes() + function[1].tobytes()


def _dense(functions: list[_Function], states: int) -> np.ndarray:
    """int32 [functions, states]: targets, or `NONE`."""
    if len(functions) * states > MAX_CELLS:
        raise SchemaError("the token automaton is too large", "", "Lower maxLength, maxItems or recursion.")
    table = np.full((len(functions), states), NONE, np.int32)
    for row, (sources, targets) in zip(table, functions, strict=True):
        row[sources] = targets
    return table


def _reachable(table: np.ndarray, accepting: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The part that the start reaches, renumbered breadth first; and which states those were."""
    number = np.full(table.shape[1] + 1, NONE, np.int64)
    number[0] = 0
    order = [0]
    for state in order:
        for target in np.unique(table[:, state]).tolist():
            if target != NONE and number[target] == NONE:
                number[target] = len(order)
                order.append(target)
    kept = np.array(order)
    return number[table[:, kept]].astype(np.int32), accepting[kept], kept


def _alive(table: np.ndarray, accepting: np.ndarray) -> np.ndarray:
    """States from which acceptance can be reached."""
    alive = accepting.copy()
    alive[list(_towards(table.T, accepting))] = True
    return alive


def _why_stuck(automaton: Dfa, texts: Sequence[bytes]) -> str:
    """A byte that every accepted text needs and no token has, and the text before it."""
    have = set(b"".join(texts))
    trail, seen, queue = {0: b""}, {0}, [0]
    for state in queue:
        for low, high, target in automaton.ranges(state):
            usable = [b for b in range(low, high + 1) if b in have]
            if usable and target not in seen:
                seen.add(target)
                trail[target] = trail[state] + bytes(usable[:1])
                queue.append(target)
    furthest = max(trail.values(), key=len)
    return f"the vocabulary cannot spell any accepted text; it ends behind {furthest!r}"


def _longest(following: np.ndarray) -> int | None:
    states = len(following)
    height = np.full(states, -1, np.int64)
    on_stack = np.zeros(states, bool)
    targets = [np.unique(row[row != NO_STATE]).astype(np.int64).tolist() for row in following]
    stack = [(0, iter(targets[0]))]
    on_stack[0] = True
    while stack:
        state, rest = stack[-1]
        target = next(rest, None)
        if target is None:
            height[state] = max((int(height[t]) + 1 for t in targets[state]), default=0)
            on_stack[state] = False
            stack.pop()
        elif on_stack[target]:
            return None
        elif height[target] < 0:
            on_stack[target] = True
            stack.append((target, iter(targets[target])))
    return int(height[0])
