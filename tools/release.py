#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Builds the library for other systems with zig, which brings their C libraries, and checks what each file exports.

    python tools/release.py                     all targets into dist/
    python tools/release.py linux-x64 win-x64   some of them
    python tools/release.py --list              their names

Each target becomes dist/superslm-VERSION-TARGET/ (headers, library, CMake and pkg-config files) and a .tar.gz of it;
dist/SHA256SUMS lists the archives. A target fails when its library exports anything but the names of tools/exports/,
or needs more than its system. zig comes from PyPI (ziglang, pinned below) into .cache/zig.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import abi_binary
import check_abi
import dev

ZIG = "ziglang==0.17.1"
DIST = dev.ROOT / "dist"
WINDOWS_SYSTEM = r"kernel32\.dll|api-ms-win-crt-.*\.dll|ucrtbase\.dll|ntdll\.dll"


@dataclass(frozen=True)
class Target:
    """What zig calls a target, the pattern of what the library may need there, and whether it gets a static one.

    Elsewhere a static library is better built by the compiler that builds the program.
    """

    zig: str
    system: str
    static: bool = False


TARGETS = {
    "linux-x64": Target("x86_64-linux-gnu.2.28", r"libc\.so\.6"),
    "linux-arm64": Target("aarch64-linux-gnu.2.28", r"libc\.so\.6"),
    "linux-x64-musl": Target("x86_64-linux-musl", r"libc\.so", static=True),
    "linux-arm64-musl": Target("aarch64-linux-musl", r"libc\.so", static=True),
    "win-x64": Target("x86_64-windows-gnu", WINDOWS_SYSTEM),
    "win-arm64": Target("aarch64-windows-gnu", WINDOWS_SYSTEM),
    "macos-arm64": Target("aarch64-macos.11.0", r"/usr/lib/libSystem\.B\.dylib"),
    "macos-x64": Target("x86_64-macos.11.0", r"/usr/lib/libSystem\.B\.dylib"),
}


def zig_program() -> Path:
    """The pinned zig, installed once. Raises dev.DevError."""
    venv = dev.CACHE / "zig" / ZIG.partition("==")[2]
    with dev.locked(dev.CACHE / "zig.lock"):
        if not list(venv.glob("lib/python*/site-packages/ziglang/zig")):
            dev.say(f"{ZIG} from PyPI (about 100 MB)")
            dev.quiet([sys.executable, "-m", "venv", "--clear", venv], "making a place for zig")
            python = venv / "bin/python"
            dev.quiet([python, "-m", "pip", "install", "--disable-pip-version-check", ZIG], "pip install")
    (program,) = venv.glob("lib/python*/site-packages/ziglang/zig")
    return program


def build(name: str, folder: Path) -> Path:
    """Builds and installs one target. Returns the install folder. Raises dev.DevError."""
    work = dev.BUILD / "release-targets" / name
    toolchain = dev.ROOT / "cmake/toolchains/zig.cmake"
    defines = [
        f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
        f"-DZIG={zig_program()}",
        f"-DZIG_TARGET={TARGETS[name].zig}",
    ]
    defines += [f"-DSUPERSLM_BUILD_STATIC={'ON' if TARGETS[name].static else 'OFF'}"]
    defines += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={dev.tool('ninja')}", "-DCMAKE_INSTALL_LIBDIR=lib"]
    cmake = dev.tool("cmake")
    with dev.locked(work.with_suffix(".lock")):
        dev.quiet([cmake, "-S", dev.ROOT, "-B", work, *defines], f"configuring {name}")
        jobs = str(os.cpu_count() or 2)
        dev.quiet([cmake, "--build", work, "--parallel", jobs], f"building {name}")
        target = folder / f"superslm-{version(work)}-{name}"
        shutil.rmtree(target, ignore_errors=True)
        dev.quiet([cmake, "--install", work, "--prefix", target], f"installing {name}")
    shutil.copy(dev.ROOT / "LICENSE", target)
    return target


def version(work: Path) -> str:
    """The version a build folder was configured with."""
    match = re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(\S+)$", (work / "CMakeCache.txt").read_text(), re.M)
    return match[1] if match else "unknown"


def library_of(folder: Path) -> Path:
    """The shared library in an install folder. Raises dev.DevError when there is none."""
    for pattern in ("lib/libsuperslm.so.1", "lib/libsuperslm.1.dylib", "bin/*superslm.dll"):
        for path in folder.glob(pattern):
            return path
    raise dev.DevError(f"no shared library in {folder}")


def newest_glibc(library: Path) -> tuple[int, ...]:
    """The newest version of glibc that an ELF library's symbols ask for; (0,) for none."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max((tuple(map(int, found)) for found in versions), default=(0,))


def check(name: str, library: Path) -> tuple[int, list[str]]:
    """Compares exports and needs with what they must be. Returns the number of exports, and what the library needs.

    Raises:
        dev.DevError: something is missing or too many.
    """
    listed = [*check_abi.list_file("frozen.txt"), *check_abi.list_file("ext.txt")]
    exports, needs = abi_binary.exports_of(library), abi_binary.needed(library)
    problems = check_abi.compare(f"exports of {library.name}", sorted(listed), sorted(exports))
    problems += [f"it needs {n}" for n in needs if not re.fullmatch(TARGETS[name].system, n, re.I)]
    if "gnu.2.28" in TARGETS[name].zig and newest_glibc(library) > (2, 28):
        problems.append(f"it needs glibc {'.'.join(map(str, newest_glibc(library)))}")
    if problems:
        raise dev.DevError("\n".join([f"{name}:", *problems]))
    return len(exports), needs


def pack(folder: Path) -> Path:
    """Writes a .tar.gz that depends on nothing but the files' names, modes and contents."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    archive = folder.with_name(folder.name + ".tar.gz")
    part = archive.with_suffix(".part")
    with open(part, "wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path in sorted(folder.rglob("*")):
                tar.add(path, path.relative_to(folder.parent), recursive=False, filter=plain)
    part.replace(archive)
    return archive


def release(names: list[str], folder: Path) -> None:
    """Builds, checks and packs targets, and prints a row for each. Raises dev.DevError."""
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'target':17} {'built for':25} {'exports':>7} {'library':>9} {'seconds':>7}  needs", flush=True)
    sums = []
    for name in names:
        start = time.monotonic()
        target = build(name, folder)
        library = library_of(target)
        exports, needs = check(name, library)
        archive = pack(target)
        sums.append(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}")
        row = f"{name:17} {TARGETS[name].zig:25} {exports:7} {library.stat().st_size // 1024:6} KiB"
        print(f"{row} {time.monotonic() - start:7.0f}  {' '.join(needs)}", flush=True)
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print("\n" + "\n".join(sums))


def main() -> int:
    """Builds the targets on the command line, or all; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--list", action="store_true", help="print the targets' names")
    parser.add_argument("-o", "--output", type=Path, default=DIST, metavar="DIR", help="default: dist/")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(TARGETS))
        return 0
    unknown = [name for name in arguments.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no such target: {' '.join(unknown)}; there are {', '.join(TARGETS)}")
    try:
        release(arguments.targets or list(TARGETS), arguments.output.resolve())
    except (dev.DevError, abi_binary.MissingTool) as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
