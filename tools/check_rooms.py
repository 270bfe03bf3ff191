#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Checks that the code keeps to the rooms of docs/architecture.md.

    python tools/check_rooms.py        prints every violation; exit code 0: none

The two tables of that page say which rooms there are and what each may include or import. Beyond the tables:

- includes and imports form no circle, and a room includes only rooms below it in its table;
- the library includes no header that needs a C++ runtime or floating point, and uses no word of either;
- handles and statuses stay in abi/, the processor's and the system's headers where they belong;
- importing the Python package takes NumPy and nothing else beyond the standard library;
- no source file has more than 700 lines.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 700
FOLDERS = ("include", "c_abi", "python_binding", "plugin_host", "examples", "tests", "tools")
SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".py", ".js", ".mjs", ".cs", ".lua", ".gd"}

# Headers that are used without linking a C++ runtime.
STANDARD = set(
    "algorithm array atomic bit climits cstddef cstdint cstdlib cstring functional initializer_list limits new "
    "type_traits utility".split()
)
# Headers of a processor or a system, and the rooms that may know them.
PLATFORM = {
    "arm_neon.h": {"kernels", "artifact"},
    "cpuid.h": {"kernels", "artifact"},
    "emmintrin.h": {"kernels", "base"},
    "immintrin.h": {"kernels", "artifact"},
    "intrin.h": {"kernels", "artifact", "base"},
    "smmintrin.h": {"kernels"},
    "wasm_simd128.h": {"kernels"},
    "sys/auxv.h": {"kernels", "artifact"},
    "sys/sysctl.h": {"kernels", "artifact"},
    "pthread.h": {"base"},
    "windows.h": {"base", "kernels"},
}
# Public headers below abi/: the host's hook is plain data.
PUBLIC = {"superslm/parallel_for.h": {"base"}}
FORBIDDEN = {
    r"\b(float|double)\b": "floating point",
    r"\b(throw|try|catch|dynamic_cast|typeid)\b": "exceptions or run-time types",
    r"\b__int128\b": "a type that not every compiler has",
    r"\bstd::(function|stable_sort|inplace_merge|stable_partition)\b": "it allocates through the C++ runtime",
    r"\bnew\b(?!\s*\()": "the C++ runtime's heap",
    r"(?<!= )\bdelete\b": "the C++ runtime's heap",
    r"\b(printf|fprintf|snprintf|sprintf|puts|fopen)\b": "input or output",
    r"\b(pthread_create|std::thread|CreateThread)\b": "a thread of the library's own",
}
HANDLES = re.compile(
    r"\b(sslm_(?!parallel_for\b|run_tasks_fn\b|task_fn\b)\w+|SSLM_(?!PARALLEL_FOR_|FORCE_TIER)\w+)"
)


@dataclass(frozen=True)
class Room:
    """One row of a table: what belongs to the room and what it may use."""

    name: str
    members: tuple[str, ...]  # patterns of module names; of a room of the library its folder
    uses: frozenset[str]


# ---- the tables ----


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head. Raises ValueError when there is none."""
    _, found, text = page.partition(f"\n## {heading}\n")
    rows = re.findall(r"^\|(.*)\|$", text.partition("\n## ")[0], re.M)
    if not found or len(rows) < 3:
        raise ValueError(f"docs/architecture.md has no table below {heading!r}")
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def rooms_of(rows: Iterable[tuple[str, str, str]]) -> list[Room]:
    """Rooms in the order of a table, from (name, members, what it uses)."""
    rows = list(rows)
    names = [name for name, _, _ in rows]
    rooms = []
    for i, (name, members, said) in enumerate(rows):
        words = set(re.findall(r"\w+", re.sub(r"\([^)]*\)", "", said)))
        uses = set(names[i + 1 :]) if said == "all below" else words & set(names)
        rooms.append(Room(name, tuple(re.findall(r"`([^`]+)`", members)), frozenset(uses)))
    return rooms


def library_rooms(page: str) -> list[Room]:
    """The rooms of c_abi/, from the top down."""
    rows = table(page, "Rooms of the library")
    return rooms_of((row[0].strip("`/"), row[0], row[2]) for row in rows)


def package_rooms(page: str) -> list[Room]:
    """The rooms of the Python package, from the top down."""
    rows = table(page, "Rooms of the Python package")
    return rooms_of((row[0], row[1], row[3]) for row in rows)


def check_order(rooms: list[Room]) -> Iterator[str]:
    """A table whose rooms use a room above them."""
    for i, room in enumerate(rooms):
        below = {other.name for other in rooms[i + 1 :]}
        for name in sorted(room.uses - below):
            yield f"docs/architecture.md: {room.name} uses {name}, which stands above it"


def circles(graph: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """A path for every circle that a depth-first walk meets."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> Iterator[list[str]]:
        if node in path:
            yield [*path[path.index(node) :], node]
        elif node not in done:
            for other in sorted(graph.get(node, ())):
                yield from walk(other, [*path, node])
            done.add(node)

    for node in sorted(graph):
        yield from walk(node, [])


# ---- the library ----


def code_of(source: str) -> str:
    """C++ without comments, strings and characters; the lines stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(pattern, lambda match: "\n" * match[0].count("\n"), source, flags=re.S)


def check_library(root: Path, rooms: list[Room]) -> Iterator[str]:
    """Violations in c_abi/."""
    home = root / "c_abi"
    uses = {room.name: room.uses for room in rooms}
    folders = {path.name for path in home.iterdir() if path.is_dir()}
    if folders != set(uses):
        yield f"c_abi/ has the rooms {sorted(folders)}, docs/architecture.md {sorted(uses)}"
        return
    graph: dict[str, set[str]] = {}
    for path in sorted(home.rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        name, room, source = (
            str(path.relative_to(home)),
            path.relative_to(home).parts[0],
            path.read_text("utf-8"),
        )
        graph[name] = set()
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', source, re.M):
            other = included.partition("/")[0]
            if other in folders:
                graph[name].add(included)
                if other != room and other not in uses[room]:
                    yield f"c_abi/{name} includes {included}: {room}/ may not use {other}/"
            elif room != "abi" and room not in PUBLIC.get(included, ()):
                yield f"c_abi/{name} includes {included}, which only abi/ may know"
        for included in re.findall(r"^\s*#\s*include\s+<([^>]+)>", source, re.M):
            if included not in STANDARD and room not in PLATFORM.get(included, ()):
                yield f"c_abi/{name} includes <{included}>, which {room}/ may not"
        yield from (f"c_abi/{name}:{what}" for what in check_words(source, room))
    for circle in circles(graph):
        yield "a circle of includes: " + " -> ".join(circle)


def check_words(source: str, room: str) -> Iterator[str]:
    """Words that a file of a room may not contain, each with its line."""
    for number, line in enumerate(code_of(source).splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for pattern, why in FORBIDDEN.items():
            if found := re.search(pattern, line):
                yield f"{number}: {found[0]}: {why}"
        if room != "abi" and (found := HANDLES.search(line)):
            yield f"{number}: {found[0]}: handles and statuses belong to abi/"


# ---- the Python package ----


@dataclass(frozen=True)
class Imports:
    """What a module imports: modules of the package at once and later, and other packages at once."""

    at_once: frozenset[str]
    later: frozenset[str]
    others: frozenset[str]


def imports_of(source: str, module: str, is_package: bool, modules: set[str]) -> Imports:
    """The imports of a module `superslm.X`, named without `superslm.`; those for type checkers do not count."""
    at_once: set[str] = set()
    later: set[str] = set()
    others: set[str] = set()

    def note(name: str, into: set[str]) -> None:
        if name.partition(".")[0] != "superslm":
            if into is at_once and name.partition(".")[0] not in sys.stdlib_module_names:
                others.add(name.partition(".")[0])
            return
        while name != "superslm" and name.removeprefix("superslm.") not in modules:
            name = name.rpartition(".")[0]  # a name in a module, not a module
        into.add(name.removeprefix("superslm.") if name != "superslm" else "__init__")

    def visit(node: ast.AST, into: set[str]) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                note(alias.name, into)
        elif isinstance(node, ast.ImportFrom):
            parts = ["superslm", *module.split(".")]
            level = node.level - 1 if is_package else node.level
            base = (
                ".".join([*parts[: len(parts) - level], *filter(None, [node.module])])
                if node.level
                else node.module
            )
            for alias in node.names:
                full = f"{base}.{alias.name}"
                note(full if full.removeprefix("superslm.") in modules else str(base), into)
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, later if inside else into)

    visit(ast.parse(source), at_once)
    return Imports(frozenset(at_once - {module}), frozenset(later), frozenset(others))


def package_imports(root: Path) -> dict[str, Imports]:
    """Module -> its imports, for every module of the package."""
    home = root / "python_binding/superslm"
    paths = {}
    for path in sorted(home.rglob("*.py")):
        name = ".".join(path.relative_to(home).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    return {
        name: imports_of(
            path.read_text("utf-8"), name, path.name == "__init__.py" and name != "__init__", set(paths)
        )
        for name, path in paths.items()
    }


def check_package(root: Path, rooms: list[Room]) -> Iterator[str]:
    """Violations in the Python package."""
    imports = package_imports(root)
    room_of = {module: room for module in imports if (room := _room_of(module, rooms))}
    if missing := sorted(imports.keys() - room_of.keys()):
        yield f"no room of docs/architecture.md holds superslm.{', superslm.'.join(missing)}"
        return
    for module, found in imports.items():
        room = room_of[module]
        for other in sorted(found.at_once | found.later):
            if room_of[other] is not room and room_of[other].name not in room.uses:
                yield f"superslm.{module} imports superslm.{other}: {room.name} may not use {room_of[other].name}"
    graph = {module: loaded_with(module, found.at_once) for module, found in imports.items()}
    for circle in circles({module: found.at_once for module, found in imports.items()}):
        yield "a circle of imports: " + " -> ".join(circle)
    for module in sorted(reached("__init__", graph)):
        for other in sorted(imports[module].others - {"numpy"}):
            yield f"importing superslm imports {other}, in superslm.{module}"


def _room_of(module: str, rooms: list[Room]) -> Room | None:
    """The room that names a module, else the first one with a pattern for it."""
    by_name = [room for room in rooms if module in room.members]
    by_pattern = [room for room in rooms if any(fnmatch.fnmatchcase(module, m) for m in room.members)]
    return next(iter([*by_name, *by_pattern]), None)


def loaded_with(module: str, at_once: Iterable[str]) -> set[str]:
    """What importing a module loads: its imports, and the packages around them."""
    found = set()
    for other in at_once:
        parts = other.split(".")
        found |= {".".join(parts[:i]) for i in range(1, len(parts) + 1)}
    return found - {module}


def reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Everything that can be reached from a node."""
    found, open_nodes = set(), [start]
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += graph.get(node, ())
    return found


# ---- all ----


def check_sizes(root: Path) -> Iterator[str]:
    """Sources that are too long to be read in one go."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and not {"node_modules", "__pycache__"} & set(path.parts):
                lines = path.read_text("utf-8").count("\n")
                if lines > MOST_LINES:
                    yield f"{path.relative_to(root)} has {lines} lines, at most {MOST_LINES} may be; split it"


def check(root: Path = ROOT) -> list[str]:
    """Every violation in a tree, one sentence each."""
    page = (root / "docs/architecture.md").read_text("utf-8")
    library, package = library_rooms(page), package_rooms(page)
    return [
        *check_order(library),
        *check_order(package),
        *check_library(root, library),
        *check_package(root, package),
        *check_sizes(root),
    ]


def main() -> int:
    """Prints the violations; returns the exit code."""
    found = check()
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print("the rooms are as docs/architecture.md says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
