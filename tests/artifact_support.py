# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What the artifact tests share: the C reader as a program, and a comparison of integer models."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

import dev
import numpy as np
from make_checkpoint import make_quantized
from superslm.convert.quantized import MatrixW4, QuantizedModel
from superslm.convert.writer import write_artifact

SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def sanitized(c_program: Callable[..., Path], name: str) -> Path:
    """tests/c/NAME.cpp against the library's objects, both with ASan and UBSan."""
    archive = dev.build("sanitized").parent / "libsuperslm.a"
    return c_program(name, *SANITIZE, library=archive)


def run(program: Path, *arguments: object, text: str | None = None) -> list[str]:
    """The program's output lines; a failure fails the test with everything it printed."""
    done = subprocess.run(
        [program, *map(str, arguments)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{program.name} {arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


def differences(a: object, b: object, path: str = "model") -> list[str]:
    """Paths at which two integer models (or parts of them) differ; provenance and tokenizer included."""
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        names = [field.name for field in dataclasses.fields(a)]
        return [d for n in names for d in differences(getattr(a, n), getattr(b, n), f"{path}.{n}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [
            d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{path}[{i}]")
        ]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    else:
        same = type(a) is type(b) and a == b
    return [] if same else [path]


def mixed(name: str) -> QuantizedModel:
    """A fixture with W8 and W4 matrices side by side."""
    model, other = make_quantized(name, "w8"), make_quantized(name, "w4")
    assert isinstance(other.layers[0].WD, MatrixW4)
    layers = [
        dataclasses.replace(a, WD=b.WD, WQ=b.WQ) for a, b in zip(model.layers, other.layers, strict=True)
    ]
    return dataclasses.replace(model, layers=layers)


def written(model: QuantizedModel, path: Path) -> Path:
    """Writes the artifact of a model and returns its path."""
    write_artifact(model, path)
    return path
