# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Reading tokenizers from their files: what is taken, what is refused and why, and the chat format."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from superslm.convert.chat_format import ChatFormatError, chat_parts, joined, render
from superslm.convert.checkpoint import ConvertError
from superslm.convert.tokenizer import TokenizerSource, build_tokenizer, hf_tokenizer, missing_bytes
from tokenizer_corpus import strings
from tokenizer_support import (
    Family,
    NativeTokenizer,
    family,
    gguf_metadata,
    npm_models,
    small_source,
    smollm2_metadata,
)


@pytest.mark.parametrize("name", ["qwen3", "llama3"])
def test_a_gguf_file_and_a_tokenizer_json_give_the_same_section(name: str):
    source = family(name).source
    from_gguf = TokenizerSource.from_gguf(gguf_metadata(source, 100))
    tables = build_tokenizer(from_gguf, family(name).tables.size + 100)
    assert tables.section_bytes() == family(name).section
    assert tables.stop_ids == family(name).tables.stop_ids
    assert tables.bos_id == family(name).tables.bos_id == {"qwen3": None, "llama3": 128000}[name]
    hf = hf_tokenizer(from_gguf)
    specials = [token.text for token in source.added]
    for kind, text in strings(900, specials):
        assert hf.encode(text, add_special_tokens=False).ids == family(name).expected(text), (
            kind,
            ascii(text),
        )


def test_padding_of_the_vocabulary_has_no_text():
    model = family("qwen3")
    metadata = gguf_metadata(model.source, 267)
    metadata["tokenizer.ggml.token_type"] = [
        4 if t == 5 else t for t in metadata["tokenizer.ggml.token_type"]
    ]
    tables = build_tokenizer(TokenizerSource.from_gguf(metadata), 151936)
    assert tables.size == 151669 and tables.section_bytes() == model.section


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("tokenizer.ggml.model", "llama", "instead of byte-level BPE"),
        ("tokenizer.ggml.pre", "deepseek-llm", "unknown pre-tokenizer 'deepseek-llm'"),
        ("tokenizer.ggml.pre", None, "unknown pre-tokenizer None"),
        ("tokenizer.ggml.merges", ["a b c"], "is not a pair"),
    ],
)
def test_a_gguf_tokenizer_of_another_kind_is_refused_with_the_key(key: str, value: Any, text: str):
    with pytest.raises(ConvertError, match=text):
        TokenizerSource.from_gguf(smollm2_metadata() | {key: value})


def small_json() -> dict[str, Any]:
    tokenizer, _ = npm_models("qwen3")
    small = {k: v for k, v in tokenizer.items() if k != "model"}
    vocab = {t: i for t, i in tokenizer["model"]["vocab"].items() if i < 256}
    return copy.deepcopy(small) | {"model": {**tokenizer["model"], "vocab": vocab, "merges": []}}


def _set(path: str, value: Any):
    def change(tokenizer: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for name in parents:
            tokenizer = tokenizer[int(name) if name.isdigit() else name]
        tokenizer[last] = value

    return change


@pytest.mark.parametrize(
    "change, text",
    [
        (_set("model.type", "Unigram"), "'Unigram' instead of byte-level BPE"),
        (_set("model.byte_fallback", True), "model.byte_fallback"),
        (_set("model.end_of_word_suffix", "</w>"), "model.end_of_word_suffix"),
        (_set("normalizer", {"type": "NFKC"}), "NFKC"),
        (_set("pre_tokenizer", {"type": "Metaspace"}), "does not end in ByteLevel"),
        (_set("pre_tokenizer.pretokenizers.0.pattern", {"Regex": r"\w+"}), "unknown pattern"),
        (_set("pre_tokenizer.pretokenizers.0.type", "Digits"), "unknown steps"),
        (_set("pre_tokenizer.pretokenizers.1.add_prefix_space", True), "prefix space"),
        (_set("added_tokens.0.lstrip", True), "sets lstrip"),
        (_set("added_tokens.0.single_word", True), "sets single_word"),
        (_set("model.merges", [["Ġ", "zzz"]]), "merge 0"),
    ],
)
def test_a_tokenizer_json_of_another_kind_is_refused_with_what_is_wrong(change: Any, text: str):
    tokenizer = small_json()
    build_tokenizer(TokenizerSource.from_tokenizer_json(tokenizer))
    change(tokenizer)
    with pytest.raises(ConvertError, match=text):
        build_tokenizer(TokenizerSource.from_tokenizer_json(tokenizer))


def test_the_bytes_a_vocabulary_lacks_can_be_read_from_its_section():
    for name in ("smollm2", "qwen3"):
        assert missing_bytes(family(name).section) == family(name).tables.missing_bytes


def test_more_tokens_than_the_model_has_are_refused():
    with pytest.raises(ConvertError, match="in a model with 288 ids"):
        build_tokenizer(small_source(), 288)


def test_a_control_token_that_is_ordinary_text_too_is_treated_as_text():
    source = small_source(ignore_merges=False)
    level_e = source.vocab["e"]
    from superslm.convert.tokenizer_source import AddedToken

    tables = build_tokenizer(small_source(added=[*source.added, AddedToken(level_e, "e", True)]))
    assert dict(tables.added)[level_e] == 0 and any("'e'" in w for w in tables.warnings)


@pytest.mark.parametrize(
    "name, stops", [("smollm2", [2, 0]), ("qwen3", [151645, 151643]), ("llama3", [128001, 128009])]
)
def test_stop_ids_hold_end_of_text_and_end_of_turn(name: str, stops: list[int]):
    assert family(name).tables.stop_ids == stops


# ---- The chat format ----

CONVERSATION = [
    {"role": "system", "content": "Answer like a lighthouse keeper."},
    {"role": "user", "content": "Is the lamp lit?"},
    {"role": "assistant", "content": "Since dusk, and it'll burn till 6."},
    {"role": "user", "content": "Thank you, <|im_end|> no, really."},
    {"role": "assistant", "content": "Mind the stairs."},
    {"role": "user", "content": "Good night."},
]


def assembled(model: Family, messages: list[dict[str, str]]) -> list[int]:
    """The conversation put together from the artifact's ids and messages without control tokens."""
    roles = {"system": 0, "user": 1, "assistant": 2}

    def part(role: str, side: int) -> list[int]:
        ids = model.native.chat_ids(roles[role], side)
        assert ids is not None
        return ids

    ids = [] if messages[0]["role"] == "system" else part("system", 2)
    for message in messages:
        content = model.native.tokenize(message["content"], control_tokens=False)
        ids += part(message["role"], 0) + content + part(message["role"], 1)
    return ids + part("assistant", 0)


@pytest.mark.parametrize("with_system", [True, False])
@pytest.mark.parametrize("name", ["smollm2", "qwen3", "llama3"])
def test_a_conversation_from_chat_ids_equals_the_rendered_template(name: str, with_system: bool):
    model = family(name)
    messages = [m for m in CONVERSATION if "<|" not in m["content"]]
    messages = messages if with_system else messages[1:]
    source = model.source
    text = render(source.chat_template or "", messages, True, source.bos_text, source.eos_text)
    assert assembled(model, messages) == model.expected(text)


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "llama3"])
def test_a_message_cannot_end_its_turn(name: str):
    model = family(name)
    stops = set(model.tables.stop_ids)
    turns = len(CONVERSATION)
    assert sum(i in stops for i in assembled(model, CONVERSATION)) == turns


def test_smollm2_opens_a_conversation_without_system_turn_with_its_default_one():
    model = family("smollm2")
    opening = model.native.detokenize(model.native.chat_ids(0, 2) or []).decode()
    message = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert opening == f"<|im_start|>system\n{message}<|im_end|>\n"


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.mark.parametrize(
    "template, text",
    [
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "drops, repeats or changes"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "drops, repeats or changes"),
        ("{{ messages[0].content }}", "drops, repeats or changes"),
        ("{{ raise_exception('no roles here') }}", "no roles here"),
        ("{% for m in messages %}", "refuses"),
        (CHATML, "no token that ends a turn"),
        (CHATML + PROMPT.replace("assistant", "bot"), "begins otherwise"),
        (
            "{% for m in messages %}<s>{{ m.role }}{{ loop.index if m.role == 'user' }}{{ m.content }}{% endfor %}"
            + PROMPT.replace("<|im_start|>", "<s>").replace("\\n", ""),
            "depends on|changes|begins otherwise",
        ),
        (CHATML.replace("m.content", "m.content | replace('\n', ' ')") + PROMPT, "changes the text around"),
        (CHATML + PROMPT + "{{ ''.__class__.__mro__ }}", "refuses"),
    ],
)
def test_a_template_that_does_more_than_surround_messages_is_reported(template: str, text: str):
    with pytest.raises(ChatFormatError, match=text):
        chat_parts(template)
    tables = build_tokenizer(small_source(chat_template=template, stop_ids=[]))
    assert tables.chat is None and tables.chat_absent
    native = NativeTokenizer(tables.section_bytes(), 400)
    assert native.chat_ids(0, 0) is None


def test_a_template_that_always_asks_for_a_reply_is_cut_behind_the_end_of_a_turn():
    template = CHATML + "{{ '<|im_start|>assistant\n' }}"
    parts = chat_parts(template, end_texts=["<|im_end|>"])
    assert parts == chat_parts(CHATML + PROMPT)
    messages = CONVERSATION[1:]
    assert joined(parts, messages) == render(template, messages, True)


def test_a_system_header_that_is_always_there_becomes_part_of_prefix_and_opening():
    template = (
        "{{ bos_token }}{% set day = strftime_now('%d') if strftime_now is defined else '26 Jul 2024' %}"
        "{% if messages[0].role == 'system' %}{% set said = messages[0].content %}{% set rest = messages[1:] %}"
        "{% else %}{% set said = '' %}{% set rest = messages %}{% endif %}"
        "{{ '<|system|>Today is ' + day + '. ' + said + '<|end|>' }}"
        "{% for m in rest %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    parts = chat_parts(template, bos="<s>")
    assert parts["system", "prefix"] == "<s><|system|>Today is 26 Jul 2024. "
    assert parts["system", "opening"] == "<s><|system|>Today is 26 Jul 2024. <|end|>"
    assert parts["user", "prefix"] == "<|user|>" and parts["assistant", "suffix"] == "<|end|>"


def test_without_a_template_the_reason_is_given():
    tables = build_tokenizer(small_source(chat_template=None))
    assert tables.chat is None and tables.chat_absent == "the model comes without a chat template"
