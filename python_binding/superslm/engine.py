# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Models and workspaces as Python objects; pools, prefixes and sequences are in sequence.py.

Every object is a context manager; a forgotten one is released when it is collected. Objects keep what they
were made from alive. One object must not be used by two threads at once, except `Model`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from superslm import _abi
from superslm._handles import (
    Buffer,
    Closable,
    Handle,
    Tokens,
    address_of,
    int32,
    int32_pointer,
    mapped_file,
    token_ids,
)
from superslm._library import check, library
from superslm.selection import Damped, Sampling, SamplingArray, Selection, damped_params

if TYPE_CHECKING:
    from superslm.adapter import Adapter
    from superslm.sequence import PagePool, Sequence
    from superslm.structured import Schema

DEAD_END = -2  # what decode gives instead of a token where the bound schema allows none

_ROLES = {"system": 0, "user": 1, "assistant": 2}
_PARTS = {"prefix": 0, "suffix": 1, "opening": 2}
CHUNK = 256  # prefill tokens per library call


@dataclass(frozen=True)
class ModelInfo:
    """Shape and identity of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    cap: int  # context cap in positions
    weight_bits: int  # 8 or 4; 0 when the artifact holds both
    has_tokenizer: bool
    tokenizer_size: int
    schema_count: int
    stop_ids: tuple[int, ...]
    file_digest: str  # hexadecimal
    model_digest: str


@dataclass(frozen=True)
class Verification:
    """What a replay of the golden record found."""

    tokens: int  # of the record
    difference: str | None  # the first one, None: all is as recorded

    def __bool__(self) -> bool:
        return self.difference is None


class Model(Closable):
    """A mapped artifact: immutable, shared by any number of threads.

    >>> from superslm import Model
    >>> with Model.load(example_artifact) as model:
    ...     model.info.layers > 0
    True
    """

    def __init__(self, data: np.ndarray, name: str = "<bytes>") -> None:
        self.name = name
        self._lib = library()
        handle = _abi.sslm_model()
        status = self._lib.sslm_model_map(address_of(data), data.size, ctypes.byref(handle))
        if status != 0:
            check(status, "sslm_model_map", f"{name}: {_why_refused(self._lib, data)}")
        self._handle = Handle(
            handle,
            self._lib.sslm_model_unmap,
            "sslm_model_unmap",
            (data,),
            "close its sequences, prefixes and adapters first",
        )
        self._data = data
        self._local = threading.local()
        self.info = self._read_info()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Maps the artifact at `path` read-only. Raises `ArtifactRejected` with the reason, or OSError."""
        return cls(mapped_file(path, "sslm_model_map"), str(path))

    @classmethod
    def from_bytes(cls, data: bytes) -> Model:
        """Maps an artifact held in memory; `data` is used in place."""
        return cls(np.frombuffer(data, np.uint8))

    def _read_info(self) -> ModelInfo:
        out = _abi.sslm_ext_model_info_out()
        out.struct_size = ctypes.sizeof(out)
        check(self._lib.sslm_ext_model_info(self._handle.value, ctypes.byref(out)), "sslm_ext_model_info")
        same = (
            "layers",
            "hidden",
            "heads",
            "kv_heads",
            "head_dim",
            "mlp",
            "vocab",
            "cap",
            "weight_bits",
            "tokenizer_size",
            "schema_count",
        )
        return ModelInfo(
            **{name: int(getattr(out, name)) for name in same},
            has_tokenizer=bool(out.has_tokenizer),
            stop_ids=tuple(out.stop_ids[: out.stop_id_count]),
            file_digest=bytes(out.file_digest).hex(),
            model_digest=bytes(out.model_digest).hex(),
        )

    @property
    def kernel_tier(self) -> str:
        """The kernels this machine runs, such as "avx2"; every tier gives the same bits."""
        return str(self._lib.sslm_ext_kernel_tier().decode())

    def verify(self, workspace: Workspace | None = None) -> Verification:
        """Replays the artifact's golden record on this machine: true, or the first difference.

        Args:
            workspace: its job hook is checked too; default: none.

        Raises:
            ArtifactRejected: the artifact has no golden record.
        """
        out = _abi.sslm_ext_self_check_out()
        out.struct_size = ctypes.sizeof(out)
        space = None if workspace is None else workspace._handle.value
        status = self._lib.sslm_ext_self_check(self._handle.value, space, ctypes.byref(out))
        missing = f"{self.name} has no golden record; convert the model again"
        check(status, "sslm_ext_self_check", missing if status == _abi.Status.SSLM_ARTIFACT_REJECTED else "")
        difference = {
            _abi.SSLM_EXT_SELF_CHECK_VERIFIED: None,
            _abi.SSLM_EXT_SELF_CHECK_TOKEN_DIFFERS: f"token {out.tokens + 1} of {out.expected_tokens} is "
            f"{out.computed}, the record has {out.recorded}",
            _abi.SSLM_EXT_SELF_CHECK_DIGEST_DIFFERS: "all tokens agree, but logits or K/V bytes behind them differ",
        }[out.verdict]
        return Verification(out.expected_tokens, difference)

    # ---- text ----

    def tokenize(self, text: str | bytes, *, control_tokens: bool = False) -> np.ndarray:
        """Token ids (int32) of `text`. Without `control_tokens` no text can forge a control token."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
        return self._ids_from(
            lambda out, n: self._lib.sslm_ext_tokenize(
                self._handle.value, data, len(data), int(control_tokens), out, n
            ),
            "sslm_ext_tokenize",
            len(data) + 8,
            "the model has no tokenizer; pass token ids",
        )

    def chat_ids(self, role: str, part: str = "prefix") -> np.ndarray:
        """Token ids (int32) of the model's chat format around a turn.

        Args:
            role: "system", "user" or "assistant".
            part: "prefix" in front of the turn's text, "suffix" behind it; "opening", with the role "system":
                what opens a conversation that has no system turn.

        Raises:
            ArtifactRejected: the model has no chat format.
        """
        for name, value, known in (("role", role, _ROLES), ("part", part, _PARTS)):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        return self._ids_from(
            lambda out, n: self._lib.sslm_ext_chat_ids(
                self._handle.value, _ROLES[role], _PARTS[part], out, n
            ),
            "sslm_ext_chat_ids",
            64,
            "the model has no chat format; `superslm inspect` says why",
        )

    @property
    def has_chat(self) -> bool:
        """Whether `chat_ids` works."""
        n = ctypes.c_size_t(0)
        status = self._lib.sslm_ext_chat_ids(self._handle.value, 0, 0, None, ctypes.byref(n))
        return status != _abi.Status.SSLM_ARTIFACT_REJECTED

    def _ids_from(self, call: Callable[[Any, Any], int], verb: str, guess: int, refused: str) -> np.ndarray:
        n = ctypes.c_size_t(guess)
        out = np.empty(guess, np.int32)
        status = call(int32_pointer(out), ctypes.byref(n))
        if status == _abi.Status.SSLM_BUFFER_TOO_SMALL:
            out = np.empty(n.value, np.int32)
            status = call(int32_pointer(out), ctypes.byref(n))
        check(status, verb, refused if status == _abi.Status.SSLM_ARTIFACT_REJECTED else "")
        return out[: n.value]

    def detokenizer(self, state: bytes = b"") -> Detokenizer:
        """A stream of ids to text that never splits a character; `state` is one that a saved game kept."""
        return Detokenizer(self, state)

    def detokenize(self, tokens: Tokens) -> str:
        """The text of `tokens`; bytes that are not UTF-8 become U+FFFD."""
        stream = self.detokenizer()
        return stream.push(tokens) + stream.finish()

    # ---- schemas ----

    @functools.cached_property
    def schemas(self) -> dict[str, Schema]:
        """The artifact's schemas by name; see docs/structured-output.md."""
        from superslm.artifact import sections_of
        from superslm.structured import read_schemas

        sections = sections_of(memoryview(self._data))
        return read_schemas(sections.get("SCHM"), sections.get("TOKN"), self.info.vocab)

    def _schema_handle(self, name: str | None) -> Any:
        handle = _abi.sslm_schema()
        if name is None:
            return handle
        status = self._lib.sslm_schema_lookup(self._handle.value, name.encode(), ctypes.byref(handle))
        check(status, "sslm_schema_lookup", f"{name!r}; the artifact has {sorted(self.schemas) or 'none'}")
        return handle

    # ---- adapters ----

    def adapter(self, path: str | os.PathLike[str]) -> Adapter:
        """Maps an adapter file of this model; see `Adapter.load` and `Sequence.set_adapter`."""
        from superslm.adapter import Adapter

        return Adapter.load(self, path)

    # ---- memory ----

    def workspace(
        self, *, max_batch: int = 1, max_chunk: int = 256, max_layers: int | None = None
    ) -> Workspace:
        """Scratch memory for calls of up to this shape; within it no call allocates."""
        return Workspace(self, max_batch, max_chunk, max_layers or self.info.layers)

    def pool(self, *, contexts: int | None = None, pages: int | None = None) -> PagePool:
        """K/V memory: `pages` pages, or room for `contexts` whole contexts (default 1)."""
        if pages is not None and contexts is not None:
            raise ValueError("give pages or contexts, not both")
        if pages is None:
            pages = (1 if contexts is None else contexts) * self.pages_for(self.info.cap)
        from superslm.sequence import PagePool

        return PagePool(self, pages)

    @property
    def page_positions(self) -> int:
        """Positions per K/V page."""
        return int(self._lib.sslm_kv_page_positions(self._handle.value))

    @property
    def page_size(self) -> int:
        """Bytes per K/V page."""
        return int(self._lib.sslm_kv_page_size(self._handle.value))

    def pages_for(self, budget: int) -> int:
        """Pages that a sequence of this budget (positions, 1..cap) reserves."""
        pages = int(self._lib.sslm_kv_pages_for_budget(self._handle.value, int32(budget, "budget")))
        if pages == 0:
            raise ValueError(f"budget must be 1..{self.info.cap}, not {budget}")
        return pages

    def _thread_workspace(self) -> Workspace:
        space = getattr(self._local, "workspace", None)
        if space is None:
            space = self._local.workspace = _thread_scratch(self)
        return space

    # ---- batches ----

    def decode(
        self,
        sequences: Seq[Sequence],
        *,
        selection: Selection | Seq[Sampling] | None = None,
        layer_budget: int | None = None,
        workspace: Workspace | None = None,
    ) -> list[int | None]:
        """One decode step for several sequences in one pass over the weights.

        Args:
            sequences: the ones to advance; one that is named twice takes two steps.
            selection: None is greedy; `Damped` or `Sampling` for all of them, or a `Sampling` for each.
            layer_budget: layers per sequence in this call, 1..layers; default: all of them.
            workspace: default: this thread's own.

        Returns:
            A token id per sequence, None where the layer budget ended first, DEAD_END where a schema allows none.

        Raises:
            ContextCapExceeded, KvBudgetExceeded: a sequence is full; those before it in the list have advanced.
        """
        handles = (_abi.sslm_seq * len(sequences))(*[s._handle.value for s in sequences])
        out = np.full(len(sequences), _UNTOUCHED, np.int32)
        budget = self.info.layers if layer_budget is None else int32(layer_budget, "layer_budget")
        space = (workspace or self._thread_workspace())._handle.value
        verb, arguments = self._decode_call(selection, len(sequences), budget)
        status = getattr(self._lib, verb)(
            self._handle.value, handles, len(sequences), *arguments, space, int32_pointer(out)
        )
        for sequence, token in zip(sequences, out.tolist(), strict=True):
            if token >= 0:
                sequence.pending = token
                sequence._walk_on([token])
            elif token == DEAD_END:
                sequence.pending = None  # its row is committed
        check(status, verb, "" if status == 0 else _why_stopped(self, sequences, budget, out))
        return [None if t == -1 else int(t) for t in out]

    def _decode_call(
        self, selection: Selection | Seq[Sampling] | None, n: int, layer_budget: int
    ) -> tuple[str, list[Any]]:
        """The verb for a selection, and its arguments between the batch and the workspace."""
        if selection is None:
            params = _abi.sslm_decode_params()
            params.layer_budget = layer_budget
            return "sslm_decode_step", [ctypes.byref(params)]
        if isinstance(selection, Damped):
            return "sslm_decode_step_v2", [ctypes.byref(damped_params(self, layer_budget, selection))]
        samplings = [selection] * n if isinstance(selection, Sampling) else list(selection)
        if len(samplings) != n:
            raise ValueError(f"{len(samplings)} selections for {n} sequences")
        array = SamplingArray(samplings)
        return "sslm_ext_decode_sample", [layer_budget, array.keep()]


_UNTOUCHED = -9  # marks entries that a refused decode call did not reach


def _why_stopped(model: Model, sequences: Seq[Sequence], layer_budget: int, out: np.ndarray) -> str:
    """Which argument a decode call refused, or which entry it stopped at."""
    refused = np.flatnonzero(out == -1)
    if refused.size > 0:
        index = int(refused[-1])
        stats = sequences[index].stats()
        return f"sequence {index} holds {stats.context_length} positions, its limit is {stats.limit}"
    if len(sequences) == 0:
        return "there is no sequence to decode"
    if not 1 <= layer_budget <= model.info.layers:
        return f"layer_budget is {layer_budget}, it must be 1..{model.info.layers}"
    for index, sequence in enumerate(sequences):
        if sequence.model is not model:
            return f"sequence {index} is of another model"
        if sequence.stats().context_length == 0:
            return f"sequence {index} is empty; prefill it, or let it adopt a prefix, before it decodes"
    return ""


def _thread_scratch(model: Model) -> Workspace:
    """The scratch a thread uses when the caller brings none; it must not keep its own model alive."""
    return Workspace(model, 1, min(CHUNK, model.info.cap), model.info.layers, weak=True)


def _why_refused(lib: Any, data: np.ndarray) -> str:
    message = ctypes.create_string_buffer(256)
    n = ctypes.c_size_t(len(message))
    lib.sslm_ext_model_check(address_of(data), data.size, message, ctypes.byref(n))
    return message.value.decode("utf-8", "replace")


class Detokenizer:
    """Turns ids into text piece by piece; an incomplete character waits for its next bytes."""

    def __init__(self, model: Model, state: bytes = b"") -> None:
        """Starts a stream, or goes on with one whose `state` a saved game kept."""
        self._model = model
        self._state = _abi.sslm_detok_state()
        if state:
            if len(state) != ctypes.sizeof(self._state):
                raise ValueError(f"the state of a detokenizer has 4 bytes, not {len(state)}")
            ctypes.memmove(ctypes.byref(self._state), state, len(state))

    @property
    def state(self) -> bytes:
        """Where the stream stands, 4 bytes: a saved game keeps them, so that no character is cut in two."""
        return bytes(self._state)

    def push(self, tokens: Tokens) -> str:
        """The text that `tokens` complete."""
        ids = token_ids(tokens)
        lib, handle = self._model._lib, self._model._handle.value
        n = ctypes.c_int32(16 * len(ids) + 16)
        while True:
            out = ctypes.create_string_buffer(n.value + 1)
            status = lib.sslm_detokenize_stream(
                handle, ctypes.byref(self._state), int32_pointer(ids), len(ids), out, ctypes.byref(n)
            )
            if status != _abi.Status.SSLM_BUFFER_TOO_SMALL:
                check(status, "sslm_detokenize_stream")
                return out.raw[: n.value].decode("utf-8", "replace")

    def finish(self) -> str:
        """What is left of an unfinished character, as U+FFFD, or nothing."""
        left = self._state.pending_count
        self._state = _abi.sslm_detok_state()
        return "\ufffd" if left else ""


class Workspace(Closable):
    """Scratch memory for calls of up to `max_batch` sequences and `max_chunk` prefill tokens."""

    def __init__(
        self, model: Model, max_batch: int, max_chunk: int, max_layers: int, *, weak: bool = False
    ) -> None:
        lib = model._lib
        config = _abi.sslm_config(
            int32(max_batch, "max_batch"), int32(max_chunk, "max_chunk"), int32(max_layers, "max_layers"), 0
        )
        size = int(lib.sslm_workspace_size(model._handle.value, ctypes.byref(config)))
        if size == 0:
            raise ValueError(
                f"workspace of max_batch {max_batch}, max_chunk {max_chunk}, max_layers {max_layers}: "
                f"each must be at least 1, layers at most {model.info.layers}"
            )
        self.buffer = Buffer(size)
        handle = _abi.sslm_workspace()
        check(
            lib.sslm_workspace_create(
                model._handle.value, ctypes.byref(config), self.buffer.address, size, ctypes.byref(handle)
            ),
            "sslm_workspace_create",
        )
        keep = (self.buffer,) if weak else (self.buffer, model)
        self._handle = Handle(handle, lib.sslm_workspace_destroy, "sslm_workspace_destroy", keep)
