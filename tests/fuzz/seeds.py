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


# The order of kSteps in fuzz_verbs.cpp; tests/test_fuzz.py compares them.
STEPS = (
    *("create", "create", "release", "reset", "begin", "begin_from", "fill_prefix", "fill_prefix"),
    *("freeze", "drop_prefix", "prefix_schema", "adopt", "adopt", "prefill", "prefill", "prefill"),
    *("decode", "decode", "decode", "decode", "decode", "set_schema", "set_schema", "set_adapter"),
    *("save", "restore", "save_prefix", "restore_prefix", "score", "compare", "busy", "choose_workspace"),
)
BLOCKS, PAGES, CONTIGUOUS = 0, 1, 2  # pools
NOBODY = 227  # an empty slot of prefixes, where only 0 to 2 are in use
TOKENS = [2, 7, 9, 4, 30, 1, 0, 22, 13]


def steps(*calls: tuple[str, int | list[int]]) -> bytes:
    """Steps with their choices; a list of tokens is preceded by its length."""
    out = bytearray()
    for name, *choices in calls:
        out.append(STEPS.index(name))
        for choice in choices:
            out += bytes([len(choice), *choice]) if isinstance(choice, list) else bytes([choice])
    return bytes(out)


def stories() -> dict[str, bytes]:
    """Runs that reach what chance does not: sharing, nesting, restores with and without a hint, schemas, hooks."""
    world = [("begin", 0, PAGES, 9), ("fill_prefix", 0, TOKENS, 0x7C), ("freeze", 0)]
    adopt = [("create", 0, PAGES, 7), ("adopt", 0, 0), ("decode", 0x08, 0, 0), ("decode", 0x08, 0, 0)]
    whole, slice_ = 0x08, 0x00  # all layers, one layer of the first verb
    nested = [*world, ("begin_from", 1, 0, 6), ("fill_prefix", 1, TOKENS[:4], 0x7C), ("freeze", 1)]
    damped = [("decode", 0x0A, 0, 0, order, 16, 5) for order in (1, 1, 2, 0)]
    return {
        "shared": steps(
            *world,
            *adopt,
            ("save", 0, 0),
            ("restore", 1, 0, PAGES, 0),
            ("compare", 1),
            ("reset", 1),
            ("adopt", 1, 0),
        ),
        "private": steps(
            *world,
            *adopt,
            ("save", 0, 0),
            ("release", 0),
            ("restore", 1, 0, PAGES, NOBODY),
            ("compare", 1),
            ("decode", whole, 0, 1),
            ("reset", 1),
            ("adopt", 1, 0),
        ),
        "other_pool": steps(
            *world,
            *adopt,
            ("decode", slice_, 0, 0),
            ("save", 0, 0),
            ("restore", 1, 0, CONTIGUOUS, 0),
            ("decode", whole, 1, 0, 1),
            ("compare", 0),
            ("compare", 1),
        ),
        "other_hint": steps(
            *world,
            ("begin", 2, PAGES, 9),
            ("fill_prefix", 2, TOKENS[::-1], 0x7C),
            ("freeze", 2),
            *adopt,
            ("save", 0, 0),
            ("release", 0),
            ("restore", 1, 0, PAGES, 2),
            ("compare", 1),
        ),
        "nested": steps(
            *nested,
            ("create", 0, PAGES, 5),
            ("adopt", 0, 1),
            ("drop_prefix", 0),
            ("decode", whole, 0, 0),
            ("compare", 0),
            ("save", 0, 0),
            ("restore", 1, 0, PAGES, 1),
            ("adopt", 1, 1),
        ),
        "prefix_blob": steps(
            *nested,
            ("save_prefix", 1),
            ("drop_prefix", 1),
            ("restore_prefix", 1, 0, PAGES),
            ("restore_prefix", 2, 0, CONTIGUOUS),
            ("restore_prefix", 2, NOBODY, PAGES),
            ("create", 0, PAGES, 5),
            ("adopt", 0, 1),
            ("compare", 0),
        ),
        "other_parent": steps(
            *nested,
            ("save_prefix", 1),
            ("drop_prefix", 1),
            ("drop_prefix", 0),
            ("begin", 2, PAGES, 9),
            ("fill_prefix", 2, TOKENS[::-1], 0x7C),
            ("freeze", 2),
            ("restore_prefix", 0, 2, PAGES),
        ),
        "forced": steps(
            ("begin", 0, PAGES, 9),
            ("prefix_schema", 0, 0),
            ("fill_prefix", 0, [3], 0x7F),
            ("freeze", 0),
            ("create", 0, PAGES, 9),
            ("set_schema", 0, 0),
            ("prefill", 0, [1, 6], 0x7F),
            ("adopt", 0, 0),
            ("prefill", 0, [5], 0x7F),
            ("decode", whole, 0, 0),
            ("decode", whole, 0, 0),
            ("decode", whole, 0, 0),
        ),
        "progress": steps(
            ("begin", 0, PAGES, 9),
            ("prefix_schema", 0, 1),
            ("fill_prefix", 0, [2], 0x7F),
            ("freeze", 0),
            ("create", 0, PAGES, 9),
            ("adopt", 0, 0),
            ("reset", 0),
            ("set_schema", 0, 0),
            ("adopt", 0, 0),
            ("reset", 0),
            ("set_schema", 0, 1),
            ("adopt", 0, 0),
            ("decode", whole, 0, 0),
        ),
        "adapted": steps(
            ("create", 0, BLOCKS, 0),
            ("prefill", 0, [1, 2, 3], 0x7C),
            ("set_adapter", 0, 0),
            ("prefill", 0, [4, 5], 0x7C),
            ("decode", whole, 0, 0),
            ("compare", 0),
            ("decode", slice_, 0, 0),
            ("set_adapter", 0, 1),
            ("decode", whole, 0, 0),
            ("set_adapter", 0, 1),
            ("decode", whole, 0, 0),
            ("compare", 0),
        ),
        "adapter_lost": steps(
            ("create", 0, PAGES, 11),
            ("prefill", 0, [1, 2, 3], 0x7C),
            ("decode", whole, 0, 0),
            ("set_adapter", 0, 0),
            ("decode", slice_, 0, 0),
            ("save", 0, 1),
            ("restore", 1, 1, BLOCKS, 0),
            ("decode", whole, 1, 0, 1),
            ("compare", 0),
            ("compare", 1),
        ),
        "damped": steps(
            ("create", 0, PAGES, 11),
            ("prefill", 0, TOKENS[:4], 0x7C),
            *damped,
            ("save", 0, 1),
            ("restore", 1, 1, BLOCKS, 0),
            ("decode", 0x0A, 0, 1, 0, 16, 5),
            ("compare", 1),
        ),
        "batch": steps(
            ("create", 0, BLOCKS, 0),
            ("create", 1, PAGES, 6),
            ("create", 2, PAGES, 6),
            ("choose_workspace", 3),
            ("prefill", 0, TOKENS[:3], 0x7C),
            ("prefill", 1, TOKENS[:6], 0x7C),
            ("prefill", 2, TOKENS[:2], 0x7C),
            *[("decode", whole, 3, 0, 1, 2, 0)] * 3,
            ("choose_workspace", 4),
            ("decode", slice_, 2, 0, 2, 0),
            ("decode", whole, 2, 2, 0, 0),
            ("choose_workspace", 1),
            ("decode", whole, 2, 2, 0, 0),
            ("compare", 2),
        ),
        "score": steps(
            ("create", 0, PAGES, 9),
            ("score", 0, TOKENS[:5]),
            ("decode", 0x0B, 0, 0, 1, 32, 0, 255, 0),
            ("score", 0, [1]),
            ("busy", 1),
            ("compare", 0),
        ),
    }


def main(bases: Path, target: Path) -> None:
    """Writes every seed as seeds/TARGET/NAME."""
    made = {
        "tokenizer": texts(),
        "detokenizer": ids(),
        "blob": blobs(bases / "verbs.sslm"),
        "verbs": {**stories(), **drawn(6, 200)},
        "artifact": drawn(8, 24),
        "adapter": drawn(8, 24),
    }
    for name, seeds in made.items():
        (target / name).mkdir(parents=True)
        for seed, data in seeds.items():
            (target / name / seed).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
