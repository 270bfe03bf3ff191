# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Pictures of a pool: a cell for every page, by the holder it belongs to; as text and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = {"world": "#4c78a8", "persona": "#f2a541", "sequence": "#59a14f"}
LETTERS = {"world": "W", "persona": "P", "sequence": "s"}
COLUMNS = 64  # cells in a row
MOST_ROWS = 64  # of a picture; beyond it a cell stands for several pages


@dataclass(frozen=True)
class Group:
    """Holders of one kind: their name in LETTERS, how many there are, and the pages of each."""

    name: str
    holders: int
    pages: int


def pages_per_cell(groups: Sequence[Group]) -> int:
    """1, or what a cell stands for so that the map keeps its size."""
    total = sum(g.holders * g.pages for g in groups)
    return -(-total // (COLUMNS * MOST_ROWS)) or 1


def _cells(groups: Sequence[Group]) -> list[tuple[str, int]]:
    """(name, number of the holder) of every cell, in order."""
    each = pages_per_cell(groups)
    pages = [(g.name, h) for g in groups for h in range(g.holders) for _ in range(g.pages)]
    return pages[::each]


def _legend(groups: Sequence[Group]) -> list[tuple[str, str]]:
    legend = []
    for g in groups:
        holders = f"{g.holders} {g.name}{'' if g.holders == 1 else 's'}"
        legend.append((g.name, f"{holders}, {g.pages} page{'' if g.pages == 1 else 's'} each"))
    return legend


def page_map_text(groups: Sequence[Group]) -> str:
    """The map in letters; upper and lower case tell neighbouring holders apart."""
    letters = [
        LETTERS[name] if number % 2 == 0 else LETTERS[name].swapcase() for name, number in _cells(groups)
    ]
    lines = ["".join(letters[i : i + COLUMNS]) for i in range(0, len(letters), COLUMNS)]
    each = pages_per_cell(groups)
    if each > 1:
        lines.append(f"a letter is {each} pages")
    lines += [f"{LETTERS[name]}  {words}" for name, words in _legend(groups)]
    return "\n".join(lines)


def page_map_svg(groups: Sequence[Group], title: str) -> str:
    """The map as an SVG document; neighbouring holders differ in shade."""
    cell, gap, left, top = 12, 2, 16, 44
    cells, legend = _cells(groups), _legend(groups)
    rows = -(-len(cells) // COLUMNS)
    width = left * 2 + COLUMNS * cell
    height = top + rows * cell + 24 + 22 * len(legend)
    each = pages_per_cell(groups)
    heading = title + (f", a cell is {each} pages" if each > 1 else "")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(heading)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="28" font-size="16" fill="#222222">{escape(heading)}</text>',
    ]
    for i, (name, number) in enumerate(cells):
        x, y = left + i % COLUMNS * cell, top + i // COLUMNS * cell
        opacity = "" if number % 2 == 0 else ' fill-opacity="0.6"'
        parts.append(
            f'<rect x="{x}" y="{y}" width="{cell - gap}" height="{cell - gap}" fill="{COLOURS[name]}"{opacity}/>'
        )
    y = top + rows * cell + 18
    for name, words in legend:
        parts.append(f'<rect x="{left}" y="{y}" width="14" height="14" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{left + 22}" y="{y + 12}" fill="#222222">{escape(words)}</text>')
        y += 22
    return "\n".join([*parts, "</svg>", ""])
