# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Reads a byte-level BPE tokenizer from tokenizer.json or from GGUF metadata into one neutral form.

The same form also gives back a `tokenizers.Tokenizer` (`hf_tokenizer`), which encodes the calibration text
and which the tests compare the library with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .checkpoint import Checkpoint, ConvertError

if TYPE_CHECKING:
    import tokenizers

WORD_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = WORD_PATTERN.format(digits=r"\p{N}")
LLAMA3_PATTERN = WORD_PATTERN.format(digits=r"\p{N}{1,3}")

# GGUF's tokenizer.ggml.pre -> family. The family's name is the first key that has it.
FAMILIES = {
    "gpt-2": "gpt-2",
    "smollm": "smollm",
    "qwen2": "qwen2",
    "llama-bpe": "llama-bpe",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
}
SUPPORTED = "Supported are the pre-tokenizers of GPT-2, SmolLM, Qwen2 and Llama 3."

# GGUF's tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5

# Tokens that end a reply, in the chat formats of the supported families.
STOP_TEXTS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>")


@dataclass(frozen=True)
class AddedToken:
    """A token matched as a whole in the text, outside of merging."""

    id: int
    text: str
    control: bool  # structure, not text: matched only on request
    normalized: bool = False  # matched after normalisation instead of before


@dataclass(frozen=True)
class TokenizerSource:
    """A byte-level BPE tokenizer, whatever file it came from."""

    family: str  # pre-tokenizer: "gpt-2", "smollm", "qwen2" or "llama-bpe"
    nfc: bool  # text is normalised to NFC first
    ignore_merges: bool  # a piece that is a token as a whole is not merged
    vocab: dict[str, int]  # tokens in the byte-level alphabet -> id
    merges: list[tuple[str, str]]  # lowest rank first
    added: list[AddedToken]
    bos_id: int | None = None  # the token that stood in front of every text in training, if any
    bos_text: str = ""  # how the chat template spells it
    eos_text: str = ""
    stop_ids: list[int] = field(default_factory=list)  # ids after which a reply is over
    chat_template: str | None = None  # Jinja
    tokenizer_json: dict[str, Any] | None = None  # the origin, when it was a tokenizer.json

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> TokenizerSource | None:
        """The tokenizer of a checkpoint; None when its source has none.

        Raises ConvertError when the tokenizer is of another kind.
        """
        c = checkpoint
        if c.tokenizer_json is not None:
            return cls.from_tokenizer_json(c.tokenizer_json, c.tokenizer_config, c.chat_template, c.stop_ids)
        if c.gguf_metadata is not None and "tokenizer.ggml.model" in c.gguf_metadata:
            return cls.from_gguf(c.gguf_metadata, c.stop_ids)
        return None

    @classmethod
    def from_tokenizer_json(
        cls,
        tokenizer_json: Mapping[str, Any],
        config: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        stop_ids: Iterable[int] = (),
    ) -> TokenizerSource:
        """Reads a parsed tokenizer.json.

        Args:
            tokenizer_json: the file's content.
            config: the content of tokenizer_config.json, for the special tokens' names and the template.
            chat_template: Jinja text that takes precedence over the one in `config`.
            stop_ids: end-of-text ids known from the model's configuration.
        Raises:
            ConvertError: the tokenizer is no byte-level BPE, or works in a way the library cannot.
        """
        config = config or {}
        model = tokenizer_json["model"]
        _check_model(model)
        added = [_added_token(entry) for entry in tokenizer_json.get("added_tokens", []) if entry["content"]]
        ids = {token.text: token.id for token in added}
        bos, eos = _token_text(config.get("bos_token")), _token_text(config.get("eos_token"))
        template = chat_template if chat_template is not None else config.get("chat_template")
        family = _family(tokenizer_json.get("pre_tokenizer"))
        return cls(
            family=family,
            nfc=_normalizes(tokenizer_json.get("normalizer")),
            ignore_merges=bool(model.get("ignore_merges", False)),
            vocab=dict(model["vocab"]),
            merges=[_merge(m) for m in model["merges"]],
            added=added,
            bos_id=ids.get(bos) if _begins_texts(config.get("add_bos_token"), family) else None,
            bos_text=bos,
            eos_text=eos,
            stop_ids=_stop_ids(added, [*stop_ids, ids.get(eos)]),
            chat_template=template if isinstance(template, str) else None,
            tokenizer_json=dict(tokenizer_json),
        )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], stop_ids: Iterable[int] = ()) -> TokenizerSource:
        """Reads the `tokenizer.*` keys of a GGUF file.

        Args:
            metadata: the file's keys and values, arrays as lists.
            stop_ids: end-of-text ids known from elsewhere.
        Raises:
            ConvertError: the tokenizer is no byte-level BPE, or its pre-tokenizer is unknown.
        """
        kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if kind != "gpt2":
            raise _unsupported(f"kind {kind!r} instead of byte-level BPE ('gpt2')", "tokenizer.ggml.model")
        if pre not in FAMILIES:
            raise _unsupported(f"unknown pre-tokenizer {pre!r}", "tokenizer.ggml.pre")
        family = FAMILIES[pre]
        texts = metadata["tokenizer.ggml.tokens"]
        types = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(texts)
        vocab, added = _gguf_tokens(texts, types)

        def special(name: str) -> int | None:
            token = metadata.get(f"tokenizer.ggml.{name}_token_id")
            return token if isinstance(token, int) and 0 <= token < len(texts) else None

        bos, eos = special("bos"), special("eos")
        return cls(
            family=family,
            nfc=family == "qwen2",
            ignore_merges=family == "llama-bpe",
            vocab=vocab,
            merges=[_merge(m) for m in metadata["tokenizer.ggml.merges"]],
            added=added,
            bos_id=bos if _begins_texts(metadata.get("tokenizer.ggml.add_bos_token"), family) else None,
            bos_text="" if bos is None else texts[bos],
            eos_text="" if eos is None else texts[eos],
            stop_ids=_stop_ids(added, [*stop_ids, eos, special("eot"), special("eom")]),
            chat_template=metadata.get("tokenizer.chat_template"),
        )


def hf_tokenizer(source: TokenizerSource) -> tokenizers.Tokenizer:
    """The source as a Hugging Face tokenizer; call its `encode` with `add_special_tokens=False`.

    Raises:
        ConvertError: the package `tokenizers` refuses it.
    """
    try:
        return _hf_tokenizer(source)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # that package raises nothing more specific
        raise ConvertError(
            f"the package tokenizers refuses it: {error}", "tokenizer", "Download the model again."
        ) from error


def _hf_tokenizer(source: TokenizerSource) -> tokenizers.Tokenizer:
    import tokenizers
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

    if source.tokenizer_json is not None:
        whole = dict(source.tokenizer_json) | {"truncation": None, "padding": None}
        return tokenizers.Tokenizer.from_str(json.dumps(whole))
    # Added tokens get the ids that the model's vocabulary gives their texts.
    vocab = source.vocab | {token.text: token.id for token in source.added}
    out = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=source.merges, ignore_merges=source.ignore_merges)
    )
    if source.nfc:
        out.normalizer = normalizers.NFC()
    by_regex = {"qwen2": QWEN2_PATTERN, "llama-bpe": LLAMA3_PATTERN}.get(source.family)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=by_regex is None)
    if by_regex is not None:
        first = pre_tokenizers.Split(Regex(by_regex), "isolated")
    else:
        first = pre_tokenizers.Digits(individual_digits=True)
    out.pre_tokenizer = last if source.family == "gpt-2" else pre_tokenizers.Sequence([first, last])
    out.decoder = decoders.ByteLevel()
    for token in source.added:
        entry = tokenizers.AddedToken(token.text, normalized=token.normalized, special=token.control)
        (out.add_special_tokens if token.control else out.add_tokens)([entry])
    return out


def _unsupported(what: str, where: str) -> ConvertError:
    return ConvertError(what, f"tokenizer, {where}", SUPPORTED)


def _check_model(model: Mapping[str, Any]) -> None:
    """Raises ConvertError unless the model is plain byte-level BPE."""
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise _unsupported(f"kind {kind!r} instead of byte-level BPE", "model.type")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            raise _unsupported(f"{model[name]!r} is not supported", f"model.{name}")


def _family(pre_tokenizer: Mapping[str, Any] | None) -> str:
    """The family of a tokenizer.json's pre-tokenizer; raises ConvertError for any other."""
    steps = _flat(pre_tokenizer, "pretokenizers")
    byte_level = steps[-1] if steps else {}
    if byte_level.get("type") != "ByteLevel" or byte_level.get("add_prefix_space"):
        raise _unsupported("it does not end in ByteLevel without prefix space", "pre_tokenizer")
    by_regex, rest = byte_level.get("use_regex", True), steps[:-1]
    if by_regex and not rest:
        return "gpt-2"
    if by_regex and rest == [{"type": "Digits", "individual_digits": True}]:
        return "smollm"
    if not by_regex and len(rest) == 1 and rest[0].get("type") == "Split":
        split = rest[0]
        pattern = split["pattern"].get("Regex")
        plain = split.get("behavior") == "Isolated" and not split.get("invert")
        found = {QWEN2_PATTERN: "qwen2", LLAMA3_PATTERN: "llama-bpe"}.get(pattern)
        if plain and found:
            return found
        raise _unsupported(f"unknown pattern {pattern!r}", "pre_tokenizer")
    raise _unsupported(f"unknown steps {[step.get('type') for step in steps]}", "pre_tokenizer")


def _normalizes(normalizer: Mapping[str, Any] | None) -> bool:
    """Whether the normaliser is NFC; raises ConvertError when it is anything else."""
    kinds = [step.get("type") for step in _flat(normalizer, "normalizers")]
    if kinds not in ([], ["NFC"]):
        raise ConvertError(f"unknown steps {kinds}", "tokenizer, normalizer", "Supported are none and NFC.")
    return bool(kinds)


def _flat(step: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    """A step, or the steps of a Sequence, as a list."""
    if step is None:
        return []
    if step.get("type") == "Sequence":
        return [part for inner in step[key] for part in _flat(inner, key)]
    return [step]


def _begins_texts(stated: bool | None, family: str) -> bool:
    """Whether texts begin with the begin-of-text token: as stated; Llama 3 does, of the others none."""
    return family == "llama-bpe" if stated is None else bool(stated)


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    for name in ("lstrip", "rstrip", "single_word"):
        if entry.get(name):
            raise ConvertError(
                f"the added token {entry['content']!r} sets {name}",
                "tokenizer, added_tokens",
                "The library matches added tokens exactly; clear the option if the model does not need it.",
            )
    special = bool(entry.get("special"))
    return AddedToken(entry["id"], entry["content"], special, bool(entry.get("normalized", not special)))


def _merge(merge: str | list[str] | tuple[str, str]) -> tuple[str, str]:
    parts = merge.split(" ") if isinstance(merge, str) else list(merge)
    if len(parts) != 2:
        raise _unsupported(f"{merge!r} is not a pair", "merges")
    return parts[0], parts[1]


def _gguf_tokens(texts: list[str], types: list[int]) -> tuple[dict[str, int], list[AddedToken]]:
    """The merged vocabulary and the added tokens; unused ids and padding are in neither."""
    vocab: dict[str, int] = {}
    added: list[AddedToken] = []
    for index, (text, kind) in enumerate(zip(texts, types, strict=True)):
        padding = re.fullmatch(r"\[PAD(\d+)\]", text)
        if kind == UNUSED or (padding and kind != NORMAL) or not text:
            continue
        if kind in (CONTROL, UNKNOWN, USER_DEFINED):
            added.append(AddedToken(index, text, kind != USER_DEFINED))
        else:
            vocab[text] = index
    return vocab, added


def _token_text(token: str | Mapping[str, Any] | None) -> str:
    """A special token of tokenizer_config.json, given as text or as an object."""
    return token if isinstance(token, str) else (token or {}).get("content", "")


def _stop_ids(added: list[AddedToken], known: Iterable[int | None]) -> list[int]:
    """The known ids, then every other control token whose text is known to end a reply."""
    by_text = [t.id for name in STOP_TEXTS for t in added if t.control and t.text == name]
    return list(dict.fromkeys(i for i in [*known, *by_text] if i is not None))
