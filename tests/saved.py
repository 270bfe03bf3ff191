# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Save blobs of sequences without an anti-LM history, as the tests read and write them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from superslm.convert.quantized import QuantizedModel

HEAD = struct.Struct("<4s32sIQIQqIiqqQqiQIQQQQ")  # the 156 bytes that SSB5 and SSB6 share
LENGTH, LAYER, PENDING, READY = 60, 68, 72, 120  # offsets of fields that `patched` sets


@dataclass(frozen=True)
class Saved:
    """What a blob says about a sequence.

    `k` and `v` are int8 [layers, positions, kv_heads, head_dim]; a mid-token blob has one position more than
    `length`. `counts`: total, V landing, K landing, RoPE Q, RoPE K.
    """

    length: int
    layer: int
    pending: int
    ready: bool
    counts: list[int]
    residual: np.ndarray
    k: np.ndarray
    v: np.ndarray


def parse(blob: bytes, model: QuantizedModel) -> Saved:
    """Reads an SSB5 or SSB6 blob of a sequence of `model`."""
    fields = HEAD.unpack_from(blob)
    magic, length, layer, pending = fields[0], fields[6], fields[7], fields[8]
    total, history, ready = fields[11], fields[14], fields[15]
    assert magic in (b"SSB5", b"SSB6") and history == 0
    at = HEAD.size + (16 if magic == b"SSB6" else 0)
    residual = np.frombuffer(blob, "<i4", model.hidden, at)
    at += 4 * model.hidden
    used = length + (layer > 0)
    if magic == b"SSB6":
        (positions,) = struct.unpack_from("<Q", blob, at)
        assert positions == used
        at += 8
    else:
        positions = model.cap
        at += 4
    shape = (len(model.layers), 2, model.kv_heads, positions, model.head_dim)
    rows = np.frombuffer(blob, np.int8, -1, at).reshape(shape)
    assert not rows[:, :, :, used:].any(), "rows past the live length must be zero"
    rows = rows[:, :, :, :used].transpose(1, 0, 3, 2, 4)
    return Saved(length, layer, pending, bool(ready), [total, *fields[16:20]], residual, rows[0], rows[1])


def with_pending(blob: bytes, token: int) -> bytes:
    """A blob whose sequence, at rest after a prefill, has `token` as if it had just emitted it."""
    out = bytearray(blob)
    struct.pack_into("<i", out, PENDING, token)
    struct.pack_into("<I", out, READY, 0)
    return bytes(out)
