# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""WebAssembly in wasmtime: the module that is shipped, and test programs linked with the same objects.

Needs Debian's packages clang-19, lld-19, wasi-libc, libc++-19-dev-wasm32 and libclang-rt-19-dev-wasm32, and wasmtime
from PyPI. Node and a browser run the module in tests/hosts/test_web.py.
"""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import check_no_float
import dev
import pytest
from cell_programs import PROGRAMS, artifacts_of, cells_of
from platform_support import check_golden, run, states_here
from test_adapter import cell_artifacts as adapter_artifacts  # noqa: F401
from test_cells_schema import PROGRAMS as SCHEMA_PROGRAMS
from test_cells_schema import artifacts as schema_artifacts  # noqa: F401
from test_golden import SCENE, golden  # noqa: F401

TESTS = Path(__file__).resolve().parent
PACKAGES = "clang-19 lld-19 wasi-libc libc++-19-dev-wasm32 libclang-rt-19-dev-wasm32"
MODULES = {"wasm": "simd128", "wasm-scalar": "scalar"}  # variant -> the kernels in it
BESIDE_THE_VERBS = {"memory", "_initialize", "aligned_alloc", "free"}
STACK = ["-Wl,--stack-first", "-Wl,-z,stack-size=1048576"]
FIXED_MEMORY = f"-Wl,--initial-memory={64 << 20},--max-memory={65 << 20}"  # see tests/c/guarded.h


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """Without compiler, libraries or runtime everything here is skipped, or fails where nothing may be missing."""
    try:
        import wasmtime  # noqa: F401

        missing = [] if shutil.which("clang++-19") else ["clang++-19"]
        missing += [] if Path("/usr/lib/wasm32-wasi/libc++.a").is_file() else ["wasi-libc with libc++"]
    except ModuleNotFoundError:
        missing = ["wasmtime"]
    if missing:
        why = f"{missing} not found: pip install wasmtime, apt install {PACKAGES}"
        pytest.fail(why, pytrace=False) if dev.STRICT else pytest.skip(why)


# ---- The module ----


class Library:
    """superslm.wasm in wasmtime, without WASI: it gets no import."""

    def __init__(self, path: Path) -> None:
        import wasmtime

        config = wasmtime.Config()
        config.cache = True
        self.store = wasmtime.Store(wasmtime.Engine(config))
        self.module = wasmtime.Module.from_file(self.store.engine, str(path))
        self.exports = wasmtime.Instance(self.store, self.module, []).exports(self.store)
        self.call("_initialize")

    def call(self, name: str, *arguments: int) -> int:
        """Calls an export."""
        return self.exports[name](self.store, *arguments)

    def place(self, data: bytes) -> int:
        """Copies bytes into the module's memory and returns their address."""
        address = self.call("aligned_alloc", 64, -(-len(data) // 64) * 64)
        assert address
        self.exports["memory"].write(self.store, data, address & 0xFFFFFFFF)
        return address

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """Little-endian int32 from memory."""
        address &= 0xFFFFFFFF
        return struct.unpack(
            f"<{count}i", self.exports["memory"].read(self.store, address, address + 4 * count)
        )


def verb_names() -> set[str]:
    """The verbs that the headers export."""
    lists = (dev.ROOT / "tools/exports" / name for name in ("frozen.txt", "ext.txt"))
    return {line for path in lists for line in path.read_text().split() if line.startswith("sslm_")}


@pytest.mark.parametrize("variant", MODULES)
def test_the_module_imports_nothing_and_exports_the_verbs(variant: str) -> None:
    module = Library(dev.build(variant)).module
    assert [f"{entry.module}.{entry.name}" for entry in module.imports] == []
    assert {entry.name for entry in module.exports} == verb_names() | BESIDE_THE_VERBS


@pytest.mark.parametrize("variant", MODULES)
def test_the_module_computes_without_floats(variant: str) -> None:
    findings, files, _ = check_no_float.check([dev.build(variant).parent])
    assert files > 50 and not findings


@pytest.mark.parametrize("variant", ["wasm", pytest.param("wasm-scalar", marks=pytest.mark.hosts)])
def test_the_module_plays_the_scene(variant: str, smollm2_golden: Path) -> None:
    """SmolLM2's digest over tokens, logits and K/V bytes, the same constant as on every other machine."""
    library = Library(dev.build(variant))
    data = smollm2_golden.read_bytes()
    out = library.place(bytes(8))
    assert library.call("sslm_model_map", library.place(data), len(data), out) == 0
    (model,) = library.words(out, 1)
    check = library.place(struct.pack("<6i", 24, -1, 0, 0, 0, 0))
    assert library.call("sslm_ext_self_check", model, 0, check) == 0
    _, verdict, tokens, expected, _, _ = library.words(check, 6)
    assert (verdict, tokens, expected) == (0, len(SCENE["tokens"]), len(SCENE["tokens"]))
    assert library.call("sslm_model_unmap", model) == 0


# ---- Test programs ----


@pytest.fixture(scope="module")
def wasi_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`wasi_program(name, *flags)`: tests/c/NAME.c or .cpp, with the objects of the module and the test seams."""
    folder = tmp_path_factory.mktemp("wasi")

    def build(name: str, *flags: str) -> Path:
        library = dev.build("wasm-seams").parent / "libsuperslm.a"
        source = next(path for path in (TESTS / "c").glob(f"{name}.c*"))
        language = ["clang-19", "-std=c11"]
        if source.suffix == ".cpp":
            language = ["clang++-19", "-std=c++20", "-fno-exceptions", f"-I{dev.ROOT / 'c_abi'}"]
        program = folder / f"{name}.wasm"
        command = [*language, "--target=wasm32-wasi", "-msimd128", "-O1", "-Wall", "-Wextra", "-Werror"]
        command += [
            f"-I{dev.ROOT / 'include'}",
            f"-I{TESTS / 'c'}",
            str(source),
            str(library),
            *STACK,
            *flags,
        ]
        run([*command, "-o", str(program)])
        return program

    return build


def run_wasi(program: Path, *arguments: object, env: dict[str, str] | None = None) -> str:
    """Runs a program in wasmtime and returns what it prints; fails with what it says."""
    return run([sys.executable, str(TESTS / "wasi_run.py"), str(program), *map(str, arguments)], env)


def test_the_vector_tier_gives_the_bits_of_scalar(wasi_program: Callable[..., Path]) -> None:
    """Random and extreme inputs of every size, some of which end where memory ends."""
    lines = run_wasi(wasi_program("engine_kernels", FIXED_MEMORY)).splitlines()
    assert lines == ["ok scalar", "ok simd128"]


@pytest.mark.parametrize("weights", ["w8", "w4"])
@pytest.mark.parametrize("fixture", ["deep", "bias", "odd"])
def test_wasm_computes_the_states_of_this_machine(
    fixture: str,
    weights: str,
    wasi_program: Callable[..., Path],
    test_library_path: Path,
    fixture_artifact: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Digests of residuals, K, V and logits, and the tokens: layer by layer and in chunks, on both tiers."""
    program = wasi_program("engine_golden")
    for words, wanted in states_here(tmp_path, test_library_path, fixture_artifact(fixture, weights)):
        for tier in MODULES.values():
            found = run_wasi(program, *words, env={"SSLM_FORCE_TIER": tier})
            assert found.splitlines() == [*wanted, f"tier {tier}"]


def test_smollm2_gives_the_golden_digests_in_wasm(
    golden: SimpleNamespace,  # noqa: F811
    wasi_program: Callable[..., Path],
) -> None:
    """The committed digests of an independent engine: residuals, logits, K and V of 24 tokens, W8 and W4."""
    tokens = [step[0] for step in golden.steps]
    out = run_wasi(wasi_program("engine_golden"), golden.path, "decode", *tokens)
    check_golden(golden, out, "simd128")


# ---- Cells ----


def hold_all_cells(program: str, built: Path, artifacts: list[Path]) -> None:
    """Runs a program of cells; each must say that it holds."""
    lines = run_wasi(built, *artifacts).splitlines()
    assert [line for line in lines if line.startswith("ok ")] == [f"ok {cell}" for cell in cells_of(program)]


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "cell_threads"])
def test_cells_hold_in_wasm(
    program: str, wasi_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    """The contract's promises, through the public headers; there are no threads to test."""
    hold_all_cells(program, wasi_program(program), artifacts_of(program, fixture_artifact))


@pytest.mark.parametrize("program", SCHEMA_PROGRAMS)
def test_cells_about_schemas_and_damped_greedy_hold_in_wasm(
    program: str,
    wasi_program: Callable[..., Path],
    schema_artifacts: dict[str, list[Path]],  # noqa: F811
) -> None:
    hold_all_cells(program, wasi_program(program), schema_artifacts[program])


def test_cells_about_adapters_hold_in_wasm(
    wasi_program: Callable[..., Path],
    adapter_artifacts: list[Path],  # noqa: F811
) -> None:
    hold_all_cells("cell_adapter", wasi_program("cell_adapter"), adapter_artifacts)
