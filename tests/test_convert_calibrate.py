# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The float model against a plain token-by-token reading, and the calibration record made from it."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_support import mean_kl
from make_checkpoint import (
    FIXTURES,
    SATURATION_COUNTERS,
    adjust_record,
    make_checkpoint,
    make_quantized,
    random_tensor,
    write_gguf,
)
from superslm.convert.calibrate import (
    MINIMUM_TOKENS,
    calibrate,
    chatml,
    default_calibration_text,
    round_nearest,
    round_up,
)
from superslm.convert.checkpoint import ConvertError, FloatTensor, expected_shapes
from superslm.convert.float_model import logits
from superslm.convert.pipeline import calibration_ids, convert, load_checkpoint
from superslm.convert.quantize import quantize
from superslm.convert.source_gguf import load_gguf
from superslm.convert.tokenizer import TokenizerSource
from superslm.reference import SITES, ReferenceModel

ROOT = Path(__file__).parent.parent
SHAPES = [
    "tiny",
    "deep",
    "bias",
    "qknorm",
    "qknorm_centred",
    "partial",
    "partial_bias",
    "odd",
    "untied",
    "llama3",
    "gqa3",
]


class PlainModel:
    """One token at a time over lists of past keys, in the channel order of the original checkpoint."""

    def __init__(self, name: str) -> None:
        self.spec = FIXTURES[name]
        checkpoint = make_checkpoint(name)
        shapes = expected_shapes(checkpoint.config)
        self.w = {n: random_tensor(self.spec, n, shape).astype(np.float64) for n, shape in shapes}
        self.theta = [float(f) for f in checkpoint.config.frequencies if f]
        self.past: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(self.spec.layers)]
        self.seen: list[dict[str, list[Any]]] = [{"k": [], "v": [], "h": []} for _ in range(self.spec.layers)]
        self.residuals: list[float] = []

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / math.sqrt(float(x @ x) / len(x) + 1e-5) * self.w[name]

    def rotate(self, x: np.ndarray, position: int) -> np.ndarray:
        y, pairs = x.copy(), len(self.theta)
        for f, theta in enumerate(self.theta):
            c, s = math.cos(position * theta), math.sin(position * theta)
            y[f], y[f + pairs] = x[f] * c - x[f + pairs] * s, x[f + pairs] * c + x[f] * s
        return y

    def heads(self, y: np.ndarray, layer: str, kind: str, count: int) -> list[np.ndarray]:
        flat = self.w[f"{layer}W{kind}"] @ y
        if f"{layer}B{kind}" in self.w:
            flat = flat + self.w[f"{layer}B{kind}"]
        heads = list(flat.reshape(count, self.spec.head_dim))
        if f"{layer}N{kind}" in self.w:
            heads = [self.norm(h, f"{layer}N{kind}") for h in heads]
        return heads

    def step(self, token: int) -> np.ndarray:
        spec, x = self.spec, self.w["embedding"][token]
        for index in range(spec.layers):
            layer, past, seen = f"layer{index}.", self.past[index], self.seen[index]
            position = len(past)
            y = self.norm(x, f"{layer}N1")
            q = self.heads(y, layer, "Q", spec.heads)
            k, v = (self.heads(y, layer, kind, spec.kv_heads) for kind in "KV")
            seen["k"].append(np.stack(k))
            seen["v"].append(np.stack(v))
            past.append((np.stack([self.rotate(h, position) for h in k]), np.stack(v)))
            out = []
            for head in range(spec.heads):
                g = head * spec.kv_heads // spec.heads
                query = self.rotate(q[head], position)
                scores = np.array([query @ keys[g] for keys, _ in past]) / math.sqrt(spec.head_dim)
                p = np.exp(scores - scores.max())
                out.append(sum(a * values[g] for a, (_, values) in zip(p / p.sum(), past, strict=True)))
            x = x + self.w[f"{layer}WO"] @ np.concatenate(out)
            self.residuals.append(float(np.abs(x).max()))
            y = self.norm(x, f"{layer}N2")
            gate = self.w[f"{layer}WG"] @ y
            h = gate / (1 + np.exp(-gate)) * (self.w[f"{layer}WU"] @ y)
            seen["h"].append(float(np.abs(h).max()))
            x = x + self.w[f"{layer}WD"] @ h
            self.residuals.append(float(np.abs(x).max()))
        return self.w.get("head", self.w["embedding"]) @ self.norm(x, "NF")


@pytest.mark.parametrize("name", SHAPES)
def test_the_float_model_equals_a_plain_token_by_token_forward(name: str) -> None:
    ids = np.random.default_rng(3).integers(0, FIXTURES[name].vocab, 21).tolist()
    plain = PlainModel(name)
    want = np.stack([plain.step(token) for token in ids])
    got = next(logits(make_checkpoint(name), [ids], dtype=np.float64))
    assert np.abs(got - want).max() < 1e-9
    single = next(logits(make_checkpoint(name), [ids]))
    assert single.dtype == np.float32 and np.abs(single - want).max() < 2e-3


@pytest.mark.parametrize("name", ["tiny", "bias", "qknorm_centred", "centred", "partial"])
def test_the_record_holds_the_rounded_maxima(name: str) -> None:
    spec = FIXTURES[name]
    ids = np.random.default_rng(4).integers(0, spec.vocab, 50).tolist()
    record = calibrate(make_checkpoint(name), ids, chunk=20)
    chunks = [PlainModel(name) for _ in range(3)]
    for start, plain in zip((0, 20, 40), chunks, strict=True):
        for token in ids[start : start + 20]:
            plain.step(token)
    embedding = np.abs(chunks[0].w["embedding"]).max()
    assert record["res"] == round_up(max(embedding, *(max(p.residuals) for p in chunks)))
    slots = slot_order(spec)
    for index, layer in enumerate(record["layers"]):
        seen = [p.seen[index] for p in chunks]
        assert layer["h"] == round_up(max(max(s["h"]) for s in seen))
        v = np.abs(np.concatenate([s["v"] for s in seen])).max(axis=0)
        assert layer["v"] == round_up(v).tolist()
        k = np.concatenate([s["k"] for s in seen])[..., slots]
        if "mu" in layer:
            assert layer["mu"] == round_nearest((k.max(axis=0) + k.min(axis=0)) / 2).tolist()
            k = k - np.array(layer["mu"])
        half = spec.head_dim // 2
        assert layer["pk"] == round_up(np.hypot(k[..., :half], k[..., half:]).max(axis=0)).tolist()
    assert ("mu" in record["layers"][0]) == (name in ("bias", "qknorm_centred", "centred"))
    assert json.loads(json.dumps(record)) == record


def slot_order(spec: Any) -> list[int]:
    """Source channel per slot (numerics, 2.2), written out for a half-split source."""
    rotated = spec.rotated or spec.head_dim
    rest = (spec.head_dim - rotated) // 2
    first = [*range(rotated // 2), *range(rotated, rotated + rest)]
    return first + [*range(rotated // 2, rotated), *range(rotated + rest, spec.head_dim)]


def test_maxima_are_rounded_up_and_centres_to_nearest() -> None:
    assert round_up([0.0, 1.0, 1.0000001, 255.0, 257.0]).tolist() == [0.0, 1.0, 1 + 2**-7, 255.0, 258.0]
    assert round_nearest([-0.0, 1.0039, 257.0, -259.0, 1e-9]).tolist()[:4] == [0.0, 1.0, 256.0, -260.0]
    assert math.copysign(1, round_nearest([-0.0])[0]) == 1
    x = np.abs(np.random.default_rng(1).standard_cauchy(1000))
    assert (round_up(x) >= x).all() and (round_up(x) <= x * (1 + 2**-7)).all()


def test_a_chunk_starts_at_position_zero() -> None:
    ids = np.random.default_rng(4).integers(0, 263, 40).tolist()
    halves = [calibrate(make_checkpoint("tiny"), part) for part in (ids[:20], ids[20:])]
    whole = calibrate(make_checkpoint("tiny"), ids, chunk=20)
    assert whole["res"] == max(h["res"] for h in halves)
    assert [layer["h"] for layer in whole["layers"]] == [
        max(pair) for pair in zip(*([x["h"] for x in h["layers"]] for h in halves), strict=True)
    ]


def test_thread_counts_do_not_change_the_record() -> None:
    code = (
        "import json, sys; sys.path[:0] = ['tools', 'python_binding']; import make_checkpoint as m;"
        "print(json.dumps([m.make_record(n) for n in ('hd128', 'bias', 'qknorm')]))"
    )
    made = []
    for threads in ("1", "2"):
        environment = os.environ | {
            n: threads for n in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        }
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True
        )
        made.append(run.stdout)
    assert made[0] == made[1]


def test_calibration_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ConvertError, match="no tokens"):
        calibrate(make_checkpoint("tiny"), [])
    with pytest.raises(ConvertError, match="263 lies outside"):
        calibrate(make_checkpoint("tiny"), [1, 263])


@pytest.mark.filterwarnings("error")
def test_activations_that_overflow_are_refused() -> None:
    huge = make_checkpoint("tiny")
    for name in ("layer0.WD", "layer0.WU", "layer0.WG"):
        shape = huge[name].shape
        huge.tensors[name] = FloatTensor(name, shape, lambda rows, n=shape: np.full(n, 1e200)[rows])
    with pytest.raises(ConvertError, match="layer 0: activations overflow"):
        calibrate(huge, [1, 2, 3])


def test_progress_of_a_calibration_ends_at_one() -> None:
    seen: list[float] = []
    calibrate(make_checkpoint("tiny"), list(range(60)), chunk=16, progress=lambda f, text: seen.append(f))
    assert len(seen) == 8 and seen == sorted(seen) and seen[-1] == 1.0


# ---- The text that ships ----


def test_the_shipped_text_is_long_enough_for_smollm2(smollm2_gguf: Path) -> None:
    checkpoint = load_gguf(smollm2_gguf)
    tokenizer = TokenizerSource.from_checkpoint(checkpoint)
    ids = calibration_ids(tokenizer)
    assert len(ids) >= 6000 > MINIMUM_TOKENS
    assert ids[0] == 1 and ids.count(1) > 40 and ids.count(2) > 40  # <|im_start|>, <|im_end|>
    with pytest.raises(ConvertError, match="at least 4000"):
        calibration_ids(tokenizer, text="Too short.")


def test_dialogues_take_the_models_own_format() -> None:
    text = default_calibration_text(lambda messages: f"[{len(messages)} turns]")
    assert text.startswith("[7 turns]\n[4 turns]") and "<|im_start|>" not in text
    assert default_calibration_text().startswith("<|im_start|>system\nYou are Brannoc")
    assert chatml([{"role": "user", "content": "a"}]) == "<|im_start|>user\na<|im_end|>"


def runs_of_words(text: str, length: int = 8) -> set[tuple[str, ...]]:
    """Every run of `length` words, whatever their case and punctuation."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def test_the_shipped_text_and_the_texts_of_the_tests_share_nothing() -> None:
    """What quality is measured on was not seen in calibration: no run of eight words stands in both."""
    ours = runs_of_words(default_calibration_text())
    texts = [*sorted((ROOT / "tests/data/heldout").glob("*.txt")), ROOT / "tests/data/divergence_prompts.txt"]
    assert len(ours) > 3000 and len(texts) > 8
    for path in texts:
        held_out = runs_of_words(path.read_text())
        assert held_out and held_out.isdisjoint(ours), path.name


# ---- Fixtures, and quantised against float ----


@pytest.mark.parametrize("counter", SATURATION_COUNTERS)
def test_each_saturation_counter_has_a_fixture_that_raises_it(counter: str) -> None:
    assert set(SATURATION_COUNTERS) == set(SITES)
    spec = FIXTURES[f"sat_{counter}"]
    sequence = ReferenceModel(make_quantized(spec)).new_sequence()
    sequence.prefill(np.random.default_rng(5).integers(0, spec.vocab, 24).tolist())
    sequence.decode()
    assert sequence.counters[counter] > 0


def test_a_changed_record_leaves_the_original_alone() -> None:
    record = calibrate(make_checkpoint("bias"), list(range(30)))
    before = json.dumps(record)
    changed = adjust_record(record, {"res": 0.5, "pk": 2.0, "mu": 0.0})
    assert json.dumps(record) == before and changed["res"] == record["res"] / 2
    assert all("mu" not in layer for layer in changed["layers"])


def integer_logits(model: Any, ids: list[int]) -> np.ndarray:
    """The witness's logits behind every token, in nats."""
    witness = ReferenceModel(model)
    sequence = witness.new_sequence(trace=True)
    sequence.prefill(ids)
    return np.array([witness.logits(r[-1].astype(np.int64))[0] for r in sequence.layer_residuals]) / 65536


@pytest.mark.parametrize(
    "name", ["tiny", "bias", "qknorm_centred", "partial_bias", "odd_bias", "centred", "llama3"]
)
def test_integers_of_a_fixture_compute_nearly_what_the_floats_do(name: str) -> None:
    ids = np.random.default_rng(6).integers(0, FIXTURES[name].vocab, 30).tolist()
    want = next(logits(make_checkpoint(name), [ids], dtype=np.float64))
    eight, four = (mean_kl(want, integer_logits(make_quantized(name, w), ids)) for w in ("w8", "w4"))
    assert eight < 0.02 and four < 1  # tiny random models are sharper than trained ones


def test_integers_of_smollm2_compute_nearly_what_the_floats_do(smollm2_gguf: Path) -> None:
    import lzma

    record = json.loads(lzma.decompress((ROOT / "tests/golden/smollm2_record.json.xz").read_bytes()))
    checkpoint = load_gguf(smollm2_gguf)
    ids = calibration_ids(TokenizerSource.from_checkpoint(checkpoint))[:32]
    want = next(logits(checkpoint, [ids]))
    got = integer_logits(quantize(checkpoint, record), ids)
    assert mean_kl(want, got) < 0.005
    assert np.mean(want.argmax(axis=1) == got.argmax(axis=1)) > 0.9


@pytest.mark.long
def test_our_own_record_of_smollm2_agrees_with_the_independent_one(smollm2_gguf: Path) -> None:
    import lzma

    want = json.loads(lzma.decompress((ROOT / "tests/golden/smollm2_record.json.xz").read_bytes()))
    made = convert(load_checkpoint(smollm2_gguf)).provenance["calibration_record"]
    assert 0.5 < made["res"] / want["res"] < 2
    for ours, theirs in zip(made["layers"], want["layers"], strict=True):
        assert ours.keys() == theirs.keys()
        ratio = np.array(ours["pk"]) / np.array(theirs["pk"])
        assert 0.8 < np.median(ratio) < 1.25 and 0.4 < ratio.min() and ratio.max() < 2.5


@pytest.mark.long
def test_large_shapes_are_made_in_memory_and_as_files(tmp_path: Path) -> None:
    model = make_quantized("qwen2.5-0.5b")
    assert (model.hidden, len(model.layers), model.vocab, model.head) == (896, 24, 151936, None)
    made = load_gguf(write_gguf("qwen2.5-0.5b", tmp_path / "m.gguf", "BF16"))
    record = model.provenance["calibration_record"]
    layer = quantize(made, record).layers[23]
    assert (layer.WD.rows, layer.WD.cols, layer.BK.shape) == (896, 4864, (128,))
