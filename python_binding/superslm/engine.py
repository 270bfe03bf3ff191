# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Models, pools, prefixes and sequences as Python objects.

Every object is a context manager; a forgotten one is released when it is collected. Objects keep what they
were made from alive. One object must not be used by two threads at once, except `Model`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from superslm import _abi
from superslm._library import check, library

Tokens = Seq[int] | np.ndarray

_ROLES = {"system": 0, "user": 1, "assistant": 2}
_PREFIX, _SUFFIX = 0, 1


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def _ids(tokens: Tokens) -> np.ndarray:
    """`tokens` as contiguous int32; refuses anything that would change by the conversion."""
    array = np.asarray(tokens)
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"token ids must be a flat list of integers, not {array.dtype} of shape {array.shape}")
    if array.min() < -(1 << 31) or array.max() >= 1 << 31:
        raise ValueError("token ids must fit 32 bits")
    return np.ascontiguousarray(array, np.int32)


def _int32(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


class _Buffer:
    """Page-aligned memory lent to the library; the pages appear when they are first written."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, max(size, 1))
        self.size = size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))


class _Handle:
    """A library handle that is given back exactly once."""

    def __init__(self, handle: Any, release: Callable[[Any], int], verb: str, keep: Iterable[Any] = ()) -> None:
        self._value = handle
        self._verb = verb
        self._release = release
        self._keep = tuple(keep)
        self._finalizer = weakref.finalize(self, _Handle._drop, release, handle, self._keep)

    @staticmethod
    def _drop(release: Callable[[Any], int], handle: Any, keep: tuple[Any, ...]) -> None:
        release(handle)

    @property
    def value(self) -> Any:
        if self._value is None:
            raise ValueError("this object has been closed")
        return self._value

    def close(self) -> None:
        """Gives the handle back; the verb may refuse while others depend on it."""
        if self._value is None:
            return
        check(self._release(self._value), self._verb)
        self._finalizer.detach()
        self._value = None
        self._keep = ()


class _Closable:
    """`close()` and `with` for an object that owns one handle."""

    _handle: _Handle

    def close(self) -> None:
        """Releases the object; closing twice does nothing."""
        self._handle.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


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


class Model(_Closable):
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
        status = self._lib.sslm_model_map(_address(data), data.size, ctypes.byref(handle))
        if status != 0:
            check(status, "sslm_model_map", f"{name}: {_why_refused(self._lib, data)}")
        self._handle = _Handle(handle, self._lib.sslm_model_unmap, "sslm_model_unmap", (data,))
        self._local = threading.local()
        self.info = self._read_info()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Maps the artifact at `path` read-only. Raises `ArtifactRejected` with the reason, or OSError."""
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ValueError(f"{path} is empty; it is not an artifact")
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return cls(np.frombuffer(mapping, np.uint8), str(path))

    @classmethod
    def from_bytes(cls, data: bytes) -> Model:
        """Maps an artifact held in memory; `data` is used in place."""
        return cls(np.frombuffer(data, np.uint8))

    def _read_info(self) -> ModelInfo:
        out = _abi.sslm_ext_model_info_out()
        out.struct_size = ctypes.sizeof(out)
        check(self._lib.sslm_ext_model_info(self._handle.value, ctypes.byref(out)), "sslm_ext_model_info")
        same = ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "vocab", "cap", "weight_bits",
                "tokenizer_size", "schema_count")
        return ModelInfo(
            **{name: int(getattr(out, name)) for name in same},
            has_tokenizer=bool(out.has_tokenizer),
            stop_ids=tuple(out.stop_ids[: out.stop_id_count]),
            file_digest=bytes(out.file_digest).hex(),
            model_digest=bytes(out.model_digest).hex(),
        )

    # ---- text ----

    def tokenize(self, text: str | bytes, *, control_tokens: bool = False) -> np.ndarray:
        """Token ids (int32) of `text`. Without `control_tokens` no text can forge a control token."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        return self._ids_from(
            lambda out, n: self._lib.sslm_ext_tokenize(
                self._handle.value, data, len(data), int(control_tokens), out, n),
            "sslm_ext_tokenize", len(data) + 8)

    def chat_ids(self, role: str, *, suffix: bool = False) -> np.ndarray:
        """Ids in front of a turn of `role` ("system", "user", "assistant"), or behind it."""
        if role not in _ROLES:
            raise ValueError(f"role must be one of {', '.join(_ROLES)}, not {role!r}")
        part = _SUFFIX if suffix else _PREFIX
        return self._ids_from(
            lambda out, n: self._lib.sslm_ext_chat_ids(self._handle.value, _ROLES[role], part, out, n),
            "sslm_ext_chat_ids", 64)

    def _ids_from(self, call: Callable[[Any, Any], int], verb: str, guess: int) -> np.ndarray:
        n = ctypes.c_size_t(guess)
        out = np.empty(guess, np.int32)
        status = call(_int32(out), ctypes.byref(n))
        if status == _abi.SSLM_BUFFER_TOO_SMALL:
            out = np.empty(n.value, np.int32)
            status = call(_int32(out), ctypes.byref(n))
        check(status, verb)
        return out[: n.value]

    def detokenizer(self) -> Detokenizer:
        """A stream of ids to text that never splits a character."""
        return Detokenizer(self)

    def detokenize(self, tokens: Tokens) -> str:
        """The text of `tokens`; bytes that are not UTF-8 become U+FFFD."""
        stream = self.detokenizer()
        return stream.push(tokens) + stream.finish()

    # ---- memory ----

    def workspace(self, *, max_batch: int = 1, max_chunk: int = 256, max_layers: int | None = None) -> Workspace:
        """Scratch memory for calls of up to this shape; within it no call allocates."""
        return Workspace(self, max_batch, max_chunk, max_layers or self.info.layers)

    def pool(self, *, contexts: int | None = None, pages: int | None = None) -> PagePool:
        """K/V memory: `pages` pages, or room for `contexts` whole contexts (default 1)."""
        if pages is not None and contexts is not None:
            raise ValueError("give pages or contexts, not both")
        if pages is None:
            pages = (contexts or 1) * self.pages_for(self.info.cap)
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
        pages = int(self._lib.sslm_kv_pages_for_budget(self._handle.value, budget))
        if pages == 0:
            raise ValueError(f"budget must be 1..{self.info.cap}, not {budget}")
        return pages

    def _thread_workspace(self) -> Workspace:
        space = getattr(self._local, "workspace", None)
        if space is None:
            space = self._local.workspace = _thread_scratch(self)
        return space

    # ---- batches ----

    def decode(self, sequences: Seq[Sequence], *, layer_budget: int | None = None,
               workspace: Workspace | None = None) -> list[int | None]:
        """One decode step for several sequences in one pass over the weights.

        Returns a token id per sequence, or None where the layer budget (1..layers, default all) ended first.
        """
        handles = (_abi.sslm_seq * len(sequences))(*[s._handle.value for s in sequences])
        out = np.empty(len(sequences), np.int32)
        params = _abi.sslm_decode_params()
        params.layer_budget = layer_budget or self.info.layers
        space = workspace or self._thread_workspace()
        status = self._lib.sslm_decode_step(self._handle.value, handles, len(sequences), ctypes.byref(params),
                                            space._handle.value, _int32(out))
        check(status, "sslm_decode_step")
        return [None if t == -1 else int(t) for t in out]


def _thread_scratch(model: Model) -> Workspace:
    """The scratch a thread uses when the caller brings none; it must not keep its own model alive."""
    return Workspace(model, 1, min(256, model.info.cap), model.info.layers, weak=True)


def _why_refused(lib: Any, data: np.ndarray) -> str:
    message = ctypes.create_string_buffer(256)
    n = ctypes.c_size_t(len(message))
    lib.sslm_ext_model_check(_address(data), data.size, message, ctypes.byref(n))
    return message.value.decode("utf-8", "replace")


class Detokenizer:
    """Turns ids into text piece by piece; an incomplete character waits for its next bytes."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._state = _abi.sslm_detok_state()

    def push(self, tokens: Tokens) -> str:
        """The text that `tokens` complete."""
        ids = _ids(tokens)
        lib, handle = self._model._lib, self._model._handle.value
        n = ctypes.c_int32(16 * len(ids) + 16)
        while True:
            out = ctypes.create_string_buffer(n.value + 1)
            status = lib.sslm_detokenize_stream(handle, ctypes.byref(self._state), _int32(ids), len(ids), out,
                                                ctypes.byref(n))
            if status != _abi.SSLM_BUFFER_TOO_SMALL:
                check(status, "sslm_detokenize_stream")
                return out.raw[: n.value].decode("utf-8", "replace")

    def finish(self) -> str:
        """What is left of an unfinished character, as U+FFFD, or nothing."""
        left = self._state.pending_count
        self._state = _abi.sslm_detok_state()
        return "\ufffd" if left else ""


class Workspace(_Closable):
    """Scratch memory for calls of up to `max_batch` sequences and `max_chunk` prefill tokens."""

    def __init__(self, model: Model, max_batch: int, max_chunk: int, max_layers: int, *,
                 weak: bool = False) -> None:
        lib = model._lib
        config = _abi.sslm_config(max_batch, max_chunk, max_layers, 0)
        size = int(lib.sslm_workspace_size(model._handle.value, ctypes.byref(config)))
        if size == 0:
            raise ValueError(f"workspace of max_batch {max_batch}, max_chunk {max_chunk}, max_layers {max_layers}: "
                             f"each must be at least 1, layers at most {model.info.layers}")
        self.buffer = _Buffer(size)
        handle = _abi.sslm_workspace()
        check(lib.sslm_workspace_create(model._handle.value, ctypes.byref(config), self.buffer.address, size,
                                        ctypes.byref(handle)), "sslm_workspace_create")
        keep = (self.buffer,) if weak else (self.buffer, model)
        self._handle = _Handle(handle, lib.sslm_workspace_destroy, "sslm_workspace_destroy", keep)


@dataclass(frozen=True)
class PoolStats:
    """One consistent snapshot of a pool, in pages; `page_positions` in positions."""

    page_count: int
    free_pages: int
    shared_pages: int
    page_positions: int


class PagePool(_Closable):
    """K/V memory shared by the sequences and prefixes made from it."""

    def __init__(self, model: Model, pages: int) -> None:
        lib = model._lib
        self.model = model
        size = pages * model.page_size + int(lib.sslm_kv_page_pool_overhead_size(model._handle.value, pages))
        self.buffer = _Buffer(size)
        handle = _abi.sslm_kv_pool()
        check(lib.sslm_kv_page_pool_create(model._handle.value, self.buffer.address, size, pages,
                                           ctypes.byref(handle)),
              "sslm_kv_page_pool_create", f"{pages} pages")
        self._handle = _Handle(handle, lib.sslm_kv_pool_destroy, "sslm_kv_pool_destroy", (self.buffer, model))

    def stats(self) -> PoolStats:
        """Pages in all, free, and shared by at least one holder."""
        out = _abi.sslm_kv_pool_stats_out()
        out.struct_size = ctypes.sizeof(out)
        check(self.model._lib.sslm_kv_pool_stats(self._handle.value, ctypes.byref(out)), "sslm_kv_pool_stats")
        return PoolStats(out.page_count, out.free_pages, out.shared_pages, out.page_positions)

    def sequence(self, budget: int | None = None) -> Sequence:
        """A fresh sequence: up to `budget` positions beyond what it adopts, or the whole context."""
        return Sequence._create(self, budget)

    def prefix(self, prompt: str | Tokens = (), *, budget: int | None = None) -> Prefix:
        """An open prefix that already holds `prompt`; freeze it before sequences adopt it."""
        return Prefix._begin(self, budget)._filled(prompt)

    def restore(self, blob: bytes, prefix: Prefix | None = None) -> Sequence:
        """The saved sequence, sharing the pages of `prefix` where it is the one the sequence adopted."""
        return Sequence._restore(self, blob, prefix)


class _Holder(_Closable):
    """What sequences and prefixes have in common: tokens go in by prefill."""

    model: Model
    _verb: str

    def _prefill_call(self) -> Callable[..., int]:
        return getattr(self.model._lib, self._verb)

    def prefill(self, tokens: str | Tokens, *, chunk: int | None = None, workspace: Workspace | None = None,
                forced: bool = False) -> int:
        """Appends tokens (ids, or text without control tokens) and returns how many.

        `chunk` bounds the tokens per library call. `forced` marks them as content of the bound schema.
        Raises the refusal's exception; its `consumed` attribute counts the tokens that went in before it.
        """
        ids = self.model.tokenize(tokens) if isinstance(tokens, str) else _ids(tokens)
        space = workspace or self.model._thread_workspace()
        done, consumed = 0, ctypes.c_int32(0)
        while True:
            status = self._prefill_call()(
                self.model._handle.value, self._handle.value, _int32(ids[done:]), len(ids) - done,
                chunk or 256, int(forced), space._handle.value, ctypes.byref(consumed))
            done += consumed.value
            check(status, self._verb, f"after {done} of {len(ids)} tokens", consumed=done)
            if done == len(ids):
                return done


class Prefix(_Holder):
    """A prompt computed once; frozen, it is shared by every sequence that adopts it."""

    _verb = "sslm_prefix_prefill"

    def __init__(self, pool: PagePool, handle: Any, parent: Prefix | None = None) -> None:
        self.pool, self.model = pool, pool.model
        self._handle = _Handle(handle, self.model._lib.sslm_prefix_release, "sslm_prefix_release", (pool,))

    @classmethod
    def _begin(cls, pool: PagePool, budget: int | None) -> Prefix:
        lib, handle = pool.model._lib, _abi.sslm_prefix()
        at = ctypes.byref(pool._handle.value)
        if budget is None:
            check(lib.sslm_prefix_begin(pool.model._handle.value, at, ctypes.byref(handle)), "sslm_prefix_begin")
        else:
            check(lib.sslm_prefix_begin_budgeted(pool.model._handle.value, at, budget, ctypes.byref(handle)),
                  "sslm_prefix_begin_budgeted", f"budget {budget}")
        return cls(pool, handle)

    def _filled(self, prompt: str | Tokens) -> Prefix:
        if len(prompt):
            self.prefill(prompt)
        return self

    def nested(self, prompt: str | Tokens = (), *, budget: int) -> Prefix:
        """An open prefix that continues this frozen one and shares its pages."""
        lib, handle = self.model._lib, _abi.sslm_prefix()
        check(lib.sslm_prefix_begin_from(self._handle.value, budget, ctypes.byref(handle)),
              "sslm_prefix_begin_from", f"budget {budget}")
        return Prefix(self.pool, handle)._filled(prompt)

    def freeze(self) -> Prefix:
        """Ends the writing: from now on sequences may adopt it. Returns itself."""
        check(self.model._lib.sslm_prefix_freeze(self._handle.value), "sslm_prefix_freeze")
        return self


@dataclass(frozen=True)
class SequenceStats:
    """Pages and positions of one sequence."""

    budgeted: bool
    origin: int
    budget: int
    limit: int
    context_length: int
    private_pages: int
    shared_pages: int
    reserve_pages: int
    materialized_pages: int


class Sequence(_Holder):
    """One conversation: a context and the K/V rows behind it."""

    _verb = "sslm_prefill"

    def __init__(self, pool: PagePool, handle: Any) -> None:
        self.pool, self.model = pool, pool.model
        self.pending: int | None = None
        self._handle = _Handle(handle, self.model._lib.sslm_seq_release, "sslm_seq_release", (pool,))

    @classmethod
    def _create(cls, pool: PagePool, budget: int | None) -> Sequence:
        lib, handle = pool.model._lib, _abi.sslm_seq()
        at = ctypes.byref(pool._handle.value)
        if budget is None:
            check(lib.sslm_seq_create(pool.model._handle.value, at, ctypes.byref(handle)), "sslm_seq_create")
        else:
            check(lib.sslm_seq_create_budgeted(pool.model._handle.value, at, budget, ctypes.byref(handle)),
                  "sslm_seq_create_budgeted", f"budget {budget}")
        return cls(pool, handle)

    @classmethod
    def _restore(cls, pool: PagePool, blob: bytes, prefix: Prefix | None) -> Sequence:
        lib, handle = pool.model._lib, _abi.sslm_seq()
        data = np.frombuffer(blob, np.uint8)
        shared = ctypes.c_uint32(0)
        check(lib.sslm_seq_restore_shared(
            pool.model._handle.value, ctypes.byref(pool._handle.value), _address(data), data.size,
            prefix._handle.value if prefix else None, ctypes.byref(handle), ctypes.byref(shared)),
            "sslm_seq_restore_shared", f"{data.size} bytes")
        sequence = cls(pool, handle)
        sequence.pending = _pending_of(blob)
        return sequence

    def prefill(self, tokens: str | Tokens, *, chunk: int | None = None, workspace: Workspace | None = None,
                forced: bool = False) -> int:
        # The emitted token that waits for its K/V row belongs in front of whatever follows it.
        ids = self.model.tokenize(tokens) if isinstance(tokens, str) else _ids(tokens)
        if self.pending is not None and len(ids):
            ids = np.concatenate([np.array([self.pending], np.int32), ids])
        try:
            done = super().prefill(ids, chunk=chunk, workspace=workspace, forced=forced)
        except Exception as error:
            if getattr(error, "consumed", 0) > 0:
                self.pending = None
            raise
        if done:
            self.pending = None
        return done

    def drop_pending(self) -> None:
        """Forgets the last emitted token: the next prefill does not put it into the context."""
        self.pending = None

    def decode(self, *, layer_budget: int | None = None, workspace: Workspace | None = None) -> int | None:
        """One decode step: the next token id, or None where the layer budget ended first."""
        token = self.model.decode([self], layer_budget=layer_budget, workspace=workspace)[0]
        self.pending = token
        return token

    def logits(self) -> np.ndarray:
        """Logits of the next token, int32 [vocab] in Q16 nats; the sequence must rest after a prefill."""
        n = ctypes.c_size_t(self.model.info.vocab)
        out = np.empty(n.value, np.int32)
        check(self.model._lib.sslm_ext_seq_logits(self.model._handle.value, self._handle.value, None,
                                                  _int32(out), ctypes.byref(n)), "sslm_ext_seq_logits")
        return out

    def score(self, tokens: str | Tokens) -> np.ndarray:
        """Appends `tokens` and returns the log-probability of each in nats, float64 [n]."""
        ids = self.model.tokenize(tokens) if isinstance(tokens, str) else _ids(tokens)
        out, consumed = np.zeros(len(ids), np.int32), ctypes.c_int32(0)
        status = self.model._lib.sslm_ext_score(self.model._handle.value, self._handle.value, _int32(ids), len(ids),
                                                None, _int32(out), ctypes.byref(consumed))
        check(status, "sslm_ext_score", f"after {consumed.value} of {len(ids)} tokens", consumed=consumed.value)
        return out / 65536.0

    def generate(self, prompt: str | Tokens = (), *, max_tokens: int = 256,
                 stop_ids: Iterable[int] | None = None, workspace: Workspace | None = None) -> Iterator[str]:
        """Yields text pieces until a stop id, `max_tokens`, or the end of the budget.

        The last emitted token stays pending and enters the context with the next prefill or decode.
        """
        stops = set(self.model.info.stop_ids if stop_ids is None else stop_ids)
        if len(prompt):
            self.prefill(prompt, workspace=workspace)
        stream = self.model.detokenizer()
        for _ in range(max_tokens):
            token = self.decode(workspace=workspace)
            if token is None or token in stops:
                break
            piece = stream.push([token])
            if piece:
                yield piece
        rest = stream.finish()
        if rest:
            yield rest

    def reset(self) -> None:
        """Empties the sequence; its pages stay reserved."""
        check(self.model._lib.sslm_seq_reset(self._handle.value), "sslm_seq_reset")
        self.pending = None

    def adopt(self, prefix: Prefix) -> None:
        """Replaces the content by the frozen prefix's, sharing its pages where this sequence has a budget."""
        check(self.model._lib.sslm_seq_adopt_prefix(self._handle.value, prefix._handle.value),
              "sslm_seq_adopt_prefix")
        self.pending = None

    def save(self) -> bytes:
        """A blob that `PagePool.restore` continues from, byte for byte."""
        n = ctypes.c_size_t(0)
        save = self.model._lib.sslm_seq_save
        save(self._handle.value, None, ctypes.byref(n))
        blob = ctypes.create_string_buffer(n.value)
        check(save(self._handle.value, blob, ctypes.byref(n)), "sslm_seq_save")
        return blob.raw[: n.value]

    def stats(self) -> SequenceStats:
        """Budget, length and pages."""
        out = _abi.sslm_seq_kv_stats_out()
        out.struct_size = ctypes.sizeof(out)
        check(self.model._lib.sslm_seq_kv_stats(self._handle.value, ctypes.byref(out)), "sslm_seq_kv_stats")
        return SequenceStats(bool(out.mode), out.origin, out.budget, out.limit, out.context_length,
                             out.mapped_private_pages, out.shared_pages, out.reserve_pages,
                             out.materialized_pages)


def _pending_of(blob: bytes) -> int | None:
    """The pending token a blob carries (offset 72 in every format)."""
    token = int.from_bytes(blob[72:76], "little", signed=True)
    return None if token < 0 else token


class Chat:
    """A conversation in the model's own chat format on one sequence.

    >>> with Model.load(example_artifact) as model, model.pool() as pool, pool.sequence() as sequence:
    ...     reply = "".join(Chat(sequence).say("Hello!", max_tokens=8))
    """

    def __init__(self, sequence: Sequence, system: str | None = None) -> None:
        self.sequence = sequence
        self._model = sequence.model
        self._open_reply = False
        if system is not None:
            sequence.prefill(self._turn("system", system))

    def _turn(self, role: str, text: str) -> np.ndarray:
        model = self._model
        return np.concatenate([model.chat_ids(role), model.tokenize(text), model.chat_ids(role, suffix=True)])

    def say(self, text: str, *, max_tokens: int = 256, workspace: Workspace | None = None) -> Iterator[str]:
        """Adds the user's turn and yields the reply piece by piece."""
        model, sequence = self._model, self.sequence
        ids = [self._turn("user", text), model.chat_ids("assistant")]
        if self._open_reply:
            # A reply that ended by a stop id has that id in its suffix already.
            if sequence.pending in model.info.stop_ids:
                sequence.drop_pending()
            ids.insert(0, model.chat_ids("assistant", suffix=True))
        self._open_reply = True
        yield from sequence.generate(np.concatenate(ids), max_tokens=max_tokens, workspace=workspace)


def load(path: str | Path) -> Model:
    """`Model.load(path)`."""
    return Model.load(path)
