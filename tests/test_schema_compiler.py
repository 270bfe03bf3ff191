# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The schema compiler: everything it generates is valid, nothing it does not enforce passes silently."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import jsonschema
import numpy as np
import pytest
from schema_cases import (
    SHOP,
    STRING_64,
    byte_vocabulary,
    hand_written,
    longest_text,
    random_schema,
    random_walk,
)
from superslm.convert.schema import (
    Choices,
    JsonSchema,
    Regex,
    SchemaError,
    Vocabulary,
    compile_schema,
    load_source,
    pack,
    unpack,
)
from superslm.convert.schema.numbers import DIGITS
from superslm.convert.schema.tokens import NO_STATE, prove
from tokenizer_support import family

MANY = pytest.param(range(300, 10_000), marks=pytest.mark.long)
BYTES = Vocabulary([bytes([b]) for b in range(256)])
QWEN_VOCABULARY = 151_936  # the model's, padded


@pytest.fixture(scope="module")
def bytes_and_more() -> Vocabulary:
    """Fewer than 2,000 tokens, every byte among them."""
    vocabulary = byte_vocabulary(1)
    assert len(vocabulary.texts) <= 2000 and not vocabulary.lacking
    return vocabulary


@pytest.fixture(scope="module", params=["smollm2", "qwen3"])
def real(request: pytest.FixtureRequest) -> Vocabulary:
    """The vocabularies of SmolLM2, which lacks 21 bytes, and of Qwen."""
    found = family(request.param)
    size = len(found.tables.texts) if request.param == "smollm2" else QWEN_VOCABULARY
    return Vocabulary.from_section(found.section, size)


def check_walks(schema: dict[str, Any], vocabulary: Vocabulary, seed: int, walks: int = 4) -> int:
    """Random walks through a schema; returns how many came to an end, each parsed and validated."""
    automaton = compile_schema(JsonSchema(schema), vocabulary)
    rng, finished = np.random.default_rng(seed), 0
    jsonschema.Draft202012Validator.check_schema(schema)
    for _ in range(walks):
        tokens, complete = random_walk(automaton, rng)
        if complete:
            text = b"".join(vocabulary.texts[t] for t in tokens)
            value = json.loads(text.decode())
            jsonschema.validate(value, schema, jsonschema.Draft202012Validator)
            finished += 1
    return finished


@pytest.mark.parametrize("seeds", [range(300), MANY])
def test_every_text_of_a_generated_schema_parses_and_validates(
    bytes_and_more: Vocabulary, seeds: range
) -> None:
    finished = sum(check_walks(random_schema(random.Random(seed)), bytes_and_more, seed) for seed in seeds)
    assert finished > 3 * len(seeds)


def test_every_text_of_a_hand_written_schema_validates_on_real_vocabularies(real: Vocabulary) -> None:
    cases = hand_written()
    assert len(cases) >= 50
    for i, schema in enumerate(cases):
        assert check_walks(schema, real, i, walks=2) > 0, schema


def test_the_longest_text_is_the_bound_that_the_schema_implies(bytes_and_more: Vocabulary) -> None:
    """With one token per byte a token is a byte, so the longest path is the longest text."""
    checked = 0
    for seed in range(150):
        schema = random_schema(random.Random(seed))
        if (
            "pattern" in json.dumps(schema)
            or '"number"' in json.dumps(schema)
            or "minimum" in json.dumps(schema)
        ):
            continue
        if "aximum" in json.dumps(schema):
            continue
        assert compile_schema(JsonSchema(schema), BYTES).longest() == longest_text(schema), schema
        checked += 1
    assert checked > 40


@pytest.mark.parametrize(
    ("name", "schema", "limit"), [("shop", SHOP, 1 << 20), ("string", STRING_64, 2 << 20)]
)
def test_a_schema_is_small_and_quick_on_a_vocabulary_of_151936(
    name: str, schema: dict[str, Any], limit: int
) -> None:
    vocabulary = Vocabulary.from_section(family("qwen3").section, QWEN_VOCABULARY)
    start = time.process_time()  # a busy machine is no slower compiler
    section = pack({name: compile_schema(JsonSchema(schema), vocabulary)})
    elapsed = time.process_time() - start
    print(f"{name}: {elapsed:.2f} s, {len(section)} bytes")
    assert elapsed < 20
    assert len(section) < limit


# ---- what each keyword means ----


def texts(schema: dict[str, Any], accepted: list[str], refused: list[str]) -> None:
    automaton = JsonSchema(schema).automaton(BYTES)
    for text in accepted:
        assert automaton.accepts(text.encode()), f"{text!r} should be accepted by {schema}"
    for text in refused:
        assert not automaton.accepts(text.encode()), f"{text!r} should be refused by {schema}"


def test_optional_properties_leave_no_stray_commas() -> None:
    digit = {"type": "integer", "minimum": 0, "maximum": 9}
    properties = {"a": digit, "b": digit, "c": digit}
    texts(
        {"type": "object", "properties": properties},
        ["{}", '{"a":1}', '{"b":1}', '{"c":1}', '{"a":1,"c":2}', '{"a":1,"b":2,"c":3}', '{"b":1,"c":2}'],
        ['{,"b":1}', '{"a":1,}', '{"a":1,,"c":2}', '{"b":1,"a":2}', '{"a":1 }', '{"a":1,"a":2}', "{", ""],
    )
    texts(
        {"type": "object", "properties": properties, "required": ["b"]},
        ['{"b":1}', '{"a":1,"b":2}', '{"b":1,"c":2}'],
        ["{}", '{"a":1}', '{"c":1}', '{"a":1,"c":2}'],
    )
    texts({"type": "object"}, ["{}"], ['{"a":1}', ""])


def test_arrays_hold_as_many_items_as_they_may() -> None:
    item = {"type": "boolean"}
    texts({"type": "array", "items": item}, ["[]", "[true]", "[true,false,true,true]"], ["[,]", "[true,]"])
    texts({"type": "array", "items": item, "maxItems": 0}, ["[]"], ["[true]"])
    texts({"type": "array", "maxItems": 0}, ["[]"], ["[1]"])
    texts(
        {"type": "array", "items": item, "minItems": 2}, ["[true,true]", "[true,true,true]"], ["[]", "[true]"]
    )
    texts({"type": "array", "items": item, "minItems": 1, "maxItems": 2}, ["[true]", "[true,true]"], ["[]"])


def test_a_character_is_one_whatever_its_bytes() -> None:
    two = {"type": "string", "minLength": 2, "maxLength": 2}
    texts(
        two,
        ['"ab"', '"éü"', '"日本"', '"😀😀"', '"a😀"', '"\\n\\""', '"\\\\\\\\"'],
        ['"a"', '"abc"', '"😀"', '"\\n"', '"a\n"', '"a""', '"\\x"', '"日本語"'],
    )
    automaton = JsonSchema(two).automaton(BYTES)
    for broken in (b'"\xed\xa0\x80a"', b'"\xc0\xaf"', b'"\xf5\x80\x80\x80a"', b'"\xc3a"', b'"\x80\x80"'):
        assert not automaton.accepts(broken)


def test_pattern_and_length_hold_together() -> None:
    texts(
        {"type": "string", "pattern": "^[a-c]+$", "minLength": 2, "maxLength": 3},
        ['"ab"', '"abc"'],
        ['"a"', '"abca"', '"ad"', '""'],
    )
    texts({"type": "string", "pattern": "b", "maxLength": 3}, ['"b"', '"abc"', '"😀b"'], ['"ac"', '"aaab"'])
    texts({"type": "string", "pattern": "^a|b$", "maxLength": 3}, ['"axx"', '"xb"', '"a"'], ['"xa"', '"bx"'])
    texts({"type": "string", "pattern": '^"\\\\$'}, ['"\\"\\\\"'], ['""\\"'])
    texts({"type": "string", "pattern": r"^\u0001\n$"}, ['"\\u0001\\n"'], ['"\\u0001"'])
    texts({"type": "string", "pattern": r"^\ud83d\ude00{2}$"}, ['"😀😀"'], ['"😀"'])


def test_constants_of_every_type_are_themselves() -> None:
    values = [
        "a",
        'q"',
        "é",
        "😀",
        "\x01",
        "\ud800",
        1,
        -0.5,
        1e30,
        True,
        None,
        [],
        {},
        [1, [2]],
        {"b": {"a": 1}},
    ]
    for value in values:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if value == "\ud800":
            text = '"\\ud800"'
        texts({"const": value}, [text], [text + " ", "0"])
        texts({"enum": [value, 5]}, [text, "5"], ["[5]"])
    texts({"type": "integer", "const": 10**400}, [str(10**400)], [str(10**399)])


@pytest.mark.parametrize("seed", range(40))
def test_integers_between_bounds_are_exactly_those(seed: int) -> None:
    rng = random.Random(seed)
    low, high = sorted(rng.randint(-3000, 3000) for _ in range(2))
    schema = {"type": "integer", "minimum": low, "maximum": high}
    automaton = JsonSchema(schema).automaton(BYTES)
    for n in range(low - 120, high + 120):
        assert automaton.accepts(str(n).encode()) == (low <= n <= high), (n, schema)
    for text in ("-0", "01", "+1", "1.0", "1e3", "", "-"):
        assert not automaton.accepts(text.encode())


@pytest.mark.parametrize("seed", range(40))
def test_decimals_between_bounds_are_exactly_those(seed: int) -> None:
    rng = random.Random(seed)
    low, high = sorted(round(rng.uniform(-5, 5), rng.randint(0, 3)) for _ in range(2))
    high += 0.25
    schema = {"type": "number", "exclusiveMinimum": low, "maximum": high}
    automaton = JsonSchema(schema).automaton(BYTES)
    for n in range(-6000, 6000, 7):
        for text in {f"{n / 1000:.3f}", f"{n / 1000:g}"}:
            if "e" not in text and not re.match(r"-0(\.0*)?$", text):
                assert automaton.accepts(text.encode()) == (low < float(text) <= high), (text, schema)


def test_digits_are_bounded() -> None:
    texts({"type": "integer"}, ["0", "-7", "9" * DIGITS], ["9" * (DIGITS + 1), "-0"])
    texts({"type": "integer", "minimum": 10**18}, [str(10**18), str(10**19)], [str(10**18 - 1), "9" * 24])
    texts({"type": "number"}, ["0", "-1.5", "999999999.999999"], ["1.0000001", "1e5", ".5", "1."])


def test_branches_of_anyof_and_oneof() -> None:
    texts({"anyOf": [{"type": "boolean"}, {"type": "null"}, {"const": "x"}]}, ["true", "null", '"x"'], ["0"])
    tagged = [
        {"type": "object", "properties": {"t": {"const": c}, "v": {"type": k}}, "required": ["t", "v"]}
        for c, k in (("a", "null"), ("b", "boolean"))
    ]
    texts({"oneOf": tagged}, ['{"t":"a","v":null}', '{"t":"b","v":true}'], ['{"t":"a","v":true}'])


def test_references_nest_as_deep_as_they_may() -> None:
    tree = {
        "$defs": {"node": {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }
    deep = ["{}", '{"n":{}}', '{"n":{"n":{}}}', '{"n":{"n":{"n":{}}}}', '{"n":{"n":{"n":{"n":{}}}}}']
    texts(tree, deep[:4], deep[4:])
    automaton = JsonSchema(tree, recursion=1).automaton(BYTES)
    assert [automaton.accepts(t.encode()) for t in deep] == [True, True, False, False, False]


# ---- what is refused, and how ----

REFUSED = [
    ({"type": "string", "format": "date"}, "format", "$.format"),
    (
        {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 2}}},
        "multipleOf",
        "$.properties.a",
    ),
    ({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, "uniqueItems", "$.uniqueItems"),
    ({"allOf": [{"type": "null"}]}, "allOf", "$.allOf"),
    ({"not": {"type": "null"}}, "not", "$.not"),
    ({"type": "string", "minimum": 3}, "minimum", "$.minimum"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "between the bounds", "$"),
    ({"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 5}, "between the bounds", "$"),
    ({"type": "number", "minimum": 0.1, "exclusiveMaximum": 0.1}, "between the bounds", "$"),
    ({"type": "string", "pattern": "^a$", "minLength": 2}, "matches the pattern", "$.pattern"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "above maxLength", "$.minLength"),
    ({"type": "string", "pattern": "(?=a)"}, "look-around", "$.pattern"),
    ({"type": "string", "pattern": "a\\b"}, "escape \\b", "$.pattern"),
    ({"type": "string", "pattern": "a(^b)"}, "'^' inside", "$.pattern"),
    ({"type": "string", "pattern": "[b-a]"}, "range", "$.pattern"),
    ({"type": "string", "pattern": "(a"}, "not closed", "$.pattern"),
    ({"type": "string", "pattern": "a)"}, "without '('", "$.pattern"),
    ({"type": "string", "pattern": "*"}, "nothing to repeat", "$.pattern"),
    ({"type": "string", "pattern": "a{2}{3}"}, "nothing to repeat", "$.pattern"),
    ({"type": "string", "pattern": r"[^\s\S]"}, "no character", "pattern"),
    ({"type": "colour"}, "colour", "$.type"),
    ({}, "no type", "$"),
    ({"type": "object", "properties": {"a": True}}, "any value", "$.properties.a"),
    ({"type": "object", "properties": {"a": False}}, "no value", "$.properties.a"),
    ({"type": "object", "required": ["x"]}, "not declared", "$.required"),
    ({"type": "object", "additionalProperties": {"type": "null"}}, "additional", "$.additionalProperties"),
    ({"type": "array"}, "items", "$"),
    ({"type": "integer", "enum": ["a"]}, "not of type", "$.enum"),
    ({"enum": []}, "list of values", "$.enum"),
    ({"const": 1, "minimum": 0}, "beside", "$.minimum"),
    ({"const": float("nan")}, "no number", "$.const"),
    ({"anyOf": [{"type": "null"}], "type": "null"}, "beside", "$.type"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "branch", "$.oneOf"),
    ({"oneOf": [{"type": "object"}, {"type": "object", "properties": {}}]}, "branch", "$.oneOf"),
    ({"oneOf": [{"minimum": 3}, {"type": "string"}]}, "branch 1", "$.oneOf"),
    (
        {"oneOf": [{"properties": {"a": {"type": "null"}}}, {"type": "array", "items": {"type": "null"}}]},
        "branch 1",
        "$.oneOf",
    ),
    ({"$ref": "#/$defs/none"}, "no target", "$.$ref"),
    ({"$ref": "other.json"}, "out of the file", "$.$ref"),
    ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "without end", "$"),
    ({"type": "string", "maxLength": -1}, "no count", "$.maxLength"),
    ({"type": "integer", "minimum": "1"}, "no number", "$.minimum"),
    ({"type": None, "minimum": 1}, "None is unknown", "$.type"),
    ({"type": "array", "items": {"$id": "b", "type": "null"}}, "$id", "$.items.$id"),
    ({"type": "string", "maxLength": None}, "no count", "$.maxLength"),
    ({"type": "object", "required": [["a"]]}, "not declared", "$.required"),
    ({"type": "string", "pattern": "a{\u0663}"}, "opens no repetition", "$.pattern"),
]


@pytest.mark.parametrize(("schema", "word", "path"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_is_not_enforced_is_refused_with_its_path(schema: dict[str, Any], word: str, path: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        JsonSchema(schema).automaton(BYTES)
    assert word in refusal.value.what, refusal.value
    assert refusal.value.where.startswith(path), refusal.value
    assert refusal.value.remedy


def test_what_is_nested_too_deeply_is_refused(tmp_path: Any) -> None:
    array: dict[str, Any] = {"type": "null"}
    for _ in range(400):
        array = {"type": "array", "items": array, "minItems": 1}
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    for source in (JsonSchema(array), Regex("(" * 2000 + "a" + ")" * 2000)):
        with pytest.raises(SchemaError, match="nested too deeply"):
            compile_schema(source, BYTES)
    with pytest.raises(SchemaError, match="nested too deeply"):
        load_source(deep)


def test_a_vocabulary_that_lacks_bytes_escapes_constants_and_avoids_the_rest() -> None:
    lacking = Vocabulary([bytes([b]) if b not in (0xF0, ord("z")) else b"" for b in range(256)])
    automaton = compile_schema(JsonSchema({"const": "a😀z"}), lacking)
    state, text = 0, b""
    while not automaton.accepts(state):
        (token,) = np.flatnonzero(automaton.next[state][automaton.classes] != NO_STATE)
        state, text = automaton.step(state, int(token)) or 0, text + lacking.texts[token]
    assert text == b'"a\\ud83d\\ude00\\u007a"'
    assert check_walks({"type": "string", "maxLength": 20}, lacking, 3) == 4
    with pytest.raises(SchemaError, match="cannot spell"):
        compile_schema(Regex("xyz"), lacking)


def test_control_tokens_and_padding_are_never_legal(real: Vocabulary) -> None:
    automaton = compile_schema(Regex("(?:.|\n){0,3}"), real)
    silent = [i for i, text in enumerate(real.texts) if not text]
    assert silent
    assert (automaton.next[:, automaton.classes[silent]] == NO_STATE).all()


def test_the_proof_finds_a_state_without_an_end(bytes_and_more: Vocabulary) -> None:
    automaton = compile_schema(JsonSchema(SHOP), bytes_and_more)
    prove(automaton, "$")
    broken = automaton.next.copy()
    broken[broken == automaton.accepting[0]] = NO_STATE
    with pytest.raises(SchemaError, match="without an end"):
        prove(type(automaton)(automaton.classes, broken, automaton.accepting), "$")


def test_regular_expressions_and_choices(bytes_and_more: Vocabulary) -> None:
    automaton = compile_schema(Choices(("yes", "no", "nö")), bytes_and_more)
    rng = np.random.default_rng(1)
    seen = {b"".join(bytes_and_more.texts[t] for t in random_walk(automaton, rng)[0]) for _ in range(60)}
    assert seen == {b"yes", b"no", "nö".encode()}
    pattern = r"(?:[A-Z]{2}-\d{3}|v\d+(?:\.\d+)*)"
    automaton = compile_schema(Regex(pattern), bytes_and_more)
    for _ in range(40):
        tokens, complete = random_walk(automaton, rng, most=60)
        if complete:
            assert re.fullmatch(pattern, b"".join(bytes_and_more.texts[t] for t in tokens).decode())


def test_the_section_gives_back_what_was_packed(bytes_and_more: Vocabulary) -> None:
    first = compile_schema(JsonSchema(SHOP), bytes_and_more)
    section = pack({"b": first, "a": compile_schema(Choices(("x",)), bytes_and_more), "c": first})
    found = unpack(section)
    assert list(found) == ["a", "b", "c"]
    for name in "bc":
        automaton, _ = found[name]
        assert np.array_equal(automaton.next, first.next) and np.array_equal(automaton.classes, first.classes)
        assert np.array_equal(automaton.accepting, first.accepting)
    assert section == pack({"c": first, "a": compile_schema(Choices(("x",)), bytes_and_more), "b": first})


def test_sources_are_read_by_their_suffix(tmp_path: Any) -> None:
    files = {
        "a.json": ('{"type":"null"}', JsonSchema),
        "b.json": ('["x","y"]', Choices),
        "c.regex": ("a+\n", Regex),
        "d.txt": ("x\ny\n", Choices),
    }
    for name, (text, kind) in files.items():
        (tmp_path / name).write_text(text)
        assert isinstance(load_source(tmp_path / name), kind)
    for name, text in {"e.json": '{"a":1,"a":2}', "f.json": "{", "g.json": "3", "h.yaml": "a"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(SchemaError):
            load_source(tmp_path / name)
