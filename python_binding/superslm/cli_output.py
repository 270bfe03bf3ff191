# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What the commands print: panels, tables and progress with `rich`, plain text where it is not installed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[float, str], None]


class CommandError(Exception):
    """A command cannot do what was asked; `remedy` says what to do about it."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


# Characters that control a terminal or cannot be written; names in a file, and what a model says, may hold
# them.
_CONTROLS = {
    code: 0xFFFD for code in (*range(32), *range(127, 160), *range(0xD800, 0xE000)) if chr(code) not in "\n\t"
}


def printable(text: str) -> str:
    """The text with U+FFFD in place of characters that control a terminal, line ends and tabs excepted."""
    return text.translate(_CONTROLS)


@contextmanager
def converter_packages() -> Iterator[None]:
    """Says how to install what the converter imports; the readers of a format are imported when it is met."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the converter needs the package {error.name}",
            "Install it with: pip install 'superslm[convert]'",
        ) from None


def _rich_console(stream: Any) -> Any:
    """A rich console on the stream, or None."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream, highlight=False, soft_wrap=not stream.isatty())


def shows_help(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What a command does that was not told which of its commands to run; exit code 2, wrong usage."""

    def function(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return 2

    return function


def show_error(what: str, remedy: str = "") -> None:
    """An error and its remedy, on standard error."""
    what, remedy = printable(what), printable(remedy)
    console = _rich_console(sys.stderr) if sys.stderr.isatty() else None
    if console is None:
        print(f"error: {what}" + (f"\n{remedy}" if remedy else ""), file=sys.stderr)
        return
    from rich.panel import Panel
    from rich.text import Text

    body = Text(what)
    if remedy:
        body.append(f"\n\n{remedy}", style="bold")
    console.print(Panel(body, title="SuperSLM", border_style="red", title_align="left", expand=False))


def note(text: str) -> None:
    """A remark, on standard error."""
    text = printable(text)
    console = _rich_console(sys.stderr) if sys.stderr.isatty() else None
    if console is None:
        print(f"note: {text}", file=sys.stderr)
    else:
        from rich.text import Text

        console.print(Text.assemble(("note: ", "yellow"), text))


def show_table(rows: Iterable[tuple[str, str]], title: str = "") -> None:
    """Names and values, on standard output."""
    rows = [(name, printable(value)) for name, value in rows]
    console = _rich_console(sys.stdout) if sys.stdout.isatty() else None
    if console is None:
        width = max((len(name) for name, _ in rows), default=0)
        if title:
            print(title)
        for name, value in rows:
            first, *others = value.splitlines() or [""]
            print(f"{name:{width}}  {first}".rstrip())
            for line in others:
                print(" " * (width + 2) + line)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, show_header=False, title_justify="left", box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    console.print(table)


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar with the time that is left, on standard error; where that is no terminal, some lines of text."""
    if sys.stderr.isatty() and _rich_console(sys.stderr) is not None:
        from rich import progress as bars

        columns = (
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TextColumn("left"),
            bars.TimeRemainingColumn(),
        )
        console = _rich_console(sys.stderr)
        with bars.Progress(*columns, console=console, speed_estimate_period=60) as bar:
            task = bar.add_task(title, total=1.0)
            yield lambda fraction, text: bar.update(task, completed=fraction, description=text)
        return
    yield _Lines(title).report


class _Lines:
    """Progress as lines of text, one per tenth of the work but none within five seconds of another."""

    def __init__(self, title: str) -> None:
        self.start = self.printed = time.monotonic()
        self.next = 0.1
        print(title, file=sys.stderr, flush=True)

    def report(self, fraction: float, text: str) -> None:
        now = time.monotonic()
        if fraction < self.next or now - self.printed < 5:
            return
        self.printed, self.next = now, int(fraction * 10) / 10 + 0.1
        left = (now - self.start) * (1 - fraction) / fraction
        print(f"{fraction:4.0%}  {text}, about {seconds(left)} left", file=sys.stderr, flush=True)


def seconds(value: float) -> str:
    """A duration in seconds, or in minutes."""
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"


def bytes_text(size: int) -> str:
    """A size in binary units."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError
