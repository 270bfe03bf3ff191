# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""llama.cpp for the benchmark, through its C interface as llama-cpp-python wraps it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp as llama
import numpy as np
import worker

FILE_TYPES = {"Q8_0": llama.LLAMA_FTYPE_MOSTLY_Q8_0, "Q4_0": llama.LLAMA_FTYPE_MOSTLY_Q4_0}
FLASH = {
    "plain": llama.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "flash attention": llama.LLAMA_FLASH_ATTN_TYPE_ENABLED,
}


@llama.llama_log_callback
def _silence(level: int, text: bytes, data: Any) -> None:
    pass


class Context:
    """A llama.cpp context for `sequences` sequences, its token batch, and what each sequence holds."""

    def __init__(self, model: Any, sequences: int, variant: str) -> None:
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch = worker.CONTEXT, worker.CHUNK
        params.n_seq_max = sequences
        params.flash_attn_type = FLASH[variant]
        params.n_threads = params.n_threads_batch = 1
        self._handle = llama.llama_init_from_model(model, params)
        if not self._handle:
            raise RuntimeError(f"llama_init_from_model failed ({variant}, {sequences} sequences)")
        self.memory = llama.llama_get_memory(self._handle)
        self.vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self._batch = llama.llama_batch_init(worker.CHUNK, 0, 1)
        self.filled = 0  # tokens that every sequence holds
        self.first: list[int] = []  # what was chosen behind them

    def close(self) -> None:
        llama.llama_batch_free(self._batch)
        llama.llama_free(self._handle)

    def use(self, threads: int) -> None:
        """Threads of the calls that follow."""
        llama.llama_set_n_threads(self._handle, threads, threads)

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], ids: Sequence[int], all_rows: bool
    ) -> None:
        """One call; the last row has logits, or all have."""
        batch, count = self._batch, len(tokens)
        batch.n_tokens = count
        for i in range(count):
            batch.token[i], batch.pos[i] = tokens[i], positions[i]
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, ids[i]
            batch.logits[i] = all_rows or i == count - 1
        if llama.llama_decode(self._handle, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def logits(self, row: int) -> np.ndarray:
        """The logits of a row of the last call, float32 [vocab], in llama.cpp's memory."""
        return np.ctypeslib.as_array(llama.llama_get_logits_ith(self._handle, row), (self.vocab,))

    def choose(self, row: int) -> int:
        """The most probable token behind a row of the last call."""
        return int(self.logits(row).argmax())

    def read(self, tokens: Sequence[int], sequence: int) -> int:
        """Empties a sequence, feeds it a prompt and chooses the next token."""
        llama.llama_memory_seq_rm(self.memory, sequence, -1, -1)
        for start in range(0, len(tokens), worker.CHUNK):
            part = tokens[start : start + worker.CHUNK]
            self.run(part, range(start, start + len(part)), [sequence] * len(part), False)
        return self.choose(len(part) - 1)

    def steps(self, chosen: list[int], position: int, count: int) -> None:
        """Greedy tokens of every sequence, all sequences in one call."""
        ids = range(len(chosen))
        for at in range(position, position + count):
            self.run(chosen, [at] * len(chosen), ids, True)
            chosen[:] = map(self.choose, ids)


class LlamaCpp(worker.Worker):
    """The model, and a context for each number of sequences."""

    variants = tuple(FLASH)

    def __init__(self) -> None:
        llama.llama_log_set(_silence, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self._contexts: dict[tuple[int, str], Context] = {}

    def about(self) -> dict[str, Any]:
        return {
            "name": "llama.cpp",
            "version": f"llama-cpp-python {llama.__version__}",
            "system": llama.llama_print_system_info().decode(),
            "variants": self.variants,
            "library": str(llama.llama_cpp._lib._name),
        }

    def quantize(self, source: str, target: str, kind: str) -> int:
        """Writes a file with all matrices of one type; embedding and head stay at 8 bits."""
        params = llama.llama_model_quantize_default_params()
        params.ftype = FILE_TYPES[kind]
        params.allow_requantize = True
        params.output_tensor_type = params.token_embedding_type = llama.GGML_TYPE_Q8_0
        if llama.llama_model_quantize(source.encode(), target.encode(), params) != 0:
            raise RuntimeError(f"llama_model_quantize of {source} to {kind} failed")
        return 0

    def open(self, path: str, variant: str) -> None:
        self._model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._context(1, variant)

    def close(self) -> None:
        for context in self._contexts.values():
            context.close()
        self._contexts.clear()
        llama.llama_model_free(self._model)

    def _context(self, batch: int, variant: str) -> Context:
        key = batch, variant
        if key not in self._contexts:
            self._contexts[key] = Context(self._model, batch, variant)
        self._last = self._contexts[key]
        return self._last

    def first_token(self) -> int:
        self._last.use(1)
        return self._last.read([1], 0)

    def decode(self, context: int, batch: int, threads: int, variant: str, steps: int) -> dict[str, Any]:
        c = self._context(batch, variant)
        if c.filled != context:
            c.use(2)
            tokens = worker.prompt(context, c.vocab).tolist()
            c.first = [c.read(tokens, sequence) for sequence in range(batch)]
            c.filled = context
        c.use(threads)
        for sequence in range(batch):
            llama.llama_memory_seq_rm(c.memory, sequence, context, -1)
        chosen = list(c.first)
        c.steps(chosen, context, worker.WARM_UP)
        return worker.timed(lambda: c.steps(chosen, context + worker.WARM_UP, steps))

    def prefill(self, length: int, threads: int, variant: str) -> dict[str, Any]:
        c = self._context(1, variant)
        c.use(threads)
        c.filled = 0
        tokens = worker.prompt(length, c.vocab).tolist()

        def run() -> None:
            c.first = [c.read(tokens, 0)]

        sample = worker.timed(run)
        c.filled = length
        return sample

    def generate(self, steps: int) -> None:
        self._last.steps(list(self._last.first), self._last.filled, steps)

    def save_logits(self, tokens: list[int], path: str) -> int:
        """Writes the logits behind every token of a context, float32 [tokens, vocab], as a .npy file."""
        c = self._last
        llama.llama_memory_seq_rm(c.memory, 0, -1, -1)
        c.filled = 0
        c.run(tokens, range(len(tokens)), [0] * len(tokens), True)
        np.save(path, np.stack([c.logits(i) for i in range(len(tokens))]))
        return len(tokens)


if __name__ == "__main__":
    worker.serve(LlamaCpp())
