# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Fidelity: the arithmetic of the quality figures, and what they must be for SmolLM2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import quality
from superslm.convert.pipeline import load_checkpoint

PROMPTS = quality.PROMPTS.read_text(encoding="utf-8").splitlines()
# Nats per token. SmolLM2's 0.00299 is near, but steady: integers on one side, and the float model's rounding moves the
# mean by less than 1e-8 (see docs/numerics.md, section 6), the margin is 5e-6.
MEAN_KL = 0.003
GAP = 0.1  # nats


def test_figures_of_a_hand_computed_pair_of_distributions() -> None:
    reference = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], np.float32))
    measured = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]], np.float32))
    figures = quality.compare([0, 2], reference, measured + np.float32(3))
    summary = figures.summary()
    assert np.concatenate(figures.kl) == pytest.approx([0.25 * np.log(2), 0], abs=1e-6)
    assert summary["top1"] == 0.5 and summary["kl_worst"] == pytest.approx(0.25 * np.log(2), abs=1e-6)
    assert summary["float_perplexity"] == pytest.approx(4) and summary["ratio"] == pytest.approx(1)


def test_an_interval_holds_the_mean_and_narrows_to_it_without_noise() -> None:
    values = np.random.default_rng(1).normal(1, 1, 4096)
    low, high = quality.interval(values)
    assert low < values.mean() < high and high - low < 0.2
    assert quality.interval(np.full(300, 2.0)) == [2.0, 2.0]


def test_documents_split_into_contexts_that_start_anew() -> None:
    parts = quality.contexts_of(range(1100))
    assert [len(part) for part in parts] == [512, 512, 76] and parts[1][0] == 512


def test_the_held_out_text_has_at_least_8000_tokens(smollm2_gguf: Path) -> None:
    documents = quality.documents(load_checkpoint(smollm2_gguf))
    assert sum(map(len, documents.values())) >= 8000
    control = [documents[name].count(1) for name in documents if name.startswith("dialogue")]
    assert max(control) > 0, "<|im_start|> in a dialogue must be a control token"


@pytest.mark.long
def test_smollm2_stays_within_the_kl_bound(
    smollm2_artifact: Path, smollm2_gguf: Path, library_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from superslm import Model

    with Model.load(smollm2_artifact) as model:
        figures = quality.measure(model, load_checkpoint(smollm2_gguf))
    with capsys.disabled():
        print("\n" + quality.table(figures))
    summary = quality.whole(figures).summary()
    assert summary["tokens"] >= 8000
    assert summary["kl"] <= MEAN_KL
    assert max(summary["k_clip"], summary["v_clip"]) < 1e-3


@pytest.mark.long
def test_greedy_replies_leave_the_float_model_only_at_near_ties(
    smollm2_artifact: Path, smollm2_gguf: Path, library_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from superslm import Model

    with Model.load(smollm2_artifact) as model:
        found = quality.first_divergences(model, load_checkpoint(smollm2_gguf), PROMPTS)
    with capsys.disabled():
        print("\n" + quality.replies(found))
    assert len(found) == 10
    assert max(d.gap for d in found) < GAP
