# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Makes the small artifacts that the fuzz targets map or damage: python tests/fuzz/bases.py FOLDER."""

from __future__ import annotations

import dataclasses
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("python_binding", "tools", "tests")]

from adapter_support import random_file  # noqa: E402
from make_adapter import AdapterSpec  # noqa: E402
from make_checkpoint import FixtureSpec, make_quantized  # noqa: E402
from schema_fixtures import automaton  # noqa: E402
from superslm.convert.schema import pack  # noqa: E402
from superslm.convert.tokenizer import build_tokenizer  # noqa: E402
from superslm.convert.writer import set_section, write_artifact  # noqa: E402
from tokenizer_support import small_source  # noqa: E402

# The model of the verb and blob targets: pages of 4 positions are pinned there, so a context has 5 of them.
VERBS = FixtureSpec("fuzz", "as small as it goes", hidden=16, head_dim=8, mlp=16, vocab=32, layers=3, cap=20)


def schemas(vocab: int) -> bytes:
    """A chain that ends, and an endless alternation of even and odd ids."""
    chain = [(i, range(4 * i, 4 * i + 8), i + 1) for i in range(3)]
    parity = [(0, range(0, vocab, 2), 1), (1, range(1, vocab, 2), 0)]
    return pack({"chain": automaton(vocab, chain, [3]), "parity": automaton(vocab, parity, [0])})


def golden(cap: int) -> bytes:
    """A record of the right form and no truth: mapping checks the form only."""
    tokens = min(64, cap - 2)
    return struct.pack("<2I", 2, tokens) + bytes(32) + bytes(4 * (2 + tokens))


def main(folder: Path) -> None:
    """Writes every base."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {
        "verbs": VERBS,
        "biased": dataclasses.replace(VERBS, name="fuzz_biased", architecture="qwen2", tied=False, layers=2),
        "centred": dataclasses.replace(
            VERBS, name="fuzz_centred", architecture="qwen3", centred=True, layers=2
        ),
    }
    for name, spec in shapes.items():
        path = folder / f"{name}.sslm"
        write_artifact(make_quantized(spec, "w4" if name == "biased" else "w8"), path)
        if name != "biased":
            set_section(path, "SCHM", schemas(spec.vocab))
        if name == "centred":
            set_section(path, "GOLD", golden(spec.cap))
    tokenizers = {
        "qwen2": small_source(),
        "gpt2": small_source(family="gpt-2", nfc=False, ignore_merges=False),
        "smollm": small_source(family="smollm", nfc=False, ignore_merges=False),
        "llama3": small_source(family="llama-bpe", nfc=False),
    }
    for name, source in tokenizers.items():
        spec = dataclasses.replace(VERBS, name=f"fuzz_{name}", vocab=320, layers=1)
        model = make_quantized(spec, "w8")
        model.tokenizer = build_tokenizer(source, spec.vocab)
        write_artifact(model, folder / f"{name}.sslm")
    small = AdapterSpec(rank=2, targets=("WQ", "WV", "WD"), strength=0.3)
    random_file_of(VERBS, folder / "verbs.sslm", small, folder / "adapter.sslm")


def random_file_of(spec: FixtureSpec, base: Path, adapter: AdapterSpec, target: Path) -> None:
    """An adapter of a base under its own name."""
    written = random_file(spec, base, adapter, target.parent / "adapter")
    written.replace(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
