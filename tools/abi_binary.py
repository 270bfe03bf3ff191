# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Reads built libraries of any platform: what they export, what they need, and how their types differ from before.

nm or llvm-nm reads ELF and Mach-O files, llvm-readobj reads Windows DLLs, abidw and abidiff (Debian's abigail-tools)
compare types, for which the library must have debug information.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

MAGICS = {
    b"\x7fELF": "elf",
    b"\xcf\xfa\xed\xfe": "macho",
    b"\xca\xfe\xba\xbe": "macho",  # several architectures in one file
    b"\0asm": "wasm",
}
MACHO_LINKER_NAMES = ("_mh_dylib_header", "__dso_handle")  # zig's linker exports them from every library
FORMATS = "neither ELF, Mach-O, a DLL nor a wasm module"
BASELINE = Path(__file__).resolve().parent / "exports/frozen.abi"
# Drafts may change, and the seams of a test build belong to nobody's contract.
SUPPRESSIONS = """[suppress_function]
  symbol_name_regexp = ^sslm_(ext|test)_
  drop = yes
[suppress_function]
  name_regexp = ^sslm_(ext|test)_
  drop = yes
[suppress_type]
  name_regexp = ^sslm_ext_
  drop = yes
"""


class MissingTool(Exception):
    """A program that is needed to read a library is not installed; the message names it."""


def tool(*names: str) -> str:
    """The first of some programs that is installed. Raises MissingTool."""
    for name in names:
        if shutil.which(name):
            return name
    raise MissingTool(names[0])


def output(*command: str | Path) -> str:
    """What a program prints. Raises subprocess.CalledProcessError."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def format_of(library: Path) -> str:
    """One of elf, macho, pe and wasm. Raises ValueError for other files."""
    with open(library, "rb") as file:
        magic = file.read(4)
    kind = "pe" if magic[:2] == b"MZ" else MAGICS.get(magic)
    if not kind:
        raise ValueError(f"{library} is no shared library: {FORMATS}")
    return kind


# ---- Names ----


def exports_of(library: Path) -> list[str]:
    """The names a library exports; of a wasm module the functions. Raises MissingTool, ValueError."""
    kind = format_of(library)
    if kind == "wasm":
        return wasm_functions(library.read_bytes())
    if kind == "pe":
        text = output(tool("llvm-readobj-19", "llvm-readobj"), "--coff-exports", library)
        return [name for name in re.findall(r"^\s*Name: (\S*)$", text, re.M) if name]
    if kind == "elf":
        text = output(tool("nm", "llvm-nm-19", "llvm-nm"), "-D", "--defined-only", library)
        return [line.split()[-1].partition("@")[0] for line in text.splitlines() if line.strip()]
    text = output(tool("llvm-nm-19", "llvm-nm", "nm"), "-g", "--defined-only", library)
    names = [line.split()[-1].removeprefix("_") for line in text.splitlines() if len(line.split()) == 3]
    return [name for name in names if name not in MACHO_LINKER_NAMES]


def wasm_functions(module: bytes) -> list[str]:
    """The names of the functions in a wasm module's export section."""
    at = 8

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = module[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(module):
        section = module[at]
        at += 1
        end = number() + at
        if section != 7:
            at = end
            continue
        names = []
        for _ in range(number()):
            size = number()
            name, kind = module[at : at + size].decode(), module[at + size]
            at += size + 1
            number()
            names += [name] if kind == 0 else []
        return names
    return []


def needed(library: Path) -> list[str]:
    """The shared libraries that a library or program asks for, without its own name. Raises MissingTool."""
    text = output(tool("llvm-readobj-19", "llvm-readobj"), "--needed-libs", library)
    names = re.search(r"NeededLibraries \[(.*?)\]", text, re.S)
    return [n for n in names[1].split() if n.rpartition("/")[2] != library.name] if names else []


# ---- Types ----


def has_debug_info(library: Path) -> bool:
    """Whether an ELF library says what types its functions take."""
    return format_of(library) == "elf" and b"\0.debug_info\0" in library.read_bytes()


def frozen_types(library: Path, include: Path) -> str:
    """The frozen functions of a library and the types of the headers that they use, as abidw's XML.

    Raises:
        MissingTool: abidw is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.ini")
        rules.write_text(SUPPRESSIONS)
        options = ["--suppressions", rules, "--headers-dir", include, "--drop-private-types"]
        options += ["--exported-interfaces-only", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs"]
        options += ["--no-elf-needed", "--no-architecture", "--no-write-default-sizes"]
        return output(tool("abidw"), *options, "--type-id-style", "hash", library)


def write_baseline(library: Path, include: Path, root: Path) -> None:
    """Writes the baseline from a library that was built with debug information from `root`."""
    BASELINE.write_text(frozen_types(library, include).replace(f"{root}/", ""))


def differences(library: Path, include: Path) -> list[str]:
    """What abidiff says about the frozen functions of a library against the baseline. Raises MissingTool."""
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder, "now.abi")
        now.write_text(frozen_types(library, include))
        command = [tool("abidiff"), "--no-architecture", str(BASELINE), str(now)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return (said or [f"abidiff ended with {done.returncode}"]) if done.returncode else []
