# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Schemas of a model seen from Python, and text that is certain to follow one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from superslm.convert.schema.section import MAGIC, unpack
from superslm.convert.schema.tokens import NO_STATE, TokenAutomaton
from superslm.convert.schema.vocabulary import Vocabulary

if TYPE_CHECKING:
    from superslm.engine import Model, Workspace
    from superslm.selection import Selection
    from superslm.sequence import Sequence

_FNV_START, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@dataclass(frozen=True)
class Structured:
    """What `Sequence.generate(schema=...)` returns.

    text: everything that was generated. value: the parsed JSON; None where the text is not JSON or not complete.
    complete: whether the schema accepts the text as it is. tokens: how many tokens it has. forced: how many of
    them the schema left no choice about and went in together.

    >>> from superslm import Model
    >>> with Model.load(example_shop) as model, model.pool() as pool, pool.sequence() as sequence:
    ...     order = sequence.generate("Two apples, please!\\n", schema="order")
    >>> order.complete, sorted(order.value)
    (True, ['intent', 'item', 'polite', 'quantity'])
    """

    text: str
    value: Any
    complete: bool
    tokens: int
    forced: int


class Schema:
    """One named automaton of a model."""

    def __init__(self, name: str, automaton: TokenAutomaton, digest: bytes, vocabulary: Vocabulary) -> None:
        self.name = name
        self.automaton = automaton
        self.hash = _fnv(name.encode() + digest)  # as save blobs carry it
        self._vocabulary = vocabulary
        self._forced: dict[int, bytes] = {}

    def step(self, state: int, token: int) -> int | None:
        """The state behind a token; None where it is not legal."""
        return self.automaton.step(state, int(token))

    def accepts(self, state: int) -> bool:
        """Whether the text may end in a state."""
        return self.automaton.accepts(state)

    def ends(self, state: int) -> bool:
        """Whether nothing can follow."""
        return bool((self.automaton.next[state] == NO_STATE).all())

    def test(self, tokens: np.ndarray) -> tuple[int, int | None]:
        """How many leading tokens are legal, and the state behind them if all are."""
        state: int | None = 0
        for count, token in enumerate(tokens):
            assert state is not None
            state = self.step(state, int(token))
            if state is None:
                return count, None
        return len(tokens), state

    def forced(self, state: int) -> bytes:
        """The text that must come next, up to the first choice; empty where there is one at once."""
        known = self._forced.get(state)
        if known is None:
            known, at = b"", state
            while not self.accepts(at) and (byte := self._only_byte(at)) is not None:
                following = self.step(at, self._byte_tokens[byte])
                if following is None:
                    break
                known, at = known + bytes([byte]), following
            self._forced[state] = known
        return known

    def _only_byte(self, state: int) -> int | None:
        """The byte that every legal token begins with, if a token consists of it alone."""
        legal = self.automaton.next[state] != NO_STATE
        firsts = np.flatnonzero(self._first_bytes[legal].any(axis=0))
        return int(firsts[0]) if len(firsts) == 1 and int(firsts[0]) in self._byte_tokens else None

    @cached_property
    def _first_bytes(self) -> np.ndarray:
        """bool [classes, 256]: whether a token of the class begins with the byte."""
        out = np.zeros((self.automaton.next.shape[1], 256), bool)
        for token, text in enumerate(self._vocabulary.texts):
            if text:
                out[self.automaton.classes[token], text[0]] = True
        return out

    @cached_property
    def _byte_tokens(self) -> dict[int, int]:
        return {text[0]: i for i, text in reversed(list(enumerate(self._vocabulary.texts))) if len(text) == 1}


def _fnv(data: bytes) -> int:
    value = _FNV_START
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return value


def read_schemas(section: memoryview | None, tokenizer: memoryview | None, vocab: int) -> dict[str, Schema]:
    """The schemas of an artifact that the library accepted, by name."""
    if section is None or bytes(section[:4]) != MAGIC:
        return {}
    texts = Vocabulary([b""] * vocab) if tokenizer is None else Vocabulary.from_section(tokenizer, vocab)
    return {
        name: Schema(name, automaton, digest, texts) for name, (automaton, digest) in unpack(section).items()
    }


def generate(
    sequence: Sequence,
    schema: Schema,
    *,
    max_tokens: int,
    selection: Selection | None,
    jump_forward: bool,
    workspace: Workspace | None,
) -> Structured:
    """Generates from the sequence's walk state to an end of the schema, or up to `max_tokens` tokens."""
    model = sequence.model
    stream, parts, count, forced = model.detokenizer(), [], 0, 0
    while count < max_tokens:
        state = sequence.walk
        assert state is not None
        if schema.accepts(state) and (schema.ends(state) or _would_stop(sequence, schema, workspace)):
            break
        ids = _forced_ids(model, schema, state) if jump_forward else np.zeros(0, np.int32)
        if 0 < len(ids) <= max_tokens - count:
            pending = sequence.pending is not None
            forced += sequence.prefill(ids, forced=True, workspace=workspace) - pending
        else:
            token = sequence.decode(selection=selection, workspace=workspace)
            if token is None or token < 0:
                break
            ids = np.array([token], np.int32)
        count += len(ids)
        parts.append(stream.push(ids))
    text = "".join(parts) + stream.finish()
    complete = schema.accepts(sequence.walk or 0)
    return Structured(text, _parsed(text) if complete else None, complete, count, forced)


def _forced_ids(model: Model, schema: Schema, state: int) -> np.ndarray:
    """Token ids of the forced text, as the model's tokenizer writes it."""
    text = schema.forced(state)
    try:
        ids = model.tokenize(text.decode())
    except UnicodeDecodeError:  # it ends inside a character
        return np.zeros(0, np.int32)
    for token in ids.tolist():
        following = schema.step(state, token)
        if following is None:
            return np.zeros(0, np.int32)
        state = following
    return ids


def _would_stop(sequence: Sequence, schema: Schema, workspace: Workspace | None) -> bool:
    """Where the text may end or go on: whether the model's own best token would not go on."""
    if sequence.pending is not None:
        sequence.prefill([], workspace=workspace)
    assert sequence.walk is not None
    return schema.step(sequence.walk, int(sequence.logits().argmax())) is None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
