# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Reads a LoRA adapter in PEFT's directory layout: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checkpoint import ConvertError, FloatTensor, is_number, read_json
from .digest import files_sha256
from .quantized import TARGETS
from .source_huggingface import read_safetensors

MODULES = {
    "self_attn.q_proj": "WQ",
    "self_attn.k_proj": "WK",
    "self_attn.v_proj": "WV",
    "self_attn.o_proj": "WO",
    "mlp.gate_proj": "WG",
    "mlp.up_proj": "WU",
    "mlp.down_proj": "WD",
}
MAX_RANK = 256
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_TENSOR = re.compile(
    r"(?:base_model\.model\.)?(?P<module>(?:model\.)?layers\.(?P<layer>[0-9]{1,4})\.(?P<part>[\w.]+?))"
    r"\.lora_(?P<half>[AB])(?:\.\w+)?\.weight"
)
# Options that make more of an adapter than W + scale * B A; each with what it does.
_REFUSED = {
    "use_dora": "it is a DoRA adapter, which also rescales the base weights",
    "lora_bias": "its B factors have biases",
    "modules_to_save": "it replaces whole modules of the base, such as resized embeddings",
    "trainable_token_indices": "it changes embeddings",
    "layer_replication": "it repeats layers of the base",
    "target_parameters": "it changes parameters that are no linear layer",
}
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")  # initialisations that also rewrite the base weights
_EMBEDDING = re.compile(r"embed|lm_head|modules_to_save")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")  # what makes a pattern take exponential time
_MAX_PATTERN = 200  # characters


@dataclass(frozen=True)
class FloatPair:
    """One LoRA pair as trained: the target gains `scale * b @ a`."""

    a: FloatTensor  # [rank, inputs]
    b: FloatTensor  # [outputs, rank], in Hugging Face channel order
    scale: float  # alpha / rank, or alpha / sqrt(rank) with rsLoRA

    @property
    def rank(self) -> int:
        return self.a.shape[0]


@dataclass(frozen=True)
class PeftAdapter:
    """A float adapter: `pairs[layer, target]` with the names of `quantized.TARGETS`."""

    name: str
    base_name: str  # what the adapter says it was trained on; may be empty
    sha256: str  # of its two files, see `files_sha256`
    pairs: dict[tuple[int, str], FloatPair]


def load_peft(folder: str | Path) -> PeftAdapter:
    """Opens an adapter directory; tensors are read from the mapped file when asked for.

    Raises:
        ConvertError: a file is missing or damaged, or the adapter is more than plain LoRA on the seven
            projections of a layer.
    """
    path = Path(folder)
    config, weights = path / CONFIG, path / WEIGHTS
    settings = _settings(config)
    _refuse_variants(settings)
    if not weights.is_file():
        raise ConvertError(
            f"{WEIGHTS} is missing", str(path), "Save the adapter with safetensors (PEFT's default)."
        )
    modules: dict[tuple[int, str], dict[str, FloatTensor]] = {}
    names: dict[tuple[int, str], str] = {}
    for name, tensor in read_safetensors(weights).items():
        found = _TENSOR.fullmatch(name)
        if found is None or found["part"] not in MODULES:
            raise _unknown_tensor(name)
        key = (int(found["layer"]), MODULES[found["part"]])
        names[key] = found["module"]
        if found["half"] in modules.setdefault(key, {}):
            raise ConvertError("it holds more than one adapter", WEIGHTS, "Save a single adapter.")
        modules[key][found["half"]] = tensor
    if not modules:
        raise ConvertError("it holds no LoRA pair", WEIGHTS, "Train the adapter, and save it again.")
    pairs = {key: _pair(names[key], modules[key], settings) for key in sorted(modules, key=_place)}
    base = settings.get("base_model_name_or_path")
    return PeftAdapter(
        name=path.resolve().name,
        base_name=base if isinstance(base, str) else "",
        sha256=files_sha256([config, weights]),
        pairs=pairs,
    )


def _place(key: tuple[int, str]) -> tuple[int, int]:
    return key[0], TARGETS.index(key[1])


def _settings(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, "Save the adapter again.")
    except FileNotFoundError:
        raise ConvertError(
            f"{path.name} is missing",
            str(path.parent),
            f"Give a directory that PEFT wrote: {CONFIG} and {WEIGHTS}.",
        ) from None


def _refuse_variants(settings: dict[str, Any]) -> None:
    """Raises ConvertError for options whose result is not base + B A."""
    remedy = "Train a plain LoRA adapter: PEFT's LoraConfig with its defaults and target_modules."

    def refuse(what: str) -> None:
        raise ConvertError(what, CONFIG, remedy)

    kind = settings.get("peft_type")
    if kind != "LORA":
        refuse(f"peft_type is {kind!r}, only LORA is supported")
    for key, what in _REFUSED.items():
        if settings.get(key):
            refuse(f"{what} ({key})")
    if settings.get("bias", "none") != "none":
        refuse(f"it trains biases (bias is {settings['bias']!r})")
    start = settings.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        refuse(f"its initialisation {start!r} rewrote the base weights; this base does not have them")
    targets = settings.get("target_modules")
    known = {name.rpartition(".")[2] for name in MODULES}
    for target in targets if isinstance(targets, list) else []:
        part = str(target).rpartition(".")[2]
        if part not in known:
            what = "an embedding" if _EMBEDDING.search(part) else "unknown"
            refuse(f"the target module {target!r} is {what}; known are {', '.join(sorted(known))}")


def _unknown_tensor(name: str) -> ConvertError:
    if "lora_magnitude_vector" in name:
        what = "it belongs to a DoRA adapter, which also rescales the base weights"
    elif _EMBEDDING.search(name):
        what = "it changes embeddings or the head, which belong to the base"
    elif name.endswith(".bias"):
        what = "it is a bias; only LoRA factors are supported"
    else:
        what = f"its target is unknown; known are {', '.join(m.rpartition('.')[2] for m in MODULES)}"
    return ConvertError(what, f"tensor {name}", "Train a plain LoRA adapter on these projections only.")


def _pair(module: str, halves: dict[str, FloatTensor], settings: dict[str, Any]) -> FloatPair:
    """The pair of one module with its scale, checked as far as that needs no base."""
    for half in "AB":
        if half not in halves:
            raise ConvertError(f"lora_{half} is missing", f"module {module}", "Save the adapter again.")
    a, b = halves["A"], halves["B"]
    rank = _number(settings, "r", "rank_pattern", module)
    alpha = _number(settings, "lora_alpha", "alpha_pattern", module)
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or a.shape[0] != rank:
        raise ConvertError(
            f"A has shape {list(a.shape)} and B {list(b.shape)} where the rank is {rank:g}",
            f"module {module}",
            "Configuration and weights do not belong together; save the adapter again.",
        )
    if not 1 <= rank <= MAX_RANK:
        raise ConvertError(
            f"its rank is {rank:g}, the engine takes 1..{MAX_RANK}",
            f"module {module}",
            "Train it with a smaller r; 8 to 32 is usual for one character.",
        )
    return FloatPair(a, b, alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank))


def _number(settings: dict[str, Any], key: str, pattern_key: str, module: str) -> float:
    """A setting of one module: the first pattern that matches the end of its name, else the common value."""
    value = settings.get(key)
    try:
        for pattern, special in (settings.get(pattern_key) or {}).items():
            if len(pattern) > _MAX_PATTERN or _REPEATED_GROUP.search(pattern):
                raise re.error("a pattern is too long or repeats a group")
            if re.match(rf"(.*\.)?({pattern})$", module):
                value = special
                break
    except (re.error, AttributeError) as error:
        raise ConvertError(f"{pattern_key} is damaged ({error})", CONFIG, "Save the adapter again.") from None
    if not is_number(value):
        raise ConvertError(f"{key} is {value!r:.40}, not a number", CONFIG, "Save the adapter again.")
    return value
