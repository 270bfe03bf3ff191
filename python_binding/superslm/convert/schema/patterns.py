# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Regular expressions in the dialect of JSON Schema become automata over UTF-8 bytes.

outlines-core builds the automata of character classes, Unicode ones included; the parser composes them as JSON
Schema means it (searching, anchors, escapes of ECMA-262). Whole expressions are not given to outlines-core: its
index loses moves that lead on from an accepted text, and alternatives with a common beginning can take it many
seconds. Where engines disagree about a class, such as non-ASCII digits in `\\d`, only characters that all of them
agree on are generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .automaton import NONE, Dfa, Graph, SchemaError

MAX_REPEAT = 65535
ANY = r"(?s:.)"
_DOT = r"[^\x0a\x0d\x{2028}\x{2029}]"
_NARROW = {"d": r"0-9", "w": r"0-9A-Za-z_", "s": r"\x09-\x0d\x20"}
_WIDE = {"d": r"\p{Nd}", "w": r"\w\p{N}", "s": r"\s\x1c-\x1f\x85\x{feff}"}
_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}


@dataclass(frozen=True)
class Set:
    """One character of a class of outlines-core."""

    expression: str

    def lay(self, graph: Graph, start: int) -> int:
        return graph.copy(start, character(self.expression))


@dataclass(frozen=True)
class Sequence:
    """Parts one after the other."""

    parts: tuple[Node, ...]

    def lay(self, graph: Graph, start: int) -> int:
        for part in self.parts:
            start = part.lay(graph, start)
        return start


@dataclass(frozen=True)
class Either:
    """One of several parts."""

    parts: tuple[Node, ...]

    def lay(self, graph: Graph, start: int) -> int:
        end = graph.node()
        for part in self.parts:
            graph.join(part.lay(graph, start), end)
        return end


@dataclass(frozen=True)
class Repeat:
    """A part least..most times; None: any number of times."""

    part: Node
    least: int
    most: int | None

    def lay(self, graph: Graph, start: int) -> int:
        for _ in range(self.least):
            start = self.part.lay(graph, start)
        if self.most is None:
            again = graph.node()
            graph.join(start, again)
            graph.join(self.part.lay(graph, again), again)
            return again
        end = graph.node()
        graph.join(start, end)
        for _ in range(self.most - self.least):
            start = self.part.lay(graph, start)
            graph.join(start, end)
        return end


Node = Set | Sequence | Either | Repeat


@lru_cache(maxsize=512)
def character(expression: str) -> Dfa:
    """The automaton of a class of outlines-core."""
    try:
        from outlines_core import Index, Vocabulary
    except ModuleNotFoundError:
        raise SchemaError(
            "compiling schemas needs the package outlines-core",
            "schema",
            "Install it with: pip install 'superslm[convert]'",
        ) from None
    # A vocabulary of single bytes makes the token index the automaton itself; 256 is its end of text.
    try:
        index = Index(expression, Vocabulary(256, {bytes([b]): [b] for b in range(256)}))
    except ValueError as error:
        what = f"no character is in the class {expression}"
        raise SchemaError(what, "pattern", "Change the class.") from error
    transitions, final = index.get_transitions(), index.get_final_states()
    start = index.get_initial_state()
    order = [start, *sorted(s for s in {*transitions, *final} if s != start)]
    number = {state: i for i, state in enumerate(order)}
    table = np.full((len(order), 256), NONE, np.int32)
    for state, row in transitions.items():
        for byte, target in row.items():
            if byte < 256:
                table[number[state], byte] = number[target]
    return Dfa(np.arange(256), table, np.array([state in final for state in order])).minimal()


def automaton(node: Node) -> Dfa:
    """The minimal automaton of an expression."""
    graph = Graph()
    start = graph.node()
    return graph.deterministic(start, node.lay(graph, start))


def whole(pattern: str, path: str) -> Dfa:
    """The texts that match `pattern` from end to end. Raises SchemaError naming the place in it."""
    branches = _Parser(pattern, path).parse()
    return automaton(Either(tuple(body for _, body, _ in branches)))


def search(pattern: str, path: str) -> Dfa:
    """The texts that contain a match of `pattern`, as JSON Schema reads it. Raises SchemaError."""
    around = (Repeat(Set(ANY), 0, None),)
    branches = _Parser(pattern, path).parse()
    return automaton(
        Either(
            tuple(
                Sequence((*(() if begin else around), body, *(() if end else around)))
                for begin, body, end in branches
            )
        )
    )


class _Parser:
    """One pattern: a list of branches, each (anchored at the start, expression, anchored at the end)."""

    def __init__(self, pattern: str, path: str) -> None:
        self._text, self._path, self._at = pattern, path, 0

    def _fail(self, what: str, remedy: str = "Write the pattern without it.") -> SchemaError:
        return SchemaError(
            f"{what} at character {self._at} of the pattern {self._text!r}", self._path, remedy
        )

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        self._at += len(text) * found
        return found

    def parse(self) -> list[tuple[bool, Node, bool]]:
        branches = [self._branch(top=True)]
        while self._take("|"):
            branches.append(self._branch(top=True))
        if self._at < len(self._text):
            raise self._fail("')' without '('", "Write \\) for the character.")
        return branches

    def _branch(self, top: bool) -> tuple[bool, Node, bool]:
        begin = end = False
        body = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if end:
                self._at -= 1
                raise self._fail("'$' in the middle", "Anchors belong at the ends of a pattern.")
            if self._take("^"):
                if not top or body:
                    raise self._fail("'^' inside", "Anchors belong at the ends of a pattern.")
                begin = True
            elif self._take("$"):
                if not top:
                    raise self._fail("'$' in a group", "Anchors belong at the ends of a pattern.")
                end = True
            else:
                body.append(self._repeat(self._atom()))
        return begin, Sequence(tuple(body)), end

    def _atom(self) -> Node:
        c = self._text[self._at]
        if self._take("("):
            return self._group()
        if self._take("["):
            return Set(self._class())
        if self._take("."):
            return Set(_DOT)
        if self._take("\\"):
            item = self._escape(in_class=False)
            return Set(_quoted(item) if isinstance(item, int) else f"[{_part(item, wide=False)}]")
        if c in "*+?{":
            raise self._fail(f"{c!r} with nothing to repeat", f"Write \\{c} for the character.")
        self._at += 1
        return Set(_quoted(ord(c)))

    def _group(self) -> Node:
        if self._take("?"):
            if self._take(":"):
                pass
            elif self._peek("<") and not self._peek("<=") and not self._peek("<!"):
                self._at = self._text.find(">", self._at) + 1 or len(self._text)
            else:
                raise self._fail("a look-around or flag group")
        branches = [self._branch(top=False)[1]]
        while self._take("|"):
            branches.append(self._branch(top=False)[1])
        if not self._take(")"):
            raise self._fail("'(' is not closed", "Close it, or write \\( for the character.")
        return Either(tuple(branches))

    def _repeat(self, atom: Node) -> Node:
        for mark, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(mark):
                self._take("?")  # lazy: the same texts
                return Repeat(atom, least, most)
        if not self._peek("{"):
            return atom
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(close, self._at)].partition(",")
        if (
            close < 0
            or not (low + high).isascii()
            or not low.isdecimal()
            or not (high.isdecimal() or not high)
        ):
            raise self._fail("'{' that opens no repetition", "Write \\{ for the character.")
        if max(int(low), int(high or 0)) > MAX_REPEAT or (high and int(high) < int(low)):
            raise self._fail("a repetition out of range", f"Counts ascend and are at most {MAX_REPEAT}.")
        self._at = close + 1
        self._take("?")
        return Repeat(atom, int(low), int(high) if high else None if comma else int(low))

    def _escape(self, in_class: bool) -> int | str:
        """A code point, or one of the letters dwsDWS."""
        if self._at == len(self._text):
            raise self._fail("a lone backslash", "Write \\\\ for the character.")
        c = self._text[self._at]
        self._at += 1
        if c in "dwsDWS":
            return c
        if c == "b" and in_class:
            return 8
        if c in _CONTROL and not (c == "0" and self._text[self._at : self._at + 1].isdecimal()):
            return _CONTROL[c]
        if c in "xu":
            return self._hex(c)
        if c == "c" and self._text[self._at : self._at + 1].isascii():
            letter = self._text[self._at : self._at + 1]
            if letter.isalpha():
                self._at += 1
                return ord(letter) % 32
        if c.isalnum():
            self._at -= 2
            raise self._fail(f"the escape \\{c}")
        return ord(c)

    def _hex(self, kind: str) -> int:
        value = self._digits(2 if kind == "x" else 4)
        if 0xD800 <= value < 0xDC00 and self._take("\\u"):
            low = self._digits(4)
            if not 0xDC00 <= low < 0xE000:
                raise self._fail("half of a surrogate pair")
            return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00)
        if 0xD800 <= value < 0xE000:
            raise self._fail("half of a surrogate pair")
        return value

    def _digits(self, count: int) -> int:
        text = self._text[self._at : self._at + count]
        if len(text) < count or any(c not in "0123456789abcdefABCDEF" for c in text):
            raise self._fail(f"an escape without its {count} hexadecimal digits", "Complete it.")
        self._at += count
        return int(text, 16)

    def _class(self) -> str:
        negated = self._take("^")
        parts = []
        while not self._peek("]"):
            if self._at >= len(self._text):
                raise self._fail("'[' is not closed", "Close it, or write \\[ for the character.")
            low = self._class_item()
            ahead = self._text[self._at : self._at + 2]
            if ahead[:1] == "-" and ahead[1:] not in ("]", ""):
                self._at += 1
                high = self._class_item()
                if isinstance(low, str) or isinstance(high, str) or low > high:
                    raise self._fail(
                        "a range that is none", "Order its ends, or write \\- for the character."
                    )
                parts.append(f"{_quoted(low)}-{_quoted(high)}")
            else:
                parts.append(_part(low, wide=negated) if isinstance(low, str) else _quoted(low))
        self._at += 1
        if not parts:
            if negated:
                return ANY
            raise self._fail("an empty class")
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _class_item(self) -> int | str:
        if self._take("\\"):
            return self._escape(in_class=True)
        self._at += 1
        return ord(self._text[self._at - 1])


def _quoted(code: int) -> str:
    return f"\\x{{{code:x}}}"


def _part(letter: str, wide: bool) -> str:
    """A class escape as a part of a class; wide where it will be excluded."""
    if letter.islower():
        return (_WIDE if wide else _NARROW)[letter]
    inner = (_NARROW if wide else _WIDE)[letter.lower()]
    return f"[^{inner}]"
