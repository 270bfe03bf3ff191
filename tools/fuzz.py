#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Runs the fuzz targets of tests/fuzz/ under sanitizers; needs clang-19 and its runtimes.

    python tools/fuzz.py --seconds 120               all targets, 120 s in total
    python tools/fuzz.py --target blob --seconds 60  one of them; may be repeated
    python tools/fuzz.py --seed 1                    the same choices every time, as far as the time allows
    python tools/fuzz.py --target blob --reproduce FILE
    python tools/fuzz.py --checker memory            under the memory sanitizer instead
    python tools/fuzz.py --write-seeds               makes tests/fuzz/seeds/ anew

It prints the executions of each target and their total; exit code 1 when a target found something. What was found
lies in build/fuzz-CHECKER/found/, with the command that repeats it. What a target learns stays in build/fuzz-CHECKER/
corpus/ and is where the next run begins.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dev

SOURCES = dev.ROOT / "tests" / "fuzz"
SEEDS = SOURCES / "seeds"
CHECKERS = {"address": ("fuzz", "fuzzer,address,undefined"), "memory": ("msan", "fuzzer,memory")}
# The memory sanitizer does not see what AVX-512's narrowing stores write; the kernels below it can be seen.
CPU = Path("/proc/cpuinfo")
SEEN = {"SSLM_FORCE_TIER": "avx2" if CPU.is_file() and " avx2 " in CPU.read_text() else "scalar"}
INPUT_SECONDS = 10  # an input that takes longer is a finding
RSS_MIB = 2048


@dataclass(frozen=True)
class Target:
    """One fuzz target: tests/fuzz/fuzz_NAME.cpp, the longest input in bytes, its share of the time, other sources."""

    name: str
    longest: int
    share: int
    others: tuple[str, ...] = ()


TARGETS = (
    Target("artifact", 512, 2),
    Target("adapter", 512, 2),
    Target("blob", 2048, 2),
    Target("tokenizer", 96, 1),
    Target("detokenizer", 64, 1),
    Target("verbs", 512, 4, ("verbs.cpp", "verbs_run.cpp")),
)


class Bench:
    """The targets built for one checker, their artifacts and corpora."""

    def __init__(self, checker: str, seed: int = 0) -> None:
        """`seed`: of the fuzzer's choices; 0 is another one in every run."""
        self.variant, self.sanitizers = CHECKERS[checker]
        self.checker, self.seed = checker, seed
        self.folder = dev.BUILD / f"fuzz-{checker}"
        self.found = self.folder / "found"
        self.bases = self.folder / "bases"
        self.found.mkdir(parents=True, exist_ok=True)
        if not dev.available(self.variant):
            raise dev.DevError("fuzzing needs clang-19 and libclang-rt-19-dev (Debian: apt install both)")
        self.library = dev.build(self.variant).parent / "libsuperslm.a"
        dev.quiet([sys.executable, SOURCES / "bases.py", self.bases], "making the artifacts")

    def program(self, target: Target) -> Path:
        """The target's program, compiled when a source or the library is newer."""
        program = self.folder / f"fuzz_{target.name}"
        sources = [SOURCES / name for name in (f"fuzz_{target.name}.cpp", *target.others)]
        inputs = [*sources, *SOURCES.glob("*.h"), *(dev.ROOT / "tests/c").glob("*.h"), self.library]
        if not program.is_file() or program.stat().st_mtime < max(f.stat().st_mtime for f in inputs):
            compiler = ["clang++-19", "-std=c++20", "-O1", "-g", "-DSUPERSLM_TEST_SEAMS=1"]
            flags = [f"-fsanitize={self.sanitizers}", "-fno-sanitize-recover=all"]
            includes = [f"-I{dev.ROOT / part}" for part in ("include", "c_abi", "tests/c")]
            link = [*map(str, sources), str(self.library), "-o", str(program)]
            dev.quiet([*compiler, *flags, *includes, *link], f"compiling {target.name}")
        return program

    def environment(self) -> dict[str, str]:
        """What a target needs to find its artifacts."""
        quick = "detect_stack_use_after_return=0:malloc_context_size=8:quarantine_size_mb=16"
        out = {**os.environ, "SUPERSLM_FUZZ_BASES": str(self.bases), "ASAN_OPTIONS": quick}
        return {**out, **SEEN} if self.checker == "memory" else out

    def run(self, target: Target, seconds: int) -> tuple[int, list[Path]]:
        """Fuzzes one target. Returns its executions and what it found."""
        program = self.program(target)
        corpus = self.folder / "corpus" / target.name
        corpus.mkdir(parents=True, exist_ok=True)
        before = set(self.found.iterdir())
        seeds = [str(SEEDS / target.name)] if (SEEDS / target.name).is_dir() else []
        options = [
            f"-seed={self.seed}",
            f"-max_total_time={max(1, seconds)}",
            f"-max_len={target.longest}",
            f"-timeout={INPUT_SECONDS}",
            "-report_slow_units=1000000",  # the limit above says what is slow
            f"-rss_limit_mb={RSS_MIB}",
            f"-artifact_prefix={self.found}/{target.name}-",
            "-print_final_stats=1",
            "-verbosity=0",
        ]
        done = subprocess.run(
            [str(program), *options, str(corpus), *seeds],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        counted = re.search(r"stat::number_of_executed_units: *(\d+)", done.stdout)
        if done.returncode == 0:
            return int(counted.group(1)) if counted else 0, []
        found = sorted(set(self.found.iterdir()) - before)
        real = [file for file in found if self.repeats(target, file)]
        if real or not found:
            print(done.stdout[-6000:])
        if not found:
            raise dev.DevError(f"{program} ended with {done.returncode} and left no input")
        return int(counted.group(1)) if counted else 0, real

    def repeats(self, target: Target, file: Path) -> bool:
        """Whether an input fails alone. One that only took long while the machine was busy does not, and goes."""
        if not file.name.startswith(f"{target.name}-timeout"):
            return True
        if all(self.reproduce(target, file).returncode != 0 for _ in range(3)):
            return True
        print(f"note: {file.name} is fast when run alone; the machine had stopped")
        file.unlink()
        return False

    def reproduce(self, target: Target, file: Path) -> subprocess.CompletedProcess[str]:
        """Runs one input alone."""
        return subprocess.run(
            [str(self.program(target)), f"-timeout={INPUT_SECONDS}", str(file)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )


def fuzz(bench: Bench, targets: Sequence[Target], seconds: int) -> int:
    """Runs the targets one after the other and prints what they did. Returns the number of findings."""
    total, findings = 0, []
    shares = sum(target.share for target in targets)
    for target in targets:
        bench.program(target)
    print(f"{'target':12} {'executions':>12} {'a second':>10}  under {bench.checker}", flush=True)
    for target in targets:
        start = time.monotonic()
        executions, found = bench.run(target, seconds * target.share // shares)
        rate = executions / max(1e-9, time.monotonic() - start)
        print(
            f"{target.name:12} {executions:12,} {rate:10,.0f}  {f'{len(found)} found' if found else ''}",
            flush=True,
        )
        total += executions
        findings += [(target, file) for file in found]
    print(f"{'total':12} {total:12,}")
    for target, file in findings:
        again = f"python tools/fuzz.py --checker {bench.checker} --target {target.name} --reproduce {file}"
        print(f"found: {file}\n  repeat it: {again}")
    return len(findings)


def write_seeds() -> None:
    """Makes the committed seeds anew."""
    shutil.rmtree(SEEDS, ignore_errors=True)
    bases = dev.BUILD / "fuzz-address" / "bases"
    dev.quiet([sys.executable, SOURCES / "bases.py", bases], "making the artifacts")
    dev.run([sys.executable, SOURCES / "seeds.py", bases, SEEDS], env=dev.python_env())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [target.name for target in TARGETS]
    parser.add_argument("--seconds", type=int, default=120, help="for all targets together")
    parser.add_argument("--target", action="append", choices=names, help="only this one")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the fuzzer's choices; 0: another in every run"
    )
    parser.add_argument("--checker", choices=sorted(CHECKERS), default="address", help="sanitizers")
    parser.add_argument("--reproduce", type=Path, metavar="FILE", help="run one input of one target")
    parser.add_argument("--write-seeds", action="store_true", help="make tests/fuzz/seeds/ anew")
    options = parser.parse_args(arguments)
    chosen = [target for target in TARGETS if not options.target or target.name in options.target]
    try:
        if options.write_seeds:
            write_seeds()
            return 0
        bench = Bench(options.checker, options.seed)
        if options.reproduce is None:
            return 1 if fuzz(bench, chosen, options.seconds) else 0
        if len(chosen) != 1:
            parser.error("--reproduce needs --target NAME")
        done = bench.reproduce(chosen[0], options.reproduce)
        print(done.stdout)
        return done.returncode
    except dev.DevError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
