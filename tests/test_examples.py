# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Every program in examples/ builds with a plain compiler and does what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dev
import numpy as np
import pytest

EXAMPLES = dev.ROOT / "examples"


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory, library_path: Path) -> Callable[[str], Path]:
    """`example("minimal")`: the program of examples/minimal.c."""
    folder = tmp_path_factory.mktemp("examples")

    def build(name: str) -> Path:
        program = folder / name
        driver = shlex.split(os.environ.get("CC") or "cc")
        strict = ["-std=c11", "-D_ISOC11_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic"]
        link = [str(library_path), f"-Wl,-rpath,{library_path.parent}", "-o", str(program)]
        source = [f"-I{dev.ROOT / 'include'}", str(EXAMPLES / f"{name}.c")]
        done = subprocess.run([*driver, *strict, *source, *link], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return program

    return build


def output(*command: str | Path) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([str(c) for c in command], capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def flat_prompt(model, lines: list[str], replies: list[str]) -> np.ndarray:  # noqa: ANN001
    """The ids of a whole conversation, as if it had been written at once."""
    ids = [model.chat_ids("system", "opening")]
    for i, line in enumerate(lines):
        ids += [model.chat_ids("user"), model.tokenize(line), model.chat_ids("user", "suffix")]
        ids.append(model.chat_ids("assistant"))
        if i < len(replies):
            ids += [model.tokenize(replies[i]), model.chat_ids("assistant", "suffix")]
    return np.concatenate(ids)


@pytest.mark.parametrize(
    "first",
    ["Say hello.", "Write a long story about the sea and the ships that sail on it."],
    ids=["reply_ended_by_a_stop_token", "reply_cut_at_its_length"],
)
def test_two_turns_of_the_minimal_host_equal_one_flat_prompt(
    first: str, example: Callable[[str], Path], smollm2_golden: Path
) -> None:
    from superslm import Model

    second = "And in one word?"
    lines = output(example("minimal"), smollm2_golden, first, second).split("> ")
    reply, answer = lines[1].partition("\n")[2][:-1], lines[2].partition("\n")[2][:-1]
    with Model.load(smollm2_golden) as model, model.pool() as pool, pool.sequence() as sequence:
        ids = flat_prompt(model, [first, second], [reply])
        assert answer == "".join(sequence.generate(ids, max_tokens=48)) and answer


def test_the_minimal_host_reports_what_it_cannot_open(example: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "bad.sslm").write_bytes(b"not an artifact at all")
    for path, words in (
        (tmp_path / "none.sslm", "No such file"),
        (tmp_path / "bad.sslm", "ARTIFACT_REJECTED"),
    ):
        done = subprocess.run([example("minimal"), path], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and words in done.stderr


def test_the_host_of_the_readme_continues_a_prompt(
    example: Callable[[str], Path], smollm2_golden: Path
) -> None:
    assert output(example("readme_host"), smollm2_golden, "The capital of France is").startswith(" Paris")


def test_the_host_of_the_readme_is_short() -> None:
    code = (EXAMPLES / "readme_host.c").read_text().splitlines()
    start = next(i for i, line in enumerate(code) if line.startswith("int main"))
    assert len(code) - start <= 34
    script = (EXAMPLES / "readme_script.py").read_text().splitlines()
    assert sum(bool(line) and not line.startswith("#") for line in script) <= 10


@pytest.mark.parametrize("name", ["readme_host.c", "readme_script.py"])
def test_the_readme_shows_the_programs_that_are_tested(name: str) -> None:
    lines = (EXAMPLES / name).read_text().splitlines()[2:]  # without the licence lines
    assert "\n".join(lines).strip() in (dev.ROOT / "README.md").read_text()


def test_the_script_of_the_readme_talks(smollm2_golden: Path) -> None:
    text = output(sys.executable, EXAMPLES / "readme_script.py", smollm2_golden)
    assert text.count("> ") == 2 and len(text) > 80


def test_the_quickstart_runs(smollm2_golden: Path) -> None:
    text = output(sys.executable, EXAMPLES / "quickstart.py", smollm2_golden)
    assert "The blacksmith said:" in text and "The youngest child said:" in text
    assert "shares 1 page(s)" in text


def test_a_saved_story_goes_on_the_same_whatever_the_slices(
    example: Callable[[str], Path], smollm2_golden: Path, tmp_path: Path
) -> None:
    program = example("savegame")

    def told(save: Path, *layers: str) -> str:
        return re.sub(r"\n\[saved .*\]\n", "", output(program, smollm2_golden, save, *layers))

    first = [told(tmp_path / "a.sav"), told(tmp_path / "a.sav"), told(tmp_path / "a.sav")]
    other = [told(tmp_path / "b.sav", "7"), told(tmp_path / "b.sav"), told(tmp_path / "b.sav", "1")]
    assert first == other and (tmp_path / "a.sav").read_bytes() == (tmp_path / "b.sav").read_bytes()
    assert not (tmp_path / "a.sav.part").exists()


def test_a_foreign_save_is_refused(
    example: Callable[[str], Path], smollm2_golden: Path, tmp_path: Path
) -> None:
    (tmp_path / "story.sav").write_bytes(b"not a save at all")
    command = [example("savegame"), smollm2_golden, tmp_path / "story.sav"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "story.sav: SSLM_INVALID_ARGUMENT" in done.stderr


def test_a_story_fits_into_frames(example: Callable[[str], Path], smollm2_golden: Path) -> None:
    text = output(example("frame_budget"), smollm2_golden, "90", "50")
    assert "90 frames" in text and "slices of layers" in text and "last layer and logits" in text


def test_a_cast_speaks_at_once(smollm2_golden: Path) -> None:
    text = output(sys.executable, EXAMPLES / "cast.py", smollm2_golden)
    assert all(f"{name}, " in text for name in ("Marta", "Oren", "Pip"))
    assert "1 pages hold the world for all" in text and "mid-sentence" in text
