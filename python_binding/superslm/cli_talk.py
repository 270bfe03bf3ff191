# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""`superslm run`, `chat` and `score`: a model at work."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from superslm import cli_selection
from superslm.chat import Chat, turn
from superslm.cli_output import CommandError, note, printable, show_table
from superslm.engine import Model
from superslm.errors import ContextCapExceeded, KvBudgetExceeded  # type: ignore[attr-defined]
from superslm.sequence import Sequence
from superslm.structured import Structured

FULL = (ContextCapExceeded, KvBudgetExceeded)
HELP = "/reset starts over, /quit ends (or Ctrl-D), Ctrl-C ends a reply"


def add_parsers(commands: Any) -> None:
    """Declares the three commands and their options."""
    parser = commands.add_parser(
        "run", help="answer one prompt", description="Prints the reply as it is made."
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.add_argument("prompt", help="the text; - reads it from standard input")
    parser.add_argument("--chat", action="store_true", help="as a turn in the model's chat format")
    parser.add_argument("--schema", metavar="NAME", help="answer as this schema of the artifact demands")
    _add_talk_options(parser)
    parser.set_defaults(function=run)

    parser = commands.add_parser(
        "chat", help="talk to a model", description=f"A conversation: one line is one turn. {HELP}."
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    _add_talk_options(parser)
    parser.set_defaults(function=chat)

    parser = commands.add_parser(
        "score",
        help="how probable texts are",
        description="Prints the log-probability of each text in nats; several texts are ranked.",
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.add_argument("texts", nargs="+", metavar="text", help="a text to score")
    parser.add_argument("--after", default="", metavar="TEXT", help="what comes before each text")
    parser.add_argument("--tokens", action="store_true", help="print every token's value")
    parser.set_defaults(function=score)


def _add_talk_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--system", metavar="TEXT", help="instructions for the model (implies the chat format)"
    )
    parser.add_argument(
        "--max-tokens", type=_positive, default=256, metavar="N", help="longest reply (default: %(default)s)"
    )
    cli_selection.add_options(parser)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _stream(pieces: Iterator[str]) -> None:
    """Prints text as it comes; a full context ends it with a note."""
    try:
        for piece in pieces:
            sys.stdout.write(printable(piece) if sys.stdout.isatty() else piece)
            sys.stdout.flush()
    except FULL:
        print(flush=True)
        note("the context is full, the reply ends here")
    else:
        print(flush=True)


def _require_chat(model: Model) -> None:
    if not model.has_chat:
        raise CommandError(
            f"{model.name} has no chat format", "`superslm inspect` says why; use run without --chat."
        )


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    selection = cli_selection.selection_of(options)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    if not prompt:
        raise CommandError("the prompt is empty", "Give some text to answer or to continue.")
    with Model.load(options.model) as model, model.pool() as pool, pool.sequence() as sequence:
        if options.chat or options.system is not None:
            _require_chat(model)
            if options.schema is not None:
                sequence.bind_schema(options.schema)
            talk = Chat(sequence, options.system)
            if options.schema is not None:
                return _show(sequence.generate(turn(model, prompt), **_structured(options, selection)))
            _stream(talk.say(prompt, max_tokens=options.max_tokens, selection=selection))
        else:
            ids = model.tokenize(prompt)
            if options.schema is not None:
                return _show(sequence.generate(ids, **_structured(options, selection)))
            _stream(sequence.generate(ids, max_tokens=options.max_tokens, selection=selection))
    return 0


def _structured(options: argparse.Namespace, selection: Any) -> dict[str, Any]:
    return {"schema": options.schema, "max_tokens": options.max_tokens, "selection": selection}


def _show(result: Structured) -> int:
    print(printable(result.text) if sys.stdout.isatty() else result.text)
    if not result.complete:
        note("the text is not complete; raise --max-tokens")
    return 0 if result.complete else 1


def chat(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    selection = cli_selection.selection_of(options)
    with Model.load(options.model) as model, model.pool() as pool, pool.sequence() as sequence:
        _require_chat(model)
        talk = Chat(sequence, options.system)
        if sys.stdin.isatty():
            print(f"{options.model.name}: {HELP}")
        for line in _lines():
            if line == "/quit":
                break
            if line == "/reset":
                sequence.reset()
                talk = Chat(sequence, options.system)
            elif line.startswith("/"):
                note(f"unknown command; {HELP}")
            elif line:
                _turn(talk, sequence, line, options.max_tokens, selection)
    return 0


def _turn(talk: Chat, sequence: Sequence, line: str, max_tokens: int, selection: Any) -> None:
    with _stop_on_interrupt() as stopped:
        reply = talk.say(line, max_tokens=max_tokens, selection=selection)
        _stream(_until(stopped, reply))
    stats = sequence.stats()
    if stats.context_length >= stats.limit:
        note(f"all {stats.limit} positions are used; /reset starts over")


def _until(stopped: Callable[[], bool], pieces: Iterator[str]) -> Iterator[str]:
    for piece in pieces:
        yield piece
        if stopped():
            return


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C ends a reply between two tokens, so that the sequence stays as it should be."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _lines() -> Iterator[str]:
    """The user's lines, with a prompt and editing on a terminal."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            yield line.strip()
        return
    try:
        import readline  # noqa: F401  # gives input() editing and history
    except ImportError:
        pass
    while True:
        try:
            yield input("> ").strip()
        except EOFError:
            print()
            return


def score(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    if not all(options.texts):
        raise CommandError("a text to score is empty", "Give texts of at least one character.")
    results = []
    with Model.load(options.model) as model, model.pool() as pool, pool.sequence() as sequence:
        before = model.tokenize(options.after)
        for text in options.texts:
            ids = model.tokenize(text)
            if ids.size == 1 and not before.size:
                raise CommandError(
                    f"{text!r} is a single token, and nothing comes before it that could predict it",
                    "Say with --after what comes before, or give a longer text.",
                )
            sequence.reset()
            if before.size:
                sequence.prefill(before)
            values = sequence.score(ids)
            scored = values if before.size else values[1:]  # nothing predicts a first token
            results.append((float(scored.sum()), len(scored), text))
            if options.tokens:
                show_table(
                    (f"{value:9.4f}", repr(model.detokenize([i])))
                    for i, value in zip(ids, values, strict=True)
                )
    for total, count, text in sorted(results, key=lambda result: -result[0]):
        print(f"{total:10.4f} nats  {count:4} tokens  perplexity {math.exp(-total / count):9.3f}  {text}")
    return 0
