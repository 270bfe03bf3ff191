#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Runs a command that prints figures and writes what it printed into a page of the documentation.

    python tools/doc_figures.py docs/performance.md smollm2 -- python tools/bench.py model.sslm

The page has a section of that name between two comments; everything between them is replaced by the commit, the
processor, the command and its output. So a figure in the documentation always names the command that prints it.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def processor() -> str:
    """The processor's name and the number of its threads that may be used."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = re.search(r"^model name\s*:\s*(.*)$", info.read_text(), re.M)
        name = found.group(1) if found else name
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {count} hardware threads"


def commit() -> str:
    """The commit of the tree, marked when files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def replaced(page: str, name: str, body: str) -> str:
    """The page with the section's text replaced. Raises KeyError when it has no such section."""
    begin, end = f"<!-- figures {name}: begin -->", f"<!-- figures {name}: end -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise KeyError(name)
    return f"{head}{begin}\n{body.strip()}\n{end}{tail}"


def section(command: list[str], output: str) -> str:
    """The text of a section."""
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return (
        f"Commit {commit()} on {processor()}:\n\n    $ {shlex.join(command)}\n"
        + "\n".join(f"    {line}".rstrip() for line in lines)
        + "\n"
    )


def main() -> int:
    """Runs the command and writes the page; returns the command's exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("name", help="of the section")
    parser.add_argument("command", nargs="+", help="after --")
    arguments = parser.parse_args()
    text = arguments.page.read_text(encoding="utf-8")
    try:
        replaced(text, arguments.name, "")
    except KeyError:
        parser.error(f"{arguments.page} has no section <!-- figures {arguments.name}: begin -->")
    done = subprocess.run(arguments.command, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(done.stdout)
    if done.returncode == 0:
        part = arguments.page.with_suffix(".part")
        shown = ["python" if word == sys.executable else word for word in arguments.command]
        part.write_text(replaced(text, arguments.name, section(shown, done.stdout)), encoding="utf-8")
        part.replace(arguments.page)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
