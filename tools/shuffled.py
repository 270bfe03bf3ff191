#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Converts a model after shuffling its channels, which changes no result in floats.

    python tools/shuffled.py model.gguf -o shuffled.sslm --weights w4

A source that was stored in blocks of four or five bits hides what four bits cost: its weights lie on a grid that
the converter finds again. Shuffled, no block holds one grid, as in a model that comes in 16 bits. Compare the artifact
with the unshuffled source: `python tools/quality.py shuffled.sslm --source model.gguf`.
"""

from __future__ import annotations

import argparse
import json
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

try:
    import superslm  # noqa: F401
except ImportError:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python_binding"))

from superslm.cli_convert import matrix_names
from superslm.cli_output import progress_bar
from superslm.convert.checkpoint import Checkpoint, FloatTensor
from superslm.convert.pipeline import convert, load_checkpoint
from superslm.convert.writer import write_artifact


def reordered(
    tensor: FloatTensor, rows: np.ndarray | None = None, columns: np.ndarray | None = None
) -> FloatTensor:
    """A tensor whose row r and column c are row rows[r] and column columns[c] of the given one."""
    order = tensor.order
    if rows is not None:
        order = rows if order is None else order[rows]
    if columns is None:
        return replace(tensor, order=order)
    return replace(tensor, order=order, fetch=lambda wanted: tensor.fetch(wanted)[:, columns])


def shuffled(
    checkpoint: Checkpoint, record: dict[str, Any] | None, seed: int = 1
) -> tuple[Checkpoint, dict[str, Any] | None]:
    """The same function with the hidden, MLP and value channels in random order, and its calibration record."""
    config, tensors, record = checkpoint.config, dict(checkpoint.tensors), deepcopy(record)
    rng = np.random.default_rng(seed)
    hidden = rng.permutation(config.hidden)

    def change(name: str, **orders: np.ndarray) -> None:
        if name in tensors:
            tensors[name] = reordered(tensors[name], **orders)

    for name in ("embedding", "head"):
        change(name, columns=hidden)
    change("NF", rows=hidden)
    for index in range(config.layers):
        layer, mlp = f"layer{index}.", rng.permutation(config.mlp)
        heads = np.stack([rng.permutation(config.head_dim) for _ in range(config.kv_heads)])
        starts = np.arange(config.kv_heads)[:, None] * config.head_dim
        values = (heads + starts).ravel()
        group = config.heads // config.kv_heads
        joined = (heads.repeat(group, axis=0) + np.arange(config.heads)[:, None] * config.head_dim).ravel()
        for name in ("N1", "N2"):
            change(layer + name, rows=hidden)
        for name in ("WQ", "WK"):
            change(layer + name, columns=hidden)
        change(layer + "WV", rows=values, columns=hidden)
        change(layer + "BV", rows=values)
        change(layer + "WO", rows=hidden, columns=joined)
        for name in ("WG", "WU"):
            change(layer + name, rows=mlp, columns=hidden)
        change(layer + "WD", rows=hidden, columns=mlp)
        if record is not None:
            maxima = record["layers"][index]
            maxima["v"] = np.take_along_axis(np.asarray(maxima["v"]), heads, axis=1).tolist()
    return replace(checkpoint, tensors=tensors), record


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="the GGUF file or directory")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the artifact to write")
    parser.add_argument("--weights", choices=("w8", "w4"), default="w4")
    parser.add_argument("--keep-8bit", type=matrix_names, default=[], metavar="NAME,...")
    parser.add_argument("--calibration-record", type=Path, help="of the unshuffled model")
    options = parser.parse_args()
    record = json.loads(options.calibration_record.read_text()) if options.calibration_record else None
    checkpoint, record = shuffled(load_checkpoint(options.source), record)
    with progress_bar("Converting") as progress:
        model = convert(
            checkpoint,
            weights=options.weights,
            keep_8bit=options.keep_8bit,
            calibration_record=record,
            progress=progress,
        )
    write_artifact(model, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
