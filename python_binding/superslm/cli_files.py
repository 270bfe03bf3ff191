# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Files that commands read and write: what cannot work is refused before the long work, output appears when whole."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from superslm.cli_output import CommandError


def check_output(output: Path, *inputs: Path | None) -> None:
    """Refuses a place where no output can appear, or one that would overwrite an input. Raises CommandError."""
    if output.is_dir():
        raise CommandError(f"{output} is a directory", f"Give a file name, such as {output / 'model.sslm'}.")
    if output.exists() and not output.is_file():
        raise CommandError(f"{output} is not a regular file", "Choose another name for the output.")
    if not output.parent.is_dir():
        raise CommandError(f"the directory {output.parent} does not exist", "Create it first.")
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise CommandError(f"the directory {output.parent} cannot be written", "Choose another place.")
    for path in inputs:
        if path is not None and output.exists() and path.exists() and output.samefile(path):
            raise CommandError(f"{output} is an input of this command", "Choose another name for the output.")


def read_bytes(path: Path, remedy: str) -> bytes:
    """A file's content; `remedy` says what the option expects. Raises CommandError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", remedy) from None


def read_text(path: Path | None, remedy: str) -> str | None:
    """A file's text, or None without a file; `remedy` says what the option expects. Raises CommandError."""
    if path is None:
        return None
    try:
        return read_bytes(path, remedy).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: byte {error.start} is not UTF-8", "Save the text as UTF-8.") from None


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """A path beside `output` whose file takes its name on success; nothing is left behind on failure."""
    folder = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
    try:  # before the folder exists: an interrupt may come at any point
        folder.mkdir()
        yield folder / output.name
        os.replace(folder / output.name, output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cleaning_up_when_ended() -> Iterator[None]:
    """Lets a request to end (SIGTERM, or SIGHUP of a closed terminal) unwind the stack, so that temporary files go.

    The process then exits with 128 + the signal's number, as shells report it. A signal that is ignored, as under
    nohup, stays ignored.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one does not interrupt the tidying
        sys.exit(128 + number)

    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
