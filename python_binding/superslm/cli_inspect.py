# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""`superslm inspect` and `superslm verify`: what an artifact is, and whether it computes what it should."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from superslm import cli_adapter
from superslm.artifact import Artifact, object_of, text_of
from superslm.cli_output import CommandError, bytes_text, show_error, show_table
from superslm.engine import Model

SECTIONS = {
    "CONF": "shape",
    "LAYR": "layer constants",
    "TENS": "tensor table",
    "DATA": "tensors",
    "TOKN": "tokenizer",
    "DGC1": "damped-greedy scale",
    "SCHM": "schemas",
    "PROV": "provenance",
    "GOLD": "golden record",
}


def add_parsers(commands: Any) -> None:
    """Declares the two commands and their options."""
    parser = commands.add_parser(
        "inspect",
        help="show what an artifact contains",
        description="Shows shape, sizes, tokenizer, chat format, provenance, licence and digests of an artifact.",
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(function=inspect)
    parser = commands.add_parser(
        "verify",
        help="check that an artifact computes its golden record on this machine",
        description="Checks the digests, then replays the golden record through the library. Exit code 0: verified.",
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.set_defaults(function=verify)


# ---- inspect ----


def inspect(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    if cli_adapter.is_adapter(options.model):
        return cli_adapter.inspect(options)
    with Model.load(options.model) as model:
        artifact = Artifact(options.model, verify=False)  # the library has just checked it
        facts = gather(model, artifact)
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        show_table(_rows(facts), str(options.model))
    return 0


def gather(model: Model, artifact: Artifact) -> dict[str, Any]:
    """Everything `inspect` knows, as plain JSON values; sizes in bytes."""
    info, origin = model.info, artifact.provenance()
    golden = artifact.golden_record()
    return {
        "source": text_of(origin.get("source")),
        "architecture": text_of(origin.get("architecture")),
        "licence": text_of(origin.get("licence")),
        "source_sha256": text_of(origin.get("source_sha256")),
        "options": object_of(origin.get("options")),
        "layers": info.layers,
        "hidden": info.hidden,
        "heads": info.heads,
        "kv_heads": info.kv_heads,
        "head_dim": info.head_dim,
        "mlp": info.mlp,
        "vocab": info.vocab,
        "cap": info.cap,
        "weight_bits": info.weight_bits,
        "file_size": sum(section.size for section in artifact.sections.values()),
        "sections": {name: section.size for name, section in artifact.sections.items()},
        "kv_per_position": model.page_size // model.page_positions,
        "page_positions": model.page_positions,
        "tokenizer": _tokenizer(model, origin),
        "chat": _chat(model),
        "schemas": info.schema_count,
        "golden_tokens": None if golden is None else len(golden.tokens),
        "file_digest": info.file_digest,
        "model_digest": info.model_digest,
    }


def _tokenizer(model: Model, origin: dict[str, Any]) -> dict[str, Any] | None:
    if not model.info.has_tokenizer:
        return None
    known = object_of(origin.get("tokenizer"))
    missing = known.get("missing_bytes")
    return {
        "ids": model.info.tokenizer_size,
        "pre_tokenizer": text_of(known.get("pre_tokenizer")),
        "missing_bytes": [b for b in missing if isinstance(b, int)] if isinstance(missing, list) else [],
        "no_chat": text_of(known.get("no_chat")),
        "stop": {int(i): model.detokenize([i]) for i in model.info.stop_ids},
    }


def _chat(model: Model) -> dict[str, str] | None:
    """The text around the turns, or None where the model has no chat format."""
    if not model.has_chat:
        return None
    parts = {"opening": model.chat_ids("system", "opening")}
    for role in ("system", "user", "assistant"):
        parts |= {f"{role} {part}": model.chat_ids(role, part) for part in ("prefix", "suffix")}
    return {name: model.detokenize(ids) for name, ids in parts.items()}


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    f = facts
    context = f["kv_per_position"] * f["cap"]
    options = ", ".join(f"{k} {v}" for k, v in f["options"].items() if v not in (None, []))
    rows = [
        ("model", f"{f['source'] or 'unknown'} ({f['architecture'] or 'unknown architecture'})"),
        ("licence", f["licence"] or "not stated by the source"),
        (
            "shape",
            f"{f['layers']} layers, width {f['hidden']}, {f['heads']} heads, {f['kv_heads']} K/V heads of "
            f"{f['head_dim']}, MLP {f['mlp']}, {f['vocab']} token ids",
        ),
        ("weights", {8: "8 bits", 4: "4 bits"}.get(f["weight_bits"], "4 and 8 bits")),
        (
            "context",
            f"{f['cap']} positions; K/V {f['kv_per_position']} bytes each, {bytes_text(context)} in all",
        ),
        (
            "page",
            f"{f['page_positions']} positions, {bytes_text(f['kv_per_position'] * f['page_positions'])}",
        ),
        ("file", bytes_text(f["file_size"]) + ": " + _section_text(f["sections"])),
        *_text_rows(f),
        ("schemas", str(f["schemas"]) if f["schemas"] else "none"),
        ("golden record", f"{f['golden_tokens']} tokens" if f["golden_tokens"] else "none"),
        ("options", options or "unknown"),
        ("source SHA-256", f["source_sha256"] or "unknown"),
        ("file digest", f["file_digest"]),
        ("model digest", f["model_digest"]),
    ]
    return rows


def _section_text(sections: dict[str, int]) -> str:
    return ", ".join(f"{SECTIONS.get(name, name)} {bytes_text(size)}" for name, size in sections.items())


def _text_rows(f: dict[str, Any]) -> list[tuple[str, str]]:
    tokenizer = f["tokenizer"]
    if tokenizer is None:
        return [("tokenizer", "none: token ids only")]
    missing = " ".join(f"{byte:02X}" for byte in tokenizer["missing_bytes"])
    lacks = f"lacks {len(tokenizer['missing_bytes'])} bytes, their characters are read as U+FFFD: {missing}"
    stop = ", ".join(f"{i} {text!r}" for i, text in tokenizer["stop"].items())
    chat = f["chat"]
    if chat is None:
        format_text = f"none: {tokenizer['no_chat'] or 'the source has no chat template'}"
    else:
        format_text = "\n".join(f"{name}: {text!r}" for name, text in chat.items() if text)
    return [
        ("tokenizer", f"{tokenizer['ids']} ids, pre-tokenizer {tokenizer['pre_tokenizer'] or 'unknown'}"),
        ("bytes", lacks if missing else "all 256"),
        ("stop ids", stop or "none"),
        ("chat format", format_text),
    ]


# ---- verify ----


def verify(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    with Model.load(options.model) as model:
        record = Artifact(options.model, verify=False).golden_record()
        if record is None:
            raise CommandError(
                f"{options.model} is intact, but has no golden record to replay",
                "Convert the model again with `superslm convert`.",
            )
        work = f"a prompt of {len(record.prompt)} tokens, {len(record.tokens)} generated"
        print(f"Replaying the golden record: {work}", file=sys.stderr, flush=True)
        result = model.verify()
        tier = model.kernel_tier
    if not result:
        show_error(
            f"{options.model} does not compute its golden record here ({tier} kernels): {result.difference}.",
            "The file is intact, so this library computes differently: please report it with your CPU's name.",
        )
        return 1
    print(f"verified: {result.tokens} tokens, their logits and K/V bytes are as recorded ({tier} kernels)")
    return 0
