# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Reads a GGUF file as a neutral checkpoint.

Every tensor type that the `gguf` package can dequantise is accepted. Files of architecture `llama` store
the rotated channels of a head side by side; they are brought into half-split order here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from .checkpoint import (
    Checkpoint,
    Config,
    ConvertError,
    FloatTensor,
    check_config,
    head_slots,
    layer_index,
    row_order,
)
from .digest import file_sha256
from .gguf_header import check_gguf
from .tables import rope_frequencies, scale_linear

ARCHITECTURES = ("llama", "qwen2", "qwen3")

LAYER_PARTS = {
    "attn_norm.weight": "N1",
    "ffn_norm.weight": "N2",
    "attn_q.weight": "WQ",
    "attn_k.weight": "WK",
    "attn_v.weight": "WV",
    "attn_output.weight": "WO",
    "ffn_gate.weight": "WG",
    "ffn_up.weight": "WU",
    "ffn_down.weight": "WD",
    "attn_q.bias": "BQ",
    "attn_k.bias": "BK",
    "attn_v.bias": "BV",
    "attn_q_norm.weight": "NQ",
    "attn_k_norm.weight": "NK",
}
MODEL_PARTS = {"token_embd.weight": "embedding", "output.weight": "head", "output_norm.weight": "NF"}


class _Metadata:
    """Typed access to a file's key/value pairs, with errors that name the key."""

    def __init__(self, values: dict[str, Any], architecture: str, where: str) -> None:
        self.values, self.architecture, self.where = values, architecture, where

    def number(self, key: str, default: float | None = None) -> float:
        """The number under `<architecture>.<key>`; a list of equal numbers counts as one."""
        name = f"{self.architecture}.{key}"
        value = self.values.get(name, default)
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            value = value[0]
        if isinstance(value, list):
            raise ConvertError(f"{name} differs between layers", self.where, "Such models are not supported.")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.unusable(name, "missing" if value is None else "not a number")
        if not math.isfinite(value):
            raise self.unusable(name, f"{value}, which is no number to compute with")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise self.unusable(f"{self.architecture}.{key}", f"{value}, which is no whole number")
        return int(value)

    def unusable(self, name: str, what: str) -> ConvertError:
        return ConvertError(
            f"the key {name} is {what}",
            self.where,
            "The file was written incompletely; export it again with a current tool.",
        )


def load_gguf(path: str | Path) -> Checkpoint:
    """Opens a GGUF file; tensors are read from the mapping when asked for.

    Args:
        path: one file; a model split over several files is refused.
    Raises:
        ConvertError: not a GGUF file, an unsupported architecture, a missing or misshapen tensor.
    """
    path = Path(path)
    where = path.name
    reader = _open(path)
    values = {key: field.contents() for key, field in reader.fields.items()}
    architecture = values.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ConvertError(
            f"architecture {architecture!r} is not supported",
            where,
            f"Supported in GGUF files: {', '.join(ARCHITECTURES)}.",
        )
    if values.get("split.count", 1) not in (0, 1):
        raise ConvertError(
            "the model is split over several files",
            where,
            "Merge them into one file first (llama-gguf-split --merge).",
        )
    meta = _Metadata(values, architecture, where)
    sources = {tensor.name: tensor for tensor in reader.tensors}
    config, slots = _config(meta, sources)
    checkpoint = Checkpoint(
        config=config,
        tensors=_tensors(sources, config, slots),
        source_name=str(values.get("general.name") or path.stem),
        source_sha256=file_sha256(path),
        licence=values.get("general.license"),
        gguf_metadata=values,
        chat_template=values.get("tokenizer.chat_template"),
        stop_ids=_stop_ids(values, config.vocab),
    )
    checkpoint.check_shapes()
    return checkpoint


def _open(path: Path) -> gguf.GGUFReader:
    try:
        check_gguf(path)
        return gguf.GGUFReader(path)
    except OSError as error:
        raise ConvertError(error.strerror or "it cannot be read", str(path), "Check the path.") from None
    except (ValueError, LookupError, OverflowError, TypeError) as error:  # what the check does not know
        raise ConvertError(
            f"the package gguf cannot read it ({type(error).__name__})", path.name, "Download it again."
        ) from error


def _config(meta: _Metadata, sources: dict[str, Any]) -> tuple[Config, np.ndarray]:
    """The model's shape, and the slot order of a query or key head."""
    if meta.number("expert_count", 0) > 0:
        raise ConvertError("it is a mixture of experts", meta.where, "Only dense models are supported.")
    hidden, heads = meta.integer("embedding_length"), meta.integer("attention.head_count")
    if heads < 1:
        raise ConvertError("it has no attention heads", meta.where, "Export it again with a current tool.")
    head_dim = meta.integer("attention.key_length", hidden // heads)
    if meta.integer("attention.value_length", head_dim) != head_dim:
        raise ConvertError("keys and values differ in width", meta.where, "Such models are not supported.")
    rotated = meta.integer("rope.dimension_count", head_dim)
    if rotated % 2 or not 0 < rotated <= head_dim:
        raise ConvertError(
            f"{rotated} of {head_dim} channels are rotated",
            meta.where,
            "An even number within the head is needed.",
        )
    embedding = sources.get("token_embd.weight")
    config = Config(
        architecture=meta.architecture,
        hidden=hidden,
        heads=heads,
        kv_heads=meta.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        mlp=meta.integer("feed_forward_length"),
        vocab=int(embedding.shape[1]) if embedding is not None else meta.integer("vocab_size"),
        layers=meta.integer("block_count"),
        eps=float(meta.number("attention.layer_norm_rms_epsilon")),
        context_length=meta.integer("context_length"),
        tied="output.weight" not in sources,
        qkv_bias="blk.0.attn_k.bias" in sources,
        qk_norm="blk.0.attn_k_norm.weight" in sources,
        frequencies=(),
    )
    check_config(config, meta.where)
    config = replace(config, frequencies=tuple(_frequencies(meta, sources, rotated, head_dim)))
    return config, head_slots(head_dim, rotated, interleaved=meta.architecture == "llama")


def _frequencies(meta: _Metadata, sources: dict[str, Any], rotated: int, head_dim: int) -> list[Decimal]:
    """Rotary frequencies with the file's scaling applied."""
    frequencies = rope_frequencies(_positive(meta, "rope.freq_base", 10000.0), rotated, head_dim)
    kind = meta.values.get(f"{meta.architecture}.rope.scaling.type", "none")
    if kind == "linear":
        frequencies = scale_linear(frequencies, _positive(meta, "rope.scaling.factor"))
    elif kind != "none":
        raise ConvertError(
            f"rotary scaling {kind!r} is not supported",
            meta.where,
            "Use a model with none, linear or llama3 scaling.",
        )
    factors = sources.get("rope_freqs.weight")
    if factors is None:
        return frequencies
    divisors = np.asarray(gguf.quants.dequantize(factors.data, factors.tensor_type), np.float64).reshape(-1)
    if len(divisors) != rotated // 2 or not (np.isfinite(divisors) & (divisors > 0)).all():
        raise ConvertError(
            "its values are not one positive factor per rotated pair",
            "tensor rope_freqs.weight",
            "The file is damaged; download it again.",
        )
    scaled = [scale_linear([f], float(d))[0] for f, d in zip(frequencies, divisors, strict=False)]
    return scaled + frequencies[len(scaled) :]


def _positive(meta: _Metadata, key: str, default: float | None = None) -> float:
    value = float(meta.number(key, default))
    if value <= 0:
        raise meta.unusable(f"{meta.architecture}.{key}", f"{value}, which is not positive")
    return value


def _tensors(sources: dict[str, Any], config: Config, slots: np.ndarray) -> dict[str, FloatTensor]:
    orders = {"WQ": row_order(config.heads, slots), "WK": row_order(config.kv_heads, slots)}
    orders |= {"BQ": orders["WQ"], "BK": orders["WK"], "NQ": row_order(1, slots)}
    orders["NK"] = orders["NQ"]
    tensors = {}
    for source in sources.values():
        prefix, _, rest = source.name.partition(".")
        index, _, part = rest.partition(".")
        if source.name in MODEL_PARTS:
            name, order = MODEL_PARTS[source.name], None
        elif prefix == "blk" and layer_index(index) is not None and part in LAYER_PARTS:
            short = LAYER_PARTS[part]
            name, order = f"layer{layer_index(index)}.{short}", orders.get(short)
        elif source.name == "rope_freqs.weight" or part == "attn_rot_embd.weight":
            continue
        else:
            name, order = source.name, None  # check_shapes refuses it by name
        shape = tuple(int(n) for n in reversed(source.shape))
        if order is not None and len(order) != shape[0]:
            order = None  # check_shapes refuses the shape
        tensors[name] = FloatTensor(source.name, shape, _fetcher(source, shape), order)
    return tensors


def _fetcher(source: Any, shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    """A function from a row selection to floats; raises ConvertError now when the type has no decoder."""
    data, kind = source.data, source.tensor_type
    if data.dtype == np.float64:
        return lambda rows: data[rows]
    try:
        gguf.quants.dequantize(data[:1] if len(shape) > 1 else data, kind)
    except (NotImplementedError, ValueError) as error:
        raise ConvertError(
            f"its type {kind.name} cannot be read as floats",
            f"tensor {source.name}",
            "Use a file in another quantisation, best F16, BF16 or Q8_0.",
        ) from error
    if len(shape) == 1:
        return lambda rows: gguf.quants.dequantize(data, kind)[rows]
    return lambda rows: gguf.quants.dequantize(data[rows], kind)


def _stop_ids(values: dict[str, Any], vocab: int) -> list[int]:
    """End-of-sequence and end-of-turn ids, in that order, without repeats."""
    ids = []
    for key in ("eos_token_id", "eot_token_id", "eom_token_id"):
        token = values.get(f"tokenizer.ggml.{key}")
        if isinstance(token, int) and 0 <= token < vocab and token not in ids:
            ids.append(token)
    return ids
