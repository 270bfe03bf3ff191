#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Speed of a model on this machine, through the C ABI, on one thread.

    python tools/dev.py bench                SmolLM2
    python tools/bench.py MODEL.sslm         any artifact, with the package on the path

Each figure is the best of a few rounds, the sliced call the median and worst of all; the tokens are arbitrary.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from superslm import Model, Sequence

CONTEXTS = (128, 2000)
PROMPT = 512
BATCH = 8
STEPS = 16
ROUNDS = 3


def seconds(work: Callable[[], object]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def filled(model: Model, sequence: Sequence, length: int) -> Sequence:
    """The sequence with `length` arbitrary tokens in its context and one more chosen."""
    tokens = np.random.default_rng(0).integers(0, model.info.vocab, length, dtype=np.int32)
    sequence.prefill(tokens)
    sequence.decode()
    return sequence


def decode_rate(model: Model, context: int, batch: int = 1) -> float:
    """Tokens per second of all sequences together, at a context length."""
    with model.pool(pages=batch * model.pages_for(context + 1 + ROUNDS * STEPS)) as pool:
        sequences = [pool.sequence(budget=context + 1 + ROUNDS * STEPS) for _ in range(batch)]
        with model.workspace(max_batch=batch) as space:
            for sequence in sequences:
                filled(model, sequence, context)

            def steps() -> None:
                for _ in range(STEPS):
                    model.decode(sequences, workspace=space)

            best = min(seconds(steps) for _ in range(ROUNDS))
        for sequence in sequences:
            sequence.close()
    return batch * STEPS / best


def prefill_rate(model: Model) -> float:
    """Prompt tokens per second."""
    tokens = np.random.default_rng(0).integers(0, model.info.vocab, PROMPT, dtype=np.int32)
    with (
        model.pool(pages=model.pages_for(PROMPT)) as pool,
        pool.sequence(budget=PROMPT) as sequence,
        model.workspace(max_chunk=PROMPT) as space,
    ):
        times = []
        for _ in range(ROUNDS):
            sequence.reset()
            times.append(seconds(lambda: sequence.prefill(tokens, chunk=PROMPT, workspace=space)))
    return PROMPT / min(times)


def sliced_calls(model: Model) -> tuple[float, float]:
    """Median and worst seconds of a decode call that runs one layer."""
    with model.pool(pages=model.pages_for(256)) as pool, pool.sequence(budget=256) as sequence:
        filled(model, sequence, 128)
        times = [seconds(lambda: sequence.decode(layer_budget=1)) for _ in range(2 * model.info.layers)]
    return statistics.median(times), max(times)


def main() -> None:
    """Prints one line per figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("artifact", metavar="MODEL.sslm")
    path = parser.parse_args().artifact
    mapped = min(seconds(lambda: Model.load(path).close()) for _ in range(ROUNDS))
    with Model.load(path) as model:
        if model.info.cap < PROMPT:
            parser.error(
                f"{path} has a context cap of {model.info.cap}, at least {PROMPT} positions are needed"
            )
        print(f"{path}, kernels {model.kernel_tier}, one thread")
        print(f"map                         {1000 * mapped:8.1f} ms")
        print(f"prefill of {PROMPT} tokens       {prefill_rate(model):8.1f} tokens/s")
        for context in (c for c in CONTEXTS if c + ROUNDS * STEPS < model.info.cap):
            print(f"decode at context {context:<9} {decode_rate(model, context):8.1f} tokens/s")
        print(f"decode, batch of {BATCH}          {decode_rate(model, CONTEXTS[0], BATCH):8.1f} tokens/s")
        median, worst = sliced_calls(model)
        print(f"decode call of one layer    {1000 * median:8.2f} ms, worst {1000 * worst:.2f} ms")


if __name__ == "__main__":
    main()
