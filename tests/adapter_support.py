# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What the adapter tests share: adapters of the fixtures, as PEFT directories and as files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from make_adapter import AdapterSpec, random_factors, write_peft
from make_checkpoint import make_checkpoint
from superslm.artifact import Artifact, load_quantized
from superslm.convert.adapter import quantize_adapter
from superslm.convert.peft import PeftAdapter, load_peft
from superslm.convert.quantized import TARGETS, Adapter
from superslm.convert.writer import write_adapter

RANKS = (1, 4, 16, 33, 256)
SUBSETS = [
    tuple(t for t, used in zip(TARGETS, mask, strict=True) if used)
    for mask in itertools.product((False, True), repeat=len(TARGETS))
    if any(mask)
]


def peft_of(fixture: str, spec: AdapterSpec, folder: Path, **settings: Any) -> PeftAdapter:
    """A random adapter of a fixture, written in PEFT's layout and read back."""
    return load_peft(write_peft(random_factors(make_checkpoint(fixture), spec), spec, folder, **settings))


def write_for(peft: PeftAdapter, base: Path, path: Path) -> Adapter:
    """Writes an adapter file for an artifact, whatever it does to the K and V range; returns its pairs."""
    adapter = quantize_adapter(peft, load_quantized(base, verify=False, matrices=False))
    with Artifact(base, verify=False) as artifact:
        write_adapter(adapter, artifact.model_digest, path)
    return adapter


def random_file(fixture: str, base: Path, spec: AdapterSpec, folder: Path) -> Path:
    """An adapter file of a fixture with random factors."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "adapter.sslm"
    write_for(peft_of(fixture, spec, folder / "peft"), base, path)
    return path


def mean_kl(reference: np.ndarray, measured: np.ndarray) -> float:
    """Mean KL(reference || measured) of logit rows in nats."""

    def log_softmax(rows: np.ndarray) -> np.ndarray:
        rows = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
        return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))

    p, q = log_softmax(reference), log_softmax(measured)
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())
