# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""JSON text in the one form that is generated: compact, non-ASCII as it is, the shortest escapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any

import numpy as np

from .automaton import NONE, Dfa
from .patterns import ANY, Repeat, Set, automaton

_SHORT = {8: b"b", 9: b"t", 10: b"n", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}
# Characters of a string that nothing else restricts: control characters only as far as they have short escapes.
_CHARACTER = r"[^\x00-\x07\x0b\x0e-\x1f]"


def json_text(value: Any, lacking: Collection[int] = ()) -> bytes:
    """A value as compact JSON; a character with a byte of `lacking` is escaped.

    Raises ValueError for numbers that JSON cannot express.
    """
    if isinstance(value, str):
        return b'"' + b"".join(_character(c, lacking) for c in value) + b'"'
    if isinstance(value, dict):
        items = (json_text(k, lacking) + b":" + json_text(v, lacking) for k, v in value.items())
        return b"{" + b",".join(items) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(json_text(v, lacking) for v in value) + b"]"
    return json.dumps(value, allow_nan=False).encode()


def _character(c: str, lacking: Collection[int]) -> bytes:
    code = ord(c)
    if code in _SHORT:
        return b"\\" + _SHORT[code]
    if code < 0x20:
        return b"\\u%04x" % code
    if not 0xD800 <= code < 0xE000 and not any(byte in lacking for byte in c.encode()):
        return c.encode()
    units = c.encode("utf-16-be", "surrogatepass")
    return b"".join(b"\\u" + units[i : i + 2].hex().encode() for i in range(0, len(units), 2))


@lru_cache(maxsize=256)
def plain(least: int, most: int | None) -> Dfa:
    """Strings of least..most characters, unquoted and unescaped; a character is one code point."""
    return automaton(Repeat(Set(_CHARACTER), least, most))


@lru_cache(maxsize=256)
def of_length(least: int, most: int | None) -> Dfa:
    """As `plain`, with all control characters."""
    return automaton(Repeat(Set(ANY), least, most))


def escaped(strings: Dfa) -> Dfa:
    """The same strings as they stand between the quotes of JSON."""
    rows = strings.next[:, strings.classes].astype(np.int32)
    table = [row for row in np.where(_needs_escape(), NONE, rows)]
    accepting = list(strings.accepting)

    def state() -> int:
        table.append(np.full(256, NONE, np.int32))
        accepting.append(False)
        return len(table) - 1

    for source in range(len(rows)):
        targets = {
            b: int(rows[source, b]) for b in np.flatnonzero(_needs_escape()) if rows[source, b] != NONE
        }
        if targets:
            _escapes(table, state, source, targets)
    return Dfa(np.arange(256), np.array(table, np.int32), np.array(accepting)).minimal()


def _needs_escape() -> np.ndarray:
    out = np.arange(256) < 0x20
    out[[34, 92]] = True
    return out


def _escapes(table: list[np.ndarray], state: Callable[[], int], source: int, targets: dict[int, int]) -> None:
    """A backslash and what may follow it, from one state of the automaton."""
    backslash = table[source][92] = state()
    long = {b: t for b, t in targets.items() if b not in _SHORT}
    for byte, target in targets.items():
        if byte in _SHORT:
            table[backslash][_SHORT[byte][0]] = target
    if not long:
        return
    zeros = [state() for _ in range(3)]  # behind u, u0 and u00
    for here, byte, there in zip((backslash, *zeros), b"u00", zeros, strict=False):
        table[here][byte] = there
    for high in {byte >> 4 for byte in long}:
        digit = table[zeros[2]][ord("0") + high] = state()
        for byte, target in long.items():
            if byte >> 4 == high:
                table[digit][ord(f"{byte & 15:x}")] = target
