# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Sixteen threads for a minute: create, adopt, decode, save, reset, restore and release over shared prefixes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from cell_programs import artifacts_of, run_cell

CELL = "sixteen_threads_over_shared_prefixes_give_the_serial_tokens_and_a_whole_pool"


@pytest.mark.long
@pytest.mark.parametrize("variant", ["tsan", "sanitized"])
def test_a_minute_of_sixteen_threads_is_clean(
    variant: str, c_program: Callable[..., Path], fixture_artifact: Callable[..., Path]
) -> None:
    """No race, no memory error, the tokens of one thread, and at the end every page is free."""
    sanitizer = "thread" if variant == "tsan" else "address,undefined"
    program = c_program(
        "cell_threads", f"-fsanitize={sanitizer}", "-DSOAK_SECONDS=60", library=dev.build(variant)
    )
    quiet = {"ASAN_OPTIONS": "detect_leaks=0"}  # programs never free their buffers
    run_cell(program, artifacts_of("cell_threads", fixture_artifact), CELL, quiet)
