# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Checks that the header of a GGUF file fits the file, before the `gguf` package reads it.

That package trusts the counts it finds. Here every count is compared with the bytes that are left, so that a
truncated or damaged file is refused with its place, whatever it claims.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from .checkpoint import ConvertError

VERSIONS = (2, 3)
MAX_DIMENSIONS = 4
UINT32, STRING, ARRAY = 4, 8, 9  # value types
NUMBER_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # value type -> bytes
SMALLEST_PAIR, SMALLEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes of a key/value pair and a tensor's entry
DAMAGED = "The file is damaged; download it again."


class _Cursor:
    """Reads a mapped file front to back; everything that does not fit is refused with its place."""

    def __init__(self, data: mmap.mmap, where: str) -> None:
        self.data, self.where, self.at = data, where, 0

    def refuse(self, what: str, remedy: str = DAMAGED) -> ConvertError:
        return ConvertError(what, self.where, remedy)

    def skip(self, size: int, what: str) -> int:
        """Steps over `size` bytes; returns where they begin."""
        start = self.at
        if size > len(self.data) - start:
            raise self.refuse(
                f"{what} at byte {start:,} needs {size:,} bytes, the file ends at byte {len(self.data):,}",
                "The file is truncated or damaged; download it again.",
            )
        self.at += size
        return start

    def number(self, kind: str, what: str) -> int:
        start = self.skip(struct.calcsize(kind), what)
        return int(struct.unpack_from(kind, self.data, start)[0])

    def text(self, what: str) -> str:
        size = self.number("<Q", what)
        start = self.skip(size, what)
        try:
            return self.data[start : start + size].decode("utf-8")
        except UnicodeDecodeError:
            raise self.refuse(f"{what} at byte {start:,} is not UTF-8") from None

    def count(self, what: str, smallest: int) -> int:
        """A number of items that take at least `smallest` bytes each."""
        value = self.number("<Q", f"the number of {what}")
        if value > (len(self.data) - self.at) // smallest:
            raise self.refuse(f"it claims {value:,} {what}, more than its {len(self.data):,} bytes can hold")
        return value


def check_gguf(path: Path) -> None:
    """Raises ConvertError unless all parts that a GGUF file announces lie inside it."""
    with path.open("rb") as file:
        if path.stat().st_size < 24:
            raise ConvertError("the file ends inside its header", path.name, "Download it again.")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check(_Cursor(data, path.name))


def _check(cursor: _Cursor) -> None:
    cursor.skip(4, "the magic")
    version = cursor.number("<I", "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS
        raise cursor.refuse(
            "it is a big-endian file" if swapped else f"GGUF version {version} is not supported",
            f"Use a little-endian file of version {' or '.join(map(str, VERSIONS))}.",
        )
    tensors = cursor.count("tensors", SMALLEST_TENSOR)
    alignment = _check_pairs(cursor)
    ends: dict[str, int] = {}
    for _ in range(tensors):
        name, end = _tensor_end(cursor)
        if name in ends:
            raise cursor.refuse(f"tensor {name} appears twice")
        ends[name] = end
    start = -(-cursor.at // alignment) * alignment
    for name, end in ends.items():
        if start + end > len(cursor.data):
            raise cursor.refuse(
                f"tensor {name} ends at byte {start + end:,}, the file at byte {len(cursor.data):,}",
                "The file is truncated; download it again.",
            )


def _check_pairs(cursor: _Cursor) -> int:
    """Steps over the key/value pairs; returns the alignment of tensors in bytes."""
    alignment, keys = 32, set[str]()
    for _ in range(cursor.count("keys", SMALLEST_PAIR)):
        key = cursor.text("a key")
        if key in keys:
            raise cursor.refuse(f"the key {key} appears twice")
        keys.add(key)
        kind = cursor.number("<I", f"the type of {key}")
        if key != "general.alignment":
            _check_value(cursor, kind, key)
            continue
        alignment = cursor.number("<I", key)
        if kind != UINT32 or alignment.bit_count() != 1:
            raise cursor.refuse(f"{key} is {alignment}, no power of two")
    return alignment


def _check_value(cursor: _Cursor, kind: int, key: str) -> None:
    if kind == STRING:
        cursor.text(f"the value of {key}")
    elif kind == ARRAY:
        item = cursor.number("<I", f"the type of {key}")
        if item in NUMBER_SIZES:
            size = NUMBER_SIZES[item]
            cursor.skip(cursor.count(f"items of {key}", size) * size, f"the value of {key}")
        elif item == STRING:
            for _ in range(cursor.count(f"items of {key}", 8)):
                cursor.text(f"an item of {key}")
        else:
            raise cursor.refuse(f"{key} is an array of the unknown type {item}")
    elif kind in NUMBER_SIZES:
        cursor.skip(NUMBER_SIZES[kind], f"the value of {key}")
    else:
        raise cursor.refuse(f"{key} is of the unknown type {kind}")


def _tensor_end(cursor: _Cursor) -> tuple[str, int]:
    """Steps over a tensor's entry; returns its name and where it ends, counted from the first tensor's place."""
    name = cursor.text("a tensor's name")
    dimensions = cursor.number("<I", f"the dimensions of tensor {name}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise cursor.refuse(f"tensor {name} has {dimensions} dimensions, 1 to {MAX_DIMENSIONS} are possible")
    shape = [cursor.number("<Q", f"the shape of tensor {name}") for _ in range(dimensions)]
    kind, offset = cursor.number("<I", f"the type of tensor {name}"), cursor.number("<Q", f"tensor {name}")
    try:
        items, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        raise cursor.refuse(
            f"tensor {name} is of the unknown type {kind}", "Use a file in another quantisation."
        ) from None
    if 0 in shape or shape[0] % items:
        raise cursor.refuse(f"tensor {name} has the impossible shape {shape[::-1]}")
    return name, offset + math.prod(shape) // items * size
