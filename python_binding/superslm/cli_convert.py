# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""`superslm convert`: a checkpoint on disk becomes an artifact."""

from __future__ import annotations

import argparse
import json
import lzma
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from superslm import cli_schema
from superslm.cli_output import CommandError, Progress, bytes_text, note, progress_bar, seconds

MATRICES = ("WQ", "WK", "WV", "WO", "WG", "WU", "WD")
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
        nargs="+",
        choices=MATRICES,
        default=[],
        metavar="MATRIX",
        help="with --weights w4, matrices that stay at eight bits: " + " ".join(MATRICES),
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


def command(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    start = time.monotonic()
    _check_output(options.output, options.source)
    if options.export_record is not None:
        _check_output(options.export_record, options.source)
    text, template = _read_text(options.calibration_text), _read_text(options.chat_template)
    record = _read_record(options.calibration_record)
    warnings: list[str] = []
    with progress_bar(f"Converting {options.source.name}") as progress:
        model = _integers(options, text, template, record, progress, warnings)
        with _replacing(options.output) as path:
            _write(model, path, progress)
            if options.schema:
                cli_schema.compile_into(path, options.schema, options.recursion, path, progress)
        if options.export_record is not None:
            _export(model.provenance["calibration_record"], options.export_record)
    for warning in warnings:
        note(warning)
    size = bytes_text(options.output.stat().st_size)
    print(f"{options.output}: {size}, converted in {seconds(time.monotonic() - start)}")
    return 0


def _integers(
    options: argparse.Namespace,
    text: str | None,
    template: str | None,
    record: Any,
    progress: Progress,
    warnings: list[str],
) -> Any:
    try:
        from superslm.convert.pipeline import convert, load_checkpoint

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
            progress=lambda fraction, what: progress(CONVERTED * fraction, what),
            warn=warnings.append,
        )
    except ModuleNotFoundError as error:  # the readers of a format are imported when it is met
        raise CommandError(
            f"the converter needs the package {error.name}",
            "Install it with: pip install 'superslm[convert]'",
        ) from None
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


@contextmanager
def _replacing(output: Path) -> Iterator[Path]:
    """A path beside `output` whose file takes its name on success; nothing is left behind on failure."""
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder:
        path = Path(folder) / output.name
        yield path
        os.replace(path, output)


def _check_output(output: Path, source: Path) -> None:
    """Refuses an impossible output before the long work, not after it."""
    if output.is_dir():
        raise CommandError(f"{output} is a directory", f"Give a file name, such as {output / 'model.sslm'}.")
    if not output.parent.is_dir():
        raise CommandError(f"the directory {output.parent} does not exist", "Create it first.")
    if not os.access(output.parent, os.W_OK):
        raise CommandError(f"the directory {output.parent} cannot be written", "Choose another place.")
    if output.exists() and source.exists() and output.samefile(source):
        raise CommandError(f"{output} is the source itself", "Choose another name for the output.")


def _read_text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: byte {error.start} is not UTF-8", "Save the text as UTF-8.") from None


def _read_record(path: Path | None) -> Any:
    if path is None:
        return None
    data = path.read_bytes()
    remedy = "Give a file that --export-record wrote."
    try:
        return json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
    except (ValueError, lzma.LZMAError) as error:
        raise CommandError(f"{path} is not a calibration record: {error}", remedy) from None


def _export(record: Any, target: Path) -> None:
    with _replacing(target) as path:
        path.write_text(json.dumps(record, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
