# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""One engine in a process of its own, driven by JSON lines: a request on standard input, an answer on output.

Every engine is a subclass of `Worker` and answers the same requests, so that all are measured the same way.
This file needs only Python and NumPy: peers run in environments of their own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CONTEXT = 4096  # positions an engine is made for
CHUNK = 512  # prompt tokens per call
WARM_UP = 3  # decode steps before those that count
PAUSE = 0.02  # seconds for the threads of earlier work to go to sleep


def prompt(length: int, vocab: int, seed: int = 0) -> np.ndarray:
    """Arbitrary token ids (int32), the same for all engines."""
    return np.random.default_rng(seed).integers(0, vocab, length, dtype=np.int32)


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Wall time and CPU time of all threads of this process, in seconds."""
    gc.collect()
    time.sleep(PAUSE)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def resident() -> dict[str, int]:
    """Bytes resident now, the most there have been since `reset_peak`, and those that are not of a file."""
    status = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in status)
    kib = {name: int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM", "RssFile")}
    heap = kib["VmRSS"] - kib["RssFile"]
    return {"now": kib["VmRSS"] * 1024, "peak": kib["VmHWM"] * 1024, "heap": heap * 1024}


def reset_peak() -> None:
    """Makes the peak of resident memory start at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


class Worker:
    """What an engine answers. `variant` is one of `variants`, settings of which the better one counts."""

    variants: tuple[str, ...] = ("",)

    def about(self) -> dict[str, Any]:
        """The engine's name, version, library file and variants."""
        raise NotImplementedError

    def open(self, path: str, variant: str) -> None:
        """Makes the model of `path` ready for one sequence of CONTEXT positions."""
        raise NotImplementedError

    def close(self) -> None:
        """Frees what `open` made."""
        raise NotImplementedError

    def first_token(self) -> int:
        """Reads a prompt of one token and chooses the next."""
        raise NotImplementedError

    def decode(self, context: int, batch: int, threads: int, variant: str, steps: int) -> dict[str, Any]:
        """Times `steps` greedy tokens of each of `batch` sequences that hold `context` tokens."""
        raise NotImplementedError

    def prefill(self, length: int, threads: int, variant: str) -> dict[str, Any]:
        """Times a prompt of `length` tokens and the choice of the next."""
        raise NotImplementedError

    def generate(self, steps: int) -> None:
        """Decodes greedily behind the last `prefill`."""
        raise NotImplementedError

    def load(self, path: str, variant: str) -> dict[str, Any]:
        """Times `open`; the model is closed again."""
        sample = timed(lambda: self.open(path, variant))
        self.close()
        return sample

    def answer(self, path: str, variant: str) -> dict[str, Any]:
        """Times `open` with the first token; the model is closed again."""
        sample = timed(lambda: (self.open(path, variant), self.first_token()))
        self.close()
        return sample

    def memory(self, path: str, variant: str, steps: int) -> dict[str, Any]:
        """Bytes that a model takes for one sequence, a prompt of CHUNK tokens and some decode steps."""
        reset_peak()
        before = resident()
        self.open(path, variant)
        self.prefill(CHUNK, 1, variant)
        self.generate(steps)
        after = resident()
        return {"peak": after["peak"] - before["now"], "heap": after["heap"] - before["heap"]}


def serve(worker: Worker) -> None:
    """Answers requests until standard input ends; an exception is an answer too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    for line in sys.stdin:
        request = json.loads(line)
        verb = request.pop("do")
        try:
            answer = {"answer": getattr(worker, verb)(**request)}
        except Exception as error:  # the driver reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
