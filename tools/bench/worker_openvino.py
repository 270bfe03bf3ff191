# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""OpenVINO GenAI for the benchmark, on its paged pipeline, from the same GGUF file as llama.cpp.

A pipeline is compiled for its number of threads, which takes seconds: it is made anew where that changes. Decode is
timed by the pipeline's own clock, a duration a step; CPU time is that of the whole call, shared out by wall time.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
import worker


class OpenVino(worker.Worker):
    """The pipeline for one thread count. Prefixes are cached, so a context is read only once."""

    def __init__(self) -> None:
        self._threads = 0
        self._prompts = 0  # so far: each prefill is of another prompt, or the cache would answer it
        self._last: np.ndarray

    def about(self) -> dict[str, Any]:
        return {
            "name": "OpenVINO GenAI",
            "version": genai.__version__,
            "variants": self.variants,
            "library": genai.py_openvino_genai.__file__,
        }

    def open(self, path: str, variant: str) -> None:
        self._path = path
        self._compile(1)
        self._vocab = len(self._pipeline.get_tokenizer().get_vocab())

    def close(self) -> None:
        del self._pipeline
        self._threads = 0

    def _compile(self, threads: int) -> None:
        if threads != self._threads:
            self._pipeline = None
            scheduler = genai.SchedulerConfig()
            scheduler.enable_prefix_caching = True
            scheduler.max_num_batched_tokens = worker.CONTEXT
            settings = {"INFERENCE_NUM_THREADS": threads}
            self._pipeline = genai.ContinuousBatchingPipeline(self._path, scheduler, "CPU", settings)
            self._threads = threads

    def _generate(self, tokens: np.ndarray, batch: int, count: int) -> tuple[Any, dict[str, float]]:
        """`count` greedy tokens behind the same prompt, `batch` times; the results, and what it took in all."""
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = count, True, False
        prompt = openvino.Tensor(tokens.astype(np.int64)[None])
        time.sleep(worker.PAUSE)
        wall, cpu = time.perf_counter(), time.process_time()
        results = self._pipeline.generate([prompt] * batch, [config] * batch)
        return results, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}

    def first_token(self) -> int:
        results, _ = self._generate(np.ones(1), 1, 1)
        return int(results[0].m_generation_ids[0][0])

    def decode(self, context: int, batch: int, threads: int, variant: str, steps: int) -> dict[str, Any]:
        self._compile(threads)
        count = 1 + worker.WARM_UP + steps
        results, whole = self._generate(worker.prompt(context, self._vocab), batch, count)
        durations = list(
            results[0].perf_metrics.raw_metrics.m_durations
        )  # one for each token of each sequence
        if len(durations) != batch * (count - 1):
            raise RuntimeError(f"{len(durations)} durations of {batch} x {count - 1} tokens")
        wall = sum(durations[batch * worker.WARM_UP :]) / 1e6
        return {"wall": wall, "cpu": whole["cpu"] * wall / whole["wall"]}

    def prefill(self, length: int, threads: int, variant: str) -> dict[str, Any]:
        self._compile(threads)
        self._prompts += 1
        self._last = worker.prompt(length, self._vocab, self._prompts)
        return self._generate(self._last, 1, 1)[1]

    def generate(self, steps: int) -> None:
        self._generate(self._last, 1, steps)


if __name__ == "__main__":
    worker.serve(OpenVino())
