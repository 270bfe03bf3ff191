# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Why pools, prefixes and sequences refuse, for the messages of exceptions: the cause with its figures, and what to do.

Each function gives the detail of a status, or "" where the status says it all. They are called after the refusal, so
figures of a pool that other threads use may have moved on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from superslm._abi import Status

if TYPE_CHECKING:
    from superslm.sequence import PagePool, Prefix, Sequence


def _free(pool: PagePool) -> str:
    stats = pool.stats()
    return f"{stats.free_pages} of {stats.page_count} are free; close others first or make a larger pool"


def of_holder(status: int, pool: PagePool, budget: int | None) -> str:
    """Of a new sequence or prefix in `pool`; budget None: a whole context."""
    cap = pool.model.info.cap
    if status == Status.SSLM_INVALID_ARGUMENT and budget is not None and not 1 <= budget <= cap:
        return f"the budget must be 1..{cap}, not {budget}"
    if status != Status.SSLM_KV_POOL_EXHAUSTED:
        return ""
    what = "a whole context" if budget is None else f"a budget of {budget}"
    return f"{what} reserves {pool.model.pages_for(budget or cap)} pages, {_free(pool)}"


def of_nested(status: int, parent: Prefix, budget: int) -> str:
    """Of a prefix that is to continue `parent`."""
    detail = of_holder(status, parent.pool, budget)
    if status == Status.SSLM_INVALID_ARGUMENT and not detail:
        return "freeze the prefix before others continue it"
    return detail


def of_adopt(status: int, sequence: Sequence) -> str:
    """Of a sequence that is to adopt a prefix."""
    if status == Status.SSLM_PREFIX_SCHEMA_MISMATCH:
        bound = f"schema {sequence.schema}" if sequence.schema else "no schema"
        return f"the prefix has begun the text of a schema, and the sequence is bound to {bound}; bind_schema first"
    if status != Status.SSLM_INVALID_ARGUMENT:
        return ""
    return "the prefix must be frozen, of this model and, for a sequence with a budget, of the same pool"


def of_prefill(status: int, chunk: int, sequence: Sequence | None) -> str:
    """Of tokens that did not go in; `sequence` is None for a prefix."""
    if status == Status.SSLM_PREFIX_FROZEN_REJECTED:
        return "; nested() makes a prefix that continues a frozen one"
    if status == Status.SSLM_INVALID_ARGUMENT and chunk < 1:
        return f"; chunk must be at least 1, not {chunk}"
    if sequence is None or status not in (Status.SSLM_CONTEXT_CAP_EXCEEDED, Status.SSLM_KV_BUDGET_EXCEEDED):
        return ""
    return f"; the limit is {sequence.stats().limit} positions: reset the sequence or adopt a prefix"


def of_restore(status: int, blob: bytes, pool: PagePool, nested: bool | None) -> str:
    """Of a blob; `nested` says whether a prefix's came with a parent, None is a sequence's."""
    size, wants_prefix = f"{len(blob)} bytes", nested is not None
    if status == Status.SSLM_KV_POOL_EXHAUSTED:
        return f"{size}; of the pool's pages {_free(pool)}"
    if status != Status.SSLM_INVALID_ARGUMENT:
        return size
    magic = bytes(blob[:4])
    if magic == b"SSP1" and not wants_prefix:
        return f"{size} of a prefix; PagePool.restore_prefix takes it"
    if magic[:3] == b"SSB" and wants_prefix:
        return f"{size} of a sequence; PagePool.restore takes it"
    if magic != b"SSP1" and magic[:3] != b"SSB":
        return f"{size} that begin with {magic!r} are no blob of a sequence or prefix"
    if not wants_prefix:
        return f"{size}, damaged"
    if nested:
        return f"{size}: damaged, or the parent is not the one it was made on, frozen and in this pool"
    return f"{size}: damaged, or it continues a prefix and wants that as parent"
