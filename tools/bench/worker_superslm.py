# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""SuperSLM for the benchmark, through the C ABI, and the limits of the machine beside it.

    python worker_superslm.py PROBE_LIBRARY

The library of tools/bench/probe.cpp lends native threads through the host's hook.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

import worker
from superslm import Model, Sequence, Workspace, __version__, _abi, library_path
from superslm._handles import Buffer, Handle
from superslm._library import check, library
from superslm.artifact import LAYER_ROLES, MODEL_ROLES, TENSOR, W4, W8, sections_of


class Probe:
    """The library of tools/bench/probe.cpp, and one pool of threads for each thread count."""

    def __init__(self, path: str) -> None:
        self._lib = lib = ctypes.CDLL(path)
        lib.bench_pool_create.restype = ctypes.c_void_p
        lib.bench_pool_hook.argtypes = [ctypes.c_void_p, ctypes.POINTER(_abi.sslm_parallel_for)]
        lib.bench_read.restype = ctypes.c_double
        lib.bench_read.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int]
        lib.bench_multiply.restype = ctypes.c_double
        lib.bench_multiply.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int]
        lib.bench_multiply_name.restype = ctypes.c_char_p
        self._pools: dict[int, int | None] = {1: None}

    def pool(self, threads: int) -> int | None:
        """The pool that, with the calling thread, has this many threads; None for one."""
        if threads not in self._pools:
            self._pools[threads] = self._lib.bench_pool_create(threads - 1)
        return self._pools[threads]

    def hook(self, threads: int) -> _abi.sslm_parallel_for:
        """The pool as the library's hook."""
        hook = _abi.sslm_parallel_for()
        self._lib.bench_pool_hook(self.pool(threads), ctypes.byref(hook))
        return hook

    def read(self, address: int, size: int, threads: int) -> float:
        """Bytes per second of reading memory, the better of two orders."""
        pool = self.pool(threads)
        return max(self._lib.bench_read(pool, address, size, threads, four) for four in (0, 1))

    def multiply(self, threads: int) -> dict[str, float]:
        """Products per second by instruction."""
        pool, lib = self.pool(threads), self._lib
        names = [lib.bench_multiply_name(words).decode() for words in (0, 1)]
        return {name: lib.bench_multiply(pool, threads, words) for words, name in enumerate(names) if name}


class ParallelWorkspace(Workspace):
    """A workspace whose hook is used wherever it can be."""

    def __init__(self, model: Model, batch: int, chunk: int, hook: _abi.sslm_parallel_for) -> None:
        lib, owner = model._lib, model._handle.value
        config = _abi.sslm_config(batch, chunk, model.info.layers, 0)
        size = int(lib.sslm_ext_workspace_size_parallel(owner, ctypes.byref(config), hook.max_tasks))
        self.buffer = Buffer(size)
        handle = _abi.sslm_workspace()
        made = (owner, ctypes.byref(config), self.buffer.address, size, ctypes.byref(handle))
        check(lib.sslm_workspace_create(*made), "sslm_workspace_create")
        keep = (self.buffer, model)
        self._handle = Handle(handle, lib.sslm_workspace_destroy, "sslm_workspace_destroy", keep)
        check(
            lib.sslm_workspace_set_parallel_for(handle, ctypes.byref(hook)), "sslm_workspace_set_parallel_for"
        )
        flags = _abi.SSLM_EXT_PARALLEL_SPREAD
        check(lib.sslm_ext_workspace_set_parallel(handle, flags), "sslm_ext_workspace_set_parallel")


class SuperSLM(worker.Worker):
    """The model, one pool and its sequences; contexts are kept as prefixes that sequences adopt."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._spaces: dict[tuple[int, int], Workspace] = {}
        self._contexts: dict[int, Any] = {}

    def about(self) -> dict[str, Any]:
        return {
            "name": "SuperSLM",
            "version": __version__,
            "tier": library().sslm_ext_kernel_tier().decode(),
            "variants": self.variants,
            "library": str(library_path()),
        }

    def open(self, path: str, variant: str) -> None:
        self._path = path
        self._model = model = Model.load(path)
        self._pages = model.pages_for(min(model.info.cap, worker.CONTEXT))
        self._pool = model.pool(pages=self._pages)
        self._one = self._pool.sequence(budget=min(model.info.cap, worker.CONTEXT))
        self._space(1, 1)

    def close(self) -> None:
        self._forget()
        for space in self._spaces.values():
            space.close()
        self._spaces.clear()
        self._one.close()
        self._pool.close()
        self._model.close()

    def facts(self) -> dict[str, Any]:
        """What speeds are computed from: weights read per token, products per token, shape."""
        info = self._model.info
        attention = 2 * info.layers * info.heads * info.head_dim  # products per token and position before it
        return {
            "cap": info.cap,
            "layers": info.layers,
            "digest": info.file_digest,
            "size": int(self._model._data.size),
            "attention": attention,
            **weights_of(self._model),
        }

    def first_token(self) -> int:
        self._one.prefill([1], workspace=self._space(1, 1))
        return int(self._model.decode([self._one], workspace=self._space(1, 1))[0] or 0)

    def _space(self, batch: int, threads: int) -> Workspace:
        key = batch, threads
        if key not in self._spaces:
            chunk = worker.CHUNK if batch == 1 else 1
            if threads == 1:
                self._spaces[key] = self._model.workspace(max_batch=batch, max_chunk=chunk)
            else:
                hook = self._probe.hook(threads)
                self._spaces[key] = ParallelWorkspace(self._model, batch, chunk, hook)
        return self._spaces[key]

    def _forget(self) -> None:
        """Closes what belongs to the context that was measured last."""
        for sequences, prefix, pool in self._contexts.values():
            for handle in (*sequences, prefix, pool):
                handle.close()
        self._contexts.clear()

    def _sequences(self, context: int, batch: int, steps: int) -> list[Sequence]:
        """Sequences that hold `context` tokens and have chosen the next one."""
        key = context, batch, steps
        if key not in self._contexts:
            self._forget()
            model, budget = self._model, steps + worker.WARM_UP + 1
            pages = model.pages_for(context) + batch * (model.pages_for(budget) + 1)
            pool = model.pool(pages=pages)
            prefix = pool.prefix(budget=context)
            tokens = worker.prompt(context, model.info.vocab)
            prefix.prefill(tokens, chunk=worker.CHUNK, workspace=self._space(1, 2))
            prefix.freeze()
            sequences = [pool.sequence(budget=budget) for _ in range(batch)]
            self._contexts[key] = sequences, prefix, pool
        sequences, prefix, _ = self._contexts[key]
        for sequence in sequences:
            sequence.adopt(prefix)
        return sequences

    def decode(self, context: int, batch: int, threads: int, variant: str, steps: int) -> dict[str, Any]:
        sequences, space = self._sequences(context, batch, steps), self._space(batch, threads)
        step = self._model.decode

        def run(count: int) -> None:
            for _ in range(count):
                step(sequences, workspace=space)

        run(worker.WARM_UP)
        return worker.timed(lambda: run(steps))

    def prefill(self, length: int, threads: int, variant: str) -> dict[str, Any]:
        sequence, space = self._one, self._space(1, threads)
        sequence.reset()
        tokens = worker.prompt(length, self._model.info.vocab)

        def run() -> None:
            sequence.prefill(tokens, chunk=worker.CHUNK, workspace=space)
            self._model.decode([sequence], workspace=space)

        return worker.timed(run)

    def generate(self, steps: int) -> None:
        for _ in range(steps):
            self._model.decode([self._one], workspace=self._space(1, 1))

    def slices(self, context: int, tokens: int) -> list[float]:
        """Seconds of each decode call that runs one layer."""
        (sequence,), space = self._sequences(context, 1, tokens), self._space(1, 1)
        step = self._model.decode
        while step([sequence], workspace=space, layer_budget=1) == [None]:
            pass
        out = []
        for _ in range(tokens * self._model.info.layers):
            start = time.perf_counter()
            step([sequence], workspace=space, layer_budget=1)
            out.append(time.perf_counter() - start)
        return out

    def limits(self, threads: int) -> dict[str, Any]:
        """Bytes per second of reading the artifact, and products per second by instruction."""
        data = self._model._data
        return {
            "read": self._probe.read(data.ctypes.data, data.size, threads),
            "multiply": self._probe.multiply(threads),
        }


def weights_of(model: Model) -> dict[str, int]:
    """Bytes of all matrices that a token reads, and products of the layers and of the head per token."""
    head = MODEL_ROLES["head"]
    table = list(TENSOR.iter_unpack(sections_of(memoryview(model._data))["TENS"]))
    if head not in [entry[0] for entry in table]:
        head = MODEL_ROLES["embedding"]  # one matrix for both
    out = {"bytes": 0, "layer_products": 0, "head_products": 0}
    for role, _, kind, _, rows, columns, *_ in table:
        if kind not in (W8, W4) or (role not in LAYER_ROLES.values() and role != head):
            continue
        blocks = -(-columns // 32)
        scales = (blocks + 1) // 2 if kind == W8 else 2 * blocks
        out["bytes"] += rows * (blocks * (32 if kind == W8 else 16) + scales + 4)
        out["head_products" if role == head else "layer_products"] += rows * columns
    return out


if __name__ == "__main__":
    worker.serve(SuperSLM(Probe(sys.argv[1])))
