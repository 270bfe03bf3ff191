# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Within a frame the library does nothing but arithmetic: watched from outside, in hosts as they are."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from hosts_support import run

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module")
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload that counts heap calls, pool locks and threads inside prefill and decode."""
    path = tmp_path_factory.mktemp("watch") / "libwatch.so"
    source = Path(__file__).with_name("watch_calls.c")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{dev.ROOT / 'include'}"]
    run(*shlex.split(os.environ.get("CC") or "cc"), *flags, source, "-o", path, "-ldl")
    return path


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory, library_path: Path) -> Callable[[str], Path]:
    """`example("savegame")`: the program of examples/savegame.c."""
    folder = tmp_path_factory.mktemp("examples")

    def build(name: str) -> Path:
        program = folder / name
        source = [f"-I{dev.ROOT / 'include'}", dev.ROOT / "examples" / f"{name}.c", "-o", program]
        link = [library_path, f"-Wl,-rpath,{library_path.parent}"]
        run(*shlex.split(os.environ.get("CC") or "cc"), "-std=c11", "-O1", *source, *link)
        return program

    return build


def counts(output: str) -> dict[str, int]:
    """The watcher's report."""
    (line,) = re.findall(
        r"watched (\d+) calls: heap (\d+), pool locks (\d+), threads (\d+) \(pools (\d+)", output
    )
    return dict(zip(("calls", "heap", "pool locks", "threads", "pools"), map(int, line), strict=True))


def test_600_frames_at_60_hz_with_a_busy_host(
    example: Callable[[str], Path], watcher: Path, smollm2_golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(example("frame_budget"), smollm2_golden, "600", "2", env={"LD_PRELOAD": str(watcher)})
    with capsys.disabled():
        print("\n" + output[output.index("600 frames") :])
    seen = counts(output)
    assert seen == {"calls": 601, "heap": 0, "pool locks": 0, "threads": 0, "pools": 1}
    assert "slices of layers" in output and "last layer and logits" in output


def test_three_speakers_and_a_job_system(
    built: Callable[[str], Path], watcher: Path, smollm2_golden: Path
) -> None:
    options = ["--frames", "1000000", "--workers", "1", "--busy", "2"]  # until everyone has spoken
    output = run(
        built("job_system") / "frame_host", smollm2_golden, *options, env={"LD_PRELOAD": str(watcher)}
    )
    seen = counts(output)
    assert seen["calls"] > 60 and seen["pools"] == 1  # two frames a token at least, on the fastest machine
    assert (seen["heap"], seen["pool locks"], seen["threads"]) == (0, 0, 0)


def test_the_watcher_sees_a_call_that_allocates(
    example: Callable[[str], Path], watcher: Path, smollm2_golden: Path, tmp_path: Path
) -> None:
    output = run(
        example("savegame"), smollm2_golden, tmp_path / "story.sav", env={"LD_PRELOAD": str(watcher)}
    )
    assert counts(output)["heap"] > 0  # that program lends no workspace
