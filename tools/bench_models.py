# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The models of the benchmark: one GGUF file, and of it an artifact and a peer's file of the same bits.

`smollm2` is the real model. `qwen0.5b-shape` has random weights in the shape of Qwen2.5-0.5B, a made-up vocabulary
of its size and a made-up calibration record: no speed depends on the values, and nothing has to be downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dev
import numpy as np

FOLDER = dev.CACHE / "bench"
CONVERTER = ("python_binding/superslm/convert", "python_binding/superslm/artifact.py")
CALIBRATION = ("python_binding/superslm/convert/calibrate.py", "python_binding/superslm/convert/pipeline.py")
SHAPE, SHAPE_FIXTURE = "qwen0.5b-shape", "qwen2.5-0.5b"
CAP = 4096  # positions, of artifacts and of peers' contexts
PEER_TYPES = {
    "w8": "Q8_0",
    "w4": "Q4_0",
}  # the peer's form of as many bits; its head has 8 bits in both, as ours
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Source:
    """A model to measure. `gguf` is None for a ready artifact, which no peer can read."""

    name: str
    gguf: Path | None
    artifact: Path | None = None


def find(model: str) -> Source:
    """The source that the command line names: smollm2, qwen0.5b-shape, or a .gguf or .sslm file.

    Raises DevError.
    """
    if model == "smollm2":
        return Source(model, dev.smollm2_gguf())
    if model == SHAPE:
        return Source(model, shape_gguf())
    path = Path(model)
    if not path.is_file():
        raise dev.DevError(f"--model {model}: there is no such file, and the names are smollm2 and {SHAPE}")
    if path.suffix == ".gguf":
        return Source(path.stem, path)
    if path.suffix == ".sslm":
        return Source(path.stem, None, path)
    raise dev.DevError(f"--model {model}: give a .gguf file or a .sslm file")


def shape_gguf() -> Path:
    """The GGUF file of random weights in the shape of Qwen2.5-0.5B, half precision; made once."""
    digest = dev.sources_digest("tools/make_checkpoint.py", "tools/bench_models.py")
    path = FOLDER / f"{SHAPE}-{digest}.gguf"
    with dev.locked(path.with_suffix(".lock")):
        if not path.is_file():
            from make_checkpoint import made_up_record, spec_of, write_gguf

            dev.say(f"Making {path.name} (1 GB)")
            vocab = spec_of(SHAPE_FIXTURE).vocab
            record_of(path).write_text(json.dumps(made_up_record(SHAPE_FIXTURE)))
            part = path.with_suffix(".part")
            write_gguf(SHAPE_FIXTURE, part, "F16", lambda writer: add_vocabulary(writer, vocab))
            replace_older(part, path, f"{SHAPE}-*.gguf")
    return path


def add_vocabulary(writer: Any, size: int) -> None:
    """Gives a GGUF file a byte-level vocabulary: control tokens, bytes, all pairs of bytes, pairs of pairs."""
    from superslm.convert.tokenizer import byte_alphabet

    letters = sorted(byte_alphabet(), key=byte_alphabet().get)
    merges = [(a, b) for a in letters for b in letters]
    free = size - len(CONTROL_TOKENS) - len(letters) - len(merges)
    picks = np.random.default_rng(0).choice(len(merges) ** 2, free, replace=False).tolist()
    merges += [("".join(merges[i // 65536]), "".join(merges[i % 65536])) for i in picks]
    tokens = [*CONTROL_TOKENS, *letters, *(a + b for a, b in merges)]
    control, normal = 3, 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([control] * len(CONTROL_TOKENS) + [normal] * (size - len(CONTROL_TOKENS)))
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_add_bos_token(False)


def artifact(source: Source, weights: str) -> Path:
    """The artifact of a source, made by the converter of this tree; made once. Raises DevError."""
    if source.artifact is not None:
        return source.artifact
    assert source.gguf is not None
    key = identity(source.gguf)
    record = record_of(source.gguf)
    if not record.is_file():
        record = FOLDER / f"{source.name}-{key}-{dev.sources_digest(*CALIBRATION)}.json"
    path = FOLDER / f"{source.name}-{weights}-{key}-{dev.sources_digest(*CONVERTER)}.sslm"
    with dev.locked(FOLDER / f"{source.name}.lock"):
        if not path.is_file():
            dev.say(f"Converting {source.name} to {weights}")
            command = [sys.executable, "-m", "superslm.cli", "convert", source.gguf, "--weights", weights]
            command += ["--context-cap", str(CAP)]
            command += ["--calibration-record" if record.is_file() else "--export-record", record]
            part = path.with_suffix(".part.sslm")
            dev.run([*command, "-o", part])
            replace_older(part, path, f"{source.name}-{weights}-*.sslm")
    return path


def peer_gguf(source: Source, weights: str, quantize: Callable[[Path, Path, str], None]) -> Path:
    """The source requantised for peers by llama.cpp's own function; made once. Raises DevError.

    Args:
        source: the model.
        weights: "w8" or "w4".
        quantize: writes (source, target, type).
    """
    if source.gguf is None:
        raise dev.DevError(
            f"{source.name}.sslm cannot be compared: a peer needs the same weights. "
            "Give the GGUF file that it was made from as --model."
        )
    kind = PEER_TYPES[weights]
    path = FOLDER / f"{source.name}-{kind}-{identity(source.gguf)}.gguf"
    with dev.locked(path.with_suffix(".lock")):
        if not path.is_file():
            dev.say(f"Requantising {source.name} to {kind}")
            part = path.with_suffix(".part")
            quantize(source.gguf, part, kind)
            replace_older(part, path, f"{source.name}-{kind}-*.gguf")
    return path


def record_of(path: Path) -> Path:
    """Where a made-up calibration record lies, beside its GGUF file."""
    return path.with_suffix(".record.json")


def identity(path: Path) -> str:
    """A word that tells files apart: of name, size and time of change."""
    state = path.stat()
    return hashlib.sha256(f"{path.name} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]


def replace_older(part: Path, path: Path, pattern: str) -> None:
    """Renames a finished file and removes those it replaces."""
    for old in path.parent.glob(pattern):
        if old not in (part, path):
            old.unlink()
    os.replace(part, path)
