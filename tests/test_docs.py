# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The documentation tells the truth: links resolve; signatures, examples, cells and figures are as they are."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import abi_header
import cell_programs
import check_abi
import dev
import pytest
from doc_blocks import PAGES
from superslm import cli

NAMES = [str(path.relative_to(dev.ROOT)) for path in PAGES]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a page whose info string is `language`."""
    return [text for info, text in FENCE.findall(path.read_text("utf-8")) if info.strip() == language]


def anchors(path: Path) -> set[str]:
    """The anchors that a page's headings get."""
    text = FENCE.sub("", path.read_text("utf-8"))
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(plain)
    return found


def links(path: Path) -> Iterator[str]:
    """The targets of a page's links, code left out."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text("utf-8")))
    yield from LINK.findall(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    page = dev.ROOT / name
    broken = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert not broken, f"{name}: {', '.join(broken)}"


def test_the_map_of_the_documentation_names_every_page() -> None:
    named = {
        (dev.ROOT / "docs" / target.partition("#")[0]).resolve()
        for target in links(dev.ROOT / "docs/README.md")
    }
    docs = {path for path in PAGES if path.parent == dev.ROOT / "docs" and path.name != "README.md"}
    assert not docs - named


@functools.cache
def headers() -> abi_header.Header:
    return abi_header.read(check_abi.INCLUDE, (*abi_header.FROZEN_HEADERS, *abi_header.EXTENSION_HEADERS))


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_verb_of_the_headers_stands_in_the_api_page_and_no_other() -> None:
    assert check_abi.check_docs(headers()) == []


def test_the_signatures_of_the_api_page_are_those_of_the_headers() -> None:
    text = "".join(
        (check_abi.INCLUDE / "superslm" / name).read_text() for name in ("sslm_abi.h", "sslm_ext.h")
    )
    declared = {words(match) for match in re.findall(r"SUPERSLM_API\s+([^;{]*\([^;]*?\);)", text)}
    shown = {words(block) for block in blocks(dev.ROOT / "docs/api.md", "c")}
    assert len(declared) == len(headers().functions)
    assert declared - shown == set() and shown - declared == set()


def test_the_statuses_of_the_api_page_are_those_of_the_header() -> None:
    rows = re.findall(r"^\| (\d+) \| `(SSLM_\w+)` \|", (dev.ROOT / "docs/api.md").read_text(), re.M)
    assert rows == [(str(i), f"SSLM_{name}") for i, name in enumerate(check_abi.STATUSES)]


@pytest.mark.parametrize(("language", "example"), [("c", "readme_host.c"), ("python", "readme_script.py")])
def test_the_readme_shows_the_examples_as_they_are(language: str, example: str) -> None:
    source = (dev.ROOT / "examples" / example).read_text()
    lines = [line for line in source.splitlines() if "SPDX-" not in line]
    assert "\n".join(lines).strip() in [block.strip() for block in blocks(dev.ROOT / "README.md", language)]


def test_the_diagrams_are_what_the_script_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import make_pictures

    monkeypatch.setattr(make_pictures, "PICTURES", tmp_path)
    make_pictures.draw_sharing()
    make_pictures.draw_cohort()
    for drawn in tmp_path.glob("*.svg"):
        assert drawn.read_text() == (dev.ROOT / "docs/pictures" / drawn.name).read_text(), drawn.name


def test_commands_of_the_documentation_exist() -> None:
    """Every `tools/NAME.py` and every `superslm COMMAND` that a page names in its text is there."""
    commands = set(cli.parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr]
    for name, page in zip(NAMES, PAGES, strict=True):
        text = page.read_text("utf-8")
        for tool in re.findall(r"\btools/(\w+\.py)\b", text):
            assert (dev.ROOT / "tools" / tool).is_file(), f"{name} names tools/{tool}"
        for command in re.findall(r"`superslm ([a-z][a-z-]*)\b", text):
            assert command in commands, f"{name} names superslm {command}"


# ---- the contract's cells ----

CELLS = [*map(str, range(1, 93)), "93a", *map(str, range(93, 101))]
PROOF = re.compile(r"(\w+): (\w+)")


def proofs() -> dict[str, list[tuple[str, str]]]:
    """Cell -> (file, function) of everything that the table of docs/testing.md names."""
    text = (dev.ROOT / "docs/testing.md").read_text("utf-8").partition("## The contract, cell by cell")[2]
    rows = re.findall(r"^\| (\w+) \| (.*) \|$", text, re.M)
    assert len({cell for cell, _ in rows}) == len(rows), "a cell stands twice"
    return {cell: PROOF.findall(proof) for cell, proof in rows if cell != "cell"}


def test_every_cell_of_the_contract_has_a_proof() -> None:
    named = proofs()
    assert list(named) == CELLS
    assert [cell for cell, proof in named.items() if not proof] == []


def functions_of(file: str) -> set[str]:
    """The cells of a C program, or the functions of a pytest file or a tool."""
    if file.startswith("cell_"):
        return set(cell_programs.cells_of(file))
    folder = "tests" if file.startswith("test_") else "tools"
    return set(re.findall(r"^def (\w+)\(", (dev.ROOT / folder / f"{file}.py").read_text("utf-8"), re.M))


def test_every_proof_of_a_cell_exists_and_is_run() -> None:
    tests = {path.name: path.read_text("utf-8") for path in (dev.ROOT / "tests").glob("test_*.py")}
    tests["cell_programs.py"] = (dev.ROOT / "tests/cell_programs.py").read_text("utf-8")
    for cell, named in proofs().items():
        for file, function in named:
            assert function in functions_of(file), f"cell {cell}: {file} has no {function}"
            if file.startswith("cell_"):
                assert any(f'"{file}"' in text for text in tests.values()), f"nothing runs {file}"


def test_every_program_of_cells_is_run() -> None:
    text = "".join(path.read_text("utf-8") for path in (dev.ROOT / "tests").glob("*.py"))
    for path in (dev.ROOT / "tests/c").glob("cell_*.c"):
        assert f'"{path.stem}"' in text, f"no test runs {path.name}"


def test_figures_of_a_page_are_replaced_by_what_a_command_printed() -> None:
    import doc_figures

    page = "before\n<!-- figures a: begin -->\nold\n<!-- figures a: end -->\nafter\n"
    body = doc_figures.section(["python", "tools/bench.py", "a model.sslm"], "map  1.0 ms\n")
    new = doc_figures.replaced(page, "a", body)
    assert "old" not in new and new.startswith("before\n") and new.endswith("-->\nafter\n")
    assert "    $ python tools/bench.py 'a model.sslm'\n    map  1.0 ms\n" in new
    with pytest.raises(KeyError):
        doc_figures.replaced(page, "b", body)
