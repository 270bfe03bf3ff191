#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Proves that everything which repeats the public headers agrees with them.

    python tools/check_abi.py [LIBRARY...]     the headers against: the contract's layouts, names and ordinals in C99
                                               to C17 and C++11 to C++20; the export lists in tools/exports/; what the
                                               given libraries export, and their types where they have debug
                                               information; the ctypes layer; cffi's API mode; ctypeslib2's reading of
                                               the headers; the table of verbs in docs/api.md
    python tools/check_abi.py --write          writes the export lists from the headers, after a draft changed
    python tools/check_abi.py --write LIBRARY  and the baseline of types, tools/exports/frozen.abi, from a debug build

It also prints the verbs on tools/exports/refusing.txt, which are declared and exported but refuse every call; an
empty list is the goal. SUPERSLM_STRICT=1 makes a missing compiler or tool an error.

In the CI of a game that carries its own copy of SuperSLM:

    python check_abi.py --game [--include DIR] LIBRARY...

checks the frozen part only: the 51 verbs are exported, statuses have their ordinals, and every compiler found here
lays the structs of the headers in DIR out as the contract says. LIBRARY is a .so, .dylib, .dll or .wasm, of any
processor; a .so with debug information is compared type by type too. Copy check_abi.py, abi_*.py and the folder
exports/ of tools/; nothing else is needed but Python, nm for .so, LLVM for .dylib and .dll, and abidiff for types.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "python_binding")]

import abi_binary  # noqa: E402
import abi_header  # noqa: E402
from abi_binary import MissingTool, exports_of  # noqa: E402
from abi_contract import FROZEN_VERBS, LAYOUTS, MACROS, STATUSES, Problems, compare, missing  # noqa: E402
from abi_header import Header  # noqa: E402

try:
    from superslm import _abi  # noqa: E402
except ImportError:  # a game's copy of this program; --game does without
    _abi = None

INCLUDE = ROOT / "include"
EXPORTS = Path(__file__).resolve().parent / "exports"
CTYPESLIB_PINS = ("ctypeslib2==2.4.0", "clang==18.1.8", "libclang==18.1.1")

C_STANDARDS = ("c99", "c11", "c17")
CXX_STANDARDS = ("c++11", "c++17", "c++20")
COMPILERS = tuple(
    (name, standard)
    for c, cxx in (
        ("gcc", "g++"),
        ("clang-19", "clang++-19"),
        ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-g++"),
    )
    for name, standards in ((c, C_STANDARDS), (cxx, CXX_STANDARDS))
    for standard in standards
)


def layouts_of(header: Header) -> dict[str, Any]:
    """The contract's layouts, and for draft structs those of the ctypes layer."""
    return {name: LAYOUTS.get(name) or ctypes_layout(getattr(_abi, name)) for name in header.structs}


# ---- The headers themselves ----


def check_names(frozen: Header, drafts: Header) -> Problems:
    """Names and ordinals that the contract fixes."""
    names = [f"SSLM_{name}" for name in STATUSES]
    ordinals = {**{name: i for i, name in enumerate(names)}, "SSLM_STATUS_NEXT_FREE": len(names)}
    problems = compare("sslm_status", ordinals, frozen.enums.get("sslm_status"))
    spans = {"SSLM_SPAN_PROMPT": 0, "SSLM_SPAN_SCHEMA_CONTENT": 1}
    problems += compare("sslm_span_kind", spans, frozen.enums.get("sslm_span_kind"))
    if frozen.status_list != names:
        problems.append("SSLM_STATUS_ENUM_LIST: not the statuses in ordinal order")
    if len(frozen.functions) != FROZEN_VERBS:
        problems.append(f"sslm_abi.h declares {len(frozen.functions)} verbs, expected {FROZEN_VERBS}")
    problems += [
        f"sslm_ext.h: {n} is not an sslm_ext_ name" for n in drafts.functions if not n.startswith("sslm_ext_")
    ]
    problems += compare("structs", sorted(LAYOUTS), sorted(frozen.structs))
    return problems + compare("macros", MACROS, {k: v for k, v in frozen.macros.items() if k in MACROS})


def probe_source(header: Header) -> str:
    """A C program that prints every layout and macro, one `name value...` a line."""
    drafts = any(name.startswith("sslm_ext_") for name in header.structs)
    file = "sslm_ext.h" if drafts else "sslm_abi.h"
    lines = ["#include <stdio.h>", "#define SSLM_ENABLE_DRAFT_EXTENSIONS", f'#include "superslm/{file}"']
    lines += [f"struct align_{s} {{ char c; {s} value; }};" for s in header.structs]
    lines += ["int main(void) {"]
    for name, members in header.structs.items():
        lines.append(
            f'printf("{name} %d %d\\n", (int)sizeof({name}), (int)offsetof(struct align_{name}, value));'
        )
        for m in members:
            size = f"(int)sizeof((({name}*)0)->{m.name})"
            lines.append(f'printf("{name}.{m.name} %d %d\\n", (int)offsetof({name}, {m.name}), {size});')
    lines += [f'printf("{macro} %lld 0\\n", (long long){macro});' for macro in header.macros]
    lines += ['printf("SSLM_SCHEMA_NONE %d 0\\n", SSLM_SCHEMA_NONE != 0);']
    return "\n".join([*lines, "return 0;", "}", ""])


def read_probe(text: str) -> dict[str, Any]:
    """The layouts a probe printed."""
    layouts: dict[str, Any] = {}
    for name, first, second in (line.split() for line in text.splitlines()):
        struct, dot, member = name.partition(".")
        if dot:
            layouts[struct][2][member] = (int(first), int(second))
        else:
            layouts[name] = (int(first), int(second), {}) if not name.startswith("SSLM_") else int(first)
    return layouts


def assertions(wanted: dict[str, Any]) -> str:
    """C text that does not compile where a layout or a macro differs: for compilers whose programs do not run here."""
    lines = []
    for name, value in wanted.items():
        if isinstance(value, int):
            lines.append(f"SAME({name}, {name} == {value})" if name != "SSLM_SCHEMA_NONE" else "")
            continue
        size, alignment, fields = value
        lines.append(f"SAME({name}_size, sizeof({name}) == {size})")
        lines.append(f"struct align_{name}_ {{ char c; {name} value; }};")
        lines.append(f"SAME({name}_alignment, offsetof(struct align_{name}_, value) == {alignment})")
        for member, (offset, bytes_) in fields.items():
            same = f"offsetof({name}, {member}) == {offset} && sizeof((({name}*)0)->{member}) == {bytes_}"
            lines.append(f"SAME({name}_{member}, {same})")
    return "#define SAME(name, test) typedef char name##_is_the_contracts[(test) ? 1 : -1];\n" + "\n".join(
        lines
    )


def check_compiler(
    compiler: str, standard: str, source: str, include: Path, wanted: dict[str, Any], folder: Path
) -> Problems:
    """Layouts and macros as one compiler sees them."""
    where, runs = f"{compiler} -std={standard}", "mingw" not in compiler
    file = folder / ("probe.cpp" if "++" in compiler else "probe.c")
    file.write_text(source if runs else source + assertions(wanted))
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{include}"]
    command = [compiler, *flags, str(file), *(["-o", str(folder / "probe")] if runs else ["-fsyntax-only"])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return [f"{where}: {done.stderr}"]
    if not runs:
        return []
    printed = subprocess.run([str(folder / "probe")], capture_output=True, text=True, check=True).stdout
    return compare(where, wanted, read_probe(printed))


def check_compilers(header: Header, include: Path = INCLUDE) -> Problems:
    """Layouts and macros as C and C++ compilers see them, in every standard."""
    wanted = {**layouts_of(header), **header.macros, "SSLM_SCHEMA_NONE": 0}
    source = probe_source(header)
    problems: Problems = []
    absent = {name for name, _ in COMPILERS if not shutil.which(name)}
    with tempfile.TemporaryDirectory() as folder:
        for compiler, standard in COMPILERS:
            if compiler not in absent:
                problems += check_compiler(compiler, standard, source, include, wanted, Path(folder))
    return problems + [problem for name in sorted(absent) for problem in missing(name)]


# ---- Export lists, libraries, docs ----


def list_file(name: str) -> list[str]:
    """The names in a file of tools/exports, comments and blank lines dropped."""
    path = EXPORTS / name
    lines = (
        [line.partition("#")[0].strip() for line in path.read_text().splitlines()] if path.is_file() else []
    )
    return [line for line in lines if line]


def check_lists(frozen: Header, drafts: Header) -> Problems:
    """The two committed export lists, and the list of refusing verbs."""
    problems = compare("tools/exports/frozen.txt", list(frozen.functions), list_file("frozen.txt"))
    problems += compare("tools/exports/ext.txt", list(drafts.functions), list_file("ext.txt"))
    known = {*frozen.functions, *drafts.functions}
    unknown = [name for name in list_file("refusing.txt") if name not in known]
    return problems + [f"tools/exports/refusing.txt: {name} is not in the headers" for name in unknown]


def check_library(library: Path, header: Header) -> Problems:
    """The library exports the headers' functions and nothing else, and can be asked for each."""
    try:
        problems = compare(f"exports of {library}", sorted(header.functions), sorted(exports_of(library)))
        loaded = ctypes.CDLL(str(library))
    except MissingTool as tool:
        return missing(str(tool))
    except OSError:  # of another system or processor
        return problems
    return problems + [
        f"{library}: {name} does not resolve" for name in header.functions if not hasattr(loaded, name)
    ]


def check_game_library(library: Path) -> Problems:
    """A library of any origin exports every frozen verb; what else it exports is its own affair."""
    try:
        there = set(exports_of(library))
    except MissingTool as tool:
        return missing(str(tool))
    except (OSError, ValueError) as error:
        return [str(error)]
    return [f"{library}: {name} is not exported" for name in list_file("frozen.txt") if name not in there]


def check_types(library: Path, include: Path) -> Problems:
    """The frozen functions of a library with debug information take and return the baseline's types."""
    try:
        return abi_binary.differences(library, include)
    except MissingTool as tool:
        return missing(str(tool))


def check_docs(header: Header) -> Problems:
    """Every function has a heading or table row of its own in docs/api.md, and no other name has one."""
    path = ROOT / "docs/api.md"
    if not path.is_file():
        return []
    named = re.findall(r"^(?:\|\s*|#+\s*)`?(sslm_\w+)", path.read_text(), re.M)
    known = {*header.structs, *header.enums}
    return compare(
        "docs/api.md", sorted(header.functions), sorted(n for n in dict.fromkeys(named) if n not in known)
    )


# ---- Other readings of the headers ----


def ctypes_layout(struct: type[ctypes.Structure]) -> Any:
    """Size, alignment and fields of a ctypes structure; padding fields left out."""
    fields = {
        entry[0]: (getattr(struct, entry[0]).offset, ctypes.sizeof(entry[1]))
        for entry in struct._fields_
        if not entry[0].startswith("PADDING_")
    }
    return (ctypes.sizeof(struct), ctypes.alignment(struct), fields)


def c_type(kind: Any) -> str:
    """The C spelling of a ctypes type, const left out and char strings as char*."""
    simple = {
        None: "void",
        ctypes.c_int32: "int32_t",
        ctypes.c_uint32: "uint32_t",
        ctypes.c_int64: "int64_t",
        ctypes.c_size_t: "size_t",
        ctypes.c_uint8: "uint8_t",
        ctypes.c_char: "char",
        ctypes.c_char_p: "char*",
        ctypes.c_void_p: "void*",
    }
    if kind in simple:
        return simple[kind]
    if issubclass(kind, ctypes._Pointer):
        name = kind._type_.__name__
        is_handle = name.endswith("_s") and not name.startswith("LP_")
        return name.removesuffix("_s") if is_handle else c_type(kind._type_) + "*"
    return kind.__name__


def member_of(name: str, kind: Any) -> tuple[str, str, int]:
    """Name, C type and array length of a ctypes structure's entry."""
    if issubclass(kind, ctypes.Array):
        return name, c_type(kind._type_), kind._length_
    is_callback = issubclass(kind, ctypes._CFuncPtr)
    return (
        name,
        next(n for n, value in vars(_abi).items() if value is kind) if is_callback else c_type(kind),
        1,
    )


def plain_type(kind: str, header: Header) -> str:
    """A C type of the headers as `c_type` spells it: enums are int32_t, and ctypes takes uint64_t for size_t."""
    kind = kind.removeprefix("const ")
    return "int32_t" if kind in header.enums else "size_t" if kind == "uint64_t" else kind


def check_ctypes(header: Header) -> Problems:
    """python_binding/superslm/_abi.py: structs, signatures, statuses and macros."""
    problems: Problems = []
    declared = {struct.__name__: ctypes_layout(struct) for struct in _abi.STRUCTS}
    problems += compare("_abi.py", layouts_of(header), declared)
    for name, members in header.structs.items():
        wanted_members = [(m.name, plain_type(m.type, header), m.count or 1) for m in members]
        members_here = [member_of(*entry) for entry in getattr(_abi, name)._fields_]
        problems += (
            [] if wanted_members == members_here else [f"_abi.py: {name} has other members or another order"]
        )
    signatures = {**_abi.VERBS, **_abi.EXTENSIONS}
    wanted = {
        f.name: [plain_type(t, header) for t in (f.result, *(p.type for p in f.parameters))]
        for f in header.functions.values()
    }
    got = {
        name: [c_type(result), *map(c_type, arguments)] for name, (result, arguments) in signatures.items()
    }
    for name in dict.fromkeys([*wanted, *got]):
        if wanted.get(name) != got.get(name):
            problems.append(f"_abi.py: {name} is {got.get(name)}, expected {wanted.get(name)}")
    statuses = {status.name: int(status) for status in _abi.Status}
    problems += compare("_abi.py: Status", {f"SSLM_{n}": i for i, n in enumerate(STATUSES)}, statuses)
    problems += compare(
        "_abi.py: SpanKind", header.enums["sslm_span_kind"], {s.name: int(s) for s in _abi.SpanKind}
    )
    skipped = {"SSLM_HAS_PAGED_KV_ABI"}  # a compile-time test
    macros = {name: value for name, value in header.macros.items() if name not in skipped}
    return problems + compare("_abi.py: macros", macros, {name: getattr(_abi, name, None) for name in macros})


def check_cffi(header: Header, library: Path) -> Problems:
    """cffi in API mode compiles the declarations against the headers and calls the library."""
    try:
        import cffi
    except ImportError:
        return missing("cffi")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return missing("Python.h (Debian: python3-dev)")
    builder = cffi.FFI()
    constants = "".join(f"#define {name} {value}\n" for name, value in header.macros.items())
    builder.cdef(constants + header.text)
    source = '#define SSLM_ENABLE_DRAFT_EXTENSIONS\n#include "superslm/sslm_ext.h"\n'
    link = [str(library), f"-Wl,-rpath,{library.parent}"]
    builder.set_source("superslm_cffi_probe", source, include_dirs=[str(INCLUDE)], extra_link_args=link)
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        try:
            builder.compile(tmpdir=folder)
            probe = importlib.import_module("superslm_cffi_probe")
        except (cffi.VerificationError, ImportError) as error:
            return [f"cffi: {error}"]
        finally:
            sys.path.remove(folder)
        ffi, lib = probe.ffi, probe.lib
        got = {
            name: (
                ffi.sizeof(name),
                ffi.alignof(name),
                {
                    m.name: (
                        ffi.offsetof(name, m.name),
                        ffi.sizeof(dict(ffi.typeof(name).fields)[m.name].type),
                    )
                    for m in members
                },
            )
            for name, members in header.structs.items()
        }
        problems = compare("cffi", layouts_of(header), got)
        problems += [f"cffi: {name} is missing" for name in header.functions if not hasattr(lib, name)]
        if lib.sslm_model_unmap(ffi.NULL) != lib.SSLM_INVALID_ARGUMENT:
            problems.append("cffi: sslm_model_unmap(NULL) is not SSLM_INVALID_ARGUMENT")
        if ffi.string(lib.sslm_ext_status_name(lib.SSLM_OK)) != b"SSLM_OK":
            problems.append("cffi: sslm_ext_status_name(SSLM_OK) is not SSLM_OK")
    return problems


def ctypeslib_module(library: Path, folder: Path) -> Path:
    """What ctypeslib2 makes of the headers; it is installed into .cache/ctypeslib2 with exact pins."""
    venv = ROOT / ".cache/ctypeslib2"
    if not (venv / "bin/clang2py").is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        pip = [str(venv / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        # ctypeslib2 imports pkg_resources, which newer interpreters and setuptools leave out.
        subprocess.run([*pip, *CTYPESLIB_PINS, "setuptools<80"], check=True)
    (clang,) = venv.glob("lib/python*/site-packages/clang/native/libclang.so")
    include = subprocess.run(
        ["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True
    ).stdout
    out, umbrella = folder / "generated.py", folder / "superslm_all.h"
    umbrella.write_text('#define SSLM_ENABLE_DRAFT_EXTENSIONS\n#include "superslm/sslm_ext.h"\n')
    headers = [str(INCLUDE / "superslm" / name) for name in ("sslm_abi.h", "parallel_for.h", "sslm_ext.h")]
    arguments = f"-DSSLM_ENABLE_DRAFT_EXTENSIONS -I{INCLUDE} -I{include.strip()}"
    command = [
        str(venv / "bin/clang2py"),
        f"--clang-args={arguments}",
        "-l",
        str(library),
        *headers,
        "-o",
        str(out),
    ]
    environment = {**os.environ, "CLANG_LIBRARY_PATH": str(clang)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not out.is_file():
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return out


def check_ctypeslib(header: Header, library: Path) -> Problems:
    """ctypeslib2 generates the same structs, statuses and signatures as ours."""
    if sysconfig.get_platform().startswith("win") or not shutil.which("gcc"):
        return missing("ctypeslib2's compiler")
    with tempfile.TemporaryDirectory() as folder:
        try:
            source = ctypeslib_module(library, Path(folder)).read_text()
        except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
            return [f"ctypeslib2: {error}"]
    generated: dict[str, Any] = {"__name__": "generated", "__file__": str(library)}
    exec(compile(source, "generated.py", "exec"), generated)
    # ctypeslib2 packs every struct and pads by hand, so its alignment says nothing.
    got = {n: ctypes_layout(generated[n])[::2] for n in header.structs if n in generated}
    problems = compare("ctypeslib2", {n: layout[::2] for n, layout in layouts_of(header).items()}, got)
    for i, name in enumerate(STATUSES):
        problems += compare(f"ctypeslib2: SSLM_{name}", i, generated.get(f"SSLM_{name}"))
    for name, (result, arguments) in {**_abi.VERBS, **_abi.EXTENSIONS}.items():
        function = generated.get(name)
        if function is None:
            problems.append(f"ctypeslib2: {name} is missing")
            continue
        sizes = [ctypes.sizeof(kind) for kind in (result, *arguments)]
        problems += compare(
            f"ctypeslib2: sizes in {name}",
            sizes,
            [ctypes.sizeof(k) for k in (function.restype, *function.argtypes)],
        )
    return problems


# ---- Command ----


def write_lists(frozen: Header, drafts: Header) -> None:
    """Writes the export lists from the headers."""
    EXPORTS.mkdir(exist_ok=True)
    for name, header in (("frozen.txt", frozen), ("ext.txt", drafts)):
        (EXPORTS / name).write_text("\n".join(header.functions) + "\n")


def type_checks(libraries: Sequence[Path], include: Path) -> dict[str, Callable[[], Problems]]:
    """Those of the libraries that have debug information, against the baseline."""
    return {
        f"types of {library}": lambda library=library: check_types(library, include)
        for library in libraries
        if library.is_file() and abi_binary.has_debug_info(library)
    }


def checks(libraries: Sequence[Path]) -> dict[str, Callable[[], Problems]]:
    """All checks by name; those that need a library are made for each one, or for the first."""
    frozen = abi_header.read(INCLUDE, abi_header.FROZEN_HEADERS)
    drafts = abi_header.read(INCLUDE, abi_header.EXTENSION_HEADERS)
    both = abi_header.read(INCLUDE, (*abi_header.FROZEN_HEADERS, *abi_header.EXTENSION_HEADERS))
    made: dict[str, Callable[[], Problems]] = {
        "names and ordinals": lambda: check_names(frozen, drafts),
        "layouts in C and C++": lambda: check_compilers(both),
        "export lists": lambda: check_lists(frozen, drafts),
        "ctypes": lambda: check_ctypes(both),
        "docs": lambda: check_docs(both),
    }
    for library in libraries:
        made[f"exports of {library}"] = lambda library=library: check_library(library, both)
    made |= type_checks(libraries, INCLUDE)
    if libraries:
        made["cffi"] = lambda: check_cffi(both, libraries[0])
        made["ctypeslib2"] = lambda: check_ctypeslib(both, libraries[0])
    return made


def game_checks(libraries: Sequence[Path], include: Path) -> dict[str, Callable[[], Problems]]:
    """What a game's CI checks about its copy of the headers and libraries, by name."""
    frozen = abi_header.read(include, abi_header.FROZEN_HEADERS)
    made: dict[str, Callable[[], Problems]] = {
        "names and ordinals": lambda: check_names(frozen, Header()),
        "layouts in C and C++": lambda: check_compilers(frozen, include),
    }
    for library in libraries:
        made[f"verbs of {library}"] = lambda library=library: check_game_library(library)
    return made | type_checks(libraries, include)


def run_checks(made: dict[str, Callable[[], Problems]]) -> int:
    """Runs checks and prints one line for each; returns the number of problems."""
    failed = 0
    for name, function in made.items():
        problems = function()
        failed += len(problems)
        print(
            "\n".join([f"{'FAILED' if problems else 'ok':6} {name}", *(f"       {p}" for p in problems)]),
            flush=True,
        )
    return failed


def main() -> int:
    """Runs the checks that the command line asks for; returns 1 when there is a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("libraries", nargs="*", type=Path, metavar="LIBRARY")
    parser.add_argument("--write", action="store_true", help="write the export lists from the headers")
    parser.add_argument("--game", action="store_true", help="check a game's own copy: the frozen part only")
    parser.add_argument("--include", type=Path, default=INCLUDE, metavar="DIR", help="holds superslm/*.h")
    arguments = parser.parse_args()
    libraries = [library.resolve() for library in arguments.libraries]
    if not (arguments.include / "superslm/sslm_abi.h").is_file():
        parser.error(f"{arguments.include} holds no superslm/sslm_abi.h; name the folder with --include")
    if arguments.game:
        return 1 if run_checks(game_checks(libraries, arguments.include.resolve())) else 0
    if arguments.write:
        write_lists(
            abi_header.read(INCLUDE, abi_header.FROZEN_HEADERS),
            abi_header.read(INCLUDE, abi_header.EXTENSION_HEADERS),
        )
        for library in libraries[:1]:
            abi_binary.write_baseline(library, INCLUDE, ROOT)
    failed = run_checks(checks(libraries))
    refusing = list_file("refusing.txt")
    print(f"verbs that refuse every call: {', '.join(refusing) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
