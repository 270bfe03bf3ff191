# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Every code block of the documentation is run, compiled or parsed, according to its kind; one of no kind fails."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import dev
import numpy as np
import pytest
from adapter_support import write_for
from doc_blocks import NOTATION, Block, all_blocks, blocks_of, commands
from superslm import cli
from superslm.convert.checkpoint import FloatTensor
from superslm.convert.peft import FloatPair, PeftAdapter

BLOCKS = all_blocks()


def of_kind(*kinds: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind in kinds]


def place(value: object) -> str:
    return value.place if isinstance(value, Block) else str(value)


# ---- kinds ----


def test_a_block_of_no_known_kind_is_noticed() -> None:
    for text in ("```fortran\nx\n```\n", "```\nx\n```\n", "Text:\n\n    rm -r /tmp/x\n"):
        with pytest.raises(ValueError, match="no known kind"):
            list(blocks_of("page.md", text))
    listed = "- a point\n    that goes on\n"
    assert list(blocks_of("page.md", listed)) == []


def test_every_reason_not_to_run_a_block_has_a_block() -> None:
    notation = of_kind("notation")
    for page, reasons in NOTATION.items():
        for start, _ in reasons:
            assert any(b.page == page and b.text.startswith(start) for b in notation), f"{page}: {start!r}"


# ---- shell ----

COMMANDS = [(block, words) for block in of_kind("sh") for words in commands(block.text)]
FIGURES = [(block, shlex.split(block.text.splitlines()[0][2:])) for block in of_kind("figures")]


class Parsed(Exception):
    """The arguments of a tool were accepted."""


def parse_as_tool(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a tool of tools/ up to the point where its arguments are accepted, and never any further."""
    depth = 0  # parse_args calls parse_known_args, and that one those of subcommands

    def stopping(name: str) -> None:
        original = getattr(argparse.ArgumentParser, name)

        def parse(self: argparse.ArgumentParser, *arguments: object, **named: object) -> object:
            nonlocal depth
            depth += 1
            try:
                result = original(self, *arguments, **named)
            finally:
                depth -= 1
            if depth == 0:
                raise Parsed
            return result

        monkeypatch.setattr(argparse.ArgumentParser, name, parse)

    stopping("parse_args")
    stopping("parse_known_args")
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(Parsed):
        importlib.import_module(Path(words[0]).stem).main()


@pytest.mark.parametrize(("block", "words"), [*COMMANDS, *FIGURES], ids=place)
def test_a_command_can_be_given(block: Block, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "superslm":
        cli.parser().parse_args(words[1:])
    elif words[0].startswith("python") and words[1].startswith("tools/"):
        parse_as_tool(words[1:], monkeypatch)
    elif words[:2] == ["pip", "install"]:
        extras = dev.read_project()["project"]["optional-dependencies"]
        for extra in re.findall(r"\[(\w+)\]", " ".join(words)):
            assert extra in extras, f"{block.place}: there is no extra {extra}"
    else:
        for word in words:
            folder = word.partition("/")[0]
            if "/" in word and (dev.ROOT / folder).is_dir() and folder not in ("build", ".venv", ".", ""):
                assert list(dev.ROOT.glob(word.rstrip("/"))), f"{block.place}: there is no {word}"


RUN = (
    "inspect verify run chat score memory schema".split()
)  # a conversion takes minutes and has its own tests


@pytest.mark.parametrize("page", sorted({b.page for b, words in COMMANDS if words[0] == "superslm"}))
def test_the_commands_of_a_page_run_in_its_order(
    page: str, smollm2_golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = with_files(smollm2_golden, tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Who are you?\n"))
    for block, words in COMMANDS:
        if block.page == page and words[0] == "superslm" and words[1] in RUN:
            assert cli.main(words[1:]) == 0, f"{block.place}: {shlex.join(words)}"


def with_files(model: Path, folder: Path) -> Path:
    """A folder with the files that the pages name."""
    for name in ("model.sslm", "smollm2.sslm", "base.sslm"):
        (folder / name).symlink_to(model)
    (folder / "examples").symlink_to(dev.ROOT / "examples")
    return folder


# ---- Python ----


def write_adapter(base: Path, path: Path, seed: int) -> None:
    """A small random adapter of SmolLM2 on the query projection of its first layer."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 0.05, (2, 576)), rng.normal(0, 0.05, (576, 2))
    pair = FloatPair(
        FloatTensor("a", a.shape, lambda rows: a[rows]), FloatTensor("b", b.shape, lambda rows: b[rows]), 1.0
    )
    write_for(PeftAdapter("random", "", "", {(0, "WQ"): pair}), base, path)


@pytest.mark.parametrize("block", of_kind("python runnable"), ids=place)
def test_a_block_marked_runnable_runs(block: Block, smollm2_golden: Path, tmp_path: Path) -> None:
    """Such blocks find SmolLM2 as model.sslm, smollm2.sslm and base.sslm in their folder, and two adapters."""
    with_files(smollm2_golden, tmp_path)
    for seed, name in enumerate(("smith.sslm", "witch.sslm")):
        if name in block.text:
            write_adapter(smollm2_golden, tmp_path / name, seed)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", block.text]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.place}:\n{done.stdout}{done.stderr}"


def without_licence(path: Path) -> str:
    return "\n".join(line for line in path.read_text("utf-8").splitlines() if "SPDX-" not in line).strip()


def test_a_block_of_python_that_is_not_run_here_is_an_example_that_runs_elsewhere() -> None:
    examples = {without_licence(path) for path in (dev.ROOT / "examples").glob("*.py")}
    for block in of_kind("python"):
        assert block.text.strip() in examples, f"{block.place}: mark it runnable, or a fragment"


def test_fragments_of_python_are_python() -> None:
    for block in of_kind("python fragment"):
        compile(block.text, block.place, "exec")


# ---- C, CMake, JSON ----

INCLUDES = """#include <stdint.h>
#include <string.h>
#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include <superslm/sslm_abi.h>
#include <superslm/sslm_ext.h>
"""
NAMES = (
    "sslm_model model, sslm_kv_pool pool, sslm_seq seq, sslm_seq* seqs, sslm_workspace ws, int32_t n, "
    "const int32_t* prompt, int32_t consumed, sslm_decode_params params, int32_t layers, const uint64_t* seeds, "
    "int32_t* out_tokens"
)  # what a fragment may assume


def compile_c(source: str, folder: Path) -> None:
    """Compiles C without a warning, or fails with the compiler's words."""
    (folder / "block.c").write_text(source)
    driver = shlex.split(os.environ.get("CC") or "cc")
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused",
        f"-I{dev.ROOT / 'include'}",
        "-fsyntax-only",
    ]
    done = subprocess.run(
        [*driver, *flags, "block.c"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{source}\n{done.stderr}"


def test_the_signatures_of_the_api_page_compile_beside_the_headers(tmp_path: Path) -> None:
    signatures = [block.text for block in of_kind("c") if block.page == "docs/api.md"]
    assert len(signatures) > 51
    compile_c(INCLUDES + "\n".join(signatures) + "\n", tmp_path)


@pytest.mark.parametrize("block", [b for b in of_kind("c") if b.page != "docs/api.md"], ids=place)
def test_a_block_of_c_is_a_tested_example_or_compiles_as_a_fragment(block: Block, tmp_path: Path) -> None:
    if "int main(" in block.text:
        assert block.text.strip() in {without_licence(path) for path in (dev.ROOT / "examples").glob("*.c")}
        return
    compile_c(f"{INCLUDES}void host({NAMES}) {{\n{{\n{block.text}\n}}\n}}\n", tmp_path)


def test_blocks_of_cmake_are_what_the_tested_consumer_writes() -> None:
    consumer = (dev.ROOT / "tests/consumer/CMakeLists.txt").read_text()
    for block in of_kind("cmake"):
        for line in block.text.splitlines():
            code = line.partition("#")[0].strip()
            known = code in consumer or "target_link_libraries(game PRIVATE superslm::superslm)" == code
            assert known, f"{block.place}: {line}"
    assert "PRIVATE superslm::superslm)" in consumer and "PRIVATE superslm::static)" in consumer


def test_blocks_of_json_are_the_examples() -> None:
    for block in of_kind("json"):
        assert json.loads(block.text) == json.loads((dev.ROOT / "examples/order.json").read_text())
