# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Makes the inputs that fuzzing starts from: python tests/fuzz/seeds.py BASES SEEDS; tools/fuzz.py calls it."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import superslm

TEXTS = (
    "",
    "hello the world's 10 things",
    "<|im_start|>user\nadd <tool>s<|im_end|>",
    "späte  e\u0301 \u1e9b\u0323 \uac00\u11a8 가",
    "\n\n  \t\r\n'S'll ١٢٣ aaaaaaaa",
)


def texts() -> dict[str, bytes]:
    """Families and flags by turns; one text is not UTF-8."""
    data = [text.encode() for text in TEXTS] + [b"\xff\xe0\x80\xf4\x90 a\xc3\0b"]
    return {f"text{i}": bytes([i]) + text for i, text in enumerate(data)}


def ids() -> dict[str, bytes]:
    """A pending count and bytes, a cut, ids."""
    return {
        "plain": bytes([0, 0, 0, 0, 1]) + b"abc\xc3\xa9\xf0\x9f\x98\x80",
        "pending": bytes([2, 0xE2, 0x82, 0, 2]) + b"\xac\xf0\x9f",
        "words": bytes([0, 0, 0, 0, 0, 0xF0, 1, 0xF1, 7, 0xF2, 40, 0xF3, 63]),
        "wrong": bytes([4, 1, 2, 3, 3, 0x41, 0xFE, 255, 255, 255, 255, 0xFF, 64, 1, 0, 0]),
    }


def older(blob: bytes, magic: bytes, fixed: int, residual: int) -> bytes:
    """An SSB5 blob in an older format, which ends its fixed part early."""
    tail = blob[156:]
    return magic + blob[4:fixed] + (tail if magic == b"SSB4" else tail[residual:])


def blobs(path: Path) -> dict[str, bytes]:
    """Sequences in every state, and prefixes, behind the two bytes that choose verb, hint and repair."""
    found = {}
    with superslm.Model.load(path) as model, model.pool(contexts=8) as pool:
        residual = 4 * model.info.hidden
        prompt = [(1 + 5 * i) % model.info.vocab for i in range(9)]
        for name, budget in (("whole", None), ("budget", 8)):
            with pool.sequence(budget=budget) as sequence:
                found[f"{name}_fresh"] = sequence.save()
                sequence.prefill(prompt[:5])
                found[f"{name}_ready"] = sequence.save()
                sequence.decode()
                found[f"{name}_pending"] = sequence.save()
                sequence.decode(layer_budget=1)
                found[f"{name}_midtoken"] = sequence.save()
        with pool.prefix(prompt, budget=9).freeze() as world:
            with pool.sequence(budget=8) as sequence:
                sequence.adopt(world)
                sequence.decode()
                found["shared"] = sequence.save()
            prefix = world.save()
    seeds = {name: bytes([2, 1]) + blob for name, blob in found.items()}
    seeds["prefix"] = bytes([1, 1]) + prefix
    for magic, fixed in ((b"SSB4", 124), (b"SSB3", 120), (b"SSB2", 108)):
        seeds[magic.decode()] = bytes([0, 1]) + older(found["whole_pending"], magic, fixed, residual)
    return seeds


def drawn(count: int, size: int) -> dict[str, bytes]:
    """Random bytes, always the same: as verbs or edits they reach much from the start."""
    return {f"random{i}": random.Random(i).randbytes(size) for i in range(count)}


def main(bases: Path, target: Path) -> None:
    """Writes every seed as seeds/TARGET/NAME."""
    made = {
        "tokenizer": texts(),
        "detokenizer": ids(),
        "blob": blobs(bases / "verbs.sslm"),
        "verbs": drawn(12, 200),
        "artifact": drawn(8, 24),
        "adapter": drawn(8, 24),
    }
    for name, seeds in made.items():
        (target / name).mkdir(parents=True)
        for seed, data in seeds.items():
            (target / name / seed).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
