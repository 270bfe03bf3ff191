# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Truncated, damaged and absurd sources: each is refused with what is wrong, where, and what to do; none crashes."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from make_checkpoint import write_gguf, write_huggingface
from superslm.convert.checkpoint import ConvertError
from superslm.convert.pipeline import _tokenizer, load_checkpoint
from superslm.convert.source_huggingface import read_safetensors
from tokenizer_support import npm_models

OF_NUMPY = ("buffer", "reshape", "broadcast", "dtype", "out of bounds", "array of size", "numpy")


def refusal(make: Callable[[], Any]) -> ConvertError:
    """The refusal, after a check that it is in the user's words."""
    with pytest.raises(ConvertError) as caught:
        make()
    error = caught.value
    assert error.what and error.where and error.remedy.endswith(".")
    assert not any(word in str(error) for word in OF_NUMPY), str(error)
    return error


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf("tiny", tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_huggingface("tiny", tmp_path / "tiny")


# ---- GGUF ----


def test_a_gguf_file_cut_anywhere_is_refused_with_the_place(gguf_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    for size in [*range(4, 3000, 7), len(gguf_bytes) // 2, len(gguf_bytes) - 1]:
        path.write_bytes(gguf_bytes[:size])
        error = refusal(lambda: load_checkpoint(path))
        assert error.where == "cut.gguf" and ("file" in error.what or "more than" in error.what), error
    assert "tensor" in error.what and f"the file at byte {size:,}" in error.what


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (4, struct.pack("<I", 1), "version 1"),
        (4, struct.pack(">I", 3), "big-endian"),
        (8, struct.pack("<Q", 1 << 60), "claims 1,152,921,504,606,846,976 tensors"),
        (16, struct.pack("<Q", 1 << 62), "keys, more than"),
        (24, struct.pack("<Q", 1 << 63), "a key at byte 32 needs"),
    ],
)
def test_absurd_numbers_in_a_gguf_header_are_refused(
    at: int, value: bytes, words: str, gguf_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "absurd.gguf"
    path.write_bytes(gguf_bytes[:at] + value + gguf_bytes[at + len(value) :])
    assert words in refusal(lambda: load_checkpoint(path)).what


def test_a_damaged_gguf_header_is_read_or_refused_but_never_crashes(
    gguf_bytes: bytes, tmp_path: Path
) -> None:
    path, generator = tmp_path / "damaged.gguf", random.Random(1)
    end = gguf_bytes.index(b"layer") if b"layer" in gguf_bytes[:4000] else 4000
    refused = 0
    for round_number in range(600):
        data = bytearray(gguf_bytes)
        for _ in range(generator.choice((1, 1, 2, 5))):
            data[generator.randrange(4, end)] = generator.choice(
                (0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256))
            )
        path.write_bytes(data)
        try:
            load_checkpoint(path)
        except ConvertError as error:
            refused += 1
            assert not any(word in str(error) for word in OF_NUMPY), (round_number, str(error))
    assert refused > 200


# ---- safetensors and JSON ----


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"w": 7}', "no usable entry for tensor w"),
        (b'{"w": {"dtype": "F32", "shape": "44", "data_offsets": [0, 64]}}', "no usable entry"),
        (b'{"w": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}', "no usable entry"),
        (b'{"w": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 64]}}', "no usable entry"),
        (b'{"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16, 3]}}', "no usable entry"),
        (b'{"w": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}', "has -16 bytes"),
        (b'{"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}}', "12 bytes where its shape [4]"),
        (
            b'{"w": {"dtype": "F32", "shape": [99999999999999], "data_offsets": [0, 399999999999996]}}',
            "ends at",
        ),
    ],
)
def test_absurd_safetensors_headers_are_refused(header: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    error = refusal(lambda: read_safetensors(path))
    assert words in error.what and error.where == "w.safetensors"


def test_a_safetensors_file_cut_anywhere_is_refused_with_the_place(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for size in [0, 1, 7, 8, 9, 500, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        error = refusal(lambda: load_checkpoint(folder))
        assert error.where == "model.safetensors" and f"{size:,}" in error.what


ODD_VALUES = (
    None,
    True,
    -1,
    0,
    1.5,
    1 << 70,
    10**400,
    1e308,
    1e999,
    float("nan"),
    "x",
    "",
    [],
    [1],
    {},
    {"a": {}},
)


def test_a_configuration_with_any_odd_value_is_read_or_refused(folder: Path) -> None:
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    extra = ("head_dim", "rope_scaling", "rope_parameters", "layer_types", "eos_token_id", "hidden_act")
    for key in [*settings, *extra, "partial_rotary_factor"]:
        for value in ODD_VALUES:
            path.write_text(json.dumps(settings | {key: value}))
            try:
                load_checkpoint(folder)
            except ConvertError as error:
                assert not any(word in str(error) for word in OF_NUMPY), (key, value, str(error))


@pytest.mark.parametrize("value", [float("nan"), -1, 0, float("inf"), 10**400])
@pytest.mark.parametrize("key", ["factor", "low_freq_factor", "original_max_position_embeddings"])
def test_rotary_scaling_by_no_positive_number_is_refused(key: str, value: float, folder: Path) -> None:
    path = folder / "config.json"
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling |= {"original_max_position_embeddings": 64, key: value}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": scaling}))
    assert "rotary settings" in refusal(lambda: load_checkpoint(folder)).what


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"]
)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    if name.startswith(("chat", "README")):
        load_checkpoint(folder)
    else:
        refusal(lambda: load_checkpoint(folder))


@pytest.mark.parametrize("layer", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "-1", ""])
def test_a_tensor_of_no_layer_is_refused_by_name(layer: str, folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + size].decode().replace("layers.1.input", f"layers.{layer}.input")
    path.write_bytes(struct.pack("<Q", len(header.encode())) + header.encode() + data[8 + size :])
    refusal(lambda: load_checkpoint(folder))


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"weight_map": 3}', '{"weight_map": {"a": "../b"}}', "{}"]
)
def test_a_damaged_index_of_shards_is_refused(content: str, folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(content)
    assert refusal(lambda: load_checkpoint(folder)).where == "model.safetensors.index.json"


# ---- tokenizers ----


def test_a_tokenizer_with_any_part_missing_or_odd_is_read_or_refused(folder: Path) -> None:
    tokenizer, config = npm_models("qwen3")
    small = tokenizer | {"model": tokenizer["model"] | {"vocab": {}, "merges": []}}
    checkpoint = load_checkpoint(folder)
    checkpoint.tokenizer_config = config
    places = [(small, key) for key in small] + [(small["model"], key) for key in list(small["model"])]
    for holder, key in places:
        before = holder[key]
        for value in ODD_VALUES:
            holder[key] = value
            checkpoint.tokenizer_json = small
            with pytest.raises(ConvertError):  # 128 ids cannot hold it in any case
                _tokenizer(checkpoint)
        holder[key] = before
