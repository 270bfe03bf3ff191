# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""From a source on disk to the integer model: open, tokenise, calibrate, quantise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact import MAGIC, MAX_STOP_IDS
from .calibrate import MINIMUM_TOKENS, calibrate, chatml, default_calibration_text
from .chat_format import ChatFormatError, render
from .checkpoint import Checkpoint, ConvertError
from .quantize import Progress, check_options, check_record, quantize
from .quantized import QuantizedModel
from .tokenizer import TokenizerSource, TokenizerTables, build_tokenizer, hf_tokenizer

if TYPE_CHECKING:
    from .schema import Source

CALIBRATION_SHARE = 0.85  # of the time of a conversion

Tokenize = Callable[[str], list[int]]


def load_checkpoint(source: str | Path) -> Checkpoint:
    """Opens a GGUF file or a Hugging Face directory.

    Raises:
        ConvertError: it is neither, is damaged, or holds a model that is not supported.
    """
    path = Path(source)
    if path.is_dir():
        from .source_huggingface import load_huggingface

        return load_huggingface(path)
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(MAGIC))
    except OSError as error:
        raise ConvertError(error.strerror or "it cannot be read", str(path), "Check the path.") from None
    if magic == MAGIC:
        raise ConvertError(
            "this is an artifact already",
            str(path),
            "Use it as it is, or give the model that it was made of.",
        )
    if magic[:4] != b"GGUF":
        raise ConvertError(
            "this is neither a GGUF file nor a directory",
            str(path),
            "Give a .gguf file, or the directory that holds config.json and the safetensors weights.",
        )
    from .source_gguf import load_gguf

    return load_gguf(path)


def calibration_ids(
    tokenizer: TokenizerSource,
    tokenize: Tokenize | None = None,
    text: str | None = None,
) -> list[int]:
    """Token ids of the calibration text, the default one with its dialogues in the model's chat format.

    Args:
        tokenizer: the model's tokenizer.
        tokenize: text to ids, control tokens recognised; None: the tokenizer's own.
        text: a calibration text; None: the one that ships with the package.
    Raises:
        ConvertError: a given text is too short.
    """
    template = tokenizer.chat_template

    def chat(messages: list[dict[str, str]]) -> str:
        try:
            return render(template or "", messages, False, tokenizer.bos_text, tokenizer.eos_text)
        except ChatFormatError:  # such as a template without a system role
            return chatml(messages)

    given = text is not None
    if text is None:
        text = default_calibration_text(chat if template else None)
    if tokenize is None:
        encoder = hf_tokenizer(tokenizer)
        ids = encoder.encode(text, add_special_tokens=False).ids
    else:
        ids = tokenize(text)
    if given and len(ids) < MINIMUM_TOKENS:
        raise ConvertError(
            f"{len(ids)} tokens, at least {MINIMUM_TOKENS} are needed",
            "calibration text",
            "Use a longer text, with dialogue in the chat format, or leave the option out.",
        )
    return ids


def convert(
    source: str | Path | Checkpoint,
    *,
    weights: str = "w8",
    context_cap: int | None = None,
    keep_8bit: Iterable[str] = (),
    calibration_text: str | None = None,
    calibration_record: dict[str, Any] | None = None,
    schemas: Mapping[str, Source] | None = None,
    tokenize: Tokenize | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], None] | None = None,
) -> QuantizedModel:
    """Converts a model to integers, tokenizer included.

    Args:
        source: a GGUF file, a Hugging Face directory, or an open checkpoint.
        weights: "w8" or "w4".
        context_cap: most positions of a sequence; None: the trained length.
        keep_8bit: with "w4", matrices that stay at eight bits, of WQ WK WV WO WG WU WD.
        calibration_text: a text in the model's language with dialogue in its chat format.
        calibration_record: the record of an earlier conversion of this model; no text is then needed.
        schemas: what to compile into the artifact, by name.
        tokenize: text to ids; None: the model's own tokenizer.
        progress: called with a fraction 0..1 and what is being done.
        warn: called with a sentence the user should read.
    Raises:
        ConvertError: the model cannot be converted; whatever can be known before the long work is said before it.
    """
    say, report = warn or (lambda text: None), progress or (lambda fraction, text: None)
    report(0.0, "Reading the source")
    checkpoint = source if isinstance(source, Checkpoint) else load_checkpoint(source)
    config = checkpoint.config
    check_options(weights, config.context_length if context_cap is None else context_cap, keep_8bit)
    if calibration_record is not None:
        check_record(calibration_record, config)
    tokenizer, tables = _tokenizer(checkpoint)
    for text in (*checkpoint.warnings, *tables.warnings):
        say(text)
    if context_cap is not None and context_cap > config.context_length:
        say(
            f"The context cap of {context_cap} positions is beyond the {config.context_length} the model was "
            "trained for; replies may fall apart there."
        )
    automata = _compiled(schemas, tables, config.vocab, report)
    start = 0.0
    if calibration_record is None:
        start = CALIBRATION_SHARE
        ids = calibration_ids(tokenizer, tokenize, calibration_text)
        calibration_record = calibrate(checkpoint, ids, progress=lambda f, text: report(start * f, text))
    model = quantize(
        checkpoint,
        calibration_record,
        weights=weights,
        context_cap=context_cap,
        keep_8bit=keep_8bit,
        progress=lambda f, text: report(start + (1 - start) * f, text),
    )
    model.tokenizer, model.schemas = tables, automata
    model.stop_ids = list(tables.stop_ids)
    model.provenance["chat_template"] = tokenizer.chat_template
    model.provenance["tokenizer"] = {
        "pre_tokenizer": tokenizer.family,
        "missing_bytes": tables.missing_bytes,
        "no_chat": tables.chat_absent,
    }
    return model


def _tokenizer(checkpoint: Checkpoint) -> tuple[TokenizerSource, TokenizerTables]:
    """A checkpoint's tokenizer and its tables. Raises ConvertError, also where the source's data make no sense."""
    try:
        source = TokenizerSource.from_checkpoint(checkpoint)
        tables = None if source is None else build_tokenizer(source, checkpoint.config.vocab)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ConvertError(
            f"its tokenizer is damaged ({type(error).__name__}: {error})",
            checkpoint.source_name,
            "Download the model again.",
        ) from error
    if source is None or tables is None:
        raise ConvertError(
            "it has no tokenizer",
            checkpoint.source_name,
            "Put the model's tokenizer.json beside config.json.",
        )
    if len(tables.stop_ids) > MAX_STOP_IDS:
        raise ConvertError(
            f"{len(tables.stop_ids)} ids end a reply, an artifact holds {MAX_STOP_IDS}",
            checkpoint.source_name,
            "Shorten the list eos_token_id of generation_config.json to those the chat format uses.",
        )
    return source, tables


def _compiled(
    schemas: Mapping[str, Source] | None, tables: TokenizerTables, vocab: int, report: Progress
) -> bytes | None:
    """The schema section for a tokenizer, or None without schemas. Raises SchemaError."""
    if not schemas:
        return None
    from .schema import Vocabulary, compile_schema, pack

    vocabulary = Vocabulary.from_section(tables.section_bytes(), vocab)
    automata = {}
    for name, source in schemas.items():
        report(0.0, f"Compiling schema {name}")
        automata[name] = compile_schema(source, vocabulary, name)
    return pack(automata)
