# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Writes python_binding/superslm/convert/unicode_data.py from the behaviour of Hugging Face `tokenizers`.

A tokenizer must class code points as the one the model was trained with, and that library's three sources
of Unicode data (its regex engine, Rust's standard library, its normaliser) are of three versions. So each
class is asked for, code point by code point, and kept as ranges: conversion then does not depend on the
Unicode version of the Python at hand.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers

TARGET = Path(__file__).parent.parent / "python_binding/superslm/convert/unicode_data.py"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)

HEADER = '''\
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Code point classes as Hugging Face `tokenizers` has them; written by tools/make_unicode_data.py.

Every constant is a list of inclusive ranges in hexadecimal.
"""
'''


def matched(pattern: str) -> set[int]:
    """The code points that a class of the regex engine contains."""
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    return {ord(c) for part, _ in split.pre_tokenize_str("".join(map(chr, CODE_POINTS))) for c in part}


def isolated_digits() -> set[int]:
    """The code points that the Digits pre-tokenizer splits off."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    # A neighbour of another class on both sides: what is no digit stays joined to it.
    text = "".join(f"a{chr(c)}a" for c in CODE_POINTS)
    return {ord(part) for part, _ in digits.pre_tokenize_str(text) if len(part) == 1 and part != "a"}


def decomposed() -> set[int]:
    """The code points that canonical decomposition changes, Hangul syllables aside."""
    nfd = normalizers.NFD()
    return {c for c in CODE_POINTS if c not in HANGUL_SYLLABLES and nfd.normalize_str(chr(c)) != chr(c)}


def marks() -> set[int]:
    """The code points with a combining class other than 0: they change places with other marks."""
    nfd = normalizers.NFD()

    def moves(c: int) -> bool:
        after_high, before_low = f"a\u0345{chr(c)}", f"a{chr(c)}\u0316"
        return nfd.normalize_str(after_high) != after_high or nfd.normalize_str(before_low) != before_low

    changed = decomposed()
    return {c for c in CODE_POINTS if c not in changed and moves(c)} - set(HANGUL_SYLLABLES)


def ranges(points: Iterable[int]) -> str:
    """Inclusive ranges as text: `41-5a 61-7a aa`."""
    runs: list[list[int]] = []
    for c in sorted(points):
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in runs)


def constants() -> dict[str, tuple[str, str]]:
    """Name -> (comment, ranges)."""
    return {
        "LETTERS": (r"\p{L}", ranges(matched(r"\p{L}"))),
        "NUMBERS": (r"\p{N}", ranges(matched(r"\p{N}"))),
        "SPACES": (r"\s", ranges(matched(r"\s"))),
        "ISOLATED_DIGITS": ("what the Digits pre-tokenizer splits off", ranges(isolated_digits())),
        "DECOMPOSED": ("changed by canonical decomposition, Hangul syllables aside", ranges(decomposed())),
        "MARKS": ("combining class other than 0", ranges(marks())),
    }


def module_text() -> str:
    """The whole generated module."""
    parts = [HEADER]
    for name, (comment, text) in constants().items():
        lines = [f'"{line} "' for line in textwrap.wrap(text, 102, break_on_hyphens=False)]
        value = lines[0] if len(lines) == 1 else "(\n    " + "\n    ".join(lines) + "\n)"
        parts.append(f"# {comment}\n{name} = {value}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(module_text(), encoding="ascii")
