# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Compiles JSON Schemas, regular expressions and choice lists to automata over a model's token ids.

    JSON Schema --json_schema--> bytes --tokens--> token classes --section--> SCHM of the artifact

`patterns` reads expressions, for which outlines-core builds the classes; `numbers` writes them for bounds, `strings`
escapes; `automaton` composes and minimises.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...artifact import CONFIG, Artifact
from ..writer import set_section
from .automaton import Dfa, Graph, SchemaError
from .json_schema import RECURSION, compile_json_schema
from .patterns import whole
from .section import pack, unpack
from .tokens import TokenAutomaton, over_tokens
from .vocabulary import Vocabulary

__all__ = [
    "JsonSchema",
    "Regex",
    "Choices",
    "SchemaError",
    "TokenAutomaton",
    "Vocabulary",
    "add_schemas",
    "compile_schema",
    "load_source",
    "pack",
    "unpack",
]


@dataclass(frozen=True)
class JsonSchema:
    """JSON whose value satisfies a schema; `recursion` is how often a `$ref` may lie inside itself."""

    schema: dict[str, Any]
    recursion: int = RECURSION

    def automaton(self, vocabulary: Vocabulary) -> Dfa:
        return compile_json_schema(self.schema, vocabulary.lacking, self.recursion)


@dataclass(frozen=True)
class Regex:
    """Text that matches a pattern from end to end."""

    pattern: str

    def automaton(self, vocabulary: Vocabulary) -> Dfa:
        result = whole(self.pattern, "regex")
        if result.empty:
            raise SchemaError(f"nothing matches {self.pattern!r}", "regex", "Correct the pattern.")
        return result


@dataclass(frozen=True)
class Choices:
    """One of several texts."""

    texts: tuple[str, ...]

    def automaton(self, vocabulary: Vocabulary) -> Dfa:
        if not self.texts or not all(self.texts):
            raise SchemaError(
                "a choice without text", "choices", "List at least one text, none of them empty."
            )
        graph = Graph()
        start, end = graph.node(), graph.node()
        for text in self.texts:
            graph.join(graph.literal(start, text.encode()), end)
        return graph.deterministic(start, end)


Source = JsonSchema | Regex | Choices


def compile_schema(source: Source, vocabulary: Vocabulary, path: str = "$") -> TokenAutomaton:
    """Compiles one source for one vocabulary.

    Raises:
        SchemaError: it cannot be compiled; the message names the part.
    """
    try:
        return over_tokens(source.automaton(vocabulary), vocabulary.texts, path)
    except RecursionError:
        raise SchemaError("it is nested too deeply", path, "Make it flatter.") from None


def add_schemas(
    path: str | os.PathLike[str],
    sources: Mapping[str, Source],
    output: str | os.PathLike[str] | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> int:
    """Compiles schemas into an artifact, beside those it has; a name that it has is replaced.

    Args:
        path: an existing artifact with a tokenizer.
        sources: what to compile, by name.
        output: the file to write; default: in place. The model digest stays, so saves and adapters keep working.
        progress: called with a share of the work and what is being done.

    Returns:
        The bytes that all schemas of the artifact take.

    Raises:
        SchemaError: a source that does not compile, or an artifact without a tokenizer.
        ArtifactError: the file is no intact artifact.
    """
    report = progress or (lambda share, text: None)
    artifact = Artifact(path)
    tokenizer, section = artifact.section("TOKN"), artifact.section("SCHM")
    if tokenizer is None:
        raise SchemaError("the artifact has no tokenizer", str(path), "Convert a model that has one.")
    vocabulary = Vocabulary.from_section(tokenizer, CONFIG.unpack(artifact.section("CONF"))[6])
    automata = (
        {} if section is None else {name: automaton for name, (automaton, _) in unpack(section).items()}
    )
    for i, (name, source) in enumerate(sources.items()):
        report(i / len(sources), f"Compiling schema {name}")
        automata[name] = compile_schema(source, vocabulary, name)
    report(1.0, "Writing schemas")
    data = pack(automata)
    set_section(path, "SCHM", data, output=output)
    return len(data)


def load_source(path: str | os.PathLike[str], recursion: int = RECURSION) -> Source:
    """Reads a source: .json holds a JSON Schema or a list of choices, .regex a pattern, .txt a choice per line.

    Raises:
        SchemaError: another suffix, or content that is not what the suffix says.
        OSError: the file cannot be read.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SchemaError(f"byte {error.start} is not UTF-8", str(path), "Save the file as UTF-8.") from None
    if path.suffix == ".regex":
        return Regex(text.removesuffix("\n"))
    if path.suffix == ".txt":
        return Choices(tuple(line for line in text.splitlines() if line))
    if path.suffix != ".json":
        raise SchemaError(f"the suffix {path.suffix!r}", str(path), "Use .json, .regex or .txt.")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise SchemaError(f"this is not JSON: {error}", str(path), "Correct the file.") from None
    except RecursionError:
        raise SchemaError("it is nested too deeply", str(path), "Make it flatter.") from None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return Choices(tuple(value))
    if not isinstance(value, dict):
        raise SchemaError("neither a schema nor a list of texts", str(path), "Write an object or a list.")
    return JsonSchema(value, recursion)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} appears twice")
    return out
