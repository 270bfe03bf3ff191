# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Makes the artifacts of a program of cells in a folder and prints their paths, for tools/mutants.py."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from cell_programs import PROGRAMS, talking_artifact
from make_checkpoint import FIXTURES, make_quantized
from schema_fixtures import with_schemas
from superslm.convert.writer import write_artifact


def fixture(name: str, folder: Path) -> Path:
    """The artifact of a fixture with 8-bit weights."""
    path = folder / f"{name}.sslm"
    if not path.is_file():
        write_artifact(make_quantized(name, "w8"), path)
    return path


def artifacts(program: str, folder: Path) -> list[Path]:
    """The artifacts of a program, in its order."""
    if program in PROGRAMS:
        return [talking_artifact() if n == "talking" else fixture(n, folder) for n in PROGRAMS[program]]
    vocab = FIXTURES["cells"].vocab
    own = with_schemas(fixture("cells", folder), folder / "own.sslm", vocab)
    if program == "cell_damped":
        scaleless = folder / "scaleless.sslm"
        write_artifact(dataclasses.replace(make_quantized("tiny", "w8"), DGC1=None), scaleless)
        return [own, scaleless]
    another = with_schemas(fixture("cells_other", folder), folder / "another.sslm", vocab)
    if program == "cell_restore":
        return [own, another, with_schemas(fixture("equal_logits", folder), folder / "equal.sslm", vocab)]
    return [own, with_schemas(fixture("cells", folder), folder / "tables.sslm", vocab, first=11), another]


if __name__ == "__main__":
    for path in artifacts(sys.argv[1], Path(sys.argv[2])):
        print(path)
