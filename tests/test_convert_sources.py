# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Sources of the converter: Hugging Face directories and GGUF files of the same model give the same checkpoint."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from make_checkpoint import (
    FIXTURES,
    make_checkpoint,
    random_tensor,
    settings_of,
    write_gguf,
    write_huggingface,
)
from superslm.convert.checkpoint import Checkpoint, ConvertError, FloatTensor, expected_shapes, head_slots
from superslm.convert.pipeline import convert, load_checkpoint
from superslm.convert.source_gguf import load_gguf
from superslm.convert.source_huggingface import checkpoint_from_tensors, load_huggingface, read_safetensors

SMALL = [name for name, spec in FIXTURES.items() if not spec.big]


def assert_same(a: Checkpoint, b: Checkpoint, exact: bool = True) -> None:
    """Both checkpoints hold the same model; frequencies may differ by a float32 rounding unless exact."""
    assert replace(a.config, frequencies=(), eps=0.0) == replace(b.config, frequencies=(), eps=0.0)
    assert a.config.eps == pytest.approx(b.config.eps, rel=1e-7)
    ours, theirs = ([float(f) for f in c.config.frequencies] for c in (a, b))
    assert ours == (theirs if exact else pytest.approx(theirs, rel=1e-6))
    assert a.tensors.keys() == b.tensors.keys()
    for name in a.tensors:
        np.testing.assert_array_equal(a[name].read(), b[name].read(), err_msg=name)


@pytest.mark.parametrize("name", SMALL)
def test_directory_and_gguf_file_of_a_fixture_hold_the_same_model(name: str, tmp_path: Path) -> None:
    memory = make_checkpoint(name)
    assert_same(load_huggingface(write_huggingface(name, tmp_path / "one")), memory)
    assert_same(load_huggingface(write_huggingface(name, tmp_path / "three", shards=3)), memory)
    scaled = FIXTURES[name].rope_scaling is not None
    assert_same(load_gguf(write_gguf(name, tmp_path / f"{name}.gguf")), memory, exact=not scaled)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_1", "Q4_0"])
def test_every_quantisation_of_a_gguf_file_is_dequantised(kind: str, tmp_path: Path) -> None:
    close = {"F16": 1e-3, "BF16": 0, "Q8_0": 0.01, "Q5_1": 0.08, "Q4_0": 0.3}[kind]
    made, memory = load_gguf(write_gguf("hd32", tmp_path / "m.gguf", kind)), make_checkpoint("hd32")
    for name, tensor in memory.tensors.items():
        want = tensor.read()
        assert np.abs(made[name].read() - want).max() <= close * np.abs(want).max(), name
        assert np.array_equal(made[name].rows(3, 7), made[name].read()[3:7]), name


@pytest.mark.parametrize("kind", ["F32", "F16", "F64"])
def test_safetensors_of_every_float_type_are_read(kind: str, tmp_path: Path) -> None:
    values = np.linspace(-3, 3, 24).reshape(4, 6).astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[kind])
    header = json.dumps({"w": {"dtype": kind, "shape": [4, 6], "data_offsets": [0, values.nbytes]}}).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes())
    assert np.array_equal(read_safetensors(path)["w"].read(), values)


def test_a_directory_brings_tokenizer_template_licence_and_stop_ids(tmp_path: Path) -> None:
    folder = write_huggingface("tiny", tmp_path)
    (folder / "tokenizer.json").write_text('{"model": {}}')
    (folder / "tokenizer_config.json").write_text('{"chat_template": "T"}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 2, 9999]}')
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    made = load_huggingface(folder)
    assert (made.tokenizer_json, made.chat_template, made.licence) == ({"model": {}}, "T", "apache-2.0")
    assert made.stop_ids == [7, 2] and len(made.source_sha256) == 64
    before = made.source_sha256
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert load_huggingface(folder).source_sha256 != before


def test_smollm2_is_read_from_its_gguf_file(smollm2_gguf: Path) -> None:
    made = load_gguf(smollm2_gguf)
    assert made.source_sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert (made.config.layers, made.config.heads, made.config.kv_heads, made.config.tied) == (30, 9, 3, True)
    assert made.licence == "apache-2.0" and made.stop_ids == [2] and "im_start" in (made.chat_template or "")


def test_partial_rotation_takes_the_slots_of_the_numerics() -> None:
    assert head_slots(8, 4, interleaved=False).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert head_slots(8, 4, interleaved=True).tolist() == [0, 2, 4, 5, 1, 3, 6, 7]
    assert head_slots(8, 8, interleaved=False).tolist() == list(range(8))


# ---- What is refused, and that the message names it ----


def refused(match: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ConvertError, match=match) as caught:
        make()
    assert caught.value.remedy and caught.value.where


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"model_type": "gemma2"}, "gemma2"),
        ({"model_type": None}, "model_type"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"use_sliding_window": True}, "sliding"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "low_freq_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "flat"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"intermediate_size": 100}, r"\[96, 64\] where .* \[100, 64\]"),
        ({"num_hidden_layers": 3}, "layer2.* is missing"),
        ({"num_hidden_layers": 1}, "layers.1.*no place"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"head_dim": 31}, "rotated|odd"),
        ({"vocab_size": 1 << 20}, "vocabulary"),
    ],
)
def test_a_configuration_that_cannot_be_converted_is_refused(change: dict[str, Any], match: str) -> None:
    spec = FIXTURES["tiny"]
    source = make_checkpoint(spec)
    named = {t.name: t for t in source.tensors.values()}
    refused(match, lambda: checkpoint_from_tensors(settings_of(spec) | change, named, "tiny"))


def test_old_and_new_rotary_keys_mean_the_same() -> None:
    spec = FIXTURES["llama3"]
    named = {t.name: t for t in make_checkpoint(spec).tensors.values()}
    old = settings_of(spec)
    new = {k: v for k, v in old.items() if k not in ("rope_theta", "rope_scaling")}
    new["rope_parameters"] = old["rope_scaling"] | {"rope_theta": old["rope_theta"]}
    older = old | {
        "rope_scaling": {("type" if k == "rope_type" else k): v for k, v in old["rope_scaling"].items()}
    }
    for settings in (new, older):
        made = checkpoint_from_tensors(settings, named, "llama3")
        assert made.config.frequencies == make_checkpoint(spec).config.frequencies


def test_llama3_scaling_keeps_short_waves_and_divides_long_ones() -> None:
    plain = make_checkpoint(replace(FIXTURES["llama3"], rope_scaling=None)).config.frequencies
    scaled = make_checkpoint("llama3").config.frequencies
    ratio = [float(a / b) for a, b in zip(plain, scaled, strict=True)]
    assert ratio[0] == 1 and ratio[-1] == pytest.approx(8) and any(1.01 < r < 7.99 for r in ratio)
    assert ratio == sorted(ratio)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    spec = FIXTURES["bias"]
    named = {t.name: t for t in make_checkpoint(spec).tensors.values()}
    del named["model.layers.1.mlp.up_proj.weight"]
    refused(
        r"layer1\.WU \(shape \[96, 64\]\) is missing",
        lambda: checkpoint_from_tensors(settings_of(spec), named, "m"),
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named(bad: float) -> None:
    values = np.ones((5, 4), np.float32)
    values[3, 1] = bad
    tensor = FloatTensor("w", (5, 4), lambda rows: values[rows])
    refused(r"element \[3, 1\].*", lambda: tensor.rows(2, 5))
    assert tensor.rows(0, 3).shape == (3, 4)


def test_an_unknown_architecture_in_a_gguf_file_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    refused("mamba", lambda: load_gguf(tmp_path / "m.gguf"))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused(share: float, tmp_path: Path) -> None:
    whole = write_gguf("tiny", tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    refused(r"cut\.gguf", lambda: load_checkpoint(cut))
    folder = write_huggingface("tiny", tmp_path / "hf")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: int(len(whole) * share)])
    refused("safetensors", lambda: load_checkpoint(folder))


def test_missing_files_are_named(tmp_path: Path) -> None:
    refused("nowhere", lambda: load_checkpoint(tmp_path / "nowhere.gguf"))
    refused("config.json", lambda: load_checkpoint(tmp_path))
    folder = write_huggingface("tiny", tmp_path / "hf", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused("model-00002-of-00002.safetensors", lambda: load_checkpoint(folder))
    (tmp_path / "text.gguf").write_text("not a model")
    refused("neither", lambda: load_checkpoint(tmp_path / "text.gguf"))
    refused("no tokenizer", lambda: convert(write_huggingface("tiny", tmp_path / "bare")))


def test_integer_tensors_are_refused(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    refused("I8", lambda: read_safetensors(path))


def test_fixtures_are_the_same_every_time() -> None:
    shapes = dict(expected_shapes(make_checkpoint("odd").config))
    first, again = (random_tensor(FIXTURES["odd"], "layer0.WQ", shapes["layer0.WQ"]) for _ in range(2))
    assert np.array_equal(first, again)
    assert float(first[0, 0]) == FIRST_OF_ODD


FIRST_OF_ODD = 0.1142578125
