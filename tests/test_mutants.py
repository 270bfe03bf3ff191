# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The planted bugs still fit the library; the long test plants them all."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import dev
import pytest
from cell_programs import cells_of
from mutants import MutantError, call, find_line, planted, reason
from planted import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.name for m in MUTANTS])
def test_every_planted_bug_still_has_its_line_and_its_test(mutant: Mutant) -> None:
    text = (dev.ROOT / mutant.file).read_text()
    assert planted(mutant, text) != text
    kind, _, name = mutant.test.partition(":")
    program, _, single = name.partition("/")
    if kind == "cell":
        assert single in cells_of(program)
    elif kind in ("room", "engine"):
        source = (dev.ROOT / "tests/c" / f"{program}.cpp").read_text()
        assert single in source
    else:
        file, _, function = mutant.test.partition("::")
        assert re.search(
            rf"^def {re.escape(function.partition('[')[0])}\(", (dev.ROOT / file).read_text(), re.M
        )


def test_names_are_unique_and_cover_the_library() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    rooms = {m.file.split("/")[1] for m in MUTANTS}
    assert {"abi", "blob", "decode", "forward", "kv", "kernels", "text", "artifact", "base"} <= rooms


def test_a_line_that_is_gone_or_stands_twice_is_an_error() -> None:
    mutant = dataclasses.replace(MUTANTS[0], old="b")
    with pytest.raises(MutantError, match="0 times"):
        find_line(mutant, "acd")
    with pytest.raises(MutantError, match="2 times"):
        find_line(mutant, "abcb")
    assert find_line(mutant, "abc") == (1, 2)


def test_the_reason_is_the_check_that_failed_and_not_what_was_printed_before_it() -> None:
    program = "import sys; print('tier avx2'); sys.exit('cell_x.c:1: cell y: expected z')"
    assert reason(call([sys.executable, "-c", program]).stdout) == "cell_x.c:1: cell y: expected z"
    assert reason("F\nFAILED test_x.py::y - z\n!!! stopping\n1 failed\n") == "FAILED test_x.py::y - z"
    assert reason("") == ""


@pytest.mark.long
def test_every_planted_bug_is_noticed() -> None:
    done = subprocess.run(
        [sys.executable, dev.ROOT / "tools/mutants.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
