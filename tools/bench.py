#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Speed and memory on this machine, beside the machine's limits and, if asked, beside other engines.

    python tools/dev.py bench                                        SmolLM2, eight bits
    python tools/dev.py bench --model qwen0.5b-shape --weights w4 --peer llama.cpp --json figures.json --docs
    python tools/dev.py bench --from figures.json --plot figures.svg

Engines run in processes of their own and take turns, sample by sample: a ratio compares neighbours. Printed are
medians and, in brackets, the range over all rounds. Decode and prefill include the choice of the next token.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bench_models
import bench_plot
import bench_report
import dev
from bench_engines import PEERS, Engine, Watch, compiler_of, requantise, start
from doc_figures import commit, processor

OURS = "superslm"
STEPS = 24  # tokens of a decode sample
SAMPLE_GAP = 0.05  # seconds between two engines' samples: spinning threads go to sleep
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One thing that is measured. `goals` are ratios to llama.cpp by weights."""

    name: str
    title: str
    verb: str
    arguments: dict[str, int] = field(default_factory=dict)
    goals: dict[str, float] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        return self.arguments.get("threads", 1)

    @property
    def tokens(self) -> int:
        """Tokens of a sample; 0: its time is the figure."""
        if self.verb == "decode":
            return self.arguments["batch"] * STEPS
        return self.arguments.get("length", 0)


def _decode(context: int, threads: int, batch: int = 1, **goals: float) -> Row:
    many = f"batch of {batch}" if batch > 1 else "decode"
    arguments = {"context": context, "batch": batch, "threads": threads, "steps": STEPS}
    title = f"{many} at {context:,}, {_threads(threads)}"
    return Row(f"{many.split()[0]}-{context}-{threads}t", title, "decode", arguments, goals)


def _prefill(length: int, threads: int, **goals: float) -> Row:
    arguments = {"length": length, "threads": threads}
    return Row(
        f"prefill-{length}-{threads}t", f"prefill {length}, {_threads(threads)}", "prefill", arguments, goals
    )


def _threads(count: int) -> str:
    return f"{count} thread" + "s" * (count > 1)


ROWS = (
    Row("load", "load, warm file cache", "load", goals={"w8": 1.0, "w4": 1.0}),
    Row("answer", "load and first token", "answer"),
    _decode(128, 1, w8=1.5, w4=1.15),
    _decode(128, 2, w8=1.5, w4=1.3),
    _decode(2000, 1, w8=1.6, w4=1.3),
    _decode(2000, 2, w8=1.5, w4=1.3),
    _prefill(512, 1, w8=1.4, w4=1.2),
    _prefill(512, 2),
    _decode(128, 1, 8, w8=2.2, w4=1.8),
    _decode(128, 2, 8),
    Row("slices", "decode call of one layer", "slices", {"context": 128}),
    Row("memory", "memory", "memory"),
)


class Run:
    """The engines with their files, and the figures measured so far."""

    def __init__(self, options: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.options = options
        self.source = bench_models.find(options.model)
        self.files = {OURS: bench_models.artifact(self.source, options.weights)}
        self.engines: dict[str, Engine] = {OURS: stack.enter_context(start(OURS))}
        for peer in options.peer:
            self.files[peer] = bench_models.peer_gguf(self.source, options.weights, requantise)
            self.engines[peer] = stack.enter_context(start(peer))
        self.facts: dict[str, Any] = {}

    def open(self) -> None:
        """Opens the model in all engines, for the rows that need it open."""
        for name, engine in self.engines.items():
            engine.ask("open", path=str(self.files[name]), variant=engine.about["variants"][0])
        self.facts = self.engines[OURS].ask("facts")
        self.engines[OURS].ask("limits", threads=1)  # maps the file's pages

    def sample(self, name: str, row: Row, variant: str) -> dict[str, float]:
        """One sample of an engine: its figure, and wall and CPU seconds."""
        time.sleep(SAMPLE_GAP)
        arguments: dict[str, Any] = dict(row.arguments)
        if row.verb in ("load", "answer"):
            arguments["path"] = str(self.files[name])
        result = self.engines[name].ask(row.verb, variant=variant, **arguments)
        value = row.tokens / result["wall"] if row.tokens else 1000 * result["wall"]
        return {"value": value, "wall": result["wall"], "cpu": result["cpu"]}

    def best_variant(self, name: str, row: Row) -> str:
        """The settings under which an engine is fastest, judged by a sample of each."""
        variants = self.engines[name].about["variants"]
        walls = {v: self.sample(name, row, v)["wall"] for v in variants}  # of one variant: it warms up
        return min(walls, key=walls.__getitem__)

    def measure(self, row: Row) -> dict[str, Any]:
        """A row over all rounds, the engines in turn; who begins a round changes."""
        variants = {name: self.best_variant(name, row) for name in self.engines}
        samples: dict[str, list[dict[str, float]]] = {name: [] for name in self.engines}
        limits: list[dict[str, Any]] = []
        for number in range(self.options.rounds):
            for name in list(self.engines)[:: -1 if number % 2 else 1]:
                samples[name].append(self.sample(name, row, variants[name]))
            if row.tokens and row.arguments.get("batch", 1) == 1:
                limits.append(self.engines[OURS].ask("limits", threads=row.threads))
        figures = {
            name: {
                **series([s["value"] for s in parts]),
                "wall": statistics.median(s["wall"] for s in parts),
                "cpu": statistics.median(s["cpu"] for s in parts),
                "variant": variants[name],
            }
            for name, parts in samples.items()
        }
        out = described(row, "tokens/s" if row.tokens else "ms", figures, self.options.weights)
        if limits:
            out["limit"] = self.limit(row, out["engines"][OURS]["values"], limits)
        return out

    def limit(self, row: Row, values: Sequence[float], limits: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The machine's limit beside a row, measured in each round, and the share of it that was reached."""
        facts = self.facts
        if row.verb == "prefill":
            length = row.arguments["length"]
            products = facts["layer_products"] + facts["attention"] * (length + 1) / 2
            products += facts["head_products"] / length
            kinds = list(limits[0]["multiply"])
            if not kinds:
                return {}
            rates = [max(one["multiply"].values()) for one in limits]
            best = max(kinds, key=lambda kind: limits[0]["multiply"][kind])
            name, unit, done = best, "GMAC/s", [products * v for v in values]
        else:
            rates = [one["read"] for one in limits]
            name, unit = "reading the artifact", "GB/s"
            done = [facts["bytes"] * v for v in values]
        return {
            "name": name,
            "unit": unit,
            "rate": series([rate / 1e9 for rate in rates]),
            "reached": series([d / 1e9 for d in done]),
            "share": series([d / rate for d, rate in zip(done, rates, strict=True)]),
        }

    def measure_slices(self, row: Row) -> list[dict[str, Any]]:
        """Median and worst call of one layer; no peer has such calls."""
        calls = [
            self.engines[OURS].ask("slices", context=row.arguments["context"], tokens=4)
            for _ in range(self.options.rounds + 1)
        ][1:]
        rows = []
        for kind, of in (("median", statistics.median), ("worst", max)):
            named = Row(f"slice-{kind}", f"{row.title}, {kind}", row.verb)
            figures = {OURS: series([1000 * of(one) for one in calls])}
            rows.append(described(named, "ms", figures, self.options.weights))
        return rows

    def measure_memory(self) -> list[dict[str, Any]]:
        """Peak of resident memory above what the process had before, and the part that is not of a file."""
        found: dict[str, dict[str, list[float]]] = {}
        for name, engine in self.engines.items():
            tried = []
            for variant in engine.about["variants"]:
                with start(name) as fresh:
                    path = str(self.files[name])
                    tried.append(fresh.ask("memory", path=path, variant=variant, steps=STEPS))
            best = min(tried, key=lambda one: one["peak"])
            found[name] = {kind: [best[kind] / MIB] for kind in ("peak", "heap")}
        rows = []
        for kind, title in (("peak", "peak memory, one sequence"), ("heap", "of it heap")):
            figures = {name: series(one[kind]) for name, one in found.items()}
            rows.append(described(Row(kind, title, "memory"), "MiB", figures, self.options.weights))
        rows[0]["beyond_file"] = found[OURS]["peak"][0] - self.facts["size"] / MIB
        return rows


def series(values: Sequence[float]) -> dict[str, Any]:
    """Values with their median and range."""
    return {
        "values": list(values),
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
    }


def described(row: Row, unit: str, engines: dict[str, Any], weights: str) -> dict[str, Any]:
    """A row for the report: above 1 a ratio is in our favour, whatever the unit."""
    ours = engines[OURS]["values"]
    ratios = {}
    for name, figures in engines.items():
        if name != OURS:
            pairs = zip(ours, figures["values"], strict=True)
            ratios[name] = series([a / b if unit == "tokens/s" else b / a for a, b in pairs])
    return {
        "name": row.name,
        "title": row.title,
        "unit": unit,
        "threads": row.threads,
        "goal": row.goals.get(weights),
        "engines": engines,
        "ratios": ratios,
    }


def fits(row: Row, cap: int) -> bool:
    """Whether a model of this context cap has room for a row."""
    needed = row.arguments.get("context", 0) + row.arguments.get("length", 0) + 4 * STEPS
    return needed <= cap


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures the chosen rows; keeps the JSON up to date, should a later one fail."""
    with contextlib.ExitStack() as stack:
        run = Run(options, stack)
        figures = heading(run)
        if options.add and options.json.is_file():
            figures = continued(figures, json.loads(options.json.read_text()))
        chosen = [row for row in ROWS if not options.only or any(word in row.name for word in options.only)]
        began, opened = time.monotonic(), False
        for number, row in enumerate(chosen):
            if row.verb not in ("load", "answer") and not opened:
                run.open()
                figures["facts"], opened = run.facts, True
            left = (time.monotonic() - began) / number * (len(chosen) - number) if number else 0
            note = f", about {left:.0f} s left" if number else ""
            print(f"[{number + 1}/{len(chosen)}] {row.title}{note}", file=sys.stderr, flush=True)
            if opened and not fits(row, run.facts["cap"]):
                print(f"note: left out, the context cap is {run.facts['cap']}", file=sys.stderr)
                continue
            watch = Watch()
            for result in measured(run, row):
                result.update(watch.read())
                figures["rows"] = placed(figures["rows"], result)
                print(bench_report.line(result), flush=True)
            if options.json:
                write(options.json, json.dumps(figures, indent=1) + "\n")
    return figures


def placed(rows: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with a new one in the place of its earlier self, or behind the others, in the order of ROWS."""
    order = [row.name for row in ROWS] + ["slice-median", "slice-worst", "peak", "heap"]
    return sorted(
        [*(old for old in rows if old["name"] != new["name"]), new], key=lambda r: order.index(r["name"])
    )


def continued(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The figures of an earlier part of the same measurement. Raises DevError when something differs."""
    for key in ("machine", "model", "weights", "engines"):
        if new[key] != old[key]:
            raise dev.DevError(f"--add: {key} was {old[key]} and is now {new[key]}; measure all rows again")
    return {**old, "command": f"{old['command']}\n    {new['command']}"}


def measured(run: Run, row: Row) -> Iterator[dict[str, Any]]:
    """The lines of the report that a row gives."""
    if row.verb == "memory" and not Path("/proc/self/clear_refs").exists():
        print("note: left out, only Linux tells a process's peak from a point on", file=sys.stderr)
    elif row.verb == "memory":
        yield from run.measure_memory()
    elif row.verb == "slices":
        yield from run.measure_slices(row)
    else:
        yield run.measure(row)


def heading(run: Run) -> dict[str, Any]:
    """What the figures were measured with."""
    engines = {}
    for name, engine in run.engines.items():
        about = dict(engine.about)
        library = Path(about.pop("library"))
        about["compiler"] = compiler_of(library)
        about["library_digest"] = hashlib.sha256(library.read_bytes()).hexdigest()
        engines[name] = {**about, "file": run.files[name].name, "bytes": run.files[name].stat().st_size}
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": processor(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}",
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0,
        "model": run.source.name,
        "weights": run.options.weights,
        "rounds": run.options.rounds,
        "steps": STEPS,
        "command": shown_command(run.options),
        "engines": engines,
        "rows": [],
    }


def shown_command(options: argparse.Namespace) -> str:
    """The command that repeats the measurement, without paths of this machine."""
    words = ["python tools/dev.py bench", "--model", Path(options.model).name, "--weights", options.weights]
    for peer in options.peer:
        words += ["--peer", peer]
    words += ["--rounds", str(options.rounds)]
    if options.only:
        words += ["--only", *options.only]
    return " ".join(words + ["--json figures.json --add"] * options.add)


def write(path: Path, text: str) -> None:
    """Writes a file atomically."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = f"smollm2, {bench_models.SHAPE} (random weights), or a .gguf or .sslm file"
    out.add_argument("--model", default="smollm2", help=f"{names}; default: %(default)s")
    out.add_argument("--weights", choices=("w8", "w4"), default="w8", help="default: %(default)s")
    out.add_argument(
        "--peer", action="append", default=[], choices=list(PEERS), help="compare; may be repeated"
    )
    out.add_argument("--rounds", type=int, default=5, help="samples of each row (default: %(default)s)")
    out.add_argument(
        "--only", nargs="*", metavar="WORD", help=f"rows whose name has it: {' '.join(r.name for r in ROWS)}"
    )
    out.add_argument("--json", type=Path, metavar="FILE", help="writes the figures there")
    out.add_argument("--add", action="store_true", help="keeps the rows that FILE has: a run in parts")
    out.add_argument("--from", dest="figures", type=Path, metavar="FILE", help="figures of an earlier run")
    out.add_argument("--plot", type=Path, metavar="FILE", help="draws the ratios as SVG")
    out.add_argument("--docs", action="store_true", help="writes the table into docs/performance.md")
    return out


def main() -> int:
    """Measures, prints, draws; returns the exit code."""
    command = parser()
    options = command.parse_args()
    if options.rounds < 1:
        command.error("--rounds must be at least 1")
    if options.add and not options.json:
        command.error("--add needs --json")
    try:
        figures = json.loads(options.figures.read_text()) if options.figures else measure(options)
        print("\n" + bench_report.text(figures))
        if options.plot:
            write(options.plot, bench_plot.plot(figures))
        if options.docs:
            bench_report.write_docs(figures)
    except (dev.DevError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
