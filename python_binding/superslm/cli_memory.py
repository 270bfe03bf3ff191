# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""`superslm memory`: how many pages a cast of characters needs, and what they are for."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superslm.cli_files import check_output, replacing
from superslm.cli_output import CommandError, bytes_text, show_table
from superslm.engine import Model
from superslm.page_map import Group, page_map_svg, page_map_text


@dataclass(frozen=True)
class Cast:
    """Who plays: a world of `world` positions, `personas` of `persona` positions on it, `sequences` of a budget.

    What is absent is 0. Each sequence adopts a persona, or the world where there is none.
    """

    world: int = 0
    personas: int = 0
    persona: int = 0
    sequences: int = 0
    budget: int = 0

    @property
    def origin(self) -> int:
        """Positions that a sequence adopts."""
        return self.world + self.persona


@dataclass(frozen=True)
class Geometry:
    """What a model's K/V memory is made of: positions and bytes per page, and the context cap in positions."""

    page_positions: int
    page_size: int
    cap: int

    def covering(self, positions: int) -> int:
        """Pages that hold this many positions."""
        return -(-positions // self.page_positions)

    def reservation(self, budget: int) -> int:
        """Pages that a holder of this budget reserves: one more than it fills, for an origin inside a page."""
        return min(self.covering(budget) + 1, self.covering(self.cap))

    def shared(self, origin: int) -> int:
        """Pages that a holder shares with what it continues; a context of one page is copied."""
        return origin // self.page_positions if self.covering(self.cap) > 1 else 0


@dataclass(frozen=True)
class Plan:
    """Pages of a cast, each counted with the holder it belongs to."""

    geometry: Geometry
    cast: Cast
    keeps_world: bool
    world: int  # pages that stay of the world
    persona: int  # pages of one persona beyond those it shares
    sequence: int  # pages of one sequence beyond those it shares
    peak: int  # pages at once, while the prefixes are filled too

    @property
    def resting(self) -> int:
        """Pages of the whole cast once the prefixes are frozen."""
        return self.world + self.cast.personas * self.persona + self.cast.sequences * self.sequence

    @property
    def pages(self) -> int:
        """Pages that the pool needs."""
        return max(self.resting, self.peak)

    @property
    def shared_by_sequence(self) -> int:
        """Pages that a sequence maps without owning them."""
        return self.geometry.shared(self.cast.origin)

    @property
    def materialized(self) -> int:
        """Further pages of a sequence that is restored without its prefix, until it resets or adopts."""
        full = self.cast.origin // self.geometry.page_positions
        return min(full, self.geometry.covering(self.geometry.cap) - self.sequence)

    @property
    def holders(self) -> int:
        """Handles that live in the end."""
        return self.cast.personas + self.cast.sequences + int(self.keeps_world and self.cast.world > 0)

    def groups(self) -> list[Group]:
        """The pages by kind of holder: name, holders, pages of each."""
        parts = [
            Group("world", 1 if self.cast.world else 0, self.world),
            Group("persona", self.cast.personas, self.persona),
            Group("sequence", self.cast.sequences, self.sequence),
        ]
        return [part for part in parts if part.holders and part.pages]


def make_plan(geometry: Geometry, cast: Cast, keep_world: bool = False) -> Plan:
    """The pages of a cast. A world is released once its personas stand on it, unless it is kept.

    Raises:
        CommandError: a part does not fit the model's context.
    """
    _check(geometry, cast)
    keeps = keep_world or cast.personas == 0
    world = geometry.covering(cast.world) if keeps else geometry.shared(cast.world)
    persona = geometry.covering(cast.origin) - geometry.shared(cast.world) if cast.personas else 0
    sequence = geometry.reservation(cast.budget) if cast.sequences else 0
    # A prefix holds its whole reservation until it is frozen.
    filling = [geometry.reservation(cast.world)] if cast.world else [0]
    if cast.personas:
        before = geometry.covering(cast.world) + (cast.personas - 1) * persona
        filling.append(before + geometry.reservation(cast.persona))
    return Plan(geometry, cast, keeps, world, persona, sequence, max(filling))


def _check(geometry: Geometry, cast: Cast) -> None:
    cap = geometry.cap
    if cast.origin > cap:
        raise CommandError(
            f"the prefixes fill {cast.origin} positions, the model's context has {cap}",
            "Shorten the world or the personas.",
        )
    if cast.budget > cap:
        raise CommandError(
            f"a budget of {cast.budget} positions exceeds the model's context of {cap}",
            f"Give at most {cap}; what a sequence adopts does not count.",
        )
    if not (cast.world or cast.personas or cast.sequences):
        raise CommandError(
            "there is nobody to plan for",
            "Give some of them, as in --world 1000 --personas 10x200 --sequences 50x512.",
        )


# ---- The command ----


def add_parser(commands: Any) -> None:
    """Declares the command and its options."""
    parser = commands.add_parser(
        "memory",
        help="plan the K/V memory of a cast of characters",
        description="Prints how many pages and MiB a cast needs, who holds them, and what whole contexts would take.",
        epilog="Example: superslm memory model.sslm --world 1000 --personas 10x200 --sequences 50x512",
    )
    parser.add_argument("model", type=Path, help="an .sslm file")
    parser.add_argument(
        "--world", type=_positions, default=0, metavar="N", help="positions of a prompt for all"
    )
    parser.add_argument(
        "--personas", type=_times, default=(0, 0), metavar="COUNTxN", help="prefixes of N further positions"
    )
    parser.add_argument(
        "--sequences", type=_times, default=(0, 0), metavar="COUNTxN", help="sequences of budget N"
    )
    parser.add_argument(
        "--keep-world", action="store_true", help="the world is not released after its personas were made"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the page map into a file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(function=memory)


def _positions(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of positions, such as 1000")
    return int(text)


def _times(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,9})", text)
    if match is None or int(match[1]) == 0 or int(match[2]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no count and number of positions, such as 10x200")
    return int(match[1]), int(match[2])


def memory(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    if options.svg is not None:
        check_output(options.svg, options.model)
        if options.svg.suffix.lower() != ".svg":
            raise CommandError(
                f"the page map is SVG, and {options.svg} is not", "Name a file that ends in .svg."
            )
    with Model.load(options.model) as model:
        geometry = Geometry(model.page_positions, model.page_size, model.info.cap)
    cast = Cast(options.world, *options.personas, *options.sequences)
    plan = make_plan(geometry, cast, options.keep_world)
    if options.json:
        print(json.dumps(facts(plan), indent=2))
    else:
        show_table(_rows(plan), f"{options.model}: pages of {geometry.page_positions} positions")
        print("\n" + page_map_text(plan.groups()))
    if options.svg is not None:
        title = f"{plan.resting} pages of {bytes_text(geometry.page_size)}"
        with replacing(options.svg) as path:
            path.write_text(page_map_svg(plan.groups(), title), encoding="utf-8")
        if not options.json:
            print(f"page map: {options.svg}")
    return 0


def facts(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON values; sizes in bytes."""
    page = plan.geometry.page_size
    return {
        "page_positions": plan.geometry.page_positions,
        "page_size": page,
        "holders": {g.name: {"count": g.holders, "pages_each": g.pages} for g in plan.groups()},
        "shared_by_sequence": plan.shared_by_sequence if plan.cast.sequences else 0,
        "resting_pages": plan.resting,
        "peak_pages": plan.peak,
        "pages": plan.pages,
        "size": plan.pages * page,
        "private_restore_pages": plan.resting + plan.cast.sequences * plan.materialized,
        "whole_contexts": plan.holders,
        "whole_contexts_size": plan.holders * _context_size(plan.geometry),
    }


def _context_size(geometry: Geometry) -> int:
    return geometry.cap * geometry.page_size // geometry.page_positions


def _rows(plan: Plan) -> list[tuple[str, str]]:
    cast, geometry = plan.cast, plan.geometry
    rows = []
    if cast.world:
        what = f"{cast.world} positions"
        if not plan.keeps_world:
            what += ", released: its full pages stay with the personas"
        rows.append(("world", f"{_pages(plan.world)}: {what}"))
    if cast.personas:
        shared = geometry.shared(cast.world)
        what = f"{cast.persona} positions each" + (
            f", sharing {_pages(shared)} of the world" if shared else ""
        )
        rows.append(("personas", f"{cast.personas} x {_pages(plan.persona)}: {what}"))
    if cast.sequences:
        limit = min(cast.origin + cast.budget, geometry.cap)
        what = f"budget {cast.budget}, up to position {limit}"
        if plan.shared_by_sequence:
            what += f", sharing {_pages(plan.shared_by_sequence)}"
        rows.append(("sequences", f"{cast.sequences} x {_pages(plan.sequence)}: {what}"))
    rows.append(("together", f"{_pages(plan.pages)}, {mib(plan.pages * geometry.page_size)}"))
    if plan.peak > plan.resting:
        rows.append(("", f"{_pages(plan.resting)} once the prefixes are frozen"))
    whole = plan.holders * _context_size(geometry)
    rows.append(("whole contexts", f"{plan.holders} x {bytes_text(_context_size(geometry))}: {mib(whole)}"))
    if cast.sequences and plan.materialized:
        private = plan.resting + cast.sequences * plan.materialized
        rows.append(
            (
                "saves",
                f"{_pages(private)}, {mib(private * geometry.page_size)}, while all sequences are restored "
                "without their prefix at hand",
            )
        )
    return rows


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count:,} pages"


def mib(size: int) -> str:
    """A size in MiB, to a tenth."""
    return f"{size / 2**20:,.1f} MiB"
