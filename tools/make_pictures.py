#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Draws the pictures in docs/pictures/.

    python tools/make_pictures.py memory              the two diagrams of docs/memory.md
    python tools/make_pictures.py session MODEL.sslm  a real session of the command line in a terminal

The session runs `superslm` on a pseudo-terminal, types the lines below, and draws what came back, unchanged.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
WIDTH = 96  # columns of the terminal

# What is typed: a command, and the lines it is given when it asks.
SESSION: tuple[tuple[str, tuple[str, ...]], ...] = (
    ('superslm run model.sslm "Write one sentence about a dragon who guards a library." --chat', ()),
    (
        'superslm chat model.sslm --system "You are Mara, the innkeeper of the Salty Herring. '
        'Speak in one short sentence."',
        ("Good evening! Who are you?", "Do you have a room for the night?", "/quit"),
    ),
    ("superslm verify model.sslm", ()),
)


# ---- The session ----


def read_until_idle(terminal: int, process: subprocess.Popen[bytes], wanted: bytes | None) -> bytes:
    """Output of the program up to `wanted` at its end, or until it ends."""
    out = b""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if ready:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the program has gone
                return out
            if not part:
                return out
            out += part
        elif wanted is not None and out.endswith(wanted):
            return out
        elif process.poll() is not None:
            return out
    raise TimeoutError(out.decode(errors="replace"))


def run_in_terminal(command: str, lines: tuple[str, ...], folder: Path) -> str:
    """What a terminal of WIDTH columns shows of one command."""
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    words = [sys.executable, "-m", "superslm.cli", *shlex.split(command)[1:]]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    environment["INPUTRC"] = os.devnull
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "python_binding")])
    )
    process = subprocess.Popen(
        words, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment, close_fds=True
    )
    os.close(slave)
    shown = b""
    for line in lines:
        shown += read_until_idle(master, process, b"> ")
        os.write(master, line.encode() + b"\n")
    shown += read_until_idle(master, process, None)
    os.close(master)
    if process.wait() != 0:
        raise SystemExit(
            f"error: {command} ended with {process.returncode}\n{shown.decode(errors='replace')}"
        )
    text = shown.decode().replace("\r\n", "\n")
    text = re.sub(r"\x1b\[\?2004[hl]\r?", "", text)  # the line editor's bracketed paste
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))  # progress lines, overwritten


def draw_session(model: Path) -> None:
    """Runs SESSION and draws docs/pictures/session.svg."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.sslm").symlink_to(model.resolve())
        for index, (command, lines) in enumerate(SESSION):
            if index:
                console.print()
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(run_in_terminal(command, lines, folder).rstrip("\n")))
    svg = console.export_svg(title="superslm")
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.S)  # no fonts from elsewhere
    svg = svg.replace("Fira Code, monospace", "monospace").replace(
        "font-family: arial", "font-family: sans-serif"
    )
    write("session.svg", "\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


# ---- The diagrams ----

COLOURS = {"world": "#4c78a8", "persona": "#f2a541", "own": "#59a14f", "reserve": "#ffffff", "ink": "#222222"}


class Drawing:
    """An SVG of rectangles and text."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="14" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def box(self, x: float, y: float, w: float, h: float, fill: str, *, shared: bool = False) -> None:
        """A page; a shared one is pale and dashed: it is somebody else's."""
        style = ' stroke-dasharray="3 2" fill-opacity="0.35"' if shared else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{COLOURS[fill]}" '
            f'stroke="#222222" stroke-width="1"{style}/>'
        )

    def text(self, x: float, y: float, words: str, *, size: int = 14, anchor: str = "start") -> None:
        """A line of text; y is its baseline."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="#222222">'
            f"{escape(words)}</text>"
        )

    def done(self) -> str:
        """The file's text."""
        return "\n".join([*self.parts, "</svg>", ""])


def draw_sharing() -> None:
    """Page tables of a world, a persona and a sequence: 64 positions a page."""
    d = Drawing(
        980, 330, "Pages of a world, a persona that continues it, and a sequence that adopts the persona"
    )
    cell, left, height = 26, 190, 34

    def row(y: int, name: str, numbers: str, shared: list[str], own: list[str]) -> None:
        d.text(16, y + 15, name, size=15)
        d.text(16, y + 33, numbers, size=12)
        for i, kind in enumerate(shared):
            d.box(left + i * cell, y, cell - 3, height, kind, shared=True)
        for i, kind in enumerate(own, len(shared)):
            d.box(left + i * cell, y, cell - 3, height, kind)

    d.text(left, 30, "position 0", size=12)
    d.text(left + 15 * cell, 30, "960", size=12)
    d.text(left + 18 * cell, 30, "1,152", size=12)
    d.text(left + 27 * cell, 30, "1,728", size=12, anchor="end")
    row(44, "world", "1,000 positions", [], ["world"] * 16)
    row(104, "persona", "+ 200, budget 200", ["world"] * 15, ["persona"] * 4)
    row(164, "sequence", "+ 512, budget 512", ["world"] * 15 + ["persona"] * 3, ["own"] * 9)
    y = 236
    for x, kind, shared, words in (
        (16, "world", False, "the world's own page"),
        (230, "persona", False, "the persona's own page"),
        (450, "own", False, "the sequence's own page, reserved when it is created"),
        (16, "world", True, "shared: mapped, not copied"),
    ):
        if shared:
            y += 32
        d.box(x, y, 23, 22, kind, shared=shared)
        d.text(x + 32, y + 16, words, size=13)
    d.text(450, y + 16, "The last page of a prefix is partly filled: whoever continues", size=13)
    d.text(450, y + 34, "copies it into the first page of its own.", size=13)
    write("memory-sharing.svg", d.done())


def draw_cohort() -> None:
    """The worked cohort, to scale: pages of 384 KiB, blocks of 24 MiB."""
    d = Drawing(
        980, 250, "Memory of fifty sequences over ten personas and one world, shared and in whole blocks"
    )
    left, scale = 190, 760 / 1440  # pixels per MiB
    page = 384 / 1024

    d.text(16, 52, "pages, shared", size=15)
    d.text(16, 70, "505 x 384 KiB", size=12)
    x = float(left)
    for count, kind in ((15, "world"), (40, "persona"), (450, "own")):
        d.box(x, 34, count * page * scale, 44, kind)
        x += count * page * scale
    d.text(x + 10, 61, "189.4 MiB", size=15)

    d.text(16, 122, "whole blocks", size=15)
    d.text(16, 140, "60 x 24 MiB", size=12)
    block = 24 * scale
    for i in range(60):
        d.box(left + i * block, 104, block - 1.5, 44, "persona" if i < 10 else "own")
    d.text(left + 60 * block, 168, "1,440 MiB", size=15, anchor="end")

    for i, (kind, words) in enumerate(
        (
            ("world", "world: 15 pages that personas still share"),
            ("persona", "10 personas: 4 own pages each"),
            ("own", "50 sequences: 9 own pages each"),
        )
    ):
        d.box(16 + i * 320, 200, 23, 22, kind)
        d.text(48 + i * 320, 216, words, size=13)
    write("memory-cohort.svg", d.done())


def write(name: str, text: str) -> None:
    """Writes a picture atomically."""
    PICTURES.mkdir(exist_ok=True)
    part = PICTURES / f".{name}.part"
    part.write_text(text, encoding="utf-8")
    part.replace(PICTURES / name)
    print(PICTURES / name)


def main() -> None:
    """Draws what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("memory", help="the diagrams of docs/memory.md")
    session = commands.add_parser("session", help="a session in a terminal")
    session.add_argument("model", type=Path, metavar="MODEL.sslm")
    arguments = parser.parse_args()
    if arguments.command == "memory":
        draw_sharing()
        draw_cohort()
    elif shutil.which("stty") is None:
        raise SystemExit("error: a pseudo-terminal is needed, as Linux and macOS have it")
    else:
        draw_session(arguments.model)


if __name__ == "__main__":
    main()
