#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What a schema costs a decode step: steps inside one beside free steps of the same model.

    python3 tools/dev.py bench --schema                                       SmolLM2, eight bits
    python3 tools/dev.py bench --schema --model qwen0.5b-shape --weights w4
    python3 tools/dev.py bench --schema --model shop.sslm --source order      one that the artifact has

Two sequences stand behind the same tokens and take turns, step by step, so that a pair has the machine in the same
state. The one inside the schema decodes all its tokens, forced ones too; when its text is complete, both start anew.
Printed are medians over the pairs and, in brackets, the quartiles. A draw from few legal tokens is cheaper than a
free one, which makes its cost negative.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bench_models
import dev
import numpy as np
from doc_figures import commit, processor
from superslm import Damped, Model, Prefix, Sampling, Sequence, Workspace, errors
from superslm._library import library
from superslm.convert.checkpoint import ConvertError
from superslm.convert.schema import add_schemas, load_source

CONTEXT, WARM_UP, BUDGET = 128, 3, 512
BAR = 0.03  # of a free step
SELECTIONS = {"greedy": None, "damped": Damped(), "sampled": Sampling(1)}


def with_schema(options: argparse.Namespace, folder: Path) -> tuple[Path, str]:
    """The artifact to measure and the name of its schema. Raises DevError."""
    path = bench_models.artifact(bench_models.find(options.model), options.weights)
    source = Path(options.source)
    if not source.suffix:
        return path, options.source
    add_schemas(path, {source.stem: load_source(source)}, folder / path.name)
    return folder / path.name, source.stem


def timed(sequence: Sequence, how: Damped | Sampling | None, space: Workspace) -> tuple[float, bool]:
    """Seconds of a step, and whether it gave a token."""
    start = time.perf_counter()
    token = sequence.decode(selection=how, workspace=space)
    return time.perf_counter() - start, token is not None and token >= 0


def pairs(
    free: Sequence,
    bound: Sequence,
    schema: str,
    prefix: Prefix,
    how: Damped | Sampling | None,
    space: Workspace,
) -> Iterator[tuple[float, float]]:
    """Seconds of a free step and of one inside the schema, without end; who begins changes."""
    while True:
        for sequence, name in ((free, None), (bound, schema)):
            sequence.reset()
            sequence.bind_schema(name)
            sequence.adopt(prefix)
        for step in range(BUDGET):
            turn = (free, bound) if step % 2 else (bound, free)
            seconds = {sequence: timed(sequence, how, space) for sequence in turn}
            if not seconds[bound][1]:
                break
            yield seconds[free][0], seconds[bound][0]


def measure(model: Model, schema: str, steps: int) -> dict[str, np.ndarray]:
    """For each way to choose, milliseconds of free steps and of those inside the schema [2, steps]."""
    pages = model.pages_for(CONTEXT) + 2 * (model.pages_for(BUDGET) + 1)
    found = {}
    with model.pool(pages=pages) as pool, model.workspace(max_chunk=CONTEXT) as space:
        ids = np.random.default_rng(0).integers(0, model.info.vocab, CONTEXT, dtype=np.int32)
        with pool.prefix(ids, budget=CONTEXT).freeze() as prefix:
            with pool.sequence(budget=BUDGET) as free, pool.sequence(budget=BUDGET) as bound:
                for name, how in SELECTIONS.items():
                    taken = pairs(free, bound, schema, prefix, how, space)
                    rows = [next(taken) for _ in range(WARM_UP + steps)][WARM_UP:]
                    found[name] = 1000 * np.array(rows).T
    return found


def spread(values: np.ndarray, form: str) -> str:
    """A median and the quartiles."""
    low, middle, high = (form.format(q) for q in statistics.quantiles(values.tolist()))
    return f"{middle} ({low} .. {high})"


def report(found: dict[str, np.ndarray]) -> str:
    """A line for each way to choose."""
    lines = []
    for name, (free, bound) in found.items():
        share = float(np.median(bound - free) / np.median(free))
        lines.append(
            f"{name:8} free step {np.median(free):.2f} ms, in the schema {spread(bound - free, '{:+.3f}')} ms: "
            f"{share:+.2%}{'' if share <= BAR else f', above {BAR:.0%}'}"
        )
    return "\n".join(lines)


def main() -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = f"smollm2, {bench_models.SHAPE} (random weights), or a .gguf or .sslm file"
    parser.add_argument("--model", default="smollm2", help=f"{names}; default: %(default)s")
    parser.add_argument("--weights", choices=("w8", "w4"), default="w8", help="default: %(default)s")
    parser.add_argument(
        "--source",
        default=str(dev.ROOT / "examples/order.json"),
        help="of the schema: a file, or the name of one that the artifact has; default: examples/order.json",
    )
    parser.add_argument("--steps", type=int, default=120, help="pairs of steps (default: %(default)s)")
    options = parser.parse_args()
    if options.steps < 2:
        parser.error("--steps must be at least 2")
    try:
        bench_models.FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=bench_models.FOLDER) as folder:
            path, schema = with_schema(options, Path(folder))
            with Model.load(path) as model:
                print(
                    f"{path.stem}, schema {schema}, {options.steps} pairs of steps behind {CONTEXT} tokens, "
                    f"{library().sslm_ext_kernel_tier().decode()} kernels on {processor()}, commit {commit()}"
                )
                print(report(measure(model, schema, options.steps)))
    except (dev.DevError, ConvertError, errors.SuperslmError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
