# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The `SCHM` section of an artifact: named token automata (docs/schema_section.md)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

import numpy as np

from .automaton import SchemaError
from .tokens import TokenAutomaton

HEADER = struct.Struct("<4sIIII12x")  # magic, version, vocabulary, class tables, schemas
CLASS_TABLE = struct.Struct("<I4x32s")  # classes, digest
ENTRY = struct.Struct("<IIII32s")  # name bytes, class table, states, accepting states, digest
MAGIC, VERSION, ALIGNMENT = b"SLSC", 1, 64
MAX_SCHEMAS, MAX_NAME = 65536, 255


def pack(schemas: Mapping[str, TokenAutomaton]) -> bytes:
    """The section's bytes; equal class tables are stored once.

    Raises SchemaError for a name that cannot be stored.
    """
    named = sorted((_name(name), automaton) for name, automaton in schemas.items())
    if not 1 <= len(named) <= MAX_SCHEMAS:
        raise SchemaError(f"{len(named)} schemas", "schemas", f"An artifact holds 1 to {MAX_SCHEMAS}.")
    vocab = len(named[0][1].classes)
    tables: dict[bytes, tuple[int, int]] = {}  # bytes -> index, classes
    entries, bodies = [], []
    for name, automaton in named:
        classes = automaton.classes.astype("<u2").tobytes()
        states, width = automaton.next.shape
        index, _ = tables.setdefault(classes, (len(tables), width))
        following = automaton.next.astype("<u4").tobytes()
        accepting = automaton.accepting.astype("<u4").tobytes()
        digest = table_digest(vocab, automaton)
        entries.append(ENTRY.pack(len(name), index, states, len(automaton.accepting), digest))
        bodies += [following, accepting]
    records = (CLASS_TABLE.pack(width, hashlib.sha256(data).digest()) for data, (_, width) in tables.items())
    head = HEADER.pack(MAGIC, VERSION, vocab, len(tables), len(named))
    head += b"".join(records) + b"".join(entries) + b"".join(name for name, _ in named)
    return b"".join(_padded(part) for part in (head, *tables, *bodies))


def unpack(section: bytes | memoryview) -> dict[str, tuple[TokenAutomaton, bytes]]:
    """The automata and digests of a section that the library accepted; tables are views into it."""
    _, _, vocab, tables, count = HEADER.unpack_from(section)
    at = HEADER.size
    widths = [CLASS_TABLE.unpack_from(section, at + i * CLASS_TABLE.size)[0] for i in range(tables)]
    at += tables * CLASS_TABLE.size
    entries = [ENTRY.unpack_from(section, at + i * ENTRY.size) for i in range(count)]
    at += count * ENTRY.size
    names = []
    for size, *_ in entries:
        names.append(bytes(section[at : at + size]).decode())
        at += size
    at = _aligned(at)
    classes = []
    for _ in range(tables):
        classes.append(np.frombuffer(section, "<u2", vocab, at))
        at = _aligned(at + 2 * vocab)
    out = {}
    for name, (_, table, states, accepting, digest) in zip(names, entries, strict=True):
        following = np.frombuffer(section, "<u4", states * widths[table], at).reshape(states, -1)
        at = _aligned(at + following.nbytes)
        final = np.frombuffer(section, "<u4", accepting, at)
        out[name] = TokenAutomaton(classes[table], following, final), digest
        at = _aligned(at + 4 * accepting)
    return out


def table_digest(vocab: int, automaton: TokenAutomaton) -> bytes:
    """SHA-256 over the sizes, the class table's digest, the next states and the accepting states."""
    states, width = automaton.next.shape
    digest = hashlib.sha256(struct.pack("<IIII", vocab, width, states, len(automaton.accepting)))
    digest.update(hashlib.sha256(automaton.classes.astype("<u2").tobytes()).digest())
    digest.update(automaton.next.astype("<u4").tobytes())
    digest.update(automaton.accepting.astype("<u4").tobytes())
    return digest.digest()


def _name(name: str) -> bytes:
    data = name.encode()
    if not 1 <= len(data) <= MAX_NAME or b"\0" in data:
        raise SchemaError(f"the name {name!r}", "schemas", f"A name has 1 to {MAX_NAME} bytes and no NUL.")
    return data


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    return data + bytes(_aligned(len(data)) - len(data))
