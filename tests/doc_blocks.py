# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The code blocks of the documentation, and what kind of block each one is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import dev

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "plugin_host/**/*.md")
    for path in dev.ROOT.glob(pattern)
)
COMMANDS = (
    "superslm python python3 pip git cd . export cc cmake cp mcs mono node npm love godot3-server .ci/run ./host "
    "./minimal ./game build/job_system/frame_host"
).split()
EXPLANATION = re.compile(r"(?<=\S) {3,}(?=\S)")  # behind a command, in columns
KINDS = ("c", "cmake", "json", "python", "python fragment", "python runnable", "sh")
# Blocks that are no code to run: page -> (how the block begins, why).
NOTATION: dict[str, list[tuple[str, str]]] = {
    "docs/adapters.md": [
        ("smith.sslm: ", "what convert-adapter prints; tests/test_adapter_convert.py reads it")
    ],
    "docs/api.md": [("T = min(", "the split of work as a formula; cell_hook checks it")],
    "docs/numerics.md": [("", "the arithmetic in formulas; superslm.reference is the same in NumPy")],
    "docs/sslm_format.md": [
        ("offset 0 ", "the layout of a file"),
        ("q_ln2 = ", "constants as a formula; tests/test_artifact.py computes them exactly"),
    ],
    "docs/structured-output.md": [("shop: ", "what a test prints; its limits are that test's")],
    "examples/web/README.md": [("const library", "JavaScript; examples/web/main.js makes the same calls")],
    "plugin_host/godot/README.md": [("var cast", "GDScript for Godot 4; fake_host.cpp makes the same calls")],
}


@dataclass(frozen=True)
class Block:
    """A code block: its page, the line it begins at, its kind, and its text without indentation."""

    page: str
    line: int
    kind: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Every fenced and every indented block of a page. Raises ValueError for one of no known kind."""
    lines, i, blank = text.splitlines(), 0, True
    while i < len(lines):
        start = i
        fence = re.match(r"```(.*)$", lines[i])
        if fence:
            i = next(k for k in range(start + 1, len(lines)) if lines[k].startswith("```"))
            yield _block(page, start + 1, fence[1].strip(), "\n".join(lines[start + 1 : i]))
        elif blank and lines[i].startswith("    "):
            while i + 1 < len(lines) and (lines[i + 1].startswith("    ") or _goes_on(lines, i + 1)):
                i += 1
            body = "\n".join(line.removeprefix("    ") for line in lines[start : i + 1])
            yield _block(page, start + 1, None, body)
        blank = not lines[i].strip()
        i += 1


def _goes_on(lines: list[str], i: int) -> bool:
    """Whether an empty line lies inside an indented block."""
    return not lines[i].strip() and i + 1 < len(lines) and lines[i + 1].startswith("    ")


def _block(page: str, line: int, language: str | None, text: str) -> Block:
    if language is None and text.startswith("$ "):
        return Block(page, line, "figures", text)
    if language is None and _is_shell(text):
        return Block(page, line, "sh", text)
    if language is None and any(text.startswith(start) for start, _ in NOTATION.get(page, ())):
        return Block(page, line, "notation", text)
    if language in KINDS:
        return Block(page, line, str(language), text)
    raise ValueError(f"{page}:{line}: a block of no known kind ({language or 'indented'}): {text[:60]!r}")


def _is_shell(text: str) -> bool:
    try:
        return all(words[0] in COMMANDS for words in commands(text))
    except ValueError:  # a quote without its partner
        return False


def commands(text: str) -> list[list[str]]:
    """The words of every command in a shell block, without assignments, comments and explanations."""
    found = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = _without_substitutions(line)
        for part in re.split(r"\s&&\s", EXPLANATION.split(line)[0]):
            words = shlex.split(part, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                found.append(words)
    return found


def _without_substitutions(line: str) -> str:
    """The line with a word in the place of every $(...)."""
    while (start := line.find("$(")) >= 0:
        depth, end = 1, start + 2
        while depth:
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        line = line[:start] + "SUBSTITUTED" + line[end:]
    return line


def all_blocks() -> list[Block]:
    """The blocks of every page."""
    return [
        block
        for path in PAGES
        for block in blocks_of(str(path.relative_to(dev.ROOT)), path.read_text("utf-8"))
    ]
