# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Steering a real model: the shop of the examples, the commands, and what damped greedy does for repetition."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dev
import jsonschema
import pytest
from schema_cases import SHOP
from superslm import Damped, Model
from superslm.cli import main
from superslm.convert.schema import JsonSchema, Regex, add_schemas

ORDER = dev.ROOT / "examples/order.json"
PROMPTS = (
    "Once upon a time",
    "The blacksmith said:",
    "My favourite thing about the sea is",
    "A recipe for bread:",
    "The castle on the hill",
    "In the year 1432",
    "The rules of the game are",
    "Dear diary,",
    "The wizard opened the book and",
    "To build a boat you need",
    "The best way to learn is",
    "A list of animals:",
    "The dragon guards",
    "When the bell rings",
    "How do you make soup?",
    "The forest is",
    "I remember the day",
    "The king and the queen",
    "Water is important because",
    "The song goes like this:",
)
LENGTH = 60


@pytest.fixture(scope="module")
def shop(smollm2_golden: Path, tmp_path_factory: Any) -> Path:
    """SmolLM2 with the shop's schema, made by the command line."""
    path = tmp_path_factory.mktemp("shop") / "shop.sslm"
    assert main(["schema", "add", str(smollm2_golden), f"order={ORDER}", "-o", str(path)]) == 0
    return path


@pytest.mark.parametrize("name", ["selection", "structured"])
def test_the_examples_in_the_docstrings_run(name: str, shop: Path) -> None:
    module = importlib.import_module(f"superslm.{name}")
    result = doctest.testmod(
        module, extraglobs={"example_artifact": shop, "example_shop": shop}, verbose=False
    )
    assert result.attempted > 0 and result.failed == 0


def test_the_examples_schema_is_the_tests_schema() -> None:
    assert json.loads(ORDER.read_text()) == SHOP


def test_the_shop_of_the_examples_takes_orders(shop: Path, library_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(dev.ROOT / "python_binding")}
    command = [sys.executable, str(dev.ROOT / "examples/structured.py"), str(shop)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'intent'") == 3


@pytest.mark.parametrize("text", ["I want two apples.", "\U0001f600" * 8, 'a "quoted" \\ text\n', ""])
def test_every_reply_is_a_valid_order_whatever_is_said(shop: Path, text: str) -> None:
    with Model.load(shop) as model, model.pool() as pool, pool.sequence() as sequence:
        for seed in (None, 1, 2):
            sequence.reset()
            options = {} if seed is None else {"seed": seed, "temperature": 3.0}
            order = sequence.generate(f"Customer: {text}\nOrder:\n", schema="order", **options)
            assert order.complete
            jsonschema.validate(order.value, SHOP)


def test_jump_forward_leaves_the_same_sequence_as_its_tokens_in_a_row(shop: Path) -> None:
    with Model.load(shop) as model, model.pool(contexts=2) as pool:
        with pool.sequence() as fast, pool.sequence() as slow:
            for sequence in (fast, slow):
                sequence.bind_schema("order")
                sequence.prefill("An order:\n")
            ids = model.tokenize('{"intent":"')
            fast.prefill(ids, forced=True)
            for token in ids:
                slow.prefill([token], forced=True)
            assert fast.save() == slow.save() and fast.walk == slow.walk


def test_the_commands_show_and_try_schemas(shop: Path, tmp_path: Path, capsys: Any) -> None:
    good = '{"intent":"buy","item":"bread","quantity":3,"polite":true}'
    assert main(["schema", "list", str(shop)]) == 0
    assert "order" in capsys.readouterr().out
    assert main(["schema", "test", str(shop), "order", good]) == 0
    assert "accepted" in capsys.readouterr().out
    assert main(["schema", "test", str(shop), "order", good[:20]]) == 1
    assert "incomplete" in capsys.readouterr().out
    assert main(["schema", "test", str(shop), "order", good.replace("buy", "steal")]) == 1
    assert "does not allow" in capsys.readouterr().out
    assert main(["schema", "test", str(shop), "menu", good]) == 1
    assert "It has: order" in capsys.readouterr().err
    assert main(["run", str(shop), "Order:\n", "--schema", "order"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), SHOP)
    bad = tmp_path / "bad.json"
    bad.write_text('{"type": "string", "format": "date"}')
    assert main(["schema", "add", str(shop), f"x={bad}", "-o", str(tmp_path / "out.sslm")]) == 1
    assert "$.format" in capsys.readouterr().err
    assert not (tmp_path / "out.sslm").exists()


def test_schemas_are_added_beside_and_instead_of_others(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "more.sslm"
    add_schemas(shop, {"code": Regex("[A-Z]{2}[0-9]{2}"), "order": JsonSchema({"type": "null"})}, out)
    with (
        Model.load(out) as model,
        Model.load(shop) as before,
        model.pool() as pool,
        pool.sequence() as sequence,
    ):
        assert list(model.schemas) == ["code", "order"]
        assert model.info.model_digest == before.info.model_digest
        assert sequence.generate("The code is ", schema="code").complete
        sequence.reset()
        assert sequence.generate("Nothing: ", schema="order").text == "null"


def test_the_selection_options_of_the_command_line(shop: Path, capsys: Any) -> None:
    def text(*options: str) -> str:
        assert main(["run", str(shop), PROMPTS[0], "--max-tokens", "30", *options]) == 0
        return capsys.readouterr().out

    assert text("--seed", "5", "--temperature", "0.9") == text("--seed", "5", "--temperature", "0.9")
    assert text("--seed", "5") != text("--seed", "6")
    assert text("--decode", "greedy") == text()
    assert main(["run", str(shop), "x", "--top-p", "0.5"]) == 1
    assert "Add --seed" in capsys.readouterr().err
    assert main(["run", str(shop), "x", "--seed", "1", "--decode", "damped"]) == 1


def repeated_trigrams(tokens: list[int]) -> int:
    """How many trigrams stand at a later place again."""
    trigrams = [tuple(tokens[i : i + 3]) for i in range(len(tokens) - 2)]
    return len(trigrams) - len(set(trigrams))


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.long)])
def test_damped_greedy_repeats_less_than_greedy(shop: Path, count: int) -> None:
    total = {"greedy": 0, "damped": 0}
    with Model.load(shop) as model, model.pool(contexts=1) as pool, pool.sequence() as sequence:
        for prompt in PROMPTS[:count]:
            repeats = {}
            for name, selection in (("greedy", None), ("damped", Damped())):
                sequence.reset()
                sequence.prefill(prompt)
                repeats[name] = repeated_trigrams(
                    [sequence.decode(selection=selection) for _ in range(LENGTH)]
                )
                total[name] += repeats[name]
            print(f"{prompt!r}: greedy {repeats['greedy']}, damped {repeats['damped']} of {LENGTH - 2}")
    print(f"all: greedy {total['greedy']}, damped {total['damped']}")
    assert total["damped"] < total["greedy"]
