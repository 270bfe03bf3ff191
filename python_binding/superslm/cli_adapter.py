# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""`superslm convert-adapter`: a PEFT directory becomes an adapter of one artifact; and what `inspect` says of it."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from superslm.artifact import BASE, KIND_ADAPTER, Artifact, load_adapter, text_of
from superslm.cli_convert import MATRICES
from superslm.cli_files import check_output, read_text
from superslm.cli_output import bytes_text, converter_packages, note, progress_bar, seconds, show_table

MODULES = {name: short for short, name in MATRICES.items()}


def add_parser(commands: Any) -> None:
    """Declares the command and its options."""
    parser = commands.add_parser(
        "convert-adapter",
        help="make an adapter file of a LoRA adapter in PEFT's layout",
        description="Converts a LoRA adapter for one artifact. Targets: any of q, k, v, o, gate, up, down.",
    )
    parser.add_argument(
        "source",
        type=Path,
        metavar="PEFT_DIR",
        help="holds adapter_config.json and adapter_model.safetensors",
    )
    parser.add_argument(
        "--base", type=Path, required=True, metavar="MODEL", help="the .sslm file it will run on"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the .sslm file to write"
    )
    parser.add_argument(
        "--calibration-text",
        type=Path,
        metavar="FILE",
        help="UTF-8 text on which the K and V range is checked, in place of the one that ships",
    )
    parser.set_defaults(function=command)


def command(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    start = time.monotonic()
    check_output(options.output, options.base, options.calibration_text)
    text = read_text(options.calibration_text, "Give some pages of UTF-8 text, or leave the option out.")
    warnings: list[str] = []
    with converter_packages():
        from superslm.convert.adapter import convert_adapter

        with progress_bar(f"Converting {options.source.name}") as progress:
            report = convert_adapter(
                options.source,
                options.base,
                options.output,
                calibration_text=text,
                progress=progress,
                warn=warnings.append,
            )
    for warning in warnings:
        note(warning)
    low, high = report.ranks
    print(
        f"{options.output}: {bytes_text(report.size)}, rank {low if low == high else f'{low} to {high}'} on "
        f"{' '.join(MODULES[name] for name in report.targets)}, converted in "
        f"{seconds(time.monotonic() - start)}"
    )
    print(f"outside the base's range on the text: {report.k_clipped:.4%} of K, {report.v_clipped:.4%} of V")
    return 0


# ---- inspect ----


def is_adapter(path: Path) -> bool:
    """Whether a file is an artifact of the kind adapter; damaged ones are left to the commands."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(16)
    return head[:8] == b"SUPERSLM" and int.from_bytes(head[12:16], "little") == KIND_ADAPTER


def inspect(options: argparse.Namespace) -> int:
    """Shows what an adapter holds; returns the exit code."""
    adapter, artifact = load_adapter(options.model), Artifact(options.model, verify=False)
    pairs = [(name, pair.A.rows) for layer in adapter.layers for name, pair in layer.items()]
    origin, (base,) = artifact.provenance(), BASE.unpack(artifact.section("BASE"))
    facts = {
        "source": text_of(origin.get("source")),
        "source_sha256": text_of(origin.get("source_sha256")),
        "trained_on": text_of(origin.get("trained_on")),
        "base": text_of(origin.get("base")),
        "base_digest": base.hex(),
        "pairs": len(pairs),
        "targets": [short for name, short in MODULES.items() if any(name == found for found, _ in pairs)],
        "ranks": sorted({rank for _, rank in pairs}),
        "file_size": options.model.stat().st_size,
        "file_digest": artifact.file_digest.hex(),
    }
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    rows = [
        ("adapter", facts["source"] or "unknown"),
        ("trained on", facts["trained_on"] or "not stated by the source"),
        ("base", facts["base"] or "unknown"),
        (
            "pairs",
            f"{facts['pairs']} on {' '.join(facts['targets'])}, rank {' '.join(map(str, facts['ranks']))}",
        ),
        ("file", bytes_text(facts["file_size"])),
        ("source SHA-256", facts["source_sha256"] or "unknown"),
        ("base's model digest", facts["base_digest"]),
        ("file digest", facts["file_digest"]),
    ]
    show_table(rows, str(options.model))
    return 0
