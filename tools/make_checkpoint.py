# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Random-weight checkpoints of any shape: the fixtures of the tests and benchmarks.

Nothing is stored: a fixture is made from its name and seed, always the same. It has no tokenizer.

    python tools/make_checkpoint.py tiny --format hf -o DIR        a Hugging Face directory
    python tools/make_checkpoint.py tiny --format gguf -o DIR      DIR/tiny.gguf
    python tools/make_checkpoint.py --list
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

try:
    import superslm.convert.quantized  # noqa: F401
except ImportError:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python_binding"))

from superslm.convert import source_gguf, source_huggingface
from superslm.convert.calibrate import calibrate
from superslm.convert.checkpoint import Checkpoint, FloatTensor, expected_shapes, head_slots, row_order
from superslm.convert.quantize import quantize
from superslm.convert.quantized import Matrix, MatrixW4, MatrixW8, QuantizedModel, padded

CALIBRATION_TOKENS = 160
BIG = 50_000_000  # parameters above which `make_quantized` draws integers and skips the float model


@dataclass(frozen=True)
class FixtureSpec:
    """Shape and peculiarities of a random model."""

    name: str
    about: str
    architecture: str = "llama"
    hidden: int = 64
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    mlp: int = 96
    vocab: int = 263
    layers: int = 2
    cap: int = 64
    rotated: int = 0  # rotated channels of a head; 0: all
    tied: bool = True
    centred: bool = False  # give the keys of a model without key bias a large constant part
    rope_base: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    scale: dict[str, float] = field(default_factory=dict)  # tensor kind -> factor on its random values
    record: dict[str, float] = field(default_factory=dict)  # maximum -> factor; mu 0 removes the centres
    seed: int = 1

    @property
    def qkv_bias(self) -> bool:
        return self.architecture == "qwen2"

    @property
    def qk_norm(self) -> bool:
        return self.architecture == "qwen3"

    @property
    def big(self) -> bool:
        return self.vocab * self.hidden + self.layers * self.hidden * self.mlp * 3 > BIG


def _shapes() -> list[FixtureSpec]:
    def F(name: str, about: str, **settings: Any) -> FixtureSpec:
        return FixtureSpec(name, about, **settings)

    eight = {"hidden": 96, "heads": 8}
    return [
        F("tiny", "the smallest one, for quick tests"),
        F("deep", "six layers, so that budgets and slices have room", layers=6, heads=4, kv_heads=2),
        F("hd32", "head_dim 32", heads=4, kv_heads=2, hidden=128),
        F("hd64", "head_dim 64", head_dim=64, heads=3, kv_heads=1, hidden=192),
        F("hd96", "head_dim 96", head_dim=96, heads=2, kv_heads=2, hidden=192),
        F("hd128", "head_dim 128", head_dim=128, heads=2, kv_heads=1, hidden=256),
        F("gqa1", "as many K/V heads as heads", **eight, kv_heads=8),
        F("gqa2", "two heads per K/V head", **eight, kv_heads=4),
        F("gqa3", "three heads per K/V head", hidden=96, heads=9, kv_heads=3),
        F("gqa4", "four heads per K/V head", **eight, kv_heads=2),
        F("gqa5", "five heads per K/V head", hidden=96, heads=5, kv_heads=1),
        F("gqa6", "six heads per K/V head", hidden=96, heads=6, kv_heads=1),
        F("gqa7", "seven heads per K/V head", hidden=96, heads=14, kv_heads=2),
        F("gqa8", "eight heads per K/V head", **eight, kv_heads=1),
        F("bias", "q, k and v biases, centred keys", architecture="qwen2", heads=4, kv_heads=2),
        F("bias_untied", "biases, own head", architecture="qwen2", heads=4, kv_heads=2, tied=False),
        F("qknorm", "q/k norms", architecture="qwen3", heads=4, kv_heads=2),
        F(
            "qknorm_centred",
            "q/k norms and centred keys",
            architecture="qwen3",
            heads=4,
            kv_heads=2,
            centred=True,
        ),
        F("centred", "centred keys without a key bias", centred=True, heads=4, kv_heads=2),
        F("partial", "16 of 32 channels rotated", rotated=16, heads=4, kv_heads=2),
        F("partial_bias", "24 of 64 channels rotated, biases", architecture="qwen2", head_dim=64, rotated=24),
        F("untied", "own head", tied=False),
        F("odd", "sizes that are multiples of nothing", hidden=83, mlp=117, vocab=331, heads=3, kv_heads=3),
        F(
            "odd_bias",
            "odd sizes, biases, own head",
            architecture="qwen2",
            hidden=75,
            mlp=131,
            vocab=517,
            tied=False,
        ),
        F(
            "llama3",
            "llama3 rotary scaling",
            rope_base=500000.0,
            cap=256,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
        F("linear", "linear rotary scaling", cap=256, rope_scaling={"rope_type": "linear", "factor": 4.0}),
        F("cap40", "a cap of 40 positions", cap=40),
        F("cap64", "a cap of 64 positions", cap=64),
        F("cap65", "a cap of 65 positions", cap=65, centred=True),
        F("cap4096", "a cap of 4096 positions", cap=4096, centred=True),
        F("cap32768", "a cap of 32768 positions", cap=32768, architecture="qwen2"),
        F("cap32768_hd128", "the same with head_dim 128", cap=32768, head_dim=128, hidden=256),
        F("cells", "the model of the contract cells", cap=4096, head_dim=64, layers=4),
        F("cells_other", "another model of that shape", cap=4096, head_dim=64, layers=4, seed=2),
        F(
            "wide",
            "matrices wide enough that the host's hook splits every group",
            hidden=1024,
            heads=8,
            kv_heads=4,
            head_dim=64,
            mlp=512,
            vocab=300,
            layers=3,
        ),
        F("cast", "the K/V geometry of Qwen2.5-0.5B", layers=24, kv_heads=2, head_dim=64, cap=4096),
        F("cast_wide", "that of Qwen2.5-1.5B", layers=28, kv_heads=2, head_dim=128, cap=32768),
        F("equal_logits", "a head of zeros, so that all logits tie", tied=False, scale={"head": 0.0}),
    ]


def _saturating() -> list[FixtureSpec]:
    """One fixture per saturation counter that makes this counter non-zero."""
    two = {"heads": 4, "kv_heads": 2, "layers": 3}

    def F(counter: str, about: str, **settings: Any) -> FixtureSpec:
        return FixtureSpec(f"sat_{counter}", f"clamps in {counter}: {about}", **{**two, **settings})

    return [
        F(
            "res",
            "a huge down projection and a record that hides it",
            scale={"WD": 1000.0},
            record={"res": 1 / 1024},
        ),
        F("qkv", "huge query weights", scale={"WQ": 1e5}),
        F("rope_q", "query biases just below the limit", architecture="qwen2", scale={"BQ": 2.6e4}),
        F(
            "rope_k",
            "key biases just below the limit",
            architecture="qwen2",
            scale={"BK": 2.6e4},
            record={"mu": 0.0},
        ),
        F("k_land", "a record with small key maxima", record={"pk": 0.25}),
        F("v_land", "a record with small value maxima", record={"v": 0.25}),
        F("gateup", "huge gate and up weights", scale={"WG": 1e5, "WD": 1e-5}),
        F(
            "ffn",
            "a record that hides a large product",
            scale={"WG": 200.0, "WU": 200.0, "WD": 1e-3},
            record={"h": 1e-4},
        ),
    ]


def _large() -> list[FixtureSpec]:
    shared = {
        "architecture": "qwen2",
        "vocab": 151936,
        "kv_heads": 2,
        "cap": 32768,
        "rope_base": 1e6,
    }
    return [
        FixtureSpec(
            "qwen2.5-0.5b",
            "the shape of Qwen2.5-0.5B",
            hidden=896,
            layers=24,
            heads=14,
            head_dim=64,
            mlp=4864,
            **shared,
        ),
        FixtureSpec(
            "qwen2.5-1.5b",
            "the shape of Qwen2.5-1.5B",
            hidden=1536,
            layers=28,
            heads=12,
            head_dim=128,
            mlp=8960,
            **shared,
        ),
    ]


FIXTURES: dict[str, FixtureSpec] = {spec.name: spec for spec in (*_shapes(), *_saturating(), *_large())}
SATURATION_COUNTERS = ("res", "qkv", "rope_q", "rope_k", "k_land", "v_land", "gateup", "ffn")


def spec_of(fixture: str | FixtureSpec) -> FixtureSpec:
    """The spec behind a fixture name; a spec is passed through.

    Raises KeyError with the known names.
    """
    if isinstance(fixture, FixtureSpec):
        return fixture
    if fixture not in FIXTURES:
        raise KeyError(f"no fixture {fixture!r}; there are: {', '.join(FIXTURES)}")
    return FIXTURES[fixture]


def settings_of(spec: FixtureSpec) -> dict[str, Any]:
    """The config.json of a fixture."""
    settings: dict[str, Any] = {
        "model_type": spec.architecture,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.mlp,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab,
        "max_position_embeddings": spec.cap,
        "rms_norm_eps": 1e-5,
        "rope_theta": spec.rope_base,
        "hidden_act": "silu",
        "tie_word_embeddings": spec.tied,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }
    if spec.rotated:
        settings["partial_rotary_factor"] = spec.rotated / spec.head_dim
    if spec.rope_scaling:
        settings["rope_scaling"] = spec.rope_scaling
    return settings


def _names(spec: FixtureSpec) -> dict[str, str]:
    """Hugging Face name -> neutral name of every tensor."""
    model = {neutral: name for name, neutral in source_huggingface.MODEL_PARTS.items()}
    layer = {short: name for name, short in source_huggingface.LAYER_PARTS.items()}
    result = {}
    for neutral, _ in expected_shapes(_config(spec)):
        prefix, _, short = neutral.partition(".")
        name = f"model.layers.{prefix[5:]}.{layer[short]}" if short else model[neutral]
        result[name] = neutral
    return result


def _config(spec: FixtureSpec) -> Any:
    """Shape fields under the names that `expected_shapes` reads."""
    fields = (
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "mlp",
        "vocab",
        "layers",
        "tied",
        "qkv_bias",
        "qk_norm",
    )
    return argparse.Namespace(**{name: getattr(spec, name) for name in fields})


def random_tensor(spec: FixtureSpec, neutral: str, shape: tuple[int, ...]) -> np.ndarray:
    """The random values of one tensor, float32 with bfloat16 precision, in Hugging Face channel order."""
    kind = neutral.rpartition(".")[2]
    rng = np.random.default_rng([spec.seed, zlib.crc32(f"{spec.name}/{neutral}".encode())])
    values = rng.standard_normal(shape, dtype=np.float32)
    if kind in ("N1", "N2", "NF", "NQ", "NK"):
        values = 1 + np.float32(0.2) * values
    elif kind in ("BQ", "BK", "BV"):
        values = np.sign(values) * (1 + np.float32(0.05) * np.abs(values)) if kind in spec.scale else values
    elif kind == "embedding":
        values *= np.float32(0.35)  # small against the layers, so that a tied model does not only echo
    else:
        values *= np.float32(1.5 / math.sqrt(shape[1]))
    if spec.centred and kind == "embedding":
        values[:, :8] += 1
    if spec.centred and kind == "NF":
        values[:8] *= np.float32(0.02)  # hides the constant part from the logits
    values = values * np.float32(spec.scale.get(kind, 1.0))
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32)


def make_checkpoint(fixture: str | FixtureSpec) -> Checkpoint:
    """The float checkpoint of a fixture, in memory; a tensor is made anew each time it is read."""
    spec = spec_of(fixture)
    shapes = dict(expected_shapes(_config(spec)))

    def tensor(name: str, neutral: str) -> FloatTensor:
        return FloatTensor(
            name, shapes[neutral], lambda rows: random_tensor(spec, neutral, shapes[neutral])[rows]
        )

    tensors = {name: tensor(name, neutral) for name, neutral in _names(spec).items()}
    checkpoint = source_huggingface.checkpoint_from_tensors(settings_of(spec), tensors, spec.name)
    checkpoint.stop_ids = [2]
    checkpoint.licence = "CC0-1.0"
    return checkpoint


def make_record(fixture: str | FixtureSpec) -> dict[str, Any]:
    """The calibration record of a small fixture: its float maxima, changed as the fixture asks."""
    spec = spec_of(fixture)
    rng = np.random.default_rng([spec.seed, 7])
    ids = rng.integers(0, spec.vocab, CALIBRATION_TOKENS).tolist()
    return adjust_record(calibrate(make_checkpoint(spec), ids, chunk=40), spec.record)


def adjust_record(record: dict[str, Any], factors: dict[str, float]) -> dict[str, Any]:
    """A record with maxima multiplied by the given factors; `mu` 0 removes the centres and widens `pk`."""
    record = json.loads(json.dumps(record))
    record["res"] *= factors.get("res", 1.0)
    for layer in record["layers"]:
        layer["h"] *= factors.get("h", 1.0)
        for name in ("pk", "v"):
            layer[name] = (np.asarray(layer[name]) * factors.get(name, 1.0)).tolist()
        if factors.get("mu", 1.0) == 0.0 and "mu" in layer:
            a, b = np.split(np.asarray(layer.pop("mu")), 2, axis=1)
            layer["pk"] = (np.asarray(layer["pk"]) + np.hypot(a, b)).tolist()
    return record


def make_quantized(fixture: str | FixtureSpec, weights: str = "w8") -> QuantizedModel:
    """A fixture as integers.

    Small fixtures go through calibration and quantisation of their float weights. Large ones draw their
    integers directly, at a plausible scale: their results mean nothing, their speed is that of the shape.

    Args:
        fixture: a name of FIXTURES, or a spec of one's own.
        weights: "w8" or "w4".
    """
    spec = spec_of(fixture)
    if not spec.big:
        return quantize(make_checkpoint(spec), make_record(spec), weights=weights)
    return _large_quantized(spec, weights)


def made_up_record(fixture: str | FixtureSpec) -> dict[str, Any]:
    """A calibration record of plausible maxima, for models whose results mean nothing."""
    spec = spec_of(fixture)
    rng = np.random.default_rng(spec.seed)
    half = spec.head_dim // 2
    layer = {
        "h": 24.0,
        "v": np.full((spec.kv_heads, spec.head_dim), 6.0).tolist(),
        "pk": np.full((spec.kv_heads, half), 8.0).tolist(),
        "mu": (np.rint(rng.standard_normal((spec.kv_heads, spec.head_dim)) * 64) / 64).tolist(),
    }
    return {"res": 512.0, "layers": [layer] * spec.layers}


def _large_quantized(spec: FixtureSpec, weights: str) -> QuantizedModel:
    """A model of integers drawn at random; scales and tables follow from a made-up record."""

    def matrix(tensor: FloatTensor, kind: str) -> Matrix:
        return random_matrix(
            np.random.default_rng([spec.seed, zlib.crc32(tensor.name.encode())]), tensor.shape, kind
        )

    return quantize(make_checkpoint(spec), made_up_record(spec), weights=weights, matrix=matrix)


def random_matrix(rng: np.random.Generator, shape: tuple[int, int], weights: str) -> Matrix:
    """Random integers in the stored form, worth about 1/sqrt(columns) each."""
    rows, columns = shape
    wide = padded(columns)
    blocks = wide // 32
    W = rng.integers(1 << 22, 1 << 23, rows, dtype=np.int32)
    E = round(math.log2(620 * 6e6 * math.sqrt(columns)))
    raw = np.frombuffer(rng.bytes(rows * wide), np.uint8).reshape(rows, wide)
    if weights == "w8":
        v = np.maximum(raw.view(np.int8), -127)
        v[:, columns:] = 0
        return MatrixW8(columns, v, rng.integers(1, 16, (rows, blocks), dtype=np.uint8), W, E)
    q = raw & 15
    q[:, columns:] = 0
    s = rng.integers(1, 256, (rows, blocks), dtype=np.uint8)
    return MatrixW4(columns, q, s, (s.astype(np.uint16) * 15 // 32).astype(np.uint8), W, E)


def _bfloat16(values: np.ndarray) -> bytes:
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


def write_huggingface(fixture: str | FixtureSpec, folder: Path, shards: int = 1) -> Path:
    """Writes config.json and bfloat16 safetensors, one file or shards with an index; returns the folder."""
    spec = spec_of(fixture)
    folder.mkdir(parents=True, exist_ok=True)
    shapes, names = dict(expected_shapes(_config(spec))), _names(spec)
    groups = [dict(list(names.items())[i::shards]) for i in range(shards)]
    index = {}
    for number, group in enumerate(groups, 1):
        file = "model.safetensors" if shards == 1 else f"model-{number:05}-of-{shards:05}.safetensors"
        header, at = {}, 0
        for name, neutral in group.items():
            size = 2 * math.prod(shapes[neutral])
            header[name] = {"dtype": "BF16", "shape": list(shapes[neutral]), "data_offsets": [at, at + size]}
            index[name], at = file, at + size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / file).open("wb") as stream:
            stream.write(struct.pack("<Q", len(text)) + text)
            for neutral in group.values():
                stream.write(_bfloat16(random_tensor(spec, neutral, shapes[neutral])))
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": index})
        )
    (folder / "config.json").write_text(json.dumps(settings_of(spec), indent=2))
    return folder


def write_gguf(
    fixture: str | FixtureSpec,
    path: Path,
    kind: str = "F32",
    metadata: Callable[[Any], None] | None = None,
) -> Path:
    """Writes a GGUF file; returns the path.

    Args:
        fixture: a name of FIXTURES, or a spec of one's own.
        path: the file.
        kind: the matrices' type as the gguf package names it.
        metadata: called with the `gguf.GGUFWriter`, to add keys such as a tokenizer's.
    """
    import gguf

    spec = spec_of(fixture)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, spec.architecture)
    writer.add_name(spec.name)
    writer.add_license("CC0-1.0")
    writer.add_block_count(spec.layers)
    writer.add_context_length(spec.cap)
    writer.add_embedding_length(spec.hidden)
    writer.add_feed_forward_length(spec.mlp)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.rotated or spec.head_dim)
    writer.add_rope_freq_base(spec.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(spec.vocab)
    writer.add_eos_token_id(2)
    if metadata is not None:
        metadata(writer)
    tensors = _gguf_tensors(spec, writer)
    quantisation = gguf.GGMLQuantizationType[kind]
    for name, values in tensors:
        used = quantisation if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(values, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_tensors(spec: FixtureSpec, writer: Any) -> Any:
    """Yields (name, float32 array) in GGUF's names and channel order; adds the rotary scaling to the file."""
    scaling = spec.rope_scaling or {}
    if scaling.get("rope_type") == "linear":
        import gguf

        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling:
        plain = dataclasses.replace(spec, rope_scaling=None)
        pairs = (make_checkpoint(plain).config.frequencies, make_checkpoint(spec).config.frequencies)
        yield "rope_freqs.weight", np.array([float(a / b) for a, b in zip(*pairs, strict=True)], np.float32)
    slots = head_slots(spec.head_dim, spec.rotated or spec.head_dim, interleaved=spec.architecture == "llama")
    huggingface = head_slots(spec.head_dim, spec.rotated or spec.head_dim, interleaved=False)
    stored = np.empty_like(slots)
    stored[slots] = huggingface  # file channel -> Hugging Face channel
    heads = {"WQ": spec.heads, "WK": spec.kv_heads, "BQ": spec.heads, "BK": spec.kv_heads, "NQ": 1, "NK": 1}
    model = {neutral: name for name, neutral in source_gguf.MODEL_PARTS.items()}
    layer = {short: name for name, short in source_gguf.LAYER_PARTS.items()}
    for neutral, shape in expected_shapes(_config(spec)):
        prefix, _, short = neutral.partition(".")
        values = random_tensor(spec, neutral, shape)
        order = row_order(heads[short], stored) if short in heads else None
        yield (
            (f"blk.{prefix[5:]}.{layer[short]}" if short else model[neutral]),
            values if order is None else values[order],
        )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make a random-weight checkpoint.")
    parser.add_argument("name", nargs="?", help="a fixture")
    parser.add_argument("--list", action="store_true", help="list the fixtures")
    parser.add_argument("--format", choices=("hf", "gguf"), default="hf")
    parser.add_argument("--shards", type=int, default=1, help="safetensors files (hf)")
    parser.add_argument(
        "--type", default="F32", help="tensor type of the matrices (gguf), such as F16 or Q8_0"
    )
    parser.add_argument("-o", "--output", type=Path, help="directory to write into")
    options = parser.parse_args()
    if options.list:
        for spec in FIXTURES.values():
            print(f"{spec.name:16} {spec.about}")
        return 0
    if options.name not in FIXTURES or options.output is None:
        parser.error(f"give -o and a fixture: {', '.join(FIXTURES)}")
    if options.format == "hf":
        print(write_huggingface(options.name, options.output, options.shards))
        return 0
    import gguf

    try:
        print(write_gguf(options.name, options.output / f"{options.name}.gguf", options.type))
    except (KeyError, NotImplementedError, gguf.quants.QuantError) as error:
        parser.error(f"{options.name} cannot be written as {options.type}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
