# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""64-bit ARM under an emulator: a Cortex-A53 has no dot product instruction, a Cortex-A76 has it.

Needs Debian's packages g++-aarch64-linux-gnu and qemu-user.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import check_no_float
import dev
import pytest
from cell_programs import artifacts_of
from platform_support import build_program, check_golden, emulated, need, states_here
from test_abi_tiers import weak_symbols
from test_golden import golden  # noqa: F401

TIERS = ("scalar", "neon", "neon_dotprod")
BEST = {"cortex-a53": "neon", "cortex-a76": "neon_dotprod"}  # processor -> the tier that dispatch must choose


@pytest.fixture(scope="module")
def arm_library() -> Path:
    """The library with test seams for 64-bit ARM Linux."""
    need("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")
    need("qemu-aarch64", "qemu-user")
    return dev.build("aarch64")


@pytest.fixture(scope="module")
def arm_program(arm_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`arm_program(name)`: tests/c/NAME.cpp for ARM."""
    folder = tmp_path_factory.mktemp("aarch64")
    return functools.cache(lambda name: build_program(folder, name, arm_library, "aarch64-linux-gnu-g++"))


@pytest.mark.parametrize("processor", BEST)
def test_every_arm_tier_gives_the_bits_of_scalar(processor: str, arm_program: Callable[[str], Path]) -> None:
    """A tier that the processor lacks is named; none is left out."""
    lines = emulated(processor, arm_program("engine_kernels")).splitlines()
    present = TIERS[: TIERS.index(BEST[processor]) + 1]
    lacking = [f"skipped {tier}: this processor lacks it" for tier in TIERS[len(present) :]]
    assert lines == [*(f"ok {tier}" for tier in present), *lacking]


@pytest.mark.parametrize("weights", ["w8", "w4"])
@pytest.mark.parametrize("fixture", ["deep", "bias", "odd"])
def test_both_architectures_compute_the_same_states(
    fixture: str,
    weights: str,
    arm_program: Callable[[str], Path],
    test_library_path: Path,
    fixture_artifact: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Digests of residuals, K, V and logits, and the tokens: layer by layer and in chunks, on every ARM tier."""
    program = arm_program("engine_golden")
    for words, wanted in states_here(tmp_path, test_library_path, fixture_artifact(fixture, weights)):
        for processor, best in BEST.items():
            assert emulated(processor, program, *words).splitlines() == [*wanted, f"tier {best}"]
        scalar = emulated("cortex-a53", program, *words, env={"SSLM_FORCE_TIER": "scalar"})
        assert scalar.splitlines() == [*wanted, "tier scalar"]


@pytest.mark.parametrize("processor", BEST)
def test_smollm2_gives_the_golden_digests_on_arm(
    golden: SimpleNamespace,  # noqa: F811
    processor: str,
    arm_program: Callable[[str], Path],
) -> None:
    """The committed digests of an independent engine: residuals, logits, K and V of 24 tokens, W8 and W4."""
    tokens = [step[0] for step in golden.steps]
    out = emulated(processor, arm_program("engine_golden"), golden.path, "decode", *tokens)
    check_golden(golden, out, BEST[processor])


LONG = pytest.mark.long
CELLS = [
    "cell_prefill",
    "cell_text",
    *(pytest.param(name, marks=LONG) for name in ("cell_decode", "cell_save")),
]


@pytest.mark.parametrize("processor", BEST)
@pytest.mark.parametrize("program", CELLS)
def test_cells_hold_on_arm(
    program: str,
    processor: str,
    arm_library: Path,
    c_program: Callable[..., Path],
    fixture_artifact: Callable[..., Path],
) -> None:
    """The contract's promises, through the public headers."""
    built = c_program(program, library=arm_library, compiler="aarch64-linux-gnu-gcc")
    emulated(processor, built, *artifacts_of(program, fixture_artifact))


def test_the_arm_library_computes_without_floats(arm_library: Path) -> None:
    findings, files, _ = check_no_float.check([arm_library.parent])
    assert files > 50 and not findings


def test_the_dot_product_tier_shares_no_function_with_other_objects(arm_library: Path) -> None:
    """Code that every ARM processor runs must not hold its instructions."""
    objects = list(arm_library.parent.rglob("neon_dotprod.cpp.o"))
    assert objects and not any(weak_symbols(path) for path in objects)
