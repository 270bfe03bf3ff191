# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The tokenizer section as a trust boundary, memory included, and the stream of text that comes out."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import dev
import pytest
from limits import HANG
from superslm.convert.tokenizer import build_tokenizer, hf_tokenizer
from tokenizer_corpus import EMOJI, LANGUAGES, byte_strings
from tokenizer_support import (
    OK,
    OUT_OF_MEMORY,
    OUT_OF_RANGE,
    TEXT_SOURCES,
    TOO_SMALL,
    UNMAPPED,
    NativeTokenizer,
    SectionRefused,
    compile_text,
    driver,
    family,
    small_source,
)

TABLES = (
    "text_start text byte_id merge_start merges whole_words added class_stage class_blocks nfc_stage nfc_blocks "
    "nfc_records nfc_parts nfc_compositions chat_start chat_ids"
).split()
DIRECTORY = 32


@pytest.fixture(scope="module")
def section() -> bytes:
    return build_tokenizer(small_source()).section_bytes()


@pytest.fixture(scope="module")
def small(section: bytes) -> NativeTokenizer:
    return NativeTokenizer(section, 400)


def patched(section: bytes, at: int, *words: int) -> bytes:
    data = bytearray(section)
    struct.pack_into(f"<{len(words)}I", data, at, *words)
    return bytes(data)


def table_offset(section: bytes, name: str) -> int:
    return struct.unpack_from("<I", section, DIRECTORY + 8 * TABLES.index(name))[0]


def test_a_small_tokenizer_with_every_feature_equals_hugging_face(small: NativeTokenizer):
    hf = hf_tokenizer(small_source())
    mixed = "the <tool>s <tool> spa\u0308te späte <|im_start|>hello the world's  \n\n1010"
    for text in [mixed, *LANGUAGES.values(), *EMOJI]:
        assert small.tokenize(text) == hf.encode(text, add_special_tokens=False).ids, text


HEADER_FIELDS = [
    (0, 0x12345678, "magic"),
    (4, 2, "version"),
    (8, 0, "size"),
    (8, 401, "size"),
    (12, 0, "pre_tokenizer"),
    (12, 5, "pre_tokenizer"),
    (16, 4, "flags"),
    (20, 0, "replacement_size"),
    (20, 4, "replacement_size"),
    (28, 15, "table_count"),
]


@pytest.mark.parametrize("at, word, field", HEADER_FIELDS)
def test_a_header_field_out_of_range_is_refused_by_name(section: bytes, at: int, word: int, field: str):
    with pytest.raises(SectionRefused, match=f"tokenizer {field}:"):
        NativeTokenizer(patched(section, at, word), 400)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_overlaps_or_leaves_the_section_is_refused_by_name(section: bytes, name: str):
    at = DIRECTORY + 8 * TABLES.index(name)
    offset, size = struct.unpack_from("<2I", section, at)
    for words in ((0, size), (len(section) + 4, size or 4), (offset, 0xFFFFFFFC), (0xFFFFFFFC, 0xFFFFFFFC)):
        with pytest.raises(SectionRefused, match=f"tokenizer {name}"):
            NativeTokenizer(patched(section, at, *words), 400)


ENTRIES = [
    ("text_start", 0, 1),
    ("text_start", 5, 0xFFFFFFFF),
    ("byte_id", 65, 66),
    ("byte_id", 65, 100_000),
    ("merge_start", 3, 0xFFFFFF),
    ("merges", 0, 100_000),
    ("merges", 1, 100_000),
    ("merges", 2, 0xFFFFFFFF),
    ("whole_words", 0, 100_000),
    ("added", 0, 100_000),
    ("added", 2, 0),
    ("added", 1, 4),
    ("class_stage", 0, 0xFFFFFFFF),
    ("nfc_stage", 0, 0xFFFFFFFF),
    ("nfc_blocks", 0, 0xFFFFFFFF),
    ("nfc_records", 1, 0xFFFF0500),
    ("nfc_parts", 0, 0xD800),
    ("nfc_compositions", 0, 0x110000),
    ("nfc_compositions", 0, 0x10FFFF),
    ("chat_start", 1, 0xFFFF),
    ("chat_ids", 0, 100_000),
]


@pytest.mark.parametrize("name, index, word", ENTRIES)
def test_an_entry_out_of_range_is_refused_by_name(section: bytes, name: str, index: int, word: int):
    with pytest.raises(SectionRefused, match=f"tokenizer {name}"):
        NativeTokenizer(patched(section, table_offset(section, name) + 4 * index, word), 400)


def test_a_replacement_that_the_vocabulary_lacks_too_is_refused(section: bytes):
    lacking = patched(section, table_offset(section, "byte_id") + 4 * 0xEF, 0xFFFFFFFF)
    with pytest.raises(SectionRefused, match=r"tokenizer replacement\[0\]"):
        NativeTokenizer(lacking, 400)


def test_every_truncation_is_refused(section: bytes):
    lengths = [*range(300), *range(300, len(section), 997), len(section) - 4]
    for length in lengths:
        with pytest.raises(SectionRefused, match="tokenizer "):
            NativeTokenizer(section[:length], 400)


@pytest.mark.parametrize("name, rounds", [("small", 10_000), ("smollm2", 300)])
def test_mutated_sections_are_refused_or_harmless(tmp_path: Path, section: bytes, name: str, rounds: int):
    sanitizers = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = compile_text(
        tmp_path / "text_hostile",
        dev.ROOT / "tests" / "c" / "text_hostile.cpp",
        dev.ROOT / "c_abi" / "base" / "memory.cpp",
        *TEXT_SOURCES,
        flags=sanitizers,
    )
    file = tmp_path / "section"
    file.write_bytes(section if name == "small" else family(name).section)
    vocab = 400 if name == "small" else family(name).vocab
    done = subprocess.run(
        [program, file, str(vocab), str(rounds), "7"], capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr[-4000:]
    _, accepted, _, refused = done.stdout.split()
    assert int(accepted) > rounds // 50 and int(refused) > rounds // 50, done.stdout


def test_parsing_allocates_nothing(section: bytes):
    driver().driver_limit_allocations(0)
    try:
        NativeTokenizer(section, 400)
    finally:
        driver().driver_limit_allocations(-1)


def test_a_failed_allocation_anywhere_is_reported_and_writes_nothing(small: NativeTokenizer):
    text = ("e\u0301" * 400 + "a" * 3000 + " <|im_start|> the world").encode()
    out = (ctypes.c_int32 * 9000)(*[-7] * 9000)
    failures = 0
    try:
        while True:
            driver().driver_limit_allocations(failures)
            code, count = small.tokenize_into(text, out, 9000)
            if code == OK:
                break
            assert (code, count) == (OUT_OF_MEMORY, 0) and set(out) == {-7}
            failures += 1
    finally:
        driver().driver_limit_allocations(-1)
    assert failures >= 4 and out[:count] == small.tokenize(text)


def test_memory_for_a_text_is_bounded_by_its_size():
    for name in ("smollm2", "qwen3"):
        text = ("a" * 50_000 + "e\u0301\u0316" * 10_000 + " word" * 10_000).encode()
        driver().driver_limit_allocations(-1)
        family(name).native.tokenize_into(text, None, 0)
        assert driver().driver_allocated_bytes() < 100 * len(text)


def test_a_short_buffer_reports_the_exact_count_and_stays_untouched(small: NativeTokenizer):
    text = b"hello the world's <tool> 1234"
    ids = small.tokenize(text)
    for capacity in range(len(ids)):
        out = (ctypes.c_int32 * len(ids))(*[-7] * len(ids))
        assert small.tokenize_into(text, out, capacity) == (OK, len(ids)) and set(out) == {-7}
    assert small.tokenize_into(text, None, 0) == (OK, len(ids))
    assert small.tokenize_into(b"", None, 0) == (OK, 0)


# ---- Ids to text ----


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "llama3"])
def test_a_stream_cut_anywhere_gives_the_whole_text(name: str):
    model = family(name)
    for text in [*LANGUAGES.values(), *EMOJI, "<|im_start|>x\u00e9"]:
        data = text.encode()
        ids = model.native.tokenize(data)
        if not model.source.nfc:
            assert model.native.detokenize(ids) == data
        whole = model.native.detokenize(ids)
        state = (ctypes.c_uint8 * 4)()
        pieces = []
        for token in ids:
            piece = model.native.detokenize([token], state)
            piece.decode()  # whole characters only
            pieces.append(piece)
        assert b"".join(pieces) == whole and bytes(state[3:]) == b"\0"
        for cut in range(0, len(ids), 3):
            state = (ctypes.c_uint8 * 4)()
            both = model.native.detokenize(ids[:cut], state) + model.native.detokenize(ids[cut:], state)
            assert both == whole


def test_bytes_of_characters_split_at_every_byte_come_out_whole(small: NativeTokenizer):
    text = "aé€😀\U0010ffff\u0800".encode()
    state = (ctypes.c_uint8 * 4)()
    out = [small.detokenize([byte_id(small, b)], state) for b in text]
    assert b"".join(out) == text
    assert [len(piece) for piece in out] == [1, 0, 2, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 3]


def byte_id(tokenizer: NativeTokenizer, byte: int) -> int:
    (token,) = tokenizer.tokenize(bytes([byte]), control_tokens=False)
    return token


def held_back(data: bytes) -> int:
    """How many bytes at the end are the start of a character, by Python's own decoder."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    decoder.decode(data)
    return len(decoder.getstate()[0])


def test_only_an_incomplete_character_is_held_back_and_invalid_bytes_pass(small: NativeTokenizer):
    ids = [byte_id(small, b) for b in range(256)]
    for data in byte_strings(3_000):
        state = (ctypes.c_uint8 * 4)()
        out = small.detokenize([ids[b] for b in data], state)
        held = bytes(state[: state[3]])
        assert out + held == data and len(held) == held_back(data), data


def test_refused_ids_change_no_state(small: NativeTokenizer, section: bytes):
    size = struct.unpack_from("<I", section, 8)[0]
    hole = size - 2  # an id the vocabulary leaves out
    for bad, want in [
        (-1, OUT_OF_RANGE),
        (400, OUT_OF_RANGE),
        (size, UNMAPPED),
        (399, UNMAPPED),
        (hole, UNMAPPED),
    ]:
        for ids in ([bad], [65, bad], [65, bad, 66]):
            state = (ctypes.c_uint8 * 4)(0xE2, 0x82, 0, 2)
            out = (ctypes.c_uint8 * 64)(*[7] * 64)
            assert small.detokenize_into(ids, state, out, 64) == (want, 0)
            assert bytes(state) == b"\xe2\x82\0\2" and set(out) == {7}
    first = small.detokenize_into([size, -1], (ctypes.c_uint8 * 4)(), None, 0)
    assert first == (UNMAPPED, 0)  # in order


def test_a_short_byte_buffer_reports_the_exact_size_and_changes_nothing(small: NativeTokenizer):
    ids = small.tokenize("hello world é")
    state = (ctypes.c_uint8 * 4)(0xE2, 0x82, 0, 2)
    need = 2 + len("hello world é".encode())
    for capacity in range(need):
        out = (ctypes.c_uint8 * 64)(*[7] * 64)
        assert small.detokenize_into(ids, state, out, capacity) == (TOO_SMALL, need)
        assert bytes(state) == b"\xe2\x82\0\2" and set(out) == {7}
    assert small.detokenize(ids, state) == b"\xe2\x82hello world \xc3\xa9" and state[3] == 0


def test_no_ids_give_the_pending_bytes_once_they_cannot_grow(small: NativeTokenizer):
    state = (ctypes.c_uint8 * 4)(0xE2, 0x28, 0x41, 3)
    assert small.detokenize([], state) == b"\xe2\x28\x41" and state[3] == 0
    state = (ctypes.c_uint8 * 4)(0xE2, 0x82, 0, 2)
    assert small.detokenize([], state) == b"" and state[3] == 2


@pytest.mark.parametrize("name", ["smollm2", "llama3"])
def test_text_survives_the_way_to_ids_and_back(name: str):
    model = family(name)
    for text in [*LANGUAGES.values(), *EMOJI, "\r\n\t a  b", "<|im_end|>"]:
        assert model.native.detokenize(model.native.tokenize(text)).decode() == model.replaced(text)


def test_a_lacking_byte_is_read_as_the_replacement_character():
    model = family("smollm2")
    mark = model.native.tokenize("\ufffd")
    assert model.native.tokenize("\x04") == mark and model.native.tokenize(b"\xff") == mark
    assert model.native.tokenize("a\U00050000b") == model.native.tokenize("a\ufffdb")
    assert b"\xef\xbf\xbd" in model.native.detokenize(model.native.tokenize("one\x13two"))
    assert len(model.tables.missing_bytes) == 21 and any("21 bytes" in w for w in model.tables.warnings)


def test_a_vocabulary_without_the_replacement_character_uses_a_question_mark():
    source = small_source(merges=[], nfc=False, ignore_merges=False)
    kept = {token: i for token, i in source.vocab.items() if len(token) == 1 and token not in ("ï", "ÿ")}
    tables = build_tokenizer(replace(source, vocab=kept))
    assert tables.replacement == b"?" and tables.missing_bytes == [0xEF, 0xFF]
    native = NativeTokenizer(tables.section_bytes(), 400)
    assert native.detokenize(native.tokenize("a\ufffdb")) == b"a?b"
