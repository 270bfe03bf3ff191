# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The library, the model and the built hosts; the comparison with the Python package."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import dev
import pytest
from hosts_support import HOSTS, Library, run


@pytest.fixture(scope="session", params=["release", "sanitized"])
def library(request: pytest.FixtureRequest, library_path: Path) -> Library:
    """The release library, and one with address and undefined-behaviour checks inside a host without."""
    if request.param == "release":
        return Library(library_path, {"SUPERSLM_LIBRARY": str(library_path)})
    path = dev.build("sanitized")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    runtime = subprocess.run(
        [*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(runtime).is_absolute(), f"{compiler[0]} has no libasan.so"
    env = {
        "SUPERSLM_LIBRARY": str(path),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0",
    }
    return Library(path, env)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of an installed library."""
    prefix = tmp_path_factory.mktemp("hosts") / "prefix"
    run(dev.tool("cmake"), "--install", dev.build("package").parent.parent, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="session")
def built(installed: Path) -> Callable[[str], Path]:
    """`built("godot")`: the build folder of plugin_host/godot, made with the installed library."""

    def build(name: str) -> Path:
        folder = installed.parent / name
        if not folder.is_dir():
            cmake, ninja = dev.tool("cmake"), dev.tool("ninja")
            options = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_BUILD_TYPE=Release"]
            run(cmake, "-S", HOSTS / name, "-B", folder, f"-DCMAKE_PREFIX_PATH={installed}", *options)
            run(cmake, "--build", folder, "--parallel", "2")
        return folder

    return build


@pytest.fixture(scope="session")
def says_the_same(smollm2_golden: Path) -> Callable[[str], None]:
    """Checks a host's output: what each "reply" line holds is what the package decodes behind its "prompt" line.

    The package runs in this process: whole tokens, one sequence at a time, no prefix, nothing saved.
    """
    from superslm import Model

    model = Model.load(smollm2_golden)

    def check(output: str) -> None:
        lines = [line.split() for line in output.splitlines()]
        prompts = [[int(i) for i in words[1:]] for words in lines if words[:1] == ["prompt"]]
        replies = [[int(i) for i in words[1:]] for words in lines if words[:1] == ["reply"]]
        assert prompts and len(prompts) == len(replies), output[-2000:]
        for prompt, reply in zip(prompts, replies, strict=True):
            assert len(prompt) > 30 and len(reply) > 5
            with model.pool(pages=model.pages_for(1024)) as pool, pool.sequence(1024) as sequence:
                sequence.prefill(prompt)
                assert [sequence.decode() for _ in reply] == reply

    return check
