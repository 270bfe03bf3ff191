# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Reads the public headers: functions, structs, enums and macros, as plain data.

It reads the plain C these headers are written in, not C in general.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FROZEN_HEADERS = ("parallel_for.h", "sslm_abi.h")
EXTENSION_HEADERS = ("sslm_ext.h",)


@dataclass(frozen=True)
class Parameter:
    """A C type and a name; `count` is an array's length, or None."""

    type: str
    name: str
    count: int | None = None


@dataclass(frozen=True)
class Function:
    """A declared function."""

    name: str
    result: str
    parameters: tuple[Parameter, ...]


@dataclass
class Header:
    """What the headers declare, in their order."""

    text: str = ""  # without comments and preprocessor lines
    functions: dict[str, Function] = field(default_factory=dict)
    structs: dict[str, tuple[Parameter, ...]] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    macros: dict[str, int] = field(default_factory=dict)
    status_list: list[str] = field(default_factory=list)  # of SSLM_STATUS_ENUM_LIST


def _parameter(text: str, macros: dict[str, int]) -> Parameter:
    match = re.fullmatch(r"\s*(.+?)\s*(\w+)\s*(?:\[(\w+)\])?\s*", text, re.S)
    if not match:
        raise ValueError(f"cannot read the declaration {text!r}")
    kind = re.sub(r"\s*\*", "*", re.sub(r"\s+", " ", match[1]))
    count = None if match[3] is None else macros.get(match[3]) or int(match[3])
    return Parameter(kind, match[2], count)


def _plain(source: str) -> str:
    """Drops comments, preprocessor lines, layout assertions and what only C++ or a linker reads."""
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", source, flags=re.M)
    text = re.sub(r'extern "C" \{|^\}\s*$|SUPERSLM_API|SSLM_ENUM_REPRESENTATION', "", text, flags=re.M)
    text = re.sub(r"SSLM_LAYOUT_\w+\(.*?\);", "", text, flags=re.S)
    return re.sub(r"\n\s*\n+", "\n\n", text).strip() + "\n"


def read(include: Path, names: tuple[str, ...]) -> Header:
    """Reads the named headers of `include`/superslm together. Raises ValueError on what it cannot read."""
    header = Header()
    for name in names:
        source = re.sub(r"/\*.*?\*/", "", (include / "superslm" / name).read_text(), flags=re.S)
        for macro, value in re.findall(r"^#define (SSLM_\w+) (0[xX][0-9a-fA-F]+|\d+)[uU]?\s*$", source, re.M):
            header.macros[macro] = int(value, 0)
        if match := re.search(r"#define SSLM_STATUS_ENUM_LIST\(X\)((?:.*\\\n)*.*)", source):
            header.status_list = re.findall(r"X\((\w+)\)", match[1])
        text = _plain(source)
        header.text += text
        for kind, body in re.findall(r"typedef enum (\w+)\s*\{(.*?)\}", text, re.S):
            header.enums[kind] = {n: int(v) for n, v in re.findall(r"(\w+)\s*=\s*(\d+)", body)}
        for kind, body in re.findall(r"typedef struct (\w+)\s*\{(.*?)\}", text, re.S):
            members = [_parameter(member, header.macros) for member in body.split(";") if member.strip()]
            header.structs[kind] = tuple(members)
        for result, function, body in re.findall(r"^([\w ]+[\w*]) ?(sslm_\w+)\(([^()]*)\);", text, re.M):
            parameters = [] if body.strip() == "void" else body.split(",")
            header.functions[function] = Function(
                function,
                result.replace(" *", "*").strip(),
                tuple(_parameter(p, header.macros) for p in parameters),
            )
    return header
