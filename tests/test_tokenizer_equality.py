# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The library's tokenizer gives the ids that Hugging Face `tokenizers` gives, and gives them in time."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import make_unicode_data
import pytest
from tokenizer_corpus import LANGUAGES, byte_strings, strings
from tokenizer_support import Family, NativeTokenizer, family

FAMILIES = ("smollm2", "qwen3", "llama3", "gpt2")
STRINGS, BYTE_STRINGS = 22_500, 2_500


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Family:
    return family(request.param)


def show(text: str | bytes) -> str:
    return ascii(text) if len(text) < 400 else f"{ascii(text[:400])}... ({len(text)})"


def test_ids_equal_hugging_face_on_22500_strings_of_nine_kinds(model: Family):
    specials = [token.text for token in model.source.added]
    pairs = list(strings(STRINGS, specials))
    wanted = model.hf.encode_batch([model.replaced(t) for _, t in pairs], add_special_tokens=False)
    bad = [
        (kind, show(text), got, want.ids)
        for (kind, text), want in zip(pairs, wanted, strict=True)
        if (got := model.native.tokenize(text)) != want.ids
    ]
    assert not bad, f"{len(bad)} of {len(pairs)} differ; first: {bad[0]}"
    assert len({kind for kind, _ in pairs}) == 9 and len(LANGUAGES) == 30


def test_without_control_tokens_ids_equal_hugging_face_encoding_specials_as_text(model: Family):
    specials = [token.text for token in model.source.added]
    pairs = [p for p in strings(9_000, specials) if p[0] in ("special", "tricky", "code")]
    control = {token.id for token in model.source.added if token.control}
    model.hf.encode_special_tokens = True
    try:
        for kind, text in pairs:
            got = model.native.tokenize(text, control_tokens=False)
            assert got == model.expected(text), (kind, show(text))
            assert not control & set(got), (kind, show(text))
    finally:
        model.hf.encode_special_tokens = False


def test_bytes_that_are_part_of_no_character_keep_their_own_tokens(model: Family):
    for data in byte_strings(BYTE_STRINGS):
        ids = model.native.tokenize(data, control_tokens=False)
        assert ids == model.expected_bytes(data), show(data)
        if not model.tables.missing_bytes and not model.source.nfc:
            assert model.native.detokenize([*ids, *model.native.tokenize(b".")]) == data + b"."


@pytest.mark.parametrize("letter", ["a", " ", "\n", "0", "é", "中", "😀", "-", "\u0301"])
def test_43000_equal_characters_equal_hugging_face(model: Family, letter: str):
    text = letter * 43_000
    assert model.native.tokenize(text) == model.expected(text)


KNOWN = {
    "qwen3": {"->": [405], "1234": [16, 17, 18, 19], "IT'S": [952, 13272], "cafe\u0301": [924, 58858]},
    "llama3": {
        "->": [405],
        "1234": [4513, 19],
        "IT'S": [964, 13575],
        "cafe\u0301": [936, 1897, 54939],
        " Vi\u1ec7t": [101798],
    },
    "smollm2": {"1234": [33, 34, 35, 36], "IT'S": [2901, 23, 67]},
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_ids(name: str):
    got = {text: family(name).native.tokenize(text) for text in KNOWN[name]}
    assert got == KNOWN[name]


MEBIBYTE = 1 << 20
HARD_TEXTS = {
    "one letter": "a" * MEBIBYTE,
    "spaces": " " * MEBIBYTE,
    "line breaks": "\n" * MEBIBYTE,
    "digits": "7" * MEBIBYTE,
    "accents": "\u0301\u0316" * (MEBIBYTE // 4),
    "composed letters": "e\u0301" * (MEBIBYTE // 3),
    "beginnings of a control token": "<|im_star" * (MEBIBYTE // 9),
    "spaces and breaks": ("  \n" * (MEBIBYTE // 3)),
    "quotes": "'" * MEBIBYTE,
    "cut characters": b"\xe2\x82" * (MEBIBYTE // 2),
    "high bytes": b"\xf3" * MEBIBYTE,
}


def seconds(model: Family, data: bytes) -> float:
    """Processor time of this thread: other work on the machine does not count."""
    start = time.thread_time()
    model.native.tokenize_into(data, None, 0)
    return time.thread_time() - start


@functools.cache
def plain_seconds(model: Family) -> float:
    """The time that a mebibyte of plain text takes on this machine, about 0.03 s."""
    plain = (b"The quick brown fox jumps over 12 lazy dogs. " * MEBIBYTE)[:MEBIBYTE]
    return min(seconds(model, plain) for _ in range(3))


@pytest.mark.parametrize("kind", HARD_TEXTS)
def test_a_mebibyte_of_anything_takes_less_than_a_second(model: Family, kind: str):
    """On a machine that is too slow for that, less than 40 times as long as plain text; eight times is usual."""
    text = HARD_TEXTS[kind]
    data = text.encode() if isinstance(text, str) else text
    limit = max(1.0, 40 * plain_seconds(model))
    assert any(seconds(model, data) < limit for _ in range(5))


def test_the_section_is_read_at_any_alignment(model: Family):
    text = "Hello, Việt cafe\u0301 1234 <|im_start|>\r\n\r\n  don't " + LANGUAGES["Korean"]
    for shift in (1, 2, 3, 5, 7):
        assert NativeTokenizer(model.section, model.vocab, shift).tokenize(text) == model.native.tokenize(
            text
        )


def test_a_section_of_150000_tokens_is_a_few_mebibytes_and_parses_in_milliseconds():
    model = family("qwen3")
    assert len(model.section) < 6 * MEBIBYTE
    times = []
    for _ in range(5):
        start = time.thread_time()
        NativeTokenizer(model.section, model.vocab)
        times.append(time.thread_time() - start)
    assert min(times) < 0.02


def test_code_point_classes_are_those_of_the_installed_tokenizers():
    committed = Path(make_unicode_data.TARGET).read_text()
    assert make_unicode_data.module_text() == committed, (
        "the installed `tokenizers` has other Unicode data than the tables were made from; "
        "run tools/make_unicode_data.py and look at the difference"
    )
