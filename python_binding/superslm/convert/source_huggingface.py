# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Reads a Hugging Face model directory as a neutral checkpoint.

Needed are config.json and the weights as safetensors (one file, or shards with an index); tokenizer.json,
tokenizer_config.json and generation_config.json are taken along when present.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoint import (
    Checkpoint,
    Config,
    ConvertError,
    FloatTensor,
    check_config,
    head_slots,
    is_number,
    layer_index,
    read_json,
    row_order,
)
from .digest import files_sha256
from .tables import rope_frequencies, scale_linear, scale_llama3

ARCHITECTURES = ("llama", "qwen2", "qwen3")

LAYER_PARTS = {
    "input_layernorm.weight": "N1",
    "post_attention_layernorm.weight": "N2",
    "self_attn.q_proj.weight": "WQ",
    "self_attn.k_proj.weight": "WK",
    "self_attn.v_proj.weight": "WV",
    "self_attn.o_proj.weight": "WO",
    "mlp.gate_proj.weight": "WG",
    "mlp.up_proj.weight": "WU",
    "mlp.down_proj.weight": "WD",
    "self_attn.q_proj.bias": "BQ",
    "self_attn.k_proj.bias": "BK",
    "self_attn.v_proj.bias": "BV",
    "self_attn.q_norm.weight": "NQ",
    "self_attn.k_norm.weight": "NK",
}
MODEL_PARTS = {"model.embed_tokens.weight": "embedding", "lm_head.weight": "head", "model.norm.weight": "NF"}
HEADER_LIMIT = 100 << 20  # bytes of a safetensors header, the format's own bound
FLOAT_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def load_huggingface(path: str | Path) -> Checkpoint:
    """Opens a model directory; tensors are read from the mapped files when asked for.

    Raises:
        ConvertError: a file is missing or damaged, or the architecture is not supported.
    """
    path = Path(path)
    settings = _json_file(path / "config.json", required=True)
    tensors: dict[str, FloatTensor] = {}
    files = _weight_files(path)
    for file in files:
        tensors |= read_safetensors(file)
    extra = {
        n: _json_file(path / n) for n in ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
    }
    checkpoint = checkpoint_from_tensors(settings, tensors, path.resolve().name)
    present = [path / n for n, content in extra.items() if content is not None]
    checkpoint.source_sha256 = files_sha256([path / "config.json", *files, *present])
    checkpoint.tokenizer_json = extra["tokenizer.json"]
    checkpoint.tokenizer_config = extra["tokenizer_config.json"]
    checkpoint.chat_template = _chat_template(path, extra["tokenizer_config.json"])
    checkpoint.licence = _licence(path)
    checkpoint.stop_ids = _stop_ids(extra["generation_config.json"] or {}, settings, checkpoint.config.vocab)
    return checkpoint


def checkpoint_from_tensors(
    settings: dict[str, Any], tensors: dict[str, FloatTensor], where: str
) -> Checkpoint:
    """The neutral checkpoint of a config.json and its tensors under their Hugging Face names.

    Raises:
        ConvertError: an unsupported architecture or option, a missing or misshapen tensor.
    """
    config, slots = _config(settings, tensors, where)
    orders = {"WQ": row_order(config.heads, slots), "WK": row_order(config.kv_heads, slots)}
    orders |= {"BQ": orders["WQ"], "BK": orders["WK"], "NQ": row_order(1, slots)}
    orders["NK"] = orders["NQ"]
    neutral = {}
    for name, tensor in tensors.items():
        head, _, rest = name.removeprefix("model.layers.").partition(".")
        if name in MODEL_PARTS:
            key = MODEL_PARTS[name]
        elif name.startswith("model.layers.") and layer_index(head) is not None and rest in LAYER_PARTS:
            key = f"layer{layer_index(head)}.{LAYER_PARTS[rest]}"
        elif name.endswith("rotary_emb.inv_freq"):
            continue
        else:
            key = name  # check_shapes refuses it by name
        if key == "head" and config.tied:
            continue
        order = orders.get(key.rpartition(".")[2])
        if order is not None and len(order) == tensor.shape[0]:
            tensor = FloatTensor(tensor.name, tensor.shape, tensor.fetch, order)
        neutral[key] = tensor
    checkpoint = Checkpoint(config=config, tensors=neutral, source_name=where, source_sha256="")
    checkpoint.check_shapes()
    return checkpoint


def _json_file(path: Path, required: bool = False) -> dict[str, Any] | None:
    try:
        return read_json(path, "Download it again.")
    except FileNotFoundError:
        if not required:
            return None
        raise ConvertError(
            f"{path.name} is missing",
            str(path.parent),
            "Give a GGUF file, or a directory with config.json, safetensors weights and tokenizer.json.",
        ) from None


def _weight_files(path: Path) -> list[Path]:
    """The safetensors files of a model, from the index where there is one."""
    index = _json_file(path / "model.safetensors.index.json")
    if index is not None:
        names = index.get("weight_map")
        names = list(names.values()) if isinstance(names, dict) else [None]
        if not all(isinstance(name, str) and name == Path(name).name for name in names):
            raise ConvertError(
                "weight_map does not map tensors to files of this directory",
                "model.safetensors.index.json",
                "Download it again.",
            )
        files = [path / name for name in sorted(set(names))]
    else:
        files = [path / "model.safetensors"]
        if not files[0].exists():
            files = sorted(path.glob("*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise ConvertError(
            f"weights are missing: {', '.join(missing) or 'no safetensors file'}",
            str(path),
            "Download all shards; other formats (such as .bin) must first be saved as safetensors.",
        )
    return files


def read_safetensors(path: Path) -> dict[str, FloatTensor]:
    """The tensors of one safetensors file, mapped and not yet read.

    Raises:
        ConvertError: the header does not describe this file, or a tensor is not floating point.
    """
    header, begin, size = _safetensors_header(path)
    data = np.memmap(path, np.uint8, mode="r", offset=begin) if size > begin else np.empty(0, np.uint8)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind, shape, (start, stop) = _entry(path.name, name, entry)
        element = np.dtype(FLOAT_TYPES[kind])
        if stop - start != math.prod(shape) * element.itemsize:
            raise ConvertError(
                f"tensor {name} has {stop - start:,} bytes where its shape {list(shape)} in {kind} needs "
                f"{math.prod(shape) * element.itemsize:,}",
                path.name,
                "The file is damaged; download it again.",
            )
        if stop > len(data):
            raise ConvertError(
                f"tensor {name} ends at byte {begin + stop:,}, the file at byte {size:,}",
                path.name,
                "The file is truncated; download it again.",
            )
        raw = data[start:stop].view(element.newbyteorder("<")).reshape(shape)
        tensors[name] = FloatTensor(name, shape, _fetcher(raw, kind))
    return tensors


def _safetensors_header(path: Path) -> tuple[dict[str, Any], int, int]:
    """The header of a safetensors file, where its data begin, and its size in bytes. Raises ConvertError."""

    def broken(what: str) -> ConvertError:
        return ConvertError(what, path.name, "The file is truncated or damaged; download it again.")

    size = path.stat().st_size
    with path.open("rb") as stream:
        prefix = stream.read(8)
        if len(prefix) < 8:
            raise broken(f"it has {size} bytes, too few for a safetensors file")
        length = struct.unpack("<Q", prefix)[0]
        if length > min(size - 8, HEADER_LIMIT):
            raise broken(f"its header claims {length:,} bytes, the file has {size:,}")
        try:
            header = json.loads(stream.read(length))
        except (ValueError, RecursionError):
            raise broken("its header is not JSON") from None
    if not isinstance(header, dict):
        raise broken("its header is not a JSON object")
    return header, 8 + length, size


def _entry(where: str, name: str, entry: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """Type, shape and byte range of a tensor in a safetensors header. Raises ConvertError."""
    known = entry if isinstance(entry, dict) else {}
    kind, shape, offsets = known.get("dtype"), known.get("shape"), known.get("data_offsets")
    numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
    if not isinstance(kind, str) or not all(type(n) is int and n >= 0 for n in numbers) or len(offsets) != 2:
        raise ConvertError(
            f"its header has no usable entry for tensor {name}",
            where,
            "The file is damaged; download it again.",
        )
    if kind not in FLOAT_TYPES:
        raise ConvertError(
            f"its type {kind} is not F64, F32, F16 or BF16",
            f"tensor {name}",
            "Use an unquantised checkpoint.",
        )
    return kind, tuple(shape), (offsets[0], offsets[1])


def _fetcher(raw: np.ndarray, kind: str) -> Callable[[Any], np.ndarray]:
    if kind == "BF16":
        return lambda rows: (np.asarray(raw[rows]).astype(np.uint32) << 16).view(np.float32)
    if kind == "F16":
        return lambda rows: np.asarray(raw[rows]).astype(np.float32)
    return lambda rows: np.asarray(raw[rows])


def _config(
    settings: dict[str, Any], tensors: dict[str, FloatTensor], where: str
) -> tuple[Config, np.ndarray]:
    """The model's shape, and the slot order of a query or key head."""
    architecture = settings.get("model_type")
    if architecture not in ARCHITECTURES:
        raise ConvertError(
            f"model_type {architecture!r} is not supported",
            f"{where}/config.json",
            f"Supported: {', '.join(ARCHITECTURES)}.",
        )
    _refuse_variants(settings, where)

    def integer(key: str, default: int | None = None) -> int:
        value = settings.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or not is_number(value):
            raise ConvertError(
                f"{key} is {'missing' if value is None else 'not an integer'}",
                f"{where}/config.json",
                "Download the configuration again.",
            )
        return value

    hidden, heads = integer("hidden_size"), integer("num_attention_heads")
    head_dim = integer("head_dim", hidden // heads if heads > 0 else None)
    rope = _rope_settings(settings, where)
    share = _number(rope, "partial_rotary_factor", where)
    rotated = int(head_dim * share) if 0 < share <= 1 else 0
    if rotated % 2 or not 0 < rotated <= head_dim:
        raise ConvertError(
            f"{rotated} of {head_dim} channels are rotated",
            where,
            "An even number within the head is needed.",
        )
    config = Config(
        architecture=architecture,
        hidden=hidden,
        heads=heads,
        kv_heads=integer("num_key_value_heads", heads),
        head_dim=head_dim,
        mlp=integer("intermediate_size"),
        vocab=integer("vocab_size"),
        layers=integer("num_hidden_layers"),
        eps=_number(settings, "rms_norm_eps", where, 1e-6),
        context_length=integer("max_position_embeddings"),
        tied=bool(settings.get("tie_word_embeddings", False)),
        qkv_bias="model.layers.0.self_attn.k_proj.bias" in tensors,
        qk_norm="model.layers.0.self_attn.k_norm.weight" in tensors,
        frequencies=(),
    )
    check_config(config, where)
    config = replace(config, frequencies=tuple(_frequencies(rope, rotated, head_dim, where)))
    return config, head_slots(head_dim, rotated, interleaved=False)


def _number(settings: dict[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = settings.get(key)
    value = default if value is None else value
    if not is_number(value):
        raise ConvertError(f"{key} is not a number", f"{where}/config.json", "Download it again.")
    return float(value)


def _refuse_variants(settings: dict[str, Any], where: str) -> None:
    """Raises ConvertError for options that change the computation and are not supported."""
    refused = {
        "quantization_config": "the weights are already quantised in a foreign format",
        "use_sliding_window": "it uses sliding-window attention",
        "mlp_bias": "its MLP has biases",
        "num_experts": "it is a mixture of experts",
    }
    for key, what in refused.items():
        if settings.get(key):
            raise ConvertError(
                f"{what} ({key})", f"{where}/config.json", "Use an unquantised dense checkpoint."
            )
    types = settings.get("layer_types") or ()
    kinds = (
        sorted({str(kind) for kind in types} - {"full_attention"})
        if isinstance(types, list | tuple)
        else [types]
    )
    if kinds:
        raise ConvertError(
            f"some layers use {', '.join(map(str, kinds))}",
            f"{where}/config.json",
            "Only full attention in every layer is supported.",
        )
    activation = settings.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ConvertError(
            f"activation {activation!r} is not supported",
            f"{where}/config.json",
            "Only silu models are supported.",
        )


def _rope_settings(settings: dict[str, Any], where: str) -> dict[str, Any]:
    """Rotary settings with old and new key names merged and defaults filled in."""
    rope: dict[str, Any] = {"rope_theta": 10000.0, "partial_rotary_factor": 1.0, "rope_type": "default"}
    for source in (settings, settings.get("rope_scaling"), settings.get("rope_parameters")):
        if source is None:
            continue
        nested = (
            source is not settings
            and isinstance(source, dict)
            and any(isinstance(value, dict) for value in source.values())
        )
        if not isinstance(source, dict) or nested:
            raise ConvertError(
                "the rotary settings are not one flat object",
                f"{where}/config.json",
                "Only one rotary setting for all layers is supported.",
            )
        rope |= {k: v for k, v in source.items() if v is not None and (source is not settings or k in rope)}
        if source is not settings and "rope_type" not in source and "type" in source:
            rope["rope_type"] = source["type"]
    rope.setdefault("original_max_position_embeddings", settings.get("max_position_embeddings"))
    return rope


def _frequencies(rope: dict[str, Any], rotated: int, head_dim: int, where: str) -> list[Decimal]:
    """Rotary frequencies with the model's scaling applied."""

    def positive(key: str) -> float:
        value = float(rope[key])
        if not 0 < value < math.inf:
            raise ValueError(f"{key} is {value}")
        return value

    try:
        plain = rope_frequencies(positive("rope_theta"), rotated, head_dim)
        kind = rope["rope_type"]
        if kind == "default":
            return plain
        if kind == "linear":
            return scale_linear(plain, positive("factor"))
        if kind == "llama3":
            return scale_llama3(
                plain,
                positive("factor"),
                positive("low_freq_factor"),
                positive("high_freq_factor"),
                int(positive("original_max_position_embeddings")),
            )
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ConvertError(
            f"its rotary settings cannot be used ({error!r})", f"{where}/config.json", "Download it again."
        ) from error
    raise ConvertError(
        f"rotary scaling {kind!r} is not supported",
        f"{where}/config.json",
        "Use a model with default, linear or llama3 scaling.",
    )


def _chat_template(path: Path, tokenizer_config: dict[str, Any] | None) -> str | None:
    """The default chat template, from its own file or from tokenizer_config.json."""
    own = path / "chat_template.jinja"
    if own.is_file():
        try:
            return own.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConvertError(f"byte {error.start} is not UTF-8", own.name, "Download it again.") from None
    template = (tokenizer_config or {}).get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _licence(path: Path) -> str | None:
    """The licence id from the front matter of README.md, else None."""
    readme = path / "README.md"
    try:
        text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    except OSError:
        return None
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        return None
    for line in lines[1:]:
        if line.strip() == "---":
            break
        key, _, value = line.partition(":")
        if key == "license" and value.strip():
            return value.strip()
    return None


def _stop_ids(generation: dict[str, Any], settings: dict[str, Any], vocab: int) -> list[int]:
    """End-of-sequence ids, from generation_config.json before config.json, without repeats."""
    found = generation.get("eos_token_id")
    found = settings.get("eos_token_id") if found is None else found
    ids: list[int] = []
    for token in found if isinstance(found, list) else [found]:
        if isinstance(token, int) and 0 <= token < vocab and token not in ids:
            ids.append(token)
    return ids
