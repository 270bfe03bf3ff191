# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Options that say how tokens are chosen, shared by the commands that generate."""

from __future__ import annotations

import argparse

from superslm.cli_output import CommandError
from superslm.selection import Damped, Sampling, SamplingArray, Selection


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "--decode",
        choices=("greedy", "damped"),
        help="greedy: always the best token (default); damped: the best one that does not repeat the text",
    )
    group = parser.add_argument_group(
        "sampling", "Draws tokens; the same seed gives the same text everywhere."
    )
    group.add_argument("--seed", type=int, metavar="N", help="draw with this seed, 0 to 2^64-1")
    group.add_argument(
        "--temperature", type=float, metavar="T", help="below 1 careful, above 1 wild (default: 1)"
    )
    group.add_argument(
        "--top-p", type=float, metavar="P", help="keep the best tokens of this probability together"
    )
    group.add_argument("--top-k", type=int, metavar="K", help="keep this many of the best tokens")
    group.add_argument("--min-p", type=float, metavar="P", help="drop tokens below this part of the best one")


def selection_of(options: argparse.Namespace) -> Selection | None:
    """The selection that the options ask for; None is greedy. Raises CommandError."""
    given = {name: getattr(options, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    given = {name: value for name, value in given.items() if value is not None}
    if options.seed is None:
        if given:
            raise CommandError("sampling needs a seed", "Add --seed N.")
        return Damped() if options.decode == "damped" else None
    if options.decode is not None:
        raise CommandError("--decode and --seed exclude each other", "Leave one of them out.")
    if not 0 <= options.seed < 1 << 64:
        raise CommandError(f"seed {options.seed} is out of range", "Give a number from 0 to 2^64-1.")
    sampling = Sampling(options.seed, **given)
    try:
        SamplingArray([sampling])  # its checks, before a model is loaded
    except ValueError as error:
        raise CommandError(str(error), "See --help for what the sampling options mean.") from None
    return sampling
