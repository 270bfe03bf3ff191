# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What a schema may be spelled with: the bytes of every token of a model."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

_HEADER, _DIRECTORY = 32, struct.Struct("<II")
_TEXT_START, _TEXT, _ADDED = 0, 1, 6
_CONTROL = 1


@dataclass(frozen=True)
class Vocabulary:
    """Token texts by id.

    texts: bytes per id of the model; empty where an id has none (control tokens, padding), so that no schema
    allows it.
    """

    texts: list[bytes]

    @property
    def lacking(self) -> frozenset[int]:
        """Bytes that no token consists of alone, so that not every text can be spelled."""
        single = {text[0] for text in self.texts if len(text) == 1}
        return frozenset(range(256)) - single

    @staticmethod
    def from_section(section: bytes | memoryview, vocab: int) -> Vocabulary:
        """Reads the tokenizer section of an artifact (docs/tokenizer_section.md) that the library accepted."""

        def table(index: int, dtype: str) -> np.ndarray:
            offset, size = _DIRECTORY.unpack_from(section, _HEADER + index * _DIRECTORY.size)
            return np.frombuffer(section, dtype, size // np.dtype(dtype).itemsize, offset)

        starts, data = table(_TEXT_START, "<u4").tolist(), table(_TEXT, "u1").tobytes()
        texts = [data[a:b] for a, b in zip(starts, starts[1:], strict=False)]
        texts += [b""] * (vocab - len(texts))
        for token, flags in table(_ADDED, "<u4").reshape(-1, 2).tolist():
            if flags & _CONTROL:
                texts[token] = b""
        return Vocabulary(texts)
