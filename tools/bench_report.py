# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The figures of tools/bench.py as text and as a table of docs/performance.md."""

from __future__ import annotations

import textwrap
from typing import Any

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
        *textwrap.wrap(f"{headline(figures)} The command:", 118),
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
        out.append(verdict(row))
    out.append(limit_of(row) or (f"file + {row['beyond_file']:.0f} MiB" if "beyond_file" in row else "-"))
    shares = [f"{of[name]['cpu'] / of[name]['wall']:.2f}" for name in engines if "cpu" in of.get(name, {})]
    out.append(" / ".join(shares) or "-")
    out.append(f"{row['load']:.1f}, {row['steal']:.0%}")
    return out


def verdict(row: Row) -> str:
    """The goal, and whether the ratio to llama.cpp reaches it."""
    if not row["goal"]:
        return "-"
    reached = row["ratios"]["llama.cpp"]["median"] >= row["goal"]
    return f"{row['goal']}: {'yes' if reached else 'no'}"


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
