#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Plants one bug at a time in a copy of the library and demands that a named test fails.

    python tools/mutants.py               all of them: builds, tests, prints a table; exit code 1 if one survives
    python tools/mutants.py --list        what is planted where, and which test must notice
    python tools/mutants.py --only NAME   those whose name contains NAME; may be repeated

The bugs are in planted/. The copy lies in build/mutants, so that a second run rebuilds little. A test
that already fails without the bug, a line that no longer stands exactly once in its file, or a bug that does not
compile is an error and not a kill.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dev
from planted import MUTANTS, Mutant

SECONDS = 900  # for one test; one that hangs has noticed the bug
# Speed of the library does not matter here, that of the compiler does.
OPTIONS = ("-DSUPERSLM_TEST_SEAMS=ON", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")
ROOMS = {"kv": ("kv",), "blob": ("blob", "kv", "artifact/sha256*.cpp")}


class MutantError(Exception):
    """A planted bug or its test cannot be judged; the message says why."""


# ---- Planting ----


def find_line(mutant: Mutant, text: str) -> tuple[int, int]:
    """Where the old text lies in the file's text: (begin, end). Raises MutantError unless it is there once."""
    count = text.count(mutant.old)
    if count != 1:
        raise MutantError(
            f"{mutant.name}: {mutant.file} has its old text {count} times, not once:\n  {mutant.old}"
        )
    begin = text.index(mutant.old)
    return begin, begin + len(mutant.old)


def planted(mutant: Mutant, text: str) -> str:
    """The file's text with the bug."""
    begin, end = find_line(mutant, text)
    return text[:begin] + mutant.new + text[end:]


@contextmanager
def bug(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The bug in the tree, for a while."""
    path = tree / mutant.file
    original = path.read_text()
    path.write_text(planted(mutant, original))
    try:
        yield
    finally:
        path.write_text(original)


# ---- The copy ----


def copy_tree(tree: Path) -> None:
    """Brings the copy up to date; files that did not change keep their times, so that little is rebuilt."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=dev.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {name for name in listed.stdout.split("\0") if name and (dev.ROOT / name).is_file()}
    for name in wanted:
        source, target = dev.ROOT / name, tree / name
        data = source.read_bytes()
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(source.stat().st_mode)
    for path in [*(tree / "c_abi").rglob("*.*")]:
        if str(path.relative_to(tree)) not in wanted:
            path.unlink()  # a source that has gone would still be built
    dev.CACHE.mkdir(exist_ok=True)
    (tree / ".cache").unlink(missing_ok=True)
    (tree / ".cache").symlink_to(dev.CACHE)  # converted models and fixtures


class Bench:
    """A copy of the tree with its build, and the tests that can be run on it."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.tree, self.folder, self.programs = folder / "tree", folder / "build", folder / "programs"
        self.jobs = jobs
        self.programs.mkdir(parents=True, exist_ok=True)
        copy_tree(self.tree)
        self.library = self.folder / "c_abi" / "libsuperslm.so.1"
        self.built: dict[str, Path] = {}
        self.artifacts: dict[str, list[str]] = {}

    def build(self) -> str | None:
        """Builds the copy; the compiler's words when it fails."""
        if not (self.folder / "build.ninja").is_file():
            ninja = f"-DCMAKE_MAKE_PROGRAM={dev.tool('ninja')}"
            done = call(
                [dev.tool("cmake"), "-S", self.tree, "-B", self.folder, "-G", "Ninja", ninja, *OPTIONS],
                seconds=None,
            )
            if done.returncode != 0:
                return done.stdout
        # No limit here: a slow machine is not a bug that was noticed.
        build = [dev.tool("cmake"), "--build", self.folder, "--parallel", str(self.jobs)]
        done = call(build, seconds=None)
        return None if done.returncode == 0 else done.stdout

    def run(self, test: str) -> subprocess.CompletedProcess[str]:
        """Runs one test: cell:PROGRAM/CELL, room:PROGRAM/TEST, engine:PROGRAM, or a pytest node."""
        kind, _, name = test.partition(":")
        if kind == "cell":
            program, _, cell = name.partition("/")
            return call([self.cell_program(program), *self.artifacts_of(program), cell])
        if kind == "room":
            program, _, single = name.partition("/")
            return call([self.room_program(program), single])
        if kind == "engine":
            return call([self.engine_program(name)])
        environment = {"SUPERSLM_LIBRARY": self.library, "SUPERSLM_TEST_LIBRARY": self.library}
        environment["SUPERSLM_BUILD_DIR"] = self.tree / "build"
        return call(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test],
            self.tree,
            environment,
        )

    # ---- Programs: a cell's is compiled once, for it sees the library's interface only ----

    def cell_program(self, name: str) -> Path:
        """A program of cells, linked to the copy's shared library."""
        if name not in self.built:
            driver = [
                *shlex.split(os.environ.get("CC", "cc")),
                "-std=c11",
                "-O1",
                f"-I{self.tree / 'include'}",
            ]
            source = [str(self.tree / "tests/c" / f"{name}.c"), "-o", str(self.programs / name)]
            link = [str(self.library), f"-Wl,-rpath,{self.library.parent}", "-pthread"]
            self.built[name] = compiled([*driver, *source, *link], self.programs / name)
        return self.built[name]

    def cpp(self, name: str, *sources: Path) -> Path:
        """A C++ program with sources or archives of the library; compiled anew each time."""
        includes = [f"-I{self.tree / 'c_abi'}", f"-I{self.tree / 'include'}", f"-I{self.tree / 'tests/c'}"]
        driver = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-O1", "-DSUPERSLM_TEST_SEAMS=1"]
        files = [str(self.tree / "tests/c" / f"{name}.cpp"), *map(str, sources)]
        return compiled(
            [*driver, *includes, *files, "-o", str(self.programs / name), "-pthread"], self.programs / name
        )

    def room_program(self, name: str) -> Path:
        """A program with the sources of its rooms alone."""
        rooms = ROOMS[name.partition("_")[0]]
        found = [self.tree.glob(f"c_abi/{room}" if "." in room else f"c_abi/{room}/*.cpp") for room in rooms]
        return self.cpp(name, *(source for room in found for source in sorted(room)))

    def engine_program(self, name: str) -> Path:
        """A program that reaches into the static library."""
        return self.cpp(name, self.folder / "c_abi" / "libsuperslm.a")

    def artifacts_of(self, program: str) -> list[str]:
        """The artifacts that a program of cells takes, as the tests make them."""
        if program not in self.artifacts:
            maker = [
                sys.executable,
                str(self.tree / "tests/mutant_artifacts.py"),
                program,
                str(self.programs),
            ]
            paths = [str(self.tree / part) for part in ("python_binding", "tools", "tests")]
            done = call(maker, self.tree, {"PYTHONPATH": os.pathsep.join(paths)})
            if done.returncode != 0:
                raise MutantError(f"artifacts of {program}: {done.stdout}")
            self.artifacts[program] = done.stdout.split()
        return self.artifacts[program]


def call(
    command: Sequence[object],
    cwd: Path = dev.ROOT,
    environment: dict[str, object] | None = None,
    seconds: float | None = SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Runs a command and keeps its output, errors last; one that hangs for `seconds` ends with code 124."""
    words = [str(word) for word in command]
    variables = {**os.environ, **{k: str(v) for k, v in (environment or {}).items()}}
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        return subprocess.CompletedProcess(words, done.returncode, done.stdout + done.stderr)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, f"no end after {seconds} s")


def compiled(command: list[str], program: Path) -> Path:
    """Runs a compiler. Raises MutantError with its words."""
    done = call(command)
    if done.returncode != 0:
        raise MutantError(f"{shlex.join(command)}\n{done.stdout}")
    return program


# ---- Judging ----


def check_healthy(bench: Bench, tests: Sequence[str]) -> None:
    """Every test passes without a bug. Raises MutantError."""
    words = bench.build()
    if words is not None:
        raise MutantError(f"the library does not build:\n{words[-3000:]}")
    for test in tests:
        done = bench.run(test)
        if done.returncode != 0:
            raise MutantError(f"{test} fails without a bug ({done.returncode}):\n{done.stdout[-3000:]}")
        print(f"passes without a bug: {test}", flush=True)


def reason(printed: str) -> str:
    """The line of a test's output that says what failed: pytest's summary, or the last one of a program."""
    lines = [line for line in printed.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("FAILED ")), lines[-1] if lines else "")


def judge(bench: Bench, mutant: Mutant) -> tuple[bool, str]:
    """Whether the test noticed the bug, and what it said."""
    with bug(bench.tree, mutant):
        if not mutant.test.startswith("room:"):
            words = bench.build()
            if words is not None:
                raise MutantError(f"{mutant.name} does not compile:\n{words[-3000:]}")
        done = bench.run(mutant.test)
    words = reason(done.stdout).replace(f"{bench.tree}/", "")
    return done.returncode != 0, words or f"exit code {done.returncode}"


def chosen(names: Sequence[str]) -> list[Mutant]:
    """The mutants whose name contains one of the words; all without words."""
    found = [m for m in MUTANTS if not names or any(name in m.name for name in names)]
    if not found:
        raise MutantError(f"no planted bug is named {' or '.join(names)}; --list shows them")
    return found


def run_all(mutants: Sequence[Mutant], folder: Path, jobs: int) -> int:
    """Plants and judges each; prints the table. Returns how many survived."""
    for mutant in mutants:
        find_line(mutant, (dev.ROOT / mutant.file).read_text())
    with dev.locked(folder / "lock"):
        bench = Bench(folder, jobs)
        check_healthy(bench, list(dict.fromkeys(m.test for m in mutants)))
        survivors = []
        for number, mutant in enumerate(mutants, 1):
            start = time.monotonic()
            killed, words = judge(bench, mutant)
            if not killed:
                survivors.append(mutant)
            verdict = "killed" if killed else "SURVIVED"
            seconds = time.monotonic() - start
            print(f"{number:3}/{len(mutants)} {verdict:8} {seconds:6.1f} s  {mutant.name}  ({mutant.test})")
            print(f"             {words[:300]}", flush=True)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} planted bugs were noticed")
    for mutant in survivors:
        print(f"survived: {mutant.name}: {mutant.file}; {mutant.test} must notice it")
    return len(survivors)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the planted bugs and end")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="part of a name")
    parser.add_argument("--folder", type=Path, default=dev.BUILD / "mutants", help="where the copy is built")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    options = parser.parse_args(arguments)
    try:
        mutants = chosen(options.only)
        if options.list:
            for m in mutants:
                print(f"{m.name}\n    {m.file}\n    - {m.old}\n    + {m.new}\n    noticed by {m.test}")
            return 0
        return 1 if run_all(mutants, options.folder.resolve(), options.jobs) else 0
    except (MutantError, dev.DevError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
