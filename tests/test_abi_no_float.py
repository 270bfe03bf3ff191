# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""No object of the library computes with floats, and a planted float operation is caught."""

from __future__ import annotations

import subprocess
from pathlib import Path

import check_no_float
import dev
import pytest
from platform_support import built, need

FLOAT = {
    "multiply": "double f(double x, double y) { return x * y; }",
    "compare": "int f(float x, float y) { return x < y; }",
    "to integer": "int f(float x) { return (int)x; }",
    "from integer": "double f(int x) { return x; }",
    "vector loop": "void f(float* p, int n) { for (int i = 0; i < n; ++i) p[i] = p[i] * 3 + 1; }",
    "square root": "double f(double x) { return __builtin_sqrt(x); }",
}
X87 = {"long double": "long double f(long double x) { return x * x; }"}
INTEGER = {
    "loop": "long f(const signed char* a, const short* b, int n) { long s = 0; for (int i = 0; i < n; ++i)"
    " s += a[i] * b[i]; return s; }",
    "float moved": "void f(float* to, const float* from) { *to = *from; }",
    "struct copy": "struct s { double a[6]; }; void f(struct s* to, const struct s* from) { *to = *from; }",
}


def objects(compiler: str, flags: list[str], text: str, folder: Path) -> Path:
    """Compiles a text to an object file."""
    need(compiler, compiler)
    source = folder / "planted.c"
    source.write_text(text)
    target = source.with_suffix(".o")
    subprocess.run([compiler, *flags, "-fno-math-errno", "-c", str(source), "-o", str(target)], check=True)
    return target


COMPILERS = [
    ("gcc", ["-O3"]),
    ("gcc", ["-O0"]),
    ("gcc", ["-O3", "-mavx2", "-mfma"]),
    ("gcc", ["-O3", "-mavx512f", "-mavx512vl"]),
    ("clang-19", ["-O3"]),
    ("clang-19", ["-O3", "-mavx2"]),
    ("clang-19", ["-O3", "--target=aarch64-linux-gnu"]),
    ("clang-19", ["-O3", "--target=wasm32-wasi", "-msimd128"]),
]


@pytest.mark.parametrize("name", [*FLOAT, *X87])
@pytest.mark.parametrize(("compiler", "flags"), COMPILERS, ids=lambda value: "".join(value))
def test_a_planted_float_operation_is_caught(
    name: str, compiler: str, flags: list[str], tmp_path: Path
) -> None:
    if name in X87 and "--target" in "".join(flags):
        text = FLOAT["multiply"]  # there long double is a library call
    else:
        text = {**FLOAT, **X87}[name]
    found, _, _ = check_no_float.check([objects(compiler, flags, text, tmp_path)])
    assert found and found[0].symbol == "f"


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize(("compiler", "flags"), COMPILERS, ids=lambda value: "".join(value))
def test_integers_and_moves_are_allowed(name: str, compiler: str, flags: list[str], tmp_path: Path) -> None:
    found, _, instructions = check_no_float.check([objects(compiler, flags, INTEGER[name], tmp_path)])
    assert found == [] and instructions > 0


@pytest.mark.parametrize("variant", ["gcc", "clang"])
def test_the_library_holds_no_float_arithmetic(variant: str) -> None:
    folder = built(variant).parent
    found, files, _ = check_no_float.check([folder])
    assert found == []
    assert files >= len(list((dev.ROOT / "c_abi").rglob("*.cpp")))


def test_a_folder_without_objects_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no object files"):
        check_no_float.check([tmp_path])
