#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Proves that compiled code holds no floating-point arithmetic, by disassembling it.

    python tools/check_no_float.py PATH...

A PATH is an object file, a library, or a build folder, whose objects (*.o) are all read. Float instructions that
only move, select or combine bits are allowed: compilers use them on integers. x86-64, AArch64 and WebAssembly.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# x86: an instruction on floats ends in ss, sd, ps or pd (sh, ph with v in front). These do no arithmetic.
X86_FLOAT = re.compile(r"(v?.*(ss|sd|ps|pd)|v.*(sh|ph))$")
X86_MOVES = re.compile(
    r"(mov|and|andn|or|xor|shuf|unpck|blend|perm|insert|extract|broadcast|maskmov|test|gather|scatter|compress|expand"
    r"|align|lddqu)"
)
X86_INTEGER = re.compile(r"(v?p|v?mov|k|rdss|incss|bnd|outs|ins|lods|stos|scas|cmps$)")
X86_CONVERSION = re.compile(r"v?cvt")
X86_NAMED = re.compile(
    r"v?(ucomi|comi|rcp|rsqrt|sqrt|round|dp|rndscale|getexp|getmant|reduce|fixupimm|scalef)"
)
X87 = re.compile(r"f(?!s?base)[a-z0-9]+$")  # every f... mnemonic of x86 is x87
# AArch64: mnemonics that start with f are float; moving and selecting whole registers is not arithmetic.
ARM_FLOAT = re.compile(r"(f(?!mov$|csel$|fr)[a-z0-9]+|[su]cvtf|bf(cvt|dot|mmla|mlal)[a-z0-9]*)$")
# WebAssembly: what is typed as float computes with floats, unless it only moves. The one opcode `select` of all types
# is shown as f32.select.
WASM_FLOAT = re.compile(
    r"(f(32|64)(x\d)?\.(?!load|store|const|reinterpret|splat|extract|replace|select)|i(32|64)(x\d)?\.trunc)"
)

SYMBOL = re.compile(r"^[0-9a-f]* ?<(.+)>:$")
INSTRUCTION = re.compile(
    r"^\s*[0-9a-f]+:\s+(?:(?:lock|rep[a-z]*|notrack|data16|bnd|cs|ds|es)\s+)*([a-z][a-z0-9.]*)"
)


@dataclass(frozen=True)
class Finding:
    """One float instruction and where it stands."""

    file: Path
    symbol: str
    text: str


def is_float_arithmetic(mnemonic: str, processor: str) -> bool:
    """Whether an instruction of "arm", "wasm" or "x86" (AT&T mnemonics) computes with floats."""
    if processor == "wasm":
        return bool(WASM_FLOAT.match(mnemonic))
    if processor == "arm":
        return bool(ARM_FLOAT.match(mnemonic.partition(".")[0]))
    if X86_CONVERSION.match(mnemonic) or X86_NAMED.match(mnemonic) or X87.match(mnemonic):
        return True
    if X86_INTEGER.match(mnemonic) or not X86_FLOAT.match(mnemonic):
        return False
    return not X86_MOVES.match(mnemonic.removeprefix("v"))


def disassembler() -> str:
    """The first disassembler on PATH. Raises SystemExit when there is none."""
    for name in ("llvm-objdump-19", "llvm-objdump", "objdump"):
        if shutil.which(name):
            return name
    raise SystemExit("error: no disassembler found; install llvm-19 or binutils")


def objects_of(path: Path) -> list[Path]:
    """The files to read for a path of the command line. Raises SystemExit when there are none."""
    files = sorted([*path.rglob("*.o"), *path.rglob("*.obj")]) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise SystemExit(f"error: {path}: no object files there; build first")
    return files


def findings_in(file: Path) -> Iterator[Finding | int]:
    """Yields the float arithmetic of a file, and at the end the number of instructions read."""
    command = [disassembler(), "-d", "--no-show-raw-insn", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(command)}: {done.stderr.strip()}")
    named = re.search(r"file format .*?(aarch64|arm64|wasm)", done.stdout)
    processor = "x86" if not named else "wasm" if named[1] == "wasm" else "arm"
    symbol, count = "?", 0
    for line in done.stdout.splitlines():
        if match := SYMBOL.match(line):
            symbol = match[1]
        elif match := INSTRUCTION.match(line):
            count += 1
            if is_float_arithmetic(match[1], processor):
                yield Finding(file, symbol, line.strip())
    yield count


def check(paths: list[Path]) -> tuple[list[Finding], int, int]:
    """Reads all objects. Returns the findings, the number of files and the number of instructions."""
    found: list[Finding] = []
    files = [file for path in paths for file in objects_of(path)]
    instructions = 0
    for file in files:
        for item in findings_in(file):
            if isinstance(item, int):
                instructions += item
            else:
                found.append(item)
    if not instructions:
        raise SystemExit("error: the files hold no code")
    return found, len(files), instructions


def main() -> int:
    """Prints what was found; returns 1 when there is float arithmetic."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    found, files, instructions = check(parser.parse_args().paths)
    for finding in found:
        print(f"{finding.file}: in {finding.symbol}: {finding.text}")
    print(f"{len(found)} float instructions among {instructions} in {files} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
