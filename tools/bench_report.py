# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The figures of tools/bench.py as text, as a table of docs/performance.md, and as a picture."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

import dev
from doc_figures import replaced

DOCS = dev.ROOT / "docs/performance.md"
OURS = "superslm"
FORMATS = {"tokens/s": "{:,.1f}", "ms": "{:,.2f}", "MiB": "{:,.0f}"}

Row = dict[str, Any]


def amount(value: float, unit: str) -> str:
    """A figure in the digits that it deserves."""
    return FORMATS[unit].format(value)


def spread(series: Row, form: str = "{:.2f}") -> str:
    """A median with its range, where there is one."""
    middle = form.format(series["median"])
    if len(series["values"]) == 1:
        return middle
    return f"{middle} ({form.format(series['low'])}-{form.format(series['high'])})"


def limit_of(row: Row) -> str:
    """The share of the machine's limit, and the limit."""
    limit = row.get("limit")
    if not limit:
        return ""
    rate = limit["rate"]["median"]
    return f"{limit['share']['median']:.0%} of {rate:,.{0 if rate >= 100 else 1}f} {limit['unit']}"


def line(row: Row) -> str:
    """A row as a line of text."""
    unit = row["unit"]
    parts = [f"{row['title']:36}"]
    for name, figures in row["engines"].items():
        parts.append(f"{name} {amount(figures['median'], unit)} {unit}")
    for name, ratio in row["ratios"].items():
        goal = f", goal {row['goal']}" if row["goal"] and name == "llama.cpp" else ""
        parts.append(f"x {name} {spread(ratio)}{goal}")
    if limit_of(row):
        parts.append(limit_of(row))
    if "beyond_file" in row:
        parts.append(f"file + {row['beyond_file']:.0f} MiB")
    return "  ".join(parts)


def headline(figures: Row) -> str:
    """What was measured with, in one paragraph."""
    engines = figures["engines"]
    parts = [f"SuperSLM with {engines[OURS]['tier']} kernels ({engines[OURS]['compiler']})"]
    for name, about in engines.items():
        if name != OURS:
            parts.append(f"{about['name']} ({about['version']}, {about['compiler']})")
    return (
        f"{figures['model']} in {figures['weights'].upper()}: {', '.join(parts)}, on {figures['machine']}, commit "
        f"{figures['commit']}, {figures['date']}; {figures['rounds']} rounds, {figures['steps']} tokens a decode "
        "sample."
    )


def text(figures: Row) -> str:
    """All figures for a terminal."""
    lines = [headline(figures), ""]
    for row in figures["rows"]:
        lines.append(line(row))
        for name, of in row["engines"].items():
            if "cpu" in of:
                variant = f", {of['variant']}" if of["variant"] else ""
                lines.append(
                    f"    {name}: {spread(of, FORMATS[row['unit']])} {row['unit']}, a sample took {of['wall']:.3f} s, "
                    f"{of['cpu']:.3f} s of CPU{variant}"
                )
        lines.append(f"    load {row['load']:.1f}, steal {row['steal']:.0%}")
    return "\n".join(lines)


# ---- The documentation ----


def markdown(figures: Row) -> str:
    """All figures as a table."""
    engines = list(figures["engines"])
    peers = engines[1:]
    head = ["row", *(figures["engines"][name]["name"] for name in engines)]
    for peer in peers:
        head += [f"ratio to {figures['engines'][peer]['name']}"]
    head += (["goal"] if "llama.cpp" in peers else []) + ["of the limit", "CPU/wall", "load, steal"]
    lines = [
        f"{headline(figures)} The command:",
        "",
        f"    {figures['command']}",
        "",
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (len(head) - 1),
    ]
    for row in figures["rows"]:
        lines.append("| " + " | ".join(cells(row, engines, peers)) + " |")
    return "\n".join(lines)


def cells(row: Row, engines: list[str], peers: list[str]) -> list[str]:
    """A row of the table."""
    unit, of = row["unit"], row["engines"]
    out = [f"{row['title']}, {unit}"]
    out += [amount(of[name]["median"], unit) if name in of else "-" for name in engines]
    for peer in peers:
        out.append(spread(row["ratios"][peer]) if peer in row["ratios"] else "-")
    if "llama.cpp" in peers:
        out.append(f"{row['goal']}" if row["goal"] else "-")
    out.append(limit_of(row) or (f"file + {row['beyond_file']:.0f} MiB" if "beyond_file" in row else "-"))
    shares = [f"{of[name]['cpu'] / of[name]['wall']:.2f}" for name in engines if "cpu" in of.get(name, {})]
    out.append(" / ".join(shares) or "-")
    out.append(f"{row['load']:.1f}, {row['steal']:.0%}")
    return out


def write_docs(figures: Row) -> None:
    """Replaces the model's section of docs/performance.md. Raises DevError when it has none."""
    name = f"{figures['model']} {figures['weights']}"
    page = DOCS.read_text(encoding="utf-8")
    try:
        new = replaced(page, name, f"\n{markdown(figures)}\n\n")
    except KeyError:
        raise dev.DevError(f"{DOCS.name} has no section <!-- figures {name}: begin -->") from None
    part = DOCS.with_name(f".{DOCS.name}.part")
    part.write_text(new, encoding="utf-8")
    part.replace(DOCS)


# ---- The picture ----

COLOURS = ("#4c78a8", "#f2a541", "#59a14f")
LEFT, SCALE_WIDTH, ROW_HEIGHT = 250, 600, 30  # pixels


def plot(figures: Row) -> str:
    """The ratios to each peer as bars with their range, the goal as a mark; without a peer the shares of the limits."""
    rows = [row for row in figures["rows"] if row["ratios"] and row["name"] != "heap"]
    if rows:
        bars = [(row["title"], list(row["ratios"].values()), row["goal"]) for row in rows]
        names = [figures["engines"][peer]["name"] for peer in rows[0]["ratios"]]
        title = f"SuperSLM over {' and '.join(names)}: {figures['model']}, {figures['weights'].upper()}"
    else:
        with_limit = [row for row in figures["rows"] if row.get("limit")]
        bars = [(row["title"], [row["limit"]["share"]], None) for row in with_limit]
        title = f"SuperSLM, share of the machine's limit: {figures['model']}, {figures['weights'].upper()}"
        names = []
    top = max([1.2, *(one["high"] for _, series, _ in bars for one in series), *(g or 0 for *_, g in bars)])
    scale = SCALE_WIDTH / (top * 1.05)
    height = 90 + ROW_HEIGHT * sum(max(1, len(series)) for _, series, _ in bars)
    width = LEFT + SCALE_WIDTH + 80
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="16" fill="#222222">{escape(title)}</text>',
    ]
    y = 46.0
    for label, series, goal in bars:
        out.append(f'<text x="{LEFT - 10}" y="{y + 17:g}" text-anchor="end">{escape(label)}</text>')
        for number, one in enumerate(series):
            out += _bar(y, one, COLOURS[number % len(COLOURS)], scale, goal or 0)
            y += ROW_HEIGHT
        if goal:
            out.append(_mark(y - ROW_HEIGHT * len(series), goal, scale))
    x = LEFT + scale
    out.append(
        f'<line x1="{x:g}" y1="40" x2="{x:g}" y2="{y + 4:g}" stroke="#222222" stroke-dasharray="4 3"/>'
        f'<text x="{x:g}" y="{y + 22:g}" text-anchor="middle">1</text>'
    )
    legend = [*names, "thin line: range over the rounds"] + ["red: goal"] * any(g for *_, g in bars)
    out.append(f'<text x="16" y="{y + 38:g}" font-size="12">{escape("; ".join(legend))}</text>')
    return "\n".join([*out, "</svg>", ""])


def _bar(y: float, series: Row, colour: str, scale: float, goal: float) -> list[str]:
    """A bar to the median, a line over the range, the number behind both and the goal."""
    behind = LEFT + scale * max(series["high"], goal) + 6
    low, middle, high = (LEFT + scale * series[name] for name in ("low", "median", "high"))
    return [
        f'<rect x="{LEFT}" y="{y + 3:g}" width="{middle - LEFT:.1f}" height="{ROW_HEIGHT - 8}" fill="{colour}"/>',
        f'<line x1="{low:.1f}" y1="{y + 14:g}" x2="{high:.1f}" y2="{y + 14:g}" stroke="#222222" stroke-width="1.5"/>',
        f'<text x="{behind:.1f}" y="{y + 18:g}">{series["median"]:.2f}</text>',
    ]


def _mark(y: float, goal: float, scale: float) -> str:
    x = LEFT + scale * goal
    return (
        f'<line x1="{x:.1f}" y1="{y + 1:g}" x2="{x:.1f}" y2="{y + ROW_HEIGHT - 3:g}" stroke="#d62728" '
        'stroke-width="3"/>'
    )
