# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""SHA-256 of source files, for provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of one file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def files_sha256(paths: Iterable[Path]) -> str:
    """Hex SHA-256 over one line `<sha256>  <name>` per file, sorted by name."""
    lines = sorted((path.name, file_sha256(path)) for path in paths)
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in lines).encode()).hexdigest()
