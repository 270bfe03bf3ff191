# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""`superslm schema`: compiles schemas into an artifact and tries texts on them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from superslm.cli_files import check_output
from superslm.cli_output import (
    CommandError,
    bytes_text,
    converter_packages,
    note,
    progress_bar,
    seconds,
    show_table,
    shows_help,
)

FORMATS = ".json: a JSON Schema or a list of choices; .regex: a pattern; .txt: a choice per line"


def add_parsers(commands: Any) -> None:
    """Declares the commands and their options."""
    schema = commands.add_parser(
        "schema", help="make replies follow a schema", description="Schemas of an artifact."
    )
    actions = schema.add_subparsers(dest="action", metavar="action")
    schema.set_defaults(function=shows_help(schema))

    parser = actions.add_parser(
        "add",
        help="compile schemas into a copy of an artifact",
        description=f"Old saves and adapters keep working with the copy. Files: {FORMATS}.",
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.add_argument("schemas", nargs="+", type=named, metavar="NAME=FILE", help="a name and its source")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the .sslm file to write"
    )
    add_recursion(parser)
    parser.set_defaults(function=add)

    parser = actions.add_parser("list", help="the schemas of an artifact")
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.set_defaults(function=show)

    parser = actions.add_parser(
        "test", help="whether a schema accepts a text", description="Exit code 0: accepted; 1: not, and why."
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.add_argument("name", help="a schema of it")
    parser.add_argument("text", help="the text")
    parser.set_defaults(function=test)


def add_recursion(parser: argparse.ArgumentParser) -> None:
    """Declares --recursion."""
    parser.add_argument(
        "--recursion",
        type=int,
        default=3,
        metavar="N",
        help="how often a $ref may lie in itself (default: 3)",
    )


def named(text: str) -> tuple[str, Path]:
    """NAME=FILE of the command line."""
    name, equals, path = text.partition("=")
    if not name or not equals or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, Path(path)


def read_sources(schemas: Sequence[tuple[str, Path]], recursion: int) -> dict[str, Any]:
    """The sources of NAME=FILE options by name. Raises CommandError and SchemaError."""
    if recursion < 0:
        raise CommandError(f"--recursion {recursion} is negative", "Give 0 or more.")
    names = [name for name, _ in schemas]
    for name in names:
        if names.count(name) > 1:
            raise CommandError(f"the schema {name!r} is given twice", "Give each its own name.")
    return {name: _read_source(file, recursion) for name, file in schemas}


def _read_source(file: Path, recursion: int) -> Any:
    from superslm.convert.schema import load_source

    try:
        return load_source(file, recursion)
    except OSError as error:
        raise CommandError(
            f"{file}: {error.strerror}", "Give NAME=FILE with a schema's file, such as order=order.json."
        ) from None


def add(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    start = time.monotonic()
    if not (options.output.exists() and options.output.samefile(options.model)):  # in place is fine
        check_output(options.output, *(file for _, file in options.schemas))
    with converter_packages():
        sources = read_sources(options.schemas, options.recursion)
        from superslm.convert.schema import add_schemas

        with progress_bar("Compiling schemas") as progress:
            size = add_schemas(options.model, sources, options.output, progress)
    names = ", ".join(name for name, _ in options.schemas)
    print(
        f"{options.output}: {names}; all schemas take {bytes_text(size)}, {seconds(time.monotonic() - start)}"
    )
    return 0


def show(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from superslm.engine import Model

    with Model.load(options.model) as model:
        if not model.schemas:
            note("no schemas; `superslm schema add` compiles some")
        for name, schema in model.schemas.items():
            states, classes = schema.automaton.next.shape
            longest = schema.automaton.longest()
            bound = "no bound" if longest is None else f"up to {longest} tokens"
            show_table([(name, f"{states} states, {classes} token classes, {bound}")])
    return 0


def test(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from superslm.engine import Model

    with Model.load(options.model) as model:
        schema = model.schemas.get(options.name)
        if schema is None:
            known = ", ".join(model.schemas) or "none"
            raise CommandError(f"{options.model} has no schema {options.name!r}", f"It has: {known}.")
        tokens = model.tokenize(options.text)
        legal, state = schema.test(tokens)
        if state is not None and schema.accepts(state):
            print(f"accepted, {len(tokens)} tokens")
            return 0
        if state is not None:
            print(f"incomplete: more must follow behind {options.text!r}")
            return 1
        before, stopped = model.detokenize(tokens[:legal]), model.detokenize(tokens[legal : legal + 1])
        print(f"refused: behind {before!r} the schema does not allow {stopped!r}")
        return 1
