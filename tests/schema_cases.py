# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Schemas for the tests: generated ones, hand-written ones, and random walks through what they compile to."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
from superslm.convert.schema import TokenAutomaton, Vocabulary
from superslm.convert.schema.tokens import NO_STATE

SHOP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "intent": {"enum": ["buy", "sell", "ask", "leave"]},
        "item": {"type": "string", "minLength": 1, "maxLength": 32},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
        "polite": {"type": "boolean"},
    },
    "required": ["intent", "item", "quantity", "polite"],
}
STRING_64 = {"type": "string", "maxLength": 64}

PATTERNS = (
    "^[a-z]{2,5}$",
    "[0-9]{3}",
    "^(ab|cd)+",
    r"^\w{1,8}$",
    r"\d-\d$",
    '^[^x-z"]{0,4}é$',
    "",
    r"^\S+\s\S+$",
)
NAMES = ("a", "b", "key", 'q"uote', "ünï", "\U0001f600", "line\nbreak", "a/b", "")


def byte_vocabulary(seed: int, merged: int = 1500) -> Vocabulary:
    """Every byte, and texts such as BPE makes: pieces of JSON and of words, some ending inside a character."""
    rng = random.Random(seed)
    parts = [
        '{"',
        '":',
        '","',
        '"}',
        "},{",
        "]",
        "[[",
        "true",
        "false",
        "null",
        "-1",
        "00",
        ".5",
        "\\n",
        "\\u00",
    ]
    letters = 'abcdefghijkl mnoxyz0123456789"\\/{}[]:,.-éü日本😀\n'
    texts = {bytes([b]) for b in range(256)} | {p.encode() for p in parts}
    while len(texts) < 256 + merged:
        text = "".join(rng.choice(letters) for _ in range(rng.randint(1, 6))).encode()
        cut = rng.randint(0, 3) if rng.random() < 0.2 else 0
        texts.add(text[cut:] or b"x")
    ordered = sorted(texts)
    rng.shuffle(ordered)
    return Vocabulary([*ordered, b"", b""])  # two control tokens


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema that compiles."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const"]
    if depth < 3:
        kinds += ["object", "object", "array", "anyOf", "oneOf", "types"]
    return globals()[f"_{rng.choice(kinds)}"](rng, depth)


def _string(rng: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if rng.random() < 0.3:
        schema["pattern"] = rng.choice(PATTERNS)
        if rng.random() < 0.5:
            schema |= {"minLength": rng.randint(0, 4), "maxLength": rng.randint(8, 12)}
        return schema
    if rng.random() < 0.5:
        schema["minLength"] = rng.randint(0, 3)
    if rng.random() < 0.8:
        schema["maxLength"] = rng.randint(3, 12)
    return schema


def _bounds(rng: random.Random, draw: Any) -> dict[str, Any]:
    low, high = sorted((draw(), draw()))
    schema = {}
    if rng.random() < 0.6:
        schema[rng.choice(("minimum", "exclusiveMinimum"))] = low
    if rng.random() < 0.6:
        schema[rng.choice(("maximum", "exclusiveMaximum"))] = high + 2
    return schema


def _integer(rng: random.Random, depth: int) -> dict[str, Any]:
    size = 10 ** rng.randint(0, 9)
    return {"type": "integer", **_bounds(rng, lambda: rng.randint(-size, size))}


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    size, digits = 10 ** rng.randint(0, 6), rng.randint(0, 5)
    return {"type": "number", **_bounds(rng, lambda: round(rng.uniform(-size, size), digits))}


def _boolean(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _null(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "null"}


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randint(0, 8 if depth < 2 else 6)
    if kind == 7:
        return [_value(rng, depth + 1) for _ in range(rng.randint(0, 2))]
    if kind == 8:
        return {rng.choice(NAMES): _value(rng, depth + 1) for _ in range(rng.randint(0, 2))}
    return (rng.choice(NAMES), rng.randint(-999, 999), rng.uniform(-1, 1), True, False, None, 1.0)[kind]


def _enum(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"enum": [_value(rng) for _ in range(rng.randint(1, 4))]}


def _const(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"const": _value(rng)}


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randint(0, 4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {n: random_schema(rng, depth + 1) for n in names},
    }
    schema["required"] = [n for n in names if rng.random() < 0.5]
    if rng.random() < 0.5:
        schema["additionalProperties"] = False
    return schema


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "items": random_schema(rng, depth + 1)}
    least = rng.randint(0, 2)
    if rng.random() < 0.6:
        schema["minItems"] = least
    if rng.random() < 0.9:
        schema["maxItems"] = least + rng.randint(0, 2)
    return schema


def _anyOf(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]}


def _oneOf(rng: random.Random, depth: int) -> dict[str, Any]:
    tags = rng.sample(("x", "y", "z"), rng.randint(1, 3))
    branches = []
    for tag in tags:
        other = random_schema(rng, depth + 1)
        branches.append(
            {"type": "object", "properties": {"t": {"const": tag}, "v": other}, "required": ["t"]}
        )
    return {"oneOf": branches}


def _types(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": rng.sample(("string", "integer", "boolean", "null"), 2)}


def longest_text(schema: Any) -> int | None:
    """The most bytes of a text of a schema without $ref or pattern, by its structure; None: no bound."""
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return max(len(json.dumps(v, ensure_ascii=False, separators=(",", ":")).encode()) for v in values)
    parts = schema.get("anyOf") or schema.get("oneOf")
    if parts:
        return _largest([longest_text(part) for part in parts])
    kind = schema["type"]
    if isinstance(kind, list):
        return _largest([longest_text({**schema, "type": k}) for k in kind])
    if kind == "string":
        most = schema.get("maxLength")
        return None if most is None else 2 + 4 * most  # four bytes outside the BMP
    if kind == "object":
        items = [
            (json.dumps(n, ensure_ascii=False), longest_text(v)) for n, v in schema["properties"].items()
        ]
        if any(size is None for _, size in items):
            return None
        return 2 + sum(len(name.encode()) + 1 + size for name, size in items) + max(0, len(items) - 1)
    if kind == "array":
        most, size = schema.get("maxItems"), longest_text(schema["items"])
        if most == 0:
            return 2
        return None if most is None or size is None else 2 + most * size + most - 1
    return {"boolean": 5, "null": 4, "integer": 16, "number": 17}[kind]


def _largest(sizes: list[int | None]) -> int | None:
    return None if any(size is None for size in sizes) else max(size for size in sizes if size is not None)


def random_walk(
    automaton: TokenAutomaton, rng: np.random.Generator, most: int = 400, greed: float = 0.0
) -> tuple[list[int], bool]:
    """Tokens of random logits, masked as the library masks; whether the text is complete.

    An accepting state that allows more ends the text half of the time.
    """
    vocab, state, tokens = len(automaton.classes), 0, []
    for _ in range(most):
        legal = automaton.next[state][automaton.classes] != NO_STATE
        accepting = automaton.accepts(state)
        if not legal.any():
            assert accepting, "a dead end that is not accepted"
            return tokens, True
        if accepting and rng.random() < 0.5:
            return tokens, True
        token = int(np.where(legal, rng.random(vocab), -1).argmax())
        following = automaton.step(state, token)
        assert following is not None
        state = following
        tokens.append(token)
    return tokens, automaton.accepts(state)


def hand_written() -> list[dict[str, Any]]:
    """Schemas such as games use, and corners of the language."""
    string, integer, boolean = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
    word = {"type": "string", "minLength": 1, "maxLength": 16}
    point = {"type": "object", "properties": {"x": integer, "y": integer}, "required": ["x", "y"]}

    def record(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
        names = list(properties) if required is None else required
        return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}

    def items(of: dict[str, Any], least: int = 0, most: int = 3) -> dict[str, Any]:
        return {"type": "array", "items": of, "minItems": least, "maxItems": most}

    def text(pattern: str, **more: Any) -> dict[str, Any]:
        return {"type": "string", "pattern": pattern, **more}

    move = record(action={"const": "move"}, to=point)
    say = record(action={"const": "say"}, line={"type": "string", "maxLength": 40})
    wait = record(action={"const": "wait"}, seconds={"type": "number", "minimum": 0, "maximum": 10})
    tree = {
        "$defs": {"node": record(["name"], name=word, children=items({"$ref": "#/$defs/node"}, 0, 2))},
        "$ref": "#/$defs/node",
    }
    chain = record(["v"], v=boolean, next={"$ref": "#"})
    return [
        SHOP,
        STRING_64,
        boolean,
        {"type": "null"},
        integer,
        {"type": "number"},
        {"type": "string", "maxLength": 0},
        {"type": "string", "minLength": 5, "maxLength": 5},
        record(),
        record([], a=boolean),
        record([], a=boolean, b=integer, c=word),
        record(["b"], a=boolean, b=integer, c=word),
        record(["c"], a=boolean, b=integer, c=word),
        {"type": "array", "maxItems": 0},
        items(boolean, 0, 0),
        items(integer, 1, 1),
        items(items(boolean, 1, 2), 1, 2),
        items(point, 0, 2),
        {"enum": ["red", "green", "blue"]},
        {"enum": [1, 2.5, None, True, "x", [1, "a"], {"k": "v"}]},
        {"const": {"nested": [1, {"deep": None}], "text": 'a "quoted" line\n'}},
        {"const": "日本語 und 😀"},
        {"const": -12345},
        {"type": "integer", "minimum": 1, "maximum": 6},
        {"type": "integer", "minimum": -20, "maximum": -3},
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2},
        {"type": "integer", "minimum": 999, "maximum": 100000},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "number", "exclusiveMinimum": -0.5, "exclusiveMaximum": 0.5},
        {"type": "number", "minimum": 3.14, "maximum": 3.15},
        text("^[A-Z][a-z]{2,8}$"),
        text("^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
        text("^#[0-9a-f]{6}$"),
        text("^(north|south|east|west)$"),
        text(r"^\w+@\w+\.(com|org)$", maxLength=24),
        text("dragon", maxLength=20),
        text('^[^"\\\\]*$', maxLength=8),
        text(r"^[\u00e0-\u00ff]{1,4}$"),
        text("^[😀-😏]{1,2}$"),
        {"anyOf": [integer, {"type": "null"}]},
        {"anyOf": [word, items(word, 1, 2)]},
        {"type": ["string", "null"], "maxLength": 10},
        {"oneOf": [move, say, wait]},
        {"oneOf": [boolean, {"type": "string", "maxLength": 5}, {"type": "integer"}]},
        tree,
        chain,
        record(
            name=word, hp={"type": "integer", "minimum": 0, "maximum": 100}, tags=items({"enum": ["a", "b"]})
        ),
        record(mood={"enum": ["calm", "angry"]}, reply={"type": "string", "minLength": 1, "maxLength": 60}),
        record(**{"weird name": boolean, 'with "quotes"': integer, "ünï": {"type": "null"}}),
        record(steps=items({"oneOf": [move, wait]}, 1, 2), done=boolean),
        record(["a"], a={"anyOf": [point, {"type": "null"}]}, b=items(string | {"maxLength": 4}, 0, 2)),
        {"type": "object", "properties": {"inner": record([], x=record([], y=record([], z=boolean)))}},
    ]
