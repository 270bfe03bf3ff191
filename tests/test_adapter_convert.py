# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""From a PEFT directory to an adapter file: what is folded, what is refused and with which words."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_support import peft_of, write_for
from make_adapter import AdapterSpec, line_of_tokens, random_factors, train, write_peft, write_safetensors
from make_checkpoint import make_checkpoint, make_quantized, spec_of
from random_models import dequantise
from superslm import Model, SuperslmError, cli
from superslm.artifact import Artifact, load_adapter
from superslm.convert.adapter import convert_adapter
from superslm.convert.checkpoint import ConvertError
from superslm.convert.peft import WEIGHTS, load_peft
from superslm.convert.source_huggingface import read_safetensors
from superslm.convert.tokenizer import build_tokenizer
from superslm.convert.writer import write_artifact
from tokenizer_support import small_source

PREFIX = "base_model.model.model.layers.0."
IDS = np.random.default_rng(4).integers(0, 263, 200).tolist()


def roomy(vocab: int = 263) -> Any:
    """A small model whose K and V range has room for any text."""
    return make_quantized(
        dataclasses.replace(spec_of("tiny"), vocab=vocab, record={"pk": 4.0, "v": 4.0}), "w8"
    )


@pytest.fixture(scope="module")
def base(library_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "tiny.sslm"
    write_artifact(roomy(), path)
    return path


def folder_of(tmp_path: Path, spec: AdapterSpec | None = None, **settings: Any) -> Path:
    spec = spec or AdapterSpec(rank=4, strength=0.1)
    return write_peft(random_factors(make_checkpoint("tiny"), spec), spec, tmp_path / "smith", **settings)


# ---- arithmetic ----


@pytest.mark.parametrize(
    ("spec", "scale"),
    [
        (AdapterSpec(rank=4, alpha=32), 8.0),
        (AdapterSpec(rank=16, alpha=8), 0.5),
        (AdapterSpec(rank=9, alpha=6, rslora=True), 2.0),
    ],
)
def test_alpha_over_rank_is_folded_into_b(
    spec: AdapterSpec, scale: float, base: Path, tmp_path: Path
) -> None:
    peft = peft_of("tiny", spec, tmp_path / "peft")
    adapter = write_for(peft, base, tmp_path / "a.sslm")
    assert {pair.scale for pair in peft.pairs.values()} == {scale}
    for (layer, name), pair in peft.pairs.items():
        made = adapter.layers[layer][name]
        for got, want in ((made.A, pair.a.read()), (made.B, scale * pair.b.read())):
            step = np.abs(want).max(axis=1, keepdims=True) / 127
            assert (np.abs(dequantise(got) - want) <= 4 * step).all()  # a clamp may cost more than a rounding


def test_a_file_holds_the_pairs_and_nothing_but_its_input_decides_its_bytes(
    base: Path, tmp_path: Path
) -> None:
    peft = peft_of("tiny", AdapterSpec(rank=33, targets=("WK", "WO", "WU")), tmp_path / "peft")
    made = write_for(peft, base, tmp_path / "a.sslm")
    write_for(peft, base, tmp_path / "b.sslm")
    assert (tmp_path / "a.sslm").read_bytes() == (tmp_path / "b.sslm").read_bytes()
    for got, want in zip(load_adapter(tmp_path / "a.sslm").layers, made.layers, strict=True):
        assert list(got) == ["WK", "WO", "WU"]
        for name in got:
            for a, b in ((got[name].A, want[name].A), (got[name].B, want[name].B)):
                assert (a.cols, a.E) == (b.cols, b.E)
                assert all(np.array_equal(getattr(a, f), getattr(b, f)) for f in ("v", "s", "W"))


def test_bfloat16_factors_and_names_of_other_savers_are_read(base: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    plain = {n: t.read() for n, t in read_safetensors(folder / WEIGHTS).items()}
    halves = {n: (v.view(np.uint32) >> 16).astype(np.uint16) for n, v in plain.items()}
    renamed = {
        n.removeprefix("base_model.model.").replace(".weight", ".default.weight"): v
        for n, v in halves.items()
    }
    write_safetensors(renamed, folder / WEIGHTS)
    for pair in load_peft(folder).pairs.values():
        original = plain["base_model.model." + pair.a.name.replace(".default", "")]
        assert np.abs(pair.a.read() - original).max() <= np.abs(original).max() / 128


def test_a_trained_adapter_recites_its_line_and_the_base_does_not(base: Path, tmp_path: Path) -> None:
    checkpoint = make_checkpoint("tiny")
    line = line_of_tokens(checkpoint.config.vocab)
    trained = train(checkpoint, line)
    assert trained.first_loss > 5 and trained.last_loss < 0.05
    folder = write_peft(trained.factors, trained.spec, tmp_path / "reciter")
    report = convert_adapter(folder, base, tmp_path / "reciter.sslm", calibration_ids=line)
    assert report.targets == ("WO", "WG", "WU", "WD") and report.ranks == (4, 4) and report.pairs == 4
    with Model.load(base) as model, model.pool(pages=4) as pool, pool.sequence(40) as sequence:
        sequence.prefill(line[:1])
        assert [sequence.decode() for _ in line[1:]] != line[1:]
        with model.adapter(tmp_path / "reciter.sslm") as adapter, pool.sequence(40) as reciter:
            reciter.set_adapter(adapter)
            reciter.prefill(line[:1])
            assert [reciter.decode() for _ in line[1:]] == line[1:]
            reciter.reset()
            assert reciter.score(line)[1:].mean() > -0.1


# ---- the K and V range ----


def test_an_adapter_that_leaves_the_bases_range_is_refused_and_leaves_nothing_behind(
    base: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    for target, word in (("WV", "V values"), ("WK", "K values")):
        loud = AdapterSpec(rank=4, targets=(target,), strength=30.0)
        folder = write_peft(random_factors(make_checkpoint("tiny"), loud), loud, tmp_path / target)
        with pytest.raises(ConvertError, match=f"{word} leave the range.*{target[1].lower()}_proj"):
            convert_adapter(folder, base, tmp_path / "out/loud.sslm", calibration_ids=IDS)
        assert list((tmp_path / "out").iterdir()) == []


def test_the_report_counts_what_the_engine_clips(base: Path, tmp_path: Path) -> None:
    folder, path = folder_of(tmp_path), tmp_path / "a.sslm"
    report = convert_adapter(folder, base, path, calibration_ids=IDS)
    assert (report.k_clipped, report.v_clipped) == (0, 0) and report.size == path.stat().st_size
    narrow = tmp_path / "narrow.sslm"
    write_artifact(make_quantized("sat_v_land"), narrow)
    spec = AdapterSpec(rank=2, targets=("WO",), strength=1e-3)
    folder = write_peft(random_factors(make_checkpoint("sat_v_land"), spec), spec, tmp_path / "still")
    with pytest.raises(ConvertError, match="of the V values leave the range.*calibration text nearer"):
        convert_adapter(folder, narrow, tmp_path / "b.sslm", calibration_ids=IDS)


def test_a_base_without_tokenizer_needs_ids(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="no tokenizer"):
        convert_adapter(folder_of(tmp_path), base, tmp_path / "a.sslm")


def test_another_base_name_is_a_warning(base: Path, tmp_path: Path) -> None:
    heard: list[str] = []
    for name, warned in (("org/tiny", False), ("/models/Tiny/", False), ("org/giant-7b", True), ("", False)):
        folder = folder_of(tmp_path, base_model_name_or_path=name)
        heard.clear()
        convert_adapter(folder, base, tmp_path / "a.sslm", calibration_ids=IDS[:9], warn=heard.append)
        assert bool(heard) == warned
    folder = folder_of(tmp_path, base_model_name_or_path="org/giant-7b")
    convert_adapter(folder, base, tmp_path / "a.sslm", calibration_ids=IDS[:9], warn=heard.append)
    assert "trained on org/giant-7b" in heard[0]


def test_pairs_of_zeros_are_left_out_and_an_untrained_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    spec = AdapterSpec(rank=4, targets=("WO", "WD"))
    factors = random_factors(make_checkpoint("tiny"), spec)
    factors[0, "WO"][1][:] = 0
    adapter = write_for(load_peft(write_peft(factors, spec, tmp_path / "half")), base, tmp_path / "half.sslm")
    assert [list(layer) for layer in adapter.layers] == [["WD"], ["WO", "WD"]]
    for _, b in factors.values():
        b[:] = 0
    with pytest.raises(ConvertError, match="every pair is zero"):
        write_for(load_peft(write_peft(factors, spec, tmp_path / "new")), base, tmp_path / "new.sslm")


# ---- refusals ----

SETTINGS = {
    "another method": ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
    "DoRA": ({"use_dora": True}, "DoRA"),
    "biases": ({"bias": "lora_only"}, "it trains biases"),
    "biases of B": ({"lora_bias": True}, "B factors have biases"),
    "resized embeddings": ({"modules_to_save": ["embed_tokens"]}, "such as resized embeddings"),
    "trained tokens": ({"trainable_token_indices": [5]}, "it changes embeddings"),
    "repeated layers": ({"layer_replication": [[0, 2], [0, 2]]}, "it repeats layers"),
    "PiSSA": ({"init_lora_weights": "pissa_niter_16"}, "rewrote the base weights"),
    "an unknown target": ({"target_modules": ["q_proj", "conv1d"]}, "'conv1d' is unknown"),
    "an embedding target": ({"target_modules": ["embed_tokens"]}, "'embed_tokens' is an embedding"),
    "the head": ({"target_modules": ["lm_head"]}, "'lm_head' is an embedding"),
    "another rank": ({"r": 8}, r"A has shape \[4, 64\] .*where the rank is 8"),
    "no alpha": ({"lora_alpha": None}, "lora_alpha is None"),
    "infinite alpha": ({"lora_alpha": math.inf}, "lora_alpha is inf"),
    "a damaged pattern": ({"rank_pattern": {"(": 3}}, "rank_pattern is damaged"),
    "a pattern that would take for ever": ({"rank_pattern": {"([a-z._0-9]+)+x": 3}}, "repeats a group"),
    "an endless number": ({"lora_alpha": 10**400}, "lora_alpha is 1000"),
    "a pattern's rank": ({"rank_pattern": {"o_proj": 3}}, "o_proj.*where the rank is 3"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_configuration_that_is_not_plain_lora_is_refused(case: str, tmp_path: Path) -> None:
    settings, message = SETTINGS[case]
    with pytest.raises(ConvertError, match=message):
        load_peft(folder_of(tmp_path, **settings))


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


TENSORS = {
    "an embedding": (
        {"base_model.model.model.embed_tokens.weight": zeros(263, 64)},
        "embeddings or the head",
    ),
    "an embedding's factor": (
        {"base_model.model.model.embed_tokens.lora_embedding_A": zeros(4, 263)},
        "embeddings",
    ),
    "a magnitude": ({PREFIX + "self_attn.q_proj.lora_magnitude_vector": zeros(64)}, "DoRA"),
    "a bias": ({PREFIX + "self_attn.q_proj.bias": zeros(64)}, "it is a bias"),
    "another module": ({PREFIX + "mlp.router.lora_A.weight": zeros(4, 64)}, "its target is unknown"),
    "half a pair": ({PREFIX.replace("0", "1") + "self_attn.q_proj.lora_B.weight": None}, "lora_B is missing"),
    "an odd shape": ({PREFIX + "self_attn.q_proj.lora_A.weight": zeros(4)}, "A has shape"),
    "unequal ranks": ({PREFIX + "self_attn.q_proj.lora_B.weight": zeros(64, 5)}, r"B \[64, 5\]"),
    "two adapters": (
        {PREFIX + "self_attn.q_proj.lora_A.other.weight": zeros(4, 64)},
        "more than one adapter",
    ),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_are_not_pairs_of_known_targets_are_refused(case: str, tmp_path: Path) -> None:
    changes, message = TENSORS[case]
    folder = folder_of(tmp_path)
    tensors = {n: t.read() for n, t in read_safetensors(folder / WEIGHTS).items()} | changes
    write_safetensors({n: v for n, v in tensors.items() if v is not None}, folder / WEIGHTS)
    with pytest.raises(ConvertError, match=message):
        load_peft(folder)


def changed(folder: Path, name: str, values: np.ndarray) -> Path:
    tensors = {n: t.read() for n, t in read_safetensors(folder / WEIGHTS).items()}
    tensors[PREFIX + name] = values
    write_safetensors(tensors, folder / WEIGHTS)
    return folder


def test_what_does_not_fit_the_base_is_refused(base: Path, tmp_path: Path) -> None:
    def refused(folder: Path, message: str) -> None:
        with pytest.raises(ConvertError, match=message):
            convert_adapter(folder, base, tmp_path / "a.sslm", calibration_ids=IDS)
        assert not (tmp_path / "a.sslm").exists()

    deep = AdapterSpec(rank=2)
    factors = random_factors(make_checkpoint("deep"), deep)
    refused(
        write_peft(factors, deep, tmp_path / "deep"),
        r"layer 0 WQ: the adapter changes .*\[128, 64\], .*\[64, 64\]",
    )
    one = AdapterSpec(rank=2, targets=("WG",))
    factors = random_factors(make_checkpoint("deep"), one)
    refused(write_peft(factors, one, tmp_path / "tall"), "layer 2 WG: the base has 2 layers")
    wide = AdapterSpec(rank=257, targets=("WQ",))
    factors = random_factors(make_checkpoint("tiny"), wide)
    refused(write_peft(factors, wide, tmp_path / "wide"), "its rank is 257, the engine takes 1..256")
    folder = changed(folder_of(tmp_path), "self_attn.q_proj.lora_A.weight", zeros(4, 64) + np.inf)
    refused(folder, "element .* is NaN or infinite")
    folder = changed(folder_of(tmp_path), "mlp.up_proj.lora_A.weight", zeros(4, 64) + np.float32(1e30))
    refused(folder, "A of layer 0 WU: the shifts")


def test_missing_and_damaged_files_are_refused_by_name(base: Path, tmp_path: Path) -> None:
    for name, content, message in (
        ("adapter_config.json", None, "adapter_config.json is missing"),
        ("adapter_config.json", b"{", "cannot be read as JSON"),
        ("adapter_config.json", b"[]", "not a JSON object"),
        (WEIGHTS, None, "adapter_model.safetensors is missing"),
        (WEIGHTS, b"12345678901234567890", "its header claims .* bytes, the file has 20"),
        (WEIGHTS, b"\2\0\0\0\0\0\0\0{}", "it holds no LoRA pair"),
    ):
        folder = folder_of(tmp_path)
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        with pytest.raises(ConvertError, match=message):
            load_peft(folder)


def test_the_engine_says_which_base_an_adapter_needs(
    base: Path, fixture_artifact: Callable[..., Path], tmp_path: Path
) -> None:
    write_for(peft_of("tiny", AdapterSpec(rank=4), tmp_path / "peft"), base, tmp_path / "a.sslm")
    with Model.load(fixture_artifact("tiny")) as other:  # the same shape, other scales
        with pytest.raises(SuperslmError, match="ADAPTER_MODEL_MISMATCH.*made for another base"):
            other.adapter(tmp_path / "a.sslm")
        with pytest.raises(SuperslmError, match="ARTIFACT_REJECTED.*kind is not 2"):
            other.adapter(base)
    with pytest.raises(SuperslmError, match="ARTIFACT_REJECTED.*kind is not 1: the file holds no model"):
        Model.load(tmp_path / "a.sslm")


# ---- command line ----


def test_the_command_line_converts_and_reports(
    tmp_path: Path, library_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = roomy(512)
    model.tokenizer = build_tokenizer(small_source(), 512)
    write_artifact(model, tmp_path / "base.sslm")
    folder = folder_of(tmp_path, AdapterSpec(rank=4, targets=("WQ", "WD"), strength=0.05))
    output, text = tmp_path / "smith.sslm", tmp_path / "text.txt"
    arguments = ["convert-adapter", str(folder), "--base", str(tmp_path / "base.sslm"), "-o", str(output)]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "rank 4 on q down" in said and "0.0000% of K" in said
    with Artifact(output) as artifact:
        assert artifact.provenance()["source"] == "smith"
    assert cli.main(["inspect", str(output)]) == 0
    assert "4 on q down, rank 4" in capsys.readouterr().out
    assert cli.main(["inspect", "--json", str(output)]) == 0
    facts = json.loads(capsys.readouterr().out)
    with Model.load(tmp_path / "base.sslm") as base:
        assert facts["base_digest"] == base.info.model_digest and facts["targets"] == ["q", "down"]
    text.write_text("a b c " * 20)
    assert cli.main([*arguments, "--calibration-text", str(text)]) == 0
    (folder / WEIGHTS).unlink()
    before = output.read_bytes()
    assert cli.main(arguments) == 1 and "adapter_model.safetensors is missing" in capsys.readouterr().err
    assert output.read_bytes() == before
    assert cli.main([*arguments[:-1], str(tmp_path / "base.sslm")]) == 1
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["r"] == 4
