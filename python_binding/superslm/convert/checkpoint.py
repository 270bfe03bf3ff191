# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The neutral checkpoint: what every source is turned into before calibration and quantisation.

A source (`source_gguf.py`, `source_huggingface.py`) fills in a `Config`, a `FloatTensor` per part and
the tokenizer data. Everything behind it knows one naming and one channel layout:

- tensors are `embedding`, `head` (untied models), `NF`, and `layer<l>.` + `N1 N2 WQ WK WV WO WG WU WD`,
  optionally `BQ BK BV` and `NQ NK`;
- the channels of every query and key head stand in the engine's slots: pair f is slots f and
  f + head_dim/2, and a pair that the model leaves unrotated has frequency zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np


class ConvertError(Exception):
    """A model cannot be converted; the message says what is wrong, where, and what to do."""

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(f"{where}: {what}. {remedy}")
        self.what = what
        self.where = where
        self.remedy = remedy


def is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a number that a float64 holds; integers there have any size."""
    try:
        return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:
        return False


def layer_index(text: str) -> int | None:
    """The layer of a tensor's name, or None where the text is no plain number of at most four digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file of a source; `remedy` says what to do about a damaged one.

    Raises:
        FileNotFoundError: there is no file.
        ConvertError: it is no regular file (a pipe or device would never end), no JSON or no object.
    """
    if path.exists() and not path.is_file():
        raise ConvertError("it is not a regular file", path.name, remedy)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (ValueError, RecursionError, OSError) as error:
        raise ConvertError(f"it cannot be read as JSON ({error})", path.name, remedy) from error
    if not isinstance(content, dict):
        raise ConvertError("it is not a JSON object", path.name, remedy)
    return content


@dataclass(frozen=True)
class Config:
    """Shape and constants of a decoder-only model of the Llama family."""

    architecture: str  # "llama", "qwen2" or "qwen3"
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    layers: int
    eps: float  # RMSNorm epsilon
    context_length: int  # positions the model was trained for
    tied: bool  # embedding and head share one tensor
    qkv_bias: bool
    qk_norm: bool
    frequencies: tuple[Decimal, ...]  # theta per pair in radians per position, [head_dim / 2]; 0: unrotated


@dataclass(frozen=True)
class FloatTensor:
    """One float tensor of the source, read on demand: at most the rows asked for are in memory."""

    name: str  # the source's own name, for messages
    shape: tuple[int, ...]
    fetch: Callable[[Any], np.ndarray]  # a slice or index array over rows -> those rows, float32 or float64
    order: np.ndarray | None = None  # row r of this tensor is row order[r] of the source

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, checked to be finite.

        Raises ConvertError when the source holds a NaN or an infinity there.
        """
        part = self.fetch(slice(start, stop) if self.order is None else self.order[start:stop])
        if not np.isfinite(part).all():
            bad = np.argwhere(~np.isfinite(part))[0]
            bad[0] += start
            raise ConvertError(
                f"element {bad.tolist()} is NaN or infinite",
                f"tensor {self.name}",
                "The checkpoint is damaged or was trained into overflow; fetch or export it again.",
            )
        return part

    def read(self) -> np.ndarray:
        """The whole tensor, checked to be finite."""
        return self.rows(0, self.shape[0])


@dataclass
class Checkpoint:
    """A float model with its tokenizer data and its origin."""

    config: Config
    tensors: dict[str, FloatTensor]
    source_name: str  # what the model calls itself, or the file name
    source_sha256: (
        str  # of the GGUF file; of a directory: over "<sha256>  <file name>\n" lines, sorted by name
    )
    licence: str | None = None
    tokenizer_json: dict[str, Any] | None = None  # a directory's tokenizer.json, parsed
    tokenizer_config: dict[str, Any] | None = None  # a directory's tokenizer_config.json, parsed
    gguf_metadata: dict[str, Any] | None = None  # a GGUF file's metadata, all keys, arrays as lists
    chat_template: str | None = None
    stop_ids: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # remarks for the user, one sentence each

    def __getitem__(self, name: str) -> FloatTensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def use_chat_template(self, template: str) -> None:
        """Puts a Jinja template in the place of the model's own."""
        self.chat_template = template
        if self.gguf_metadata is not None:
            self.gguf_metadata["tokenizer.chat_template"] = template

    def layer(self, index: int) -> dict[str, FloatTensor]:
        """The tensors of one layer by their short names (`WQ`, `N1`, ...)."""
        prefix = f"layer{index}."
        return {n[len(prefix) :]: t for n, t in self.tensors.items() if n.startswith(prefix)}

    def check_shapes(self) -> None:
        """Raises ConvertError unless exactly the expected tensors are there, in the expected shapes."""
        expected = dict(expected_shapes(self.config))
        for name, shape in expected.items():
            tensor = self.tensors.get(name)
            if tensor is None:
                raise ConvertError(
                    f"the tensor {name} (shape {list(shape)}) is missing",
                    self.source_name,
                    "The checkpoint is incomplete, or its configuration describes another model; "
                    "fetch it again with all its files.",
                )
            if tensor.shape != shape:
                raise ConvertError(
                    f"shape {list(tensor.shape)} where the configuration asks for {list(shape)}",
                    f"tensor {tensor.name}",
                    "Weights and configuration do not belong together; fetch both from one revision.",
                )
        for name in self.tensors.keys() - expected.keys():
            raise ConvertError(
                "this part has no place in a supported architecture",
                f"tensor {self.tensors[name].name}",
                "Leaving it out would change the model, so it is refused.",
            )


def expected_shapes(config: Config) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields every tensor name of the neutral checkpoint with its shape."""
    c = config
    query, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
    yield "embedding", (c.vocab, c.hidden)
    if not c.tied:
        yield "head", (c.vocab, c.hidden)
    yield "NF", (c.hidden,)
    part = {
        "N1": (c.hidden,),
        "N2": (c.hidden,),
        "WQ": (query, c.hidden),
        "WK": (keys, c.hidden),
        "WV": (keys, c.hidden),
        "WO": (c.hidden, query),
        "WG": (c.mlp, c.hidden),
        "WU": (c.mlp, c.hidden),
        "WD": (c.hidden, c.mlp),
    }
    if c.qkv_bias:
        part |= {"BQ": (query,), "BK": (keys,), "BV": (keys,)}
    if c.qk_norm:
        part |= {"NQ": (c.head_dim,), "NK": (c.head_dim,)}
    for index in range(c.layers):
        for name, shape in part.items():
            yield f"layer{index}.{name}", shape


def check_config(config: Config, where: str) -> None:
    """Raises ConvertError when a size lies outside the bounds the integer engine is proven for."""
    c = config

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise ConvertError(what, where, "The engine's number ranges are proven only up to this bound.")

    sizes = (c.hidden, c.heads, c.kv_heads, c.head_dim, c.mlp, c.vocab, c.layers, c.context_length)
    need(min(sizes) >= 1, "a size is zero or negative")
    need(c.hidden <= 32768, f"hidden size {c.hidden} is above 32768")
    need(max(c.mlp, c.heads * c.head_dim) <= 65536, "a matrix has more than 65536 inputs")
    need(c.head_dim <= 512 and c.head_dim % 2 == 0, f"head_dim {c.head_dim} is odd or above 512")
    need(c.layers <= 1024, f"{c.layers} layers are above 1024")
    need(c.heads % c.kv_heads == 0, f"{c.heads} heads do not divide into {c.kv_heads} K/V heads")
    need(c.vocab <= 1 << 19, f"vocabulary of {c.vocab} is above 524288")
    need(0.0 < c.eps < 1.0, f"norm epsilon {c.eps} is not between 0 and 1")


def head_slots(head_dim: int, rotated: int, interleaved: bool) -> np.ndarray:
    """Which source channel of a head stands in each slot of the engine's layout.

    Args:
        head_dim: channels of a head.
        rotated: how many leading channels the model rotates.
        interleaved: pairs are channels (2f, 2f+1), not (f, f + rotated/2).
    Returns:
        int64 [head_dim]: slot -> source channel.
    """
    slots = np.empty(head_dim, np.int64)
    half, pairs = head_dim // 2, rotated // 2
    rest = half - pairs
    f = np.arange(pairs)
    slots[:pairs] = 2 * f if interleaved else f
    slots[half : half + pairs] = 2 * f + 1 if interleaved else f + pairs
    slots[pairs:half] = rotated + np.arange(rest)
    slots[half + pairs :] = rotated + rest + np.arange(rest)
    return slots


def row_order(heads: int, slots: np.ndarray) -> np.ndarray | None:
    """The row order that puts every head of a [heads * head_dim, ...] tensor into slot order; None: as is."""
    if np.array_equal(slots, np.arange(len(slots))):
        return None
    return (np.arange(heads)[:, None] * len(slots) + slots[None, :]).reshape(-1)
