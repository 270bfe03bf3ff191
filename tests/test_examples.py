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
        strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
        link = [str(library_path), f"-Wl,-rpath,{library_path.parent}", "-o", str(program)]
        source = [f"-I{dev.ROOT / 'include'}", str(EXAMPLES / f"{name}.c")]
        done = subprocess.run([*driver, *strict, *source, *link], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return program

    return build


def finished(*command: str | Path) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([str(c) for c in command], capture_output=True, env=env, check=False)


def output(*command: str | Path) -> str:
    done = finished(*command)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


SYSTEM = re.search(r'SYSTEM\[\] = "(.*)"', (EXAMPLES / "minimal.c").read_text())[1]  # type: ignore[index]


def flat_prompt(model, lines: list[str], replies: list[str]) -> np.ndarray:  # noqa: ANN001
    """The ids of a whole conversation, as if it had been written at once."""
    ids = [model.chat_ids("system"), model.tokenize(SYSTEM), model.chat_ids("system", "suffix")]
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
        (tmp_path / "bad.sslm", "bad.sslm: header: magic is not SUPERSLM"),
    ):
        done = subprocess.run([example("minimal"), path], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and words in done.stderr


def test_the_host_of_the_readme_continues_a_prompt(
    example: Callable[[str], Path], smollm2_golden: Path
) -> None:
    assert output(example("readme_host"), smollm2_golden, "The capital of France is").startswith(" Paris")


def test_the_host_of_the_readme_stops_where_the_model_does(
    example: Callable[[str], Path], smollm2_golden: Path
) -> None:
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    assert output(example("readme_host"), smollm2_golden, prompt) == "The capital of France is Paris.\n"


def test_the_host_of_the_readme_says_why_it_cannot_go_on(
    example: Callable[[str], Path], smollm2_golden: Path
) -> None:
    for arguments, why in (
        ((), "usage: host MODEL.sslm PROMPT"),
        ((smollm2_golden, ""), "usage: host MODEL.sslm PROMPT"),
        (("none.sslm", "Hello"), "none.sslm: cannot be opened"),
        ((__file__, "Hello"), f"{__file__}: SSLM_ARTIFACT_REJECTED"),
        ((smollm2_golden, "one " * 600), "tokenize: SSLM_BUFFER_TOO_SMALL"),
    ):
        done = finished(example("readme_host"), *arguments)
        assert (done.returncode, done.stderr.decode().strip()) == (1, why)


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
    assert "it shares one page with the world" in text


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


def test_a_save_between_two_bytes_of_a_character_loses_none(
    example: Callable[[str], Path], smollm2_golden: Path, tmp_path: Path
) -> None:
    """SmolLM2 has three tokens for an octopus and copies a row of them; a save comes after 25 tokens."""
    program, octopus = example("savegame"), "\N{OCTOPUS}"
    save = tmp_path / "a.sav"
    told, waiting = [], []
    for _ in range(3):
        text, _, note = finished(program, smollm2_golden, save, "30", octopus * 6).stdout.partition(
            b"\n[saved"
        )
        assert note and set(text.decode()) == {octopus}
        told.append(len(text.decode()))
        waiting.append(save.read_bytes()[3])  # pending_count of the state in front of the blob
    assert told == [6 + 8, 8, 9] and waiting == [2, 3, 0]


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
    assert "one page holds the world for all" in text and "mid-sentence" in text


def test_a_shop_without_its_schema_says_how_to_add_it(smollm2_golden: Path) -> None:
    done = finished(sys.executable, EXAMPLES / "structured.py", smollm2_golden)
    assert done.returncode == 1 and b"Traceback" not in done.stderr
    assert b"superslm schema add model.sslm order=examples/order.json -o shop.sslm" in done.stderr


@pytest.mark.parametrize("name", ["cast.py", "quickstart.py", "structured.py"])
def test_an_example_without_a_model_says_how_it_is_used(name: str) -> None:
    done = finished(sys.executable, EXAMPLES / name)
    assert done.returncode == 1 and done.stderr.startswith(f"usage: python {name} ".encode())


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, installed."""
    folder = tmp_path_factory.mktemp("install")
    build = dev.build("package").parent.parent
    done = finished(dev.tool("cmake"), "--install", build, "--prefix", folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.mark.parametrize("name", ["minimal", "savegame", "frame_budget"])
def test_an_example_builds_as_its_first_lines_say(name: str, prefix: Path, tmp_path: Path) -> None:
    source = EXAMPLES / f"{name}.c"
    (command,) = re.findall(r"^ \*   (cc .*)$", source.read_text(), re.M)
    (tmp_path / source.name).write_text(source.read_text())
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    done = subprocess.run(
        ["bash", "-euc", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    started = finished(tmp_path / name)
    assert started.returncode == 2 and started.stderr.startswith(f"usage: {name} model.sslm".encode())
