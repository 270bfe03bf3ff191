# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""superslm.wasm in Node and in a page of headless Chromium says what the Python package says, bit for bit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import dev
import pytest
from chromium import Browser, served
from hosts_support import need, run

pytestmark = pytest.mark.hosts
WEB = dev.ROOT / "examples/web"
MODULES = {"wasm": "simd128", "wasm-scalar": "scalar"}
PROMPT = "Marta opened the door of the inn. “Come in,” she said, 雨が"
TURNS = ("Hello!", "What is the capital of France?")
SETTLED = "document.body?.dataset.state !== undefined && document.body.dataset.state !== 'busy'"


@pytest.fixture(scope="module")
def module() -> Callable[[str], Path]:
    """`module("wasm")`: superslm.wasm of that variant."""
    need("clang++-19", "clang-19 lld-19 wasi-libc libc++-19-dev-wasm32 libclang-rt-19-dev-wasm32")
    return dev.build


@pytest.mark.parametrize("variant", MODULES)
def test_node_says_what_the_package_says(
    variant: str, module: Callable[[str], Path], smollm2_golden: Path
) -> None:
    """Ids, text, saves in mid-token, a shared prefix, a batch, and the self-check; refusals have names."""
    from superslm import Model

    words = [
        Path(__file__).with_name("talk_check.mjs"),
        WEB / "superslm.mjs",
        module(variant),
        smollm2_golden,
    ]
    found = json.loads(run(need("node", "nodejs"), *words))
    assert (found["imports"], found["tier"]) == ([], MODULES[variant])
    assert found["check"] is None and found["again"]
    with Model.load(smollm2_golden) as model, model.pool(contexts=1) as pool:
        prompt = [int(i) for i in model.tokenize(PROMPT)]
        assert found["prompt"] == prompt
        with pool.prefix(prompt, budget=256) as world, pool.sequence(128) as sequence:
            sequence.adopt(world.freeze())
            ids = [sequence.decode() for _ in range(8)]
            sequence.decode(layer_budget=7)
            assert found["blob"] == hashlib.sha256(sequence.save()).hexdigest()
            while len(ids) < 16:
                ids += [token for token in [sequence.decode(layer_budget=9)] if token is not None]
            assert found["ids"] == found["together"] == ids
            sequence.reset()
            assert found["text"] == "".join(sequence.generate(prompt, max_tokens=24))
        for name in ("layers", "vocab", "cap", "heads"):
            assert found["info"][name] == getattr(model.info, name)
    refused = found["refusals"]
    assert "SSLM_ARTIFACT_REJECTED: header: " in refused[0] and "sslm_decode_step" in refused[1]
    assert "sslm_seq_create_budgeted" in refused[2] and refused[3].startswith("RangeError no memory")


def conversation(path: Path) -> list[str]:
    """What the model answers to TURNS, by the Python package."""
    from superslm import Chat, Model

    with Model.load(path) as model, model.pool(contexts=1) as pool, pool.sequence(1024) as sequence:
        chat = Chat(sequence)
        return ["".join(chat.say(line, max_tokens=128)) for line in TURNS]


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., Path]:
    """`site(module, model)`: a folder with the page and what it loads."""

    def make(module: Path, model: Path) -> Path:
        folder = tmp_path / "site"
        shutil.copytree(WEB, folder)
        shutil.copy(module, folder / "superslm.wasm")
        (folder / "model.sslm").symlink_to(model)
        return folder

    return make


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A page of headless Chromium."""
    program = need("chromium-headless-shell", "chromium-headless-shell")
    with Browser(program, tmp_path / "profile") as page:
        yield page


PLAY = """(async () => {
  const { Model, SuperSLM } = await import('/superslm.mjs');
  const library = await SuperSLM.load();
  const model = await Model.load(library, '/model.sslm');
  return [library.tier, model.verify()];
})()"""


@pytest.mark.parametrize("variant", MODULES)
def test_chromium_plays_the_scene(
    variant: str,
    module: Callable[[str], Path],
    site: Callable[..., Path],
    browser: Browser,
    smollm2_golden: Path,
) -> None:
    """SmolLM2's digest over tokens, logits and K/V bytes is the one in the artifact, which tests compare elsewhere."""
    with served(site(module(variant), smollm2_golden)) as address:
        browser.open(f"{address}/README.md")
        browser.wait("location.pathname === '/README.md'")
        assert browser.evaluate(PLAY) == [MODULES[variant], None]


@pytest.mark.parametrize("layers", [7, 30])
def test_a_page_in_chromium_holds_the_conversation(
    layers: int,
    module: Callable[[str], Path],
    site: Callable[..., Path],
    browser: Browser,
    smollm2_golden: Path,
) -> None:
    """Two turns, the second typed into the form; the reply grows frame by frame."""
    page = browser
    with served(site(module("wasm"), smollm2_golden)) as address:
        page.open(f"{address}/index.html?layers={layers}&say={TURNS[0]}")
        page.wait("document.querySelector('.reply')?.childNodes.length > 2")
        page.wait(SETTLED)
        page.evaluate(f"document.getElementById('line').value = {json.dumps(TURNS[1])}")
        page.evaluate("document.querySelector('button').click()")
        page.wait(SETTLED)
        said = page.evaluate("[...document.querySelectorAll('.reply')].map((p) => p.textContent)")
        status = page.evaluate("document.getElementById('status').textContent")
    assert said == conversation(smollm2_golden), status
    assert f"{layers} of 30 layers a frame, simd128 kernels" in status


def test_a_page_says_what_is_wrong_with_its_model(
    module: Callable[[str], Path], site: Callable[..., Path], browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "bad.sslm").write_bytes(b"not an artifact" * 100)
    with served(site(module("wasm"), tmp_path / "bad.sslm")) as address:
        for name, words in (("none.sslm", "404"), ("model.sslm", "SSLM_ARTIFACT_REJECTED: header")):
            browser.open(f"{address}/index.html?model={name}")
            failed = (
                "document.body?.dataset.state === 'failed' && document.getElementById('status').textContent"
            )
            assert words in browser.wait(failed)
            browser.evaluate("delete document.body.dataset.state")
