# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The figures of tools/bench.py as a picture: bars with their range over the rounds, and the goals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

COLOURS = ("#4c78a8", "#f2a541", "#59a14f")
GOAL = "#d62728"
LEFT, WIDTH, ROW = 250, 600, 28  # pixels: of the labels, of the scale, of a bar
LONGEST = 4.5  # ratios; a longer bar is cut, its number says how long it is


@dataclass(frozen=True)
class Group:
    """A row's bars, one for each peer; the goal is the first one's."""

    label: str
    bars: list[dict[str, Any]]
    goal: float | None = None


def plot(figures: dict[str, Any]) -> str:
    """An SVG of the ratios to each peer; without a peer, of the shares of the machine's limits."""
    what = f"{figures['model']}, {figures['weights'].upper()}"
    rows = [row for row in figures["rows"] if row["ratios"] and row["name"] != "heap"]
    if rows:
        names = [figures["engines"][peer]["name"] for peer in rows[0]["ratios"]]
        groups = [Group(row["title"], list(row["ratios"].values()), row["goal"]) for row in rows]
        return draw(f"SuperSLM over {' and '.join(names)}: {what}", groups, names)
    limited = [row for row in figures["rows"] if row.get("limit")]
    groups = [Group(row["title"], [row["limit"]["share"]]) for row in limited]
    return draw(f"SuperSLM, share of the machine's limit: {what}", groups, [])


def draw(title: str, groups: list[Group], names: list[str]) -> str:
    """The picture's text."""
    highs = [bar["high"] for group in groups for bar in group.bars]
    scale = WIDTH / min(LONGEST, max([1.2, *highs, *(group.goal or 0 for group in groups)]))
    body, y = [], 44.0
    for group in groups:
        body.append(f'<text x="{LEFT - 10}" y="{y + 17:g}" text-anchor="end">{escape(group.label)}</text>')
        for number, bar in enumerate(group.bars):
            goal = (group.goal or 0) if number == 0 else 0
            body += draw_bar(y, bar, COLOURS[number % len(COLOURS)], scale, goal)
            y += ROW
        y += 6
    one = LEFT + scale
    body += [
        line(one, 40, y, "#222222", 1),
        f'<text x="{one:g}" y="{y + 16:g}" text-anchor="middle">1</text>',
    ]
    body += legend(y + 38, names, any(group.goal for group in groups))
    width, height = LEFT + WIDTH + 80, y + 54
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" '
            f'height="{height:g}" font-family="sans-serif" font-size="13" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height:g}" fill="#ffffff"/>',
            f'<text x="16" y="26" font-size="16" fill="#222222">{escape(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def draw_bar(y: float, bar: dict[str, Any], colour: str, scale: float, goal: float) -> list[str]:
    """A bar to the median, a thin line over the range, a mark at the goal if it is not 0, the number behind."""
    low, middle, high = (LEFT + min(WIDTH, scale * bar[name]) for name in ("low", "median", "high"))
    x = LEFT + scale * goal
    behind = max(high, middle, x if goal else 0) + 8
    mark = [line(x, y + 1, y + ROW - 5, GOAL, 3)] if goal else []
    return [
        f'<rect x="{LEFT}" y="{y + 2:g}" width="{middle - LEFT:.1f}" height="{ROW - 6}" fill="{colour}"/>',
        f'<path d="M{low:.1f} {y + 13:g}H{high:.1f}" stroke="#222222" stroke-width="1.5"/>',
        *mark,
        f'<text x="{behind:.1f}" y="{y + 17:g}">{bar["median"]:.2f}</text>',
    ]


def line(x: float, top: float, bottom: float, colour: str, width: int) -> str:
    """A line downwards."""
    return f'<path d="M{x:.1f} {top:g}V{bottom:g}" stroke="{colour}" stroke-width="{width}"/>'


def legend(y: float, names: list[str], goals: bool) -> list[str]:
    """What the colours and lines mean."""
    out, x = [], 16.0
    entries = [*zip(COLOURS, names, strict=False), ("#222222", "thin line: range over the rounds")]
    for colour, words in [*entries, *([(GOAL, "goal beside llama.cpp")] if goals else [])]:
        out.append(f'<rect x="{x:g}" y="{y - 11:g}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 18:g}" y="{y:g}">{escape(words)}</text>')
        x += 44 + 7 * len(words)
    return out
