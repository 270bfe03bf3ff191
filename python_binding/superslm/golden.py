# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The golden record of an artifact: greedy tokens and a digest that every machine must reproduce.

docs/sslm_format.md, section 8, says what is hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from superslm.artifact import GOLDEN_TOKENS, GoldenRecord
from superslm.engine import Model

Progress = Callable[[float, str], None]

PROMPT = "Long ago, in a village by the sea, there lived a fisherman who"


@dataclass(frozen=True)
class Difference:
    """The first place where a replay leaves the record."""

    what: str


def default_prompt(model: Model) -> list[int]:
    """Ids of a sentence, or of arbitrary tokens where the model has no tokenizer; they leave room for a token."""
    if model.info.has_tokenizer:
        ids = model.tokenize(PROMPT).tolist()
    else:
        ids = [(i + 1) * 7919 % model.info.vocab for i in range(16)]
    return ids[: max(1, model.info.cap - 1)]


def record(model: Model, prompt: Sequence[int], progress: Progress | None = None) -> GoldenRecord:
    """Runs the model on a prompt of 1..cap-1 ids and returns what a replay must give."""
    result = _replay(model, prompt, None, progress)
    assert isinstance(result, GoldenRecord)
    return result


def first_difference(
    model: Model, expected: GoldenRecord, progress: Progress | None = None
) -> Difference | None:
    """Replays a record through the library; None when everything is the same."""
    result = _replay(model, expected.prompt, expected.tokens, progress)
    if isinstance(result, Difference):
        return result
    if len(result.tokens) != len(expected.tokens):
        return Difference(
            f"the record holds {len(expected.tokens)} tokens, a replay gives {len(result.tokens)}"
        )
    if result.digest != expected.digest:
        return Difference("all tokens agree, but logits or K/V bytes behind them differ")
    return None


def _replay(
    model: Model, prompt: Sequence[int], expected: Sequence[int] | None, progress: Progress | None
) -> GoldenRecord | Difference:
    """Generates greedily; stops at the first token that is not the expected one."""
    count = min(GOLDEN_TOKENS, model.info.cap - len(prompt))
    budget = len(prompt) + count - 1
    digest, tokens = hashlib.sha256(), []
    with model.pool(pages=model.pages_for(budget)) as pool, pool.sequence(budget) as sequence:
        sequence.prefill(list(prompt))
        for i in range(count):
            row = sequence.logits()
            digest.update(row.astype("<i4").tobytes())
            tokens.append(int(row.argmax()))
            if expected is not None and i < len(expected) and tokens[i] != expected[i]:
                return Difference(
                    f"token {i + 1} of {len(expected)} is {tokens[i]}, the record has {expected[i]}"
                )
            if progress is not None:
                progress((i + 1) / count, f"Token {i + 1} of {count}")
            if i + 1 < count:  # prefilled, not decoded: logits are readable only after a prefill
                sequence.prefill([tokens[i]])
        digest.update(_kv_bytes(model, sequence.save(), budget))
    return GoldenRecord(tuple(int(i) for i in prompt), tuple(tokens), digest.digest())


def _kv_bytes(model: Model, blob: bytes, positions: int) -> bytes:
    """The rows at the end of a budget sequence's blob: [layer][K, V][kv head][position][channel]."""
    info = model.info
    size = info.layers * 2 * info.kv_heads * positions * info.head_dim
    return np.frombuffer(blob, np.uint8)[-size:].tobytes()
