# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Plays prompts greedily with the work cut in given ways, and digests what no cut may change.

As a program it plays in a process of its own, whose environment names the library and the kernel tier: see
`play_elsewhere`. What it gives is compared with a constant or with the NumPy witness, never with another cut.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import itertools
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from saved import PENDING, READY
from superslm import Model, _abi
from superslm._handles import Buffer, Closable, Handle
from superslm._library import check
from superslm.convert.quantized import QuantizedModel
from superslm.reference import ReferenceModel


@dataclass(frozen=True)
class Hook:
    """The job system that a workspace carries, and what it serves."""

    tasks: int = 0  # max_tasks; 0: no hook
    bit: bool = False  # SSLM_PARALLEL_FOR_MATVEC
    extension: bool = False  # SSLM_EXT_PARALLEL_SPREAD


@dataclass(frozen=True)
class Cut:
    """How the work is cut."""

    hook: Hook = Hook()
    layers: int = 0  # of each decode call; 0: all
    batch: int = 1  # sequences of a decode call


@dataclass(frozen=True)
class Played:
    """Greedy tokens, and SHA-256 over the logits row behind each of them and the K/V bytes at the end."""

    tokens: list[int]
    digest: str


# ---- The library ----


class Space(Closable):
    """A workspace for prompts of up to `chunk` tokens, with a hook that runs its tasks in reverse."""

    def __init__(self, model: Model, hook: Hook, batch: int, chunk: int) -> None:
        lib, handle = model._lib, _abi.sslm_workspace()
        config = _abi.sslm_config(batch, chunk, model.info.layers, 0)
        width = max(hook.tasks, 1) if hook.extension else 1
        size = lib.sslm_ext_workspace_size_parallel(model._handle.value, ctypes.byref(config), width)
        self.buffer = Buffer(size)
        status = lib.sslm_workspace_create(
            model._handle.value, ctypes.byref(config), self.buffer.address, size, ctypes.byref(handle)
        )
        check(status, "sslm_workspace_create")
        self._handle = Handle(
            handle, lib.sslm_workspace_destroy, "sslm_workspace_destroy", (self.buffer, model)
        )
        self.runs = 0
        self._run = _abi.sslm_run_tasks_fn(self._run_backwards)
        if hook.tasks:
            bits = _abi.SSLM_PARALLEL_FOR_MATVEC if hook.bit else 0
            lent = _abi.sslm_parallel_for(self._run, None, hook.tasks, bits)
            check(lib.sslm_workspace_set_parallel_for(handle, ctypes.byref(lent)), "set_parallel_for")
        flags = _abi.SSLM_EXT_PARALLEL_SPREAD if hook.extension else 0
        check(lib.sslm_ext_workspace_set_parallel(handle, flags), "set_parallel")

    def _run_backwards(self, _: Any, count: int, task: Any, context: Any) -> None:
        self.runs += 1
        for index in reversed(range(count)):
            task(context, index)


def play(model: Model, prompts: Seq[Seq[int]], count: int, cuts: Seq[Cut]) -> list[list[Played]]:
    """Plays `count` tokens after each of the first prompts, as many as a cut's batch holds.

    They are prefilled once for each hook.
    """
    played = []
    budgets = [len(prompt) + count - 1 for prompt in prompts]
    pages = sum(map(model.pages_for, budgets)) + model.pages_for(max(budgets))  # one more for _row_behind
    with model.pool(pages=pages) as pool:
        for hook, group in itertools.groupby(cuts, key=lambda cut: cut.hook):
            alike = list(group)
            batch, chunk = max(cut.batch for cut in alike), max(map(len, prompts))
            with Space(model, hook, batch, chunk) as space:
                starts = [_start(pool, space, prompt, count) for prompt in prompts[:batch]]
                played += [_go_on(pool, space, starts[: cut.batch], count, cut.layers) for cut in alike]
                assert (space.runs > 0) == (hook.tasks > 1)
    return played


def _start(pool: Any, space: Space, prompt: Seq[int], count: int) -> bytes:
    """A save of a sequence that has read the prompt."""
    with pool.sequence(budget=len(prompt) + count - 1) as sequence:
        sequence.prefill(prompt, workspace=space)
        return sequence.save()


def _go_on(pool: Any, space: Space, starts: Seq[bytes], count: int, layer_budget: int) -> list[Played]:
    """Decodes `count` tokens of all sequences together, in slices of `layer_budget` layers, 0: all."""
    model, layers = pool.model, pool.model.info.layers
    budget = layer_budget or layers
    sequences = [pool.restore(start) for start in starts]
    digests = [hashlib.sha256() for _ in starts]
    tokens: list[list[int]] = [[] for _ in starts]
    for number in range(count):
        calls = -(-layers // budget) if number else 1  # the first token needs no layer
        for call in range(calls):
            out = model.decode(sequences, layer_budget=budget, workspace=space)
            assert [token is None for token in out] == [call < calls - 1] * len(out)
        for sequence, digest, mine, token in zip(sequences, digests, tokens, out, strict=True):
            digest.update(_row_behind(pool, sequence).astype("<i4").tobytes())
            mine.append(int(token))
    for sequence, digest in zip(sequences, digests, strict=True):
        rows = 2 * layers * model.info.kv_heads * sequence.stats().context_length * model.info.head_dim
        digest.update(sequence.save()[-rows:])
        sequence.close()
    return [Played(mine, digest.hexdigest()) for mine, digest in zip(tokens, digests, strict=True)]


def _row_behind(pool: Any, sequence: Any) -> np.ndarray:
    """The logits from which a sequence chose its pending token: those of its save, made ready again."""
    blob = bytearray(sequence.save())
    struct.pack_into("<i", blob, PENDING, -1)
    struct.pack_into("<I", blob, READY, 1)
    with pool.restore(bytes(blob)) as again:
        return again.logits()


# ---- The witness ----


def witness(quantized: QuantizedModel, prompt: Seq[int], count: int) -> Played:
    """What the NumPy reference says."""
    sequence, digest, tokens = ReferenceModel(quantized).new_sequence(), hashlib.sha256(), []
    sequence.prefill(list(prompt))
    for _ in range(count):
        tokens.append(sequence.decode())
        digest.update(sequence.logits().astype("<i4").tobytes())
    digest.update(kv_bytes(sequence.k, sequence.v))
    return Played(tokens, digest.hexdigest())


def kv_bytes(k: np.ndarray, v: np.ndarray) -> bytes:
    """Rows [layer, position, head, channel] in the order of a golden record."""
    rows = np.stack([k, v], axis=1).transpose(0, 1, 3, 2, 4)  # [layer][K, V][head][position]
    return np.ascontiguousarray(rows, np.int8).tobytes()


# ---- Another process ----


@dataclass(frozen=True)
class Elsewhere:
    """What a process of its own played: the library it loaded, the tier it ran, and results for each cut."""

    library: str
    tier: str
    played: list[list[Played]]


def play_elsewhere(
    library: Path,
    environment: Mapping[str, str],
    artifact: Path,
    prompts: Seq[Seq[int]],
    count: int,
    cuts: Seq[Cut],
) -> Elsewhere:
    """`play` for each cut in a process with this library. Raises CalledProcessError with what it said."""
    paths = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": paths, "SUPERSLM_LIBRARY": str(library), **environment}
    order = [str(artifact), prompts, count, [dataclasses.astuple(cut) for cut in cuts]]
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, f"{library} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    found = json.loads(done.stdout)
    results = [[Played(*one) for one in results] for results in found["played"]]
    return Elsewhere(found["library"], found["tier"], results)


def _play_order() -> Iterator[tuple[str, Any]]:
    artifact, prompts, count, cuts = json.load(sys.stdin)
    with Model.load(artifact) as model:
        yield "library", model._lib._name
        yield "tier", model.kernel_tier
        played = play(model, prompts, count, [Cut(Hook(*hook), *numbers) for hook, *numbers in cuts])
        yield "played", [[dataclasses.astuple(one) for one in results] for results in played]


if __name__ == "__main__":
    print(json.dumps(dict(_play_order())))
