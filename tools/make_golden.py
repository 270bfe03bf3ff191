#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Shrinks the golden results of an independent engine to what tests/test_golden.py needs.

    python tools/make_golden.py smollm2.json -o tests/golden

The input holds full SHA-256 digests of every tensor, residual, K/V and logits row of SmolLM2 and the
calibration record they were made from. Written are the record, compressed, and one short digest per part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import sys
from pathlib import Path
from typing import Any

PROFILES = ("w8", "w4")


def short(*parts: Any) -> str:
    """The first 64 bits, in hex, of a SHA-256 over the parts, each on a line; digests of a part are hex."""
    text = "".join(f"{part}\n" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tensor_digest(tensor: dict[str, Any]) -> str:
    """One digest of a tensor's exponent, multipliers, values and sub-scales (and offsets, at four bits)."""
    return short(
        *(tensor[key] for key in ("E", "W_sha256", "v_sha256", "s_sha256", "u_sha256") if key in tensor)
    )


LAYER_KEYS = ("EG1", "EG2", "SK", "SVsh", "FQ", "ESV", "QH", "EC")
LAYER_DIGESTS = tuple(f"{name}_sha256" for name in ("N1", "N2", "MK", "MV", "MQ", "SV", "MC", "BK"))


def layer_digest(layer: dict[str, Any]) -> str:
    """One digest of a layer's scalar parameters and its vectors."""
    return short(*(layer[key] for key in LAYER_KEYS + LAYER_DIGESTS))


def shrink(profile: dict[str, Any]) -> dict[str, Any]:
    """The compact form of one weight format's results."""
    steps = ("token", "argmax", "residuals_sha256", "final_residual_sha256", "logits_sha256")
    return {
        "R": profile["R"],
        "EPS": profile["EPS"],
        "STEP": short(*profile["STEP"]),
        "tensors": {name: tensor_digest(tensor) for name, tensor in profile["tensors"].items()},
        "layers": [layer_digest(layer) for layer in profile["layers"]],
        "steps": [
            [value if isinstance(value := step[key], int) else value[:16] for key in steps]
            for step in profile["steps"]
        ],
        "k": [digest[:16] for digest in profile["k_sha256"]],
        "v": [digest[:16] for digest in profile["v_sha256"]],
        "saturation": profile["saturation"],
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="the full results, JSON")
    parser.add_argument("-o", "--output", type=Path, required=True, help="directory to write into")
    options = parser.parse_args()
    full = json.loads(options.source.read_text())
    record = json.dumps(full["calibration_record"], separators=(",", ":"), sort_keys=True).encode()
    name = options.source.stem
    (options.output / f"{name}_record.json.xz").write_bytes(
        lzma.compress(record, preset=9 | lzma.PRESET_EXTREME)
    )
    compact = {
        "source_sha256": full["source"]["file_sha256"],
        "prompt": full["prompt_ids"],
        **{profile: shrink(full[profile]) for profile in PROFILES},
    }
    (options.output / f"{name}.json").write_text(json.dumps(compact, separators=(",", ":")) + "\n")
    for path in sorted(options.output.glob(f"{name}*")):
        print(f"{path} {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
