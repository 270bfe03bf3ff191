# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The golden record of an artifact: greedy tokens and a digest that every machine must reproduce.

docs/sslm_format.md, section 8, says what is hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from superslm.artifact import GOLDEN_TOKENS, GoldenRecord
from superslm.engine import Model

Progress = Callable[[float, str], None]

PROMPT = "Long ago, in a village by the sea, there lived a fisherman who"


def default_prompt(model: Model) -> list[int]:
    """Ids of a sentence, or of arbitrary tokens where the model has no tokenizer; they leave room for a token."""
    if model.info.has_tokenizer:
        ids = model.tokenize(PROMPT).tolist()
    else:
        ids = [(i + 1) * 7919 % model.info.vocab for i in range(16)]
    return ids[: max(1, model.info.cap - 1)]


def record(model: Model, prompt: Sequence[int], progress: Progress | None = None) -> GoldenRecord:
    """Runs the model greedily on a prompt of 1..cap-1 ids and returns what `Model.verify` must find again."""
    count = min(GOLDEN_TOKENS, model.info.cap - len(prompt))
    budget = len(prompt) + count - 1
    digest, tokens = hashlib.sha256(), []
    with model.pool(pages=model.pages_for(budget)) as pool, pool.sequence(budget) as sequence:
        sequence.prefill(list(prompt))
        for i in range(count):
            row = sequence.logits()
            digest.update(row.astype("<i4").tobytes())
            tokens.append(int(row.argmax()))
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
