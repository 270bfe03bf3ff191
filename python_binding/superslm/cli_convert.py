# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""`superslm convert`: a checkpoint on disk becomes an artifact."""

from __future__ import annotations

import argparse
import io
import json
import lzma
import time
from pathlib import Path
from typing import Any

from superslm import _library, cli_schema
from superslm.cli_files import check_output, read_bytes, read_text, replacing
from superslm.cli_output import (
    CommandError,
    Progress,
    bytes_text,
    converter_packages,
    note,
    progress_bar,
    seconds,
)

MATRICES = {"q": "WQ", "k": "WK", "v": "WV", "o": "WO", "gate": "WG", "up": "WU", "down": "WD"}
MAX_RECORD = 1 << 28  # bytes of a calibration record; those of real models have a few MiB
CONVERTED, WRITTEN = 0.94, 0.97  # shares of the whole time; the rest makes the golden record


def add_parser(commands: Any) -> None:
    """Declares the command and its options."""
    parser = commands.add_parser(
        "convert",
        help="make an artifact of a GGUF file or a Hugging Face directory",
        description="Converts a model of the Llama, Qwen2 or Qwen3 family into one .sslm file.",
    )
    parser.add_argument("source", type=Path, help="a .gguf file, or a directory with config.json")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the .sslm file to write"
    )
    parser.add_argument(
        "--context-cap",
        type=int,
        metavar="N",
        help="most positions of a context (default: the trained length)",
    )
    parser.add_argument(
        "--weights", choices=("w8", "w4"), default="w8", help="bits per weight (default: %(default)s)"
    )
    parser.add_argument(
        "--keep-8bit",
        type=matrix_names,
        default=[],
        metavar="NAME,...",
        help="with --weights w4, matrices that stay at eight bits, of " + ",".join(MATRICES),
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--calibration-text", type=Path, metavar="FILE", help="UTF-8 text in place of the one that ships"
    )
    group.add_argument(
        "--calibration-record",
        type=Path,
        metavar="FILE",
        help="record of an earlier conversion (JSON, may be .xz)",
    )
    parser.add_argument(
        "--schema",
        type=cli_schema.named,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help=f"compile a schema into the artifact; may be repeated ({cli_schema.FORMATS})",
    )
    cli_schema.add_recursion(parser)
    parser.add_argument(
        "--chat-template",
        type=Path,
        metavar="FILE",
        help="Jinja template in place of the model's own, for one that the artifact cannot express",
    )
    parser.add_argument(
        "--export-record", type=Path, metavar="FILE", help="write the calibration record as JSON"
    )
    parser.set_defaults(function=command)


def matrix_names(text: str) -> list[str]:
    """NAME,NAME,... of the command line as the names of docs/numerics.md."""
    unknown = [name for name in text.split(",") if name not in MATRICES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no matrix; there are {','.join(MATRICES)}")
    return [MATRICES[name] for name in text.split(",")]


def command(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    start = time.monotonic()
    _check(options)
    text = read_text(
        options.calibration_text, "Give a UTF-8 text of 4,000 tokens or more, or leave the option out."
    )
    template = read_text(
        options.chat_template, "Give a Jinja template, such as the chat_template of a tokenizer_config.json."
    )
    record = _read_record(options.calibration_record)
    warnings: list[str] = []
    with progress_bar(f"Converting {options.source.name}") as progress:
        model = _integers(options, text, template, record, progress, warnings)
        with replacing(options.output) as path:
            _write(model, path, progress)
        if options.export_record is not None:
            _export(model.provenance["calibration_record"], options.export_record)
    for warning in warnings:
        note(warning)
    size = bytes_text(options.output.stat().st_size)
    print(f"{options.output}: {size}, converted in {seconds(time.monotonic() - start)}")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuses before the long work what would fail after it. Raises CommandError."""
    if options.keep_8bit and options.weights != "w4":
        raise CommandError(
            "--keep-8bit has no meaning with --weights w8", "Add --weights w4, or leave it out."
        )
    inputs = [options.calibration_text, options.calibration_record, options.chat_template]
    inputs += [file for _, file in options.schema]
    check_output(options.output, options.source, *inputs)
    if options.export_record is not None:
        check_output(options.export_record, options.source, *inputs)
        if options.export_record.absolute() == options.output.absolute():
            raise CommandError("the record and the model have one name", "Give --export-record another.")
    _library.library()  # it makes the golden record in the end


def _integers(
    options: argparse.Namespace,
    text: str | None,
    template: str | None,
    record: Any,
    progress: Progress,
    warnings: list[str],
) -> Any:
    with converter_packages():
        from superslm.convert.pipeline import convert, load_checkpoint

        schemas = cli_schema.read_sources(options.schema, options.recursion)
        checkpoint = load_checkpoint(options.source)
        if template is not None:
            checkpoint.use_chat_template(template)
        model = convert(
            checkpoint,
            weights=options.weights,
            context_cap=options.context_cap,
            keep_8bit=options.keep_8bit,
            calibration_text=text,
            calibration_record=record,
            schemas=schemas,
            progress=lambda fraction, what: progress(CONVERTED * fraction, what),
            warn=warnings.append,
        )
    reason = model.provenance["tokenizer"]["no_chat"]
    if reason is not None:
        warnings.append(f"The artifact has no chat format: {reason}. --chat-template takes another template.")
    return model


def _write(model: Any, path: Path, progress: Progress) -> None:
    """The artifact at a temporary place, with its golden record from the library itself."""
    from superslm.convert.writer import set_golden_record, write_artifact
    from superslm.engine import Model
    from superslm.golden import default_prompt, record

    def writing(done: int, size: int) -> None:
        progress(CONVERTED + (WRITTEN - CONVERTED) * done / size, f"Writing {bytes_text(size)}")

    def recording(fraction: float, what: str) -> None:
        progress(WRITTEN + (1 - WRITTEN) * fraction, f"Golden record: {what.lower()}")

    write_artifact(model, path, progress=writing)
    with Model.load(path) as loaded:
        golden = record(loaded, default_prompt(loaded), recording)
    set_golden_record(path, golden)


def _read_record(path: Path | None) -> Any:
    if path is None:
        return None
    remedy = "Give a file that --export-record wrote."
    data = read_bytes(path, remedy)
    try:
        if path.suffix == ".xz":  # a small file may unpack to terabytes
            data = lzma.LZMAFile(io.BytesIO(data)).read(MAX_RECORD + 1)
            if len(data) > MAX_RECORD:
                raise CommandError(f"{path} unpacks to more than {bytes_text(MAX_RECORD)}", remedy)
        return json.loads(data)
    except (ValueError, RecursionError, EOFError, lzma.LZMAError) as error:
        raise CommandError(f"{path} is not a calibration record: {error}", remedy) from None


def _export(record: Any, target: Path) -> None:
    with replacing(target) as path:
        path.write_text(json.dumps(record, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
