# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Conversations in K/V memory: pools, prefixes and sequences."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from superslm import _abi, _refusals
from superslm._handles import Buffer, Closable, Handle, Tokens, address_of, int32, int32_pointer, token_ids
from superslm._library import SuperslmError, check
from superslm.adapter import Adapter
from superslm.engine import CHUNK, DEAD_END, Detokenizer, Model, Workspace
from superslm.selection import Sampling, Selection
from superslm.structured import Structured
from superslm.structured import generate as generate_structured


@dataclass(frozen=True)
class PoolStats:
    """One consistent snapshot of a pool, in pages; `page_positions` in positions.

    free_pages: no holder maps or reserves them. shared_pages: distinct pages that at least one holder maps by sharing.
    """

    page_count: int
    free_pages: int
    shared_pages: int
    page_positions: int


class PagePool(Closable):
    """K/V memory shared by the sequences and prefixes made from it; close them before the pool.

    Each reserves its pages when it is made (KvPoolExhausted: too few are free; see docs/memory.md), and none later.
    """

    def __init__(self, model: Model, pages: int) -> None:
        lib = model._lib
        pages = operator.index(pages)
        if not 1 <= pages < (1 << 32) - 1:
            raise ValueError(f"a pool has at least one page and fewer than 2^32 - 1, not {pages}")
        self.model = model
        size = pages * model.page_size + int(lib.sslm_kv_page_pool_overhead_size(model._handle.value, pages))
        self.buffer = Buffer(size)
        handle = _abi.sslm_kv_pool()
        check(
            lib.sslm_kv_page_pool_create(
                model._handle.value, self.buffer.address, size, pages, ctypes.byref(handle)
            ),
            "sslm_kv_page_pool_create",
            f"{pages} pages",
        )
        self._handle = Handle(
            handle,
            lib.sslm_kv_pool_destroy,
            "sslm_kv_pool_destroy",
            (self.buffer, model),
            "close its sequences and prefixes first",
        )

    def stats(self) -> PoolStats:
        """Pages in all, free, and shared."""
        out = _abi.sslm_kv_pool_stats_out()
        out.struct_size = ctypes.sizeof(out)
        check(self.model._lib.sslm_kv_pool_stats(self._handle.value, ctypes.byref(out)), "sslm_kv_pool_stats")
        return PoolStats(out.page_count, out.free_pages, out.shared_pages, out.page_positions)

    def _hold(self, verb: str, handle: Any, budget: int | None) -> Any:
        """A holder made by `verb`, or by the verb's form with a budget."""
        arguments: tuple[int, ...] = ()
        if budget is not None:
            verb, arguments = f"{verb}_budgeted", (int32(budget, "budget"),)
        make = getattr(self.model._lib, verb)
        at = ctypes.byref(self._handle.value)
        status = make(self.model._handle.value, at, *arguments, ctypes.byref(handle))
        if status:
            check(status, verb, _refusals.of_holder(status, self, budget))
        return handle

    def sequence(self, budget: int | None = None) -> Sequence:
        """A fresh sequence: up to `budget` positions (1..cap) beyond what it adopts, or the whole context.

        With a budget it reserves `Model.pages_for(budget)` pages and shares those of a prefix that it adopts; without
        one it reserves a whole context and copies the prefix.
        """
        return Sequence._create(self, budget)

    def prefix(
        self, prompt: str | Tokens = (), *, budget: int | None = None, schema: str | None = None
    ) -> Prefix:
        """An open prefix that already holds `prompt`; freeze it before sequences adopt it.

        Until then it reserves the pages of `budget` positions (1..cap), or of a whole context. `schema` is bound first,
        for a prefix that is to hold the beginning of a structured text.
        """
        prefix = Prefix._begin(self, budget)
        if schema is not None:
            prefix.bind_schema(schema)
        return prefix._filled(prompt)

    def restore(self, blob: bytes, prefix: Prefix | None = None) -> Sequence:
        """The saved sequence, sharing the pages of `prefix` where it is the one the sequence adopted.

        Without that one it needs more pages, a private copy until it resets or adopts, and goes on the same.

        Raises:
            RestoreModelMismatch: the blob is of another model.
            InvalidArgument: damaged, or not a sequence's blob.
            KvPoolExhausted: too few free pages.
        """
        return Sequence.restore(self, blob, prefix)

    def restore_prefix(self, blob: bytes, parent: Prefix | None = None) -> Prefix:
        """The frozen prefix of `Prefix.save`; a nested one needs the parent it names, in this pool."""
        return Prefix.restore(self, blob, parent)


class _Holder(Closable):
    """What sequences and prefixes have in common: tokens go in by prefill, and a schema may be bound.

    schema: name of the bound schema, or None. walk: the state of its automaton.
    """

    model: Model
    _verb: str
    _bind_verb: str
    schema: str | None = None
    walk: int | None = None

    def bind_schema(self, name: str | None) -> None:
        """Binds a schema of the model at its start, or none; only while nothing has gone in.

        Raises:
            SchemaNotFound: the artifact has no schema of this name.
            SchemaBindRejected, InvalidArgument: there is content; reset the sequence first.
        """
        handle = self.model._schema_handle(name)
        status = getattr(self.model._lib, self._bind_verb)(self._handle.value, handle)
        check(status, self._bind_verb, "bind it before any prefill, decode or adopt, or after a reset")
        self.schema, self.walk = name, None if name is None else 0

    def _walk_on(self, tokens: Iterable[int]) -> None:
        if self.schema is not None:
            schema = self.model.schemas[self.schema]
            for token in tokens:
                self.walk = schema.step(self.walk or 0, token)

    def _prefill_call(self) -> Callable[..., int]:
        return getattr(self.model._lib, self._verb)

    def prefill(
        self,
        tokens: str | Tokens,
        *,
        chunk: int | None = None,
        workspace: Workspace | None = None,
        forced: bool = False,
    ) -> int:
        """Appends tokens (ids, or text without control tokens) and returns how many.

        `chunk` bounds the tokens per library call. `forced` marks them as content of the bound schema.
        Raises the refusal's exception; its `consumed` attribute counts the tokens that went in before it.
        """
        ids = self.model.tokenize(tokens) if isinstance(tokens, str) else token_ids(tokens)
        space = workspace or self.model._thread_workspace()
        size = CHUNK if chunk is None else int32(chunk, "chunk")
        done, consumed = 0, ctypes.c_int32(0)
        while True:
            status = self._prefill_call()(
                self.model._handle.value,
                self._handle.value,
                int32_pointer(ids[done:]),
                len(ids) - done,
                size,
                int(forced),
                space._handle.value,
                ctypes.byref(consumed),
            )
            if forced:
                self._walk_on(ids[done : done + consumed.value].tolist())
            done += consumed.value
            if status:
                why = _refusals.of_prefill(status, size, self if isinstance(self, Sequence) else None)
                check(status, self._verb, f"after {done} of {len(ids)} tokens{why}", consumed=done)
            if done == len(ids):
                return done


class Prefix(_Holder):
    """A prompt computed once; frozen, it is shared by every sequence that adopts it."""

    _verb = "sslm_prefix_prefill"
    _bind_verb = "sslm_prefix_set_schema"

    def __init__(self, pool: PagePool, handle: Any) -> None:
        self.pool, self.model = pool, pool.model
        self._handle = Handle(handle, self.model._lib.sslm_prefix_release, "sslm_prefix_release", (pool,))

    @classmethod
    def _begin(cls, pool: PagePool, budget: int | None) -> Prefix:
        return cls(pool, pool._hold("sslm_prefix_begin", _abi.sslm_prefix(), budget))

    def _filled(self, prompt: str | Tokens) -> Prefix:
        if len(prompt):
            self.prefill(prompt)
        return self

    def nested(self, prompt: str | Tokens = (), *, budget: int) -> Prefix:
        """An open prefix that continues this frozen one by up to `budget` positions (1..cap) and shares its pages.

        This one may be closed afterwards. Raises InvalidArgument while it is open, or for a budget outside 1..cap.
        """
        lib, handle = self.model._lib, _abi.sslm_prefix()
        status = lib.sslm_prefix_begin_from(self._handle.value, int32(budget, "budget"), ctypes.byref(handle))
        if status:
            check(status, "sslm_prefix_begin_from", _refusals.of_nested(status, self, budget))
        child = Prefix(self.pool, handle)
        child.schema, child.walk = self.schema, self.walk
        return child._filled(prompt)

    def freeze(self) -> Prefix:
        """Ends the writing: from now on sequences may adopt it. Returns itself."""
        check(self.model._lib.sslm_prefix_freeze(self._handle.value), "sslm_prefix_freeze")
        return self

    def save(self) -> bytes:
        """A blob that `PagePool.restore_prefix` rebuilds this frozen prefix from, without computing it again.

        A nested prefix carries its own positions only; restore its parent first. Raises InvalidArgument while
        it is open.
        """
        return _saved(self.model._lib.sslm_ext_prefix_save, self._handle.value, "freeze it before")

    @classmethod
    def restore(cls, pool: PagePool, blob: bytes, parent: Prefix | None = None) -> Prefix:
        """The frozen prefix that `save` gave.

        Args:
            pool: where it draws the pages that its parent does not share.
            blob: what `save` gave, of this model.
            parent: of a nested prefix: the frozen prefix of this pool, with the content that the blob names.

        Raises:
            RestoreModelMismatch: the blob is of another model.
            InvalidArgument: damaged, or the parent is missing or another.
            KvPoolExhausted: too few free pages.
        """
        lib, handle = pool.model._lib, _abi.sslm_prefix()
        data = np.frombuffer(blob, np.uint8)
        status = lib.sslm_ext_prefix_restore(
            pool.model._handle.value,
            ctypes.byref(pool._handle.value),
            address_of(data),
            data.size,
            parent._handle.value if parent else None,
            ctypes.byref(handle),
        )
        if status:
            why = _refusals.of_restore(status, blob, pool, parent is not None)
            check(status, "sslm_ext_prefix_restore", why)
        prefix = cls(pool, handle)
        prefix.schema, prefix.walk = _walk_of(blob, pool.model)
        return prefix


@dataclass(frozen=True)
class SequenceStats:
    """Pages and positions of one sequence."""

    budgeted: bool
    origin: int  # position the budget counts from: the adopted prefix's length, else 0
    budget: int  # positions; the context cap without a budget
    limit: int  # first position that is refused
    context_length: int  # committed positions
    private_pages: int  # own pages in use, the materialised ones included
    shared_pages: int  # pages shared with a prefix
    reserve_pages: int  # held, not in use yet
    materialized_pages: int  # private copies of pages that were shared when the sequence was saved


class Sequence(_Holder):
    """One conversation: a context and the K/V rows behind it."""

    _verb = "sslm_prefill"
    _bind_verb = "sslm_seq_set_schema"

    def __init__(self, pool: PagePool, handle: Any) -> None:
        self.pool, self.model = pool, pool.model
        self.pending: int | None = None
        self._bound: list[Adapter] = []  # at most one; it must outlive the handle
        self._handle = Handle(
            handle, self.model._lib.sslm_seq_release, "sslm_seq_release", (pool, self._bound)
        )

    @classmethod
    def _create(cls, pool: PagePool, budget: int | None) -> Sequence:
        return cls(pool, pool._hold("sslm_seq_create", _abi.sslm_seq(), budget))

    @classmethod
    def restore(cls, pool: PagePool, blob: bytes, prefix: Prefix | None = None) -> Sequence:
        """The saved sequence; see `PagePool.restore`."""
        lib, handle = pool.model._lib, _abi.sslm_seq()
        data = np.frombuffer(blob, np.uint8)
        shared = ctypes.c_uint32(0)
        status = lib.sslm_seq_restore_shared(
            pool.model._handle.value,
            ctypes.byref(pool._handle.value),
            address_of(data),
            data.size,
            prefix._handle.value if prefix else None,
            ctypes.byref(handle),
            ctypes.byref(shared),
        )
        if status:
            check(status, "sslm_seq_restore_shared", _refusals.of_restore(status, blob, pool, None))
        sequence = cls(pool, handle)
        sequence.pending = _pending_of(blob)
        sequence.schema, sequence.walk = _walk_of(blob, pool.model)
        return sequence

    def prefill(
        self,
        tokens: str | Tokens,
        *,
        chunk: int | None = None,
        workspace: Workspace | None = None,
        forced: bool = False,
    ) -> int:
        """As for a prefix, and puts the pending token in front: the one emitted last has no K/V row yet.

        The count includes that token. `drop_pending` leaves it out; `prefill([])` appends it alone.
        """
        ids = self.model.tokenize(tokens) if isinstance(tokens, str) else token_ids(tokens)
        done = 0
        if self.pending is not None and forced:  # a schema's walk has moved by the pending token already
            done = self.prefill([], workspace=workspace)
        if self.pending is not None:
            ids = np.concatenate([np.array([self.pending], np.int32), ids])
        try:
            done += super().prefill(ids, chunk=chunk, workspace=workspace, forced=forced)
        except SuperslmError as error:
            if error.consumed:
                self.pending = None
            raise
        self.pending = None
        return done

    def drop_pending(self) -> None:
        """Forgets the last emitted token: the next prefill does not put it into the context."""
        self.pending = None

    def decode(
        self,
        *,
        selection: Selection | None = None,
        layer_budget: int | None = None,
        workspace: Workspace | None = None,
    ) -> int | None:
        """One decode step, see `Model.decode`: the next token id, None, or DEAD_END."""
        return self.model.decode([self], selection=selection, layer_budget=layer_budget, workspace=workspace)[
            0
        ]

    def logits(self) -> np.ndarray:
        """Logits of the next token, int32 [vocab] in Q16 nats; the sequence must rest after a prefill."""
        n = ctypes.c_size_t(self.model.info.vocab)
        out = np.empty(n.value, np.int32)
        check(
            self.model._lib.sslm_ext_seq_logits(
                self.model._handle.value, self._handle.value, None, int32_pointer(out), ctypes.byref(n)
            ),
            "sslm_ext_seq_logits",
        )
        return out

    def score(self, tokens: str | Tokens) -> np.ndarray:
        """Appends `tokens` and returns the log-probability of each in nats, float64 [n].

        Nothing predicts the first token of an empty sequence: its value is 0.
        """
        ids = self.model.tokenize(tokens) if isinstance(tokens, str) else token_ids(tokens)
        if self.pending is not None:
            Sequence.prefill(self, [])  # moves the pending token into the context
        out, consumed = np.zeros(len(ids), np.int32), ctypes.c_int32(0)
        status = self.model._lib.sslm_ext_score(
            self.model._handle.value,
            self._handle.value,
            int32_pointer(ids),
            len(ids),
            None,
            int32_pointer(out),
            ctypes.byref(consumed),
        )
        check(
            status, "sslm_ext_score", f"after {consumed.value} of {len(ids)} tokens", consumed=consumed.value
        )
        return out / 65536.0

    @overload
    def generate(
        self, prompt: str | Tokens = ..., *, schema: None = ..., **options: Any
    ) -> Iterator[str]: ...

    @overload
    def generate(self, prompt: str | Tokens = ..., *, schema: str, **options: Any) -> Structured: ...

    def generate(
        self,
        prompt: str | Tokens = (),
        *,
        schema: str | None = None,
        max_tokens: int = 256,
        stop_ids: Iterable[int] | None = None,
        selection: Selection | None = None,
        seed: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        jump_forward: bool = True,
        text: Detokenizer | None = None,
        workspace: Workspace | None = None,
    ) -> Iterator[str] | Structured:
        """Continues after `prompt`: text pieces as they come, or with a schema the whole text and its value.

        The last emitted token stays pending and enters the context with the next prefill or decode.

        Args:
            prompt: text or ids to append first.
            schema: a schema of the model, which the text then follows. It is bound here, which needs an empty
                sequence, unless it is bound already (`bind_schema`; before `adopt`).
            max_tokens: the longest text.
            stop_ids: ids that end free text; default: the model's own. A schema ends its text itself.
            selection: `Damped` or `Sampling`; default: greedy.
            seed, temperature, top_p, top_k, min_p: a seed draws the tokens, as `Sampling` does.
            jump_forward: submit text that the schema forces in one piece instead of token by token.
            text: the stream that makes pieces of free text. A character that `max_tokens` cuts in two waits in it
                for the next call or, as its `state`, in a saved game; default: a new one, which then ends with
                U+FFFD.
            workspace: default: this thread's own.
        """
        if seed is not None:
            if selection is not None:
                raise ValueError("give a seed or a selection, not both")
            selection = Sampling(seed, temperature, top_p, top_k, min_p)
        elif (temperature, top_p, top_k, min_p) != (1.0, 1.0, 0, 0.0):
            raise ValueError(
                "temperature, top_p, top_k and min_p need a seed; without one decoding is greedy"
            )
        if schema is None:
            stops = set(self.model.info.stop_ids if stop_ids is None else stop_ids)
            return self._pieces(prompt, max_tokens, stops, selection, text, workspace)
        if schema != self.schema:
            self.bind_schema(schema)
        if len(prompt):
            self.prefill(prompt, workspace=workspace)
        return generate_structured(
            self,
            self.model.schemas[schema],
            max_tokens=max_tokens,
            selection=selection,
            jump_forward=jump_forward,
            workspace=workspace,
        )

    def _pieces(
        self,
        prompt: str | Tokens,
        max_tokens: int,
        stops: set[int],
        selection: Selection | None,
        text: Detokenizer | None,
        workspace: Workspace | None,
    ) -> Iterator[str]:
        if len(prompt):
            self.prefill(prompt, workspace=workspace)
        stream = self.model.detokenizer() if text is None else text
        for _ in range(max_tokens):
            token = self.decode(selection=selection, workspace=workspace)
            if token is None or token == DEAD_END or token in stops:
                break
            piece = stream.push([token])
            if piece:
                yield piece
        else:
            if text is not None:
                return  # the text may go on
        rest = stream.finish()
        if rest:
            yield rest

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Binds an adapter of the model, or none: the next token is the first it shapes.

        The binding survives `reset` and `adopt`; a save does not carry it.

        Raises:
            AdapterSwapMidtokenRejected: a layer budget left the token unfinished; decode it to its end first.
            AdapterModelMismatch: it belongs to another model.
        """
        handle = None if adapter is None else adapter._handle.value
        check(self.model._lib.sslm_seq_set_adapter(self._handle.value, handle), "sslm_seq_set_adapter")
        self._bound[:] = [] if adapter is None else [adapter]

    @property
    def adapter(self) -> Adapter | None:
        """The bound adapter."""
        return self._bound[0] if self._bound else None

    def reset(self) -> None:
        """Empties the sequence; its pages stay reserved."""
        check(self.model._lib.sslm_seq_reset(self._handle.value), "sslm_seq_reset")
        self.pending = None
        self.walk = None if self.schema is None else 0

    def adopt(self, prefix: Prefix) -> None:
        """Replaces the content by the frozen prefix's, sharing its pages where this sequence has a budget.

        The prefix may be closed afterwards.

        Raises:
            InvalidArgument: the prefix is not frozen, or is of another model or, with a budget, of another pool.
            PrefixSchemaMismatch: it has walked a schema that is not bound here.
        """
        status = self.model._lib.sslm_seq_adopt_prefix(self._handle.value, prefix._handle.value)
        if status:
            check(status, "sslm_seq_adopt_prefix", _refusals.of_adopt(status, self))
        self.pending = None
        if self.schema is not None:
            self.walk = prefix.walk if prefix.schema == self.schema and prefix.walk else 0

    def save(self) -> bytes:
        """A blob that `PagePool.restore` continues from, byte for byte.

        A game keeps two things beside it: the `state` of the text's `Detokenizer`, where a character may wait for
        its last bytes, and `pending`, which the blob of a token in the making does not name.
        """
        return _saved(self.model._lib.sslm_seq_save, self._handle.value)

    def stats(self) -> SequenceStats:
        """Budget, length and pages."""
        out = _abi.sslm_seq_kv_stats_out()
        out.struct_size = ctypes.sizeof(out)
        check(self.model._lib.sslm_seq_kv_stats(self._handle.value, ctypes.byref(out)), "sslm_seq_kv_stats")
        return SequenceStats(
            bool(out.mode),
            out.origin,
            out.budget,
            out.limit,
            out.context_length,
            out.mapped_private_pages,
            out.shared_pages,
            out.reserve_pages,
            out.materialized_pages,
        )


def _saved(verb: Callable[..., int], handle: Any, remedy: str = "") -> bytes:
    """What a verb saves: asks it for the size, then for the blob."""
    n = ctypes.c_size_t(0)
    verb(handle, None, ctypes.byref(n))
    blob = ctypes.create_string_buffer(n.value)
    check(verb(handle, blob, ctypes.byref(n)), verb.__name__, remedy)
    return blob.raw[: n.value]


def _walk_of(blob: bytes, model: Model) -> tuple[str | None, int | None]:
    """The schema and walk state a blob carries (offsets 40 and 48 in every format)."""
    hashed, walk = struct.unpack_from("<QI", blob, 40)
    name = (
        next((name for name, schema in model.schemas.items() if schema.hash == hashed), None)
        if hashed
        else None
    )
    return name, None if name is None else walk


def _pending_of(blob: bytes) -> int | None:
    """The pending token a blob carries (offset 72 in every format)."""
    token = int.from_bytes(blob[72:76], "little", signed=True)
    return None if token < 0 else token
