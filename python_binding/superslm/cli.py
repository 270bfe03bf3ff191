# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The command line: superslm convert | convert-adapter | inspect | verify | run | chat |
score | memory | schema.

Exit codes: 0 done, 1 refused or failed (the reason is on standard error), 2 wrong usage, 130 interrupted,
143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from superslm import __version__, cli_adapter, cli_convert, cli_inspect, cli_memory, cli_schema, cli_talk
from superslm._library import LibraryMismatch, SuperslmError
from superslm.artifact import ArtifactError
from superslm.cli_files import cleaning_up_when_ended
from superslm.cli_output import CommandError, show_error, shows_help


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="superslm",
        description="Small language models inside games.",
        epilog="`superslm COMMAND --help` says more about one.",
    )
    top.add_argument("--version", action="version", version=f"superslm {__version__}")
    commands = top.add_subparsers(dest="command", metavar="command")
    top.set_defaults(function=shows_help(top))
    cli_convert.add_parser(commands)
    cli_adapter.add_parser(commands)
    cli_inspect.add_parsers(commands)
    cli_talk.add_parsers(commands)
    cli_memory.add_parser(commands)
    cli_schema.add_parsers(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        with cleaning_up_when_ended():
            return int(options.function(options))
    except CommandError as error:
        show_error(error.what, error.remedy)
    except (ArtifactError, LibraryMismatch, SuperslmError) as error:
        show_error(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader has gone, as in `superslm run ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        known = [str(part) for part in (error.filename, error.strerror) if part is not None]
        show_error(": ".join(known) or str(error))
    except MemoryError:
        show_error("there is not enough memory", "Close other programs, or use a smaller model or context.")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except Exception as error:
        if not _is_refusal(error):
            raise
        show_error(f"{error.where}: {error.what}", error.remedy)  # type: ignore[attr-defined]
    return 1


def _is_refusal(error: Exception) -> bool:
    """Whether it is a ConvertError; its module is there only once the converter was loaded."""
    module = sys.modules.get("superslm.convert.checkpoint")
    return module is not None and isinstance(error, module.ConvertError)


if __name__ == "__main__":
    sys.exit(main())
