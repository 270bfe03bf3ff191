# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Builds the tokenizer section of an artifact (docs/tokenizer_section.md)."""

from __future__ import annotations

import struct
import unicodedata
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from . import unicode_data
from .chat_format import PARTS, ROLES, ChatFormatError, chat_parts, joined
from .checkpoint import ConvertError
from .tokenizer_source import TokenizerSource, hf_tokenizer

__all__ = ["TokenizerSource", "TokenizerTables", "build_tokenizer", "hf_tokenizer", "missing_bytes"]

MAGIC, VERSION = b"SLTK", 1
HEADER_BYTES, BYTE_ID_TABLE = 32, 2
PRE_TOKENIZERS = {"gpt-2": 1, "smollm": 2, "qwen2": 3, "llama-bpe": 4}
FLAG_NFC, FLAG_CHAT = 1, 2
ADDED_CONTROL, ADDED_NORMALIZED = 1, 2
MAX_TOKEN_BYTES, MAX_ADDED_BYTES = 65535, 1024
NO_ID = 0xFFFFFFFF
CODE_POINTS, BLOCK = 0x110000, 256
LETTER, NUMBER, SPACE, ISOLATED_DIGIT = 1, 2, 4, 8

ChatIds = dict[tuple[str, str], list[int]]


@dataclass(frozen=True)
class TokenizerTables:
    """The tokenizer section's content, and what the converter reports about it."""

    source: TokenizerSource
    texts: list[bytes]  # by id; empty: the id has no text
    byte_ids: np.ndarray  # uint32 [256]; NO_ID: the vocabulary lacks the byte
    replacement: bytes  # read instead of a character with a lacking byte
    merges: np.ndarray  # uint32 [merges, 4]: left, right, rank, result; ascending
    whole_words: list[int]  # ids by text, for families that look whole pieces up first
    added: list[tuple[int, int]]  # id, flags; by text
    chat: ChatIds | None  # (role, part) -> ids; None: see chat_absent
    chat_absent: str | None  # why there is no chat format
    stop_ids: list[int]  # ids after which a reply is over
    missing_bytes: list[int]  # bytes the vocabulary lacks
    warnings: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Ids [0, size) belong to the tokenizer; ids behind it are padding."""
        return len(self.texts)

    @property
    def bos_id(self) -> int | None:
        """The token that stood in front of every text in training, if any; no verb adds it."""
        return self.source.bos_id

    def section_bytes(self) -> bytes:
        """The section as it stands in the artifact."""
        nfc = self.source.nfc
        tables = [
            _starts([len(text) for text in self.texts]),
            b"".join(self.texts),
            _words(self.byte_ids),
            _starts(np.bincount(self.merges[:, 0], minlength=self.size)),
            _words(self.merges[:, 1:]),
            _words(self.whole_words),
            _words(self.added),
            *_class_tables(),
            *(_nfc_tables() if nfc else [b""] * 5),
            *self._chat_tables(),
        ]
        flags = FLAG_NFC * nfc | FLAG_CHAT * (self.chat is not None)
        head = struct.pack(
            "<4s5I4sI",
            MAGIC,
            VERSION,
            self.size,
            PRE_TOKENIZERS[self.source.family],
            flags,
            len(self.replacement),
            self.replacement,
            len(tables),
        )
        return _assemble(head, tables)

    def _chat_tables(self) -> list[bytes]:
        if self.chat is None:
            return [b"", b""]
        lists = [self.chat.get((role, part), []) for role in ROLES for part in PARTS]
        return [_starts([len(ids) for ids in lists]), _words([i for ids in lists for i in ids])]


def build_tokenizer(source: TokenizerSource, vocab: int | None = None) -> TokenizerTables:
    """Builds the tables of a tokenizer.

    Args:
        source: the tokenizer.
        vocab: the model's vocabulary, in ids; None: not checked.
    Raises:
        ConvertError: ids outside the model, a merge of unknown tokens, or a text the section cannot hold.
    """
    texts = _texts(source)
    if vocab is not None and len(texts) > vocab:
        raise ConvertError(
            f"token id {len(texts) - 1} in a model with {vocab} ids",
            "tokenizer",
            "Tokenizer and weights do not belong together; fetch both from one revision.",
        )
    byte_ids = _byte_ids(source)
    missing = [int(b) for b in np.flatnonzero(byte_ids == NO_ID)]
    merges = _merges(source)
    whole_words = _whole_words(source, texts) if source.ignore_merges else []
    reachable = {*map(int, byte_ids), *map(int, merges[:, 3]), *whole_words}
    warnings = _byte_warnings(missing)
    chat, absent = _chat_ids(source)
    return TokenizerTables(
        source=source,
        texts=texts,
        byte_ids=byte_ids,
        replacement=_replacement(byte_ids),
        merges=merges,
        whole_words=whole_words,
        added=_added(source, texts, reachable, warnings),
        chat=chat,
        chat_absent=absent,
        stop_ids=source.stop_ids,
        missing_bytes=missing,
        warnings=warnings,
    )


def missing_bytes(section: bytes | memoryview) -> list[int]:
    """The bytes that the vocabulary of a section lacks, for reports; the section is one the library accepted."""
    (offset,) = struct.unpack_from("<I", section, HEADER_BYTES + 8 * BYTE_ID_TABLE)
    return [b for b, i in enumerate(struct.unpack_from("<256I", section, offset)) if i == NO_ID]


@cache
def byte_alphabet() -> dict[str, int]:
    """Character of the byte-level alphabet -> byte: printable Latin-1 is itself, the rest follows U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _bytes_of(token: str) -> bytes:
    """A vocabulary entry's bytes; one that is not written in the byte-level alphabet stands for itself."""
    alphabet = byte_alphabet()
    if all(c in alphabet for c in token):
        return bytes(alphabet[c] for c in token)
    return token.encode()


def _texts(source: TokenizerSource) -> list[bytes]:
    by_id = {i: _bytes_of(token) for token, i in source.vocab.items()}
    by_id |= {token.id: token.text.encode() for token in source.added}
    texts = [by_id.get(i, b"") for i in range(max(by_id, default=-1) + 1)]
    for i, text in enumerate(texts):
        if len(text) > MAX_TOKEN_BYTES:
            what = f"token {i} has {len(text)} bytes"
            raise ConvertError(what, "tokenizer", f"The section holds up to {MAX_TOKEN_BYTES}.")
    return texts


def _byte_ids(source: TokenizerSource) -> np.ndarray:
    out = np.full(256, NO_ID, np.uint32)
    for character, byte in byte_alphabet().items():
        out[byte] = source.vocab.get(character, NO_ID)
    return out


def _replacement(byte_ids: np.ndarray) -> bytes:
    """U+FFFD, or a question mark where the vocabulary lacks a byte of it too."""
    for text in ("\ufffd".encode(), b"?"):
        if all(byte_ids[b] != NO_ID for b in text):
            return text
    raise ConvertError(
        "the vocabulary has no byte tokens for U+FFFD or '?'",
        "tokenizer",
        "Without them text it lacks would vanish; a vocabulary of this kind is not supported.",
    )


def _byte_warnings(missing: list[int]) -> list[str]:
    if not missing:
        return []
    names = " ".join(f"{b:02X}" for b in missing)
    return [f"The vocabulary lacks {len(missing)} bytes ({names}); characters with one are read as U+FFFD."]


def _merges(source: TokenizerSource) -> np.ndarray:
    """uint32 [merges, 4]; a pair that is listed twice has its later rank."""
    vocab = source.vocab
    rows: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, (left, right) in enumerate(source.merges):
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise ConvertError(
                f"merge {rank} ({left!r} {right!r}) is of tokens that the vocabulary lacks",
                "tokenizer, merges",
                "The file is damaged; fetch it again.",
            )
        rows[vocab[left], vocab[right]] = rank, vocab[left + right]
    table = np.array([(*pair, *value) for pair, value in sorted(rows.items())], np.uint32).reshape(-1, 4)
    # Ranks without gaps: only their order counts.
    table[:, 2] = np.argsort(np.argsort(table[:, 2], kind="stable"), kind="stable")
    return table


def _whole_words(source: TokenizerSource, texts: list[bytes]) -> list[int]:
    alphabet = byte_alphabet()
    ids = (i for token, i in source.vocab.items() if token and all(c in alphabet for c in token))
    control = {token.id for token in source.added if token.control}
    return sorted((i for i in ids if i not in control), key=lambda i: texts[i])


def _added(
    source: TokenizerSource, texts: list[bytes], reachable: set[int], warnings: list[str]
) -> list[tuple[int, int]]:
    rows: dict[bytes, tuple[int, int]] = {}
    for token in source.added:
        text = token.text
        normalized = token.normalized and source.nfc
        key = (unicodedata.normalize("NFC", text) if normalized else text).encode()
        if key != texts[token.id] or len(key) > MAX_ADDED_BYTES:
            raise ConvertError(
                f"the added token {text[:80]!r} is not in NFC, or above {MAX_ADDED_BYTES} bytes",
                "tokenizer, added_tokens",
                "The library cannot match it.",
            )
        control = token.control and token.id not in reachable
        if token.control and not control:
            warnings.append(f"The control token {text!r} is ordinary text too, and is treated as text.")
        rows[key] = token.id, ADDED_CONTROL * control | ADDED_NORMALIZED * token.normalized
    return [rows[key] for key in sorted(rows)]


def _chat_ids(source: TokenizerSource) -> tuple[ChatIds | None, str | None]:
    """The chat format's ids, or why there are none."""
    if source.chat_template is None:
        return None, "the model comes without a chat template"
    ends = [token.text for token in source.added if token.id in source.stop_ids]
    try:
        parts = chat_parts(source.chat_template, source.bos_text, source.eos_text, ends)
    except ChatFormatError as error:
        return None, str(error)
    encoder = hf_tokenizer(source)

    def ids(text: str) -> list[int]:
        return encoder.encode(text, add_special_tokens=False).ids

    chat = {slot: ids(text) for slot, text in parts.items()}
    turns = [("system", "Be brief."), ("user", "Hello there."), ("assistant", "Hi."), ("user", "Bye.")]
    messages = [{"role": role, "content": content} for role, content in turns]
    apart: list[int] = []
    for role, content in turns:
        apart += chat[role, "prefix"] + ids(content) + chat[role, "suffix"]
    if ids(joined(parts, messages)) != apart + chat["assistant", "prefix"]:
        return None, "tokens reach across the border between a message and what surrounds it"
    return chat, None


def _code_points(ranges: str) -> np.ndarray:
    """The code points of a constant of `unicode_data`."""
    bounds = [[int(b, 16) for b in r.split("-")] for r in ranges.split()]
    return np.concatenate([np.arange(b[0], b[-1] + 1) for b in bounds])


def _two_stage(values: np.ndarray) -> list[bytes]:
    """A value per code point as a stage of block numbers (uint8 [4352]) and the distinct blocks."""
    blocks, stage = np.unique(values.reshape(-1, BLOCK), axis=0, return_inverse=True)
    if len(blocks) > 256:
        raise AssertionError("more distinct blocks than a stage byte can name")
    return [stage.astype(np.uint8).tobytes(), blocks.astype(values.dtype.newbyteorder("<")).tobytes()]


@cache
def _class_tables() -> list[bytes]:
    classes = np.zeros(CODE_POINTS, np.uint8)
    u = unicode_data
    pairs = ((u.LETTERS, LETTER), (u.NUMBERS, NUMBER), (u.SPACES, SPACE), (u.ISOLATED_DIGITS, ISOLATED_DIGIT))
    for ranges, bit in pairs:
        classes[_code_points(ranges)] |= bit
    return _two_stage(classes)


@cache
def _nfc_tables() -> list[bytes]:
    """Canonical decompositions, combining classes and compositions; Unicode keeps their values for ever."""
    record_of: dict[int, int] = {0: 0}
    parts: list[int] = []
    compositions: list[tuple[int, int, int]] = []
    records = np.zeros(CODE_POINTS, np.uint16)
    for c in map(int, _code_points(unicode_data.DECOMPOSED)):
        full = unicodedata.normalize("NFD", chr(c))
        word = len(full) << 8 | len(parts) << 16
        parts += map(ord, full)
        records[c] = record_of.setdefault(word, len(record_of))
        pair = [int(p, 16) for p in unicodedata.decomposition(chr(c)).split()]
        if len(pair) == 2 and unicodedata.normalize("NFC", full) == chr(c):
            compositions.append((*pair, c))
    for c in map(int, _code_points(unicode_data.MARKS)):
        word = unicodedata.combining(chr(c))
        records[c] = record_of.setdefault(word, len(record_of))
    return [*_two_stage(records), _words(list(record_of)), _words(parts), _words(sorted(compositions))]


def _words(values: object) -> bytes:
    return np.asarray(values, dtype="<u4").tobytes()


def _starts(lengths: object) -> bytes:
    """Where each of consecutive lists begins, and where the last one ends."""
    return _words(np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]))


def _assemble(head: bytes, tables: list[bytes]) -> bytes:
    """Header, directory and the tables, each at a multiple of 4."""
    offset = len(head) + 8 * len(tables)
    directory, body = b"", b""
    for table in tables:
        directory += struct.pack("<2I", offset + len(body), len(table))
        body += table + bytes(-len(table) % 4)
    return head + directory + body
