# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Finite automata over bytes: a graph with free moves to build in, and the deterministic form it becomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checkpoint import ConvertError

NONE = -1
MAX_NODES = 2_000_000
MAX_STATES = 1 << 20


class SchemaError(ConvertError):
    """A schema that cannot be compiled: what is wrong, at which path, and what to do."""


@dataclass(frozen=True)
class Dfa:
    """A deterministic automaton that starts in state 0.

    classes: int [256], the column of each byte. next: int32 [states, columns], `NONE` where there is no move.
    accepting: bool [states].
    """

    classes: np.ndarray
    next: np.ndarray
    accepting: np.ndarray

    @property
    def empty(self) -> bool:
        """Whether no text is accepted."""
        return not self.accepting.any()

    def accepts(self, text: bytes) -> bool:
        """Whether `text` is accepted."""
        state = 0
        for byte in text:
            state = int(self.next[state, self.classes[byte]])
            if state == NONE:
                return False
        return bool(self.accepting[state])

    def ranges(self, state: int) -> list[tuple[int, int, int]]:
        """The moves of a state as (first byte, last byte, target)."""
        row = self.next[state, self.classes]
        edges = np.flatnonzero(np.diff(row)) + 1
        starts, ends = [0, *edges.tolist()], [*edges.tolist(), 256]
        return [(a, b - 1, int(row[a])) for a, b in zip(starts, ends, strict=True) if row[a] != NONE]

    def minimal(self) -> Dfa:
        """The smallest automaton for the same texts; one without states that lead nowhere."""
        return _minimal(self)

    def __and__(self, other: Dfa) -> Dfa:
        """The texts that both accept."""
        return _product(self, other)


class Graph:
    """Nodes with byte ranges and free moves; fragments are laid from a start node to an end node."""

    def __init__(self) -> None:
        self.moves: list[list[tuple[int, int, int]]] = []
        self.free: list[list[int]] = []

    def node(self) -> int:
        """A new node."""
        if len(self.moves) == MAX_NODES:
            raise SchemaError(
                "the schema is too large", "", "Lower maxLength, maxItems or the depth of recursion."
            )
        self.moves.append([])
        self.free.append([])
        return len(self.moves) - 1

    def join(self, start: int, end: int) -> None:
        """A free move."""
        self.free[start].append(end)

    def literal(self, start: int, text: bytes) -> int:
        """One text; returns its end."""
        for byte in text:
            end = self.node()
            self.moves[start].append((byte, byte, end))
            start = end
        return start

    def copy(self, start: int, automaton: Dfa) -> int:
        """The texts of an automaton; returns their common end."""
        nodes = [self.node() for _ in range(len(automaton.next))]
        end = self.node()
        self.join(start, nodes[0])
        for state, node in enumerate(nodes):
            self.moves[node] = [(a, b, nodes[target]) for a, b, target in automaton.ranges(state)]
            if automaton.accepting[state]:
                self.join(node, end)
        return end

    def deterministic(self, start: int, end: int) -> Dfa:
        """The minimal automaton of the texts that lead from `start` to `end`."""
        return _determinise(self, start, end).minimal()


def _byte_classes(boundaries: set[int]) -> np.ndarray:
    """Columns of bytes between boundaries (first bytes of ranges, and bytes behind their ends)."""
    marks = np.zeros(257, np.int64)
    marks[[b for b in boundaries if b > 0]] = 1
    return np.cumsum(marks)[:256]


class _Closures:
    """Nodes that free moves lead to, only those with moves of their own and the end."""

    def __init__(self, graph: Graph, end: int) -> None:
        self._graph, self._end = graph, end
        self._known: dict[int, tuple[int, ...]] = {}

    def of(self, node: int) -> tuple[int, ...]:
        known = self._known.get(node)
        if known is not None:
            return known
        seen, stack = {node}, [node]
        while stack:
            for other in self._graph.free[stack.pop()]:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        result = tuple(n for n in seen if self._graph.moves[n] or n == self._end)
        self._known[node] = result
        return result


def _determinise(graph: Graph, start: int, end: int) -> Dfa:
    boundaries = {edge for moves in graph.moves for a, b, _ in moves for edge in (a, b + 1)}
    classes = _byte_classes(boundaries)
    width = int(classes[-1]) + 1
    closures = _Closures(graph, end)
    first = frozenset(closures.of(start))
    index, subsets, rows = {first: 0}, [first], []
    for subset in subsets:  # grows while it is walked
        targets: dict[int, set[int]] = {}
        for node in subset:
            for a, b, target in graph.moves[node]:
                for column in range(classes[a], classes[b] + 1):
                    targets.setdefault(column, set()).update(closures.of(target))
        row = [NONE] * width
        for column, nodes in targets.items():
            if not nodes:
                continue
            key = frozenset(nodes)
            state = index.get(key)
            if state is None:
                state = index[key] = len(subsets)
                subsets.append(key)
                if state == MAX_STATES:
                    raise SchemaError(
                        "the automaton is too large", "", "Lower maxLength, maxItems or recursion."
                    )
            row[column] = state
        rows.append(row)
    accepting = np.array([end in subset for subset in subsets])
    return Dfa(classes, np.array(rows, np.int32).reshape(len(subsets), width), accepting)


class _Backwards:
    """The moves between some states of an automaton against their direction."""

    def __init__(self, following: np.ndarray, kept: np.ndarray | None = None) -> None:
        states, width = following.shape
        source, target = np.repeat(np.arange(states), width), following.reshape(-1)
        used = target != NONE
        if kept is not None:
            used &= kept[source] & kept[target]
        source, target = source[used], target[used]
        order = np.argsort(target, kind="stable")
        self._source, self._begin = source[order], np.searchsorted(target[order], np.arange(states + 1))
        self.moves = np.bincount(source, minlength=states)  # that leave each state

    def sources(self, targets: np.ndarray) -> np.ndarray:
        """Where the moves into `targets` start, target by target."""
        return np.concatenate([self._source[self._begin[t] : self._begin[t + 1]] for t in targets])


def _distances(automaton: Dfa) -> np.ndarray:
    """Length of the shortest text from each state to acceptance, -1 where there is none."""
    backwards = _Backwards(automaton.next)
    distance = np.where(automaton.accepting, 0, -1)
    frontier, step = np.flatnonzero(automaton.accepting), 0
    while frontier.size:
        step += 1
        before = np.unique(backwards.sources(frontier))
        frontier = before[distance[before] < 0]
        distance[frontier] = step
    return distance


def _heights(automaton: Dfa, live: np.ndarray) -> np.ndarray:
    """Length of the longest text from each live state to acceptance, -1 where there is no longest."""
    backwards = _Backwards(automaton.next, live)
    left, height = backwards.moves.copy(), np.full(len(live), -1)
    frontier, step = np.flatnonzero(live & (left == 0)), 0
    while frontier.size:
        height[frontier] = step
        step += 1
        sources, counts = np.unique(backwards.sources(frontier), return_counts=True)
        left[sources] -= counts
        frontier = sources[left[sources] == 0]
    return height


def _minimal(automaton: Dfa) -> Dfa:
    distance = _distances(automaton)
    if distance[0] < 0:
        none = np.full((1, 1), NONE, np.int32)
        return Dfa(np.zeros(256, np.int64), none, np.zeros(1, bool))
    # Equal states have equal shortest and longest texts. From there a partition is refined until every block
    # moves into blocks; a state's moves are compared as a sum of 64-bit products with fixed odd factors.
    states, width = automaton.next.shape
    live = distance >= 0
    heights = _heights(automaton, live)
    target = np.where((automaton.next != NONE) & live[automaton.next], automaton.next, states)
    factors = np.random.default_rng(1).integers(1, 1 << 62, width, np.uint64) * np.uint64(2) + np.uint64(1)
    values = np.random.default_rng(2).integers(1, 1 << 62, states + 1, np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    values[states] = 0
    block, count = _numbered(distance, heights)
    while True:
        value = np.append(values[block], np.uint64(0))
        sums = (value[target] * factors).sum(axis=1, dtype=np.uint64)
        block, finer = _numbered(block, sums)
        if finer == count:
            return _quotient(automaton, target, block, count)
        count = finer


def _numbered(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, int]:
    """A number for each pair that occurs, and how many there are."""
    order = np.lexsort((b, a))
    new = np.append(False, (a[order][1:] != a[order][:-1]) | (b[order][1:] != b[order][:-1]))
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new)
    return number, int(new.sum()) + 1


def _quotient(automaton: Dfa, target: np.ndarray, block: np.ndarray, count: int) -> Dfa:
    """One state per block that the start reaches, in breadth-first order, with equal columns merged."""
    states = len(target)
    of = np.append(block, NONE)
    representative = np.zeros(count, np.int64)
    representative[block] = np.arange(states)
    moves = of[target[representative]]
    number = np.full(count, NONE, np.int64)
    order = [int(block[0])]
    number[order[0]] = 0
    for current in order:
        for other in moves[current].tolist():
            if other != NONE and number[other] == NONE:
                number[other] = len(order)
                order.append(other)
    rows = moves[order]
    rows = np.where(rows == NONE, NONE, number[rows])
    columns, column_of = np.unique(rows, axis=1, return_inverse=True)
    classes = column_of.reshape(-1)[automaton.classes]
    accepting = automaton.accepting[representative[order]]
    return Dfa(classes, columns.astype(np.int32), accepting)


def _product(a: Dfa, b: Dfa) -> Dfa:
    pairs, classes = np.unique(np.stack([a.classes, b.classes]), axis=1, return_inverse=True)
    classes = classes.reshape(-1)
    next_a, next_b = a.next[:, pairs[0]].tolist(), b.next[:, pairs[1]].tolist()
    index, states, rows = {(0, 0): 0}, [(0, 0)], []
    for x, y in states:
        row = []
        for p, q in zip(next_a[x], next_b[y], strict=True):
            if p == NONE or q == NONE:
                row.append(NONE)
                continue
            state = index.setdefault((p, q), len(states))
            if state == len(states):
                states.append((p, q))
            row.append(state)
        rows.append(row)
    accepting = np.array([bool(a.accepting[x] and b.accepting[y]) for x, y in states])
    return Dfa(classes, np.array(rows, np.int32), accepting).minimal()
