# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Running foreign programs: what the host tests share."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import dev
import pytest
from limits import HANG

HOSTS = dev.ROOT / "plugin_host"
PYTHON_ENV = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def need(program: str, package: str) -> str:
    """Path of a program. Skips where it is missing, and fails where nothing may be missing."""
    found = shutil.which(program)
    if found is None:
        why = f"{program} was not found: apt install {package}"
        pytest.fail(why, pytrace=False) if dev.STRICT else pytest.skip(why)
    return str(found)


def run(
    *command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None, limit: int = HANG
) -> str:
    """Runs a command to its end and returns both its outputs. Fails the test when it fails or takes too long."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{shlex.join(words)}: not ended after {limit} s\n{_end(error.stdout)}", pytrace=False)
    if done.returncode != 0:
        pytest.fail(f"{shlex.join(words)}: exit {done.returncode}\n{_end(done.stdout)}", pytrace=False)
    return done.stdout.decode(errors="replace")


def _end(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")[-4000:]


@dataclass(frozen=True)
class Library:
    """A build of the library, and what a foreign program needs to load it."""

    path: Path
    env: dict[str, str]

    @property
    def folder(self) -> Path:
        """Where it lies under its plain name too."""
        return self.path.parent


def saved_bytes(output: str) -> int:
    """How much a host says it saved in mid-sentence."""
    (line,) = [line for line in output.splitlines() if "mid-sentence" in line]
    return max(int(word) for word in line.replace(",", " ").split() if word.isdigit())
