#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""What paged memory costs: tokens, verbs, saves, bytes touched, locks and allocations.

    python tools/dev.py bench --memory        everything, with the counts of docs/performance.md
    python tools/bench_memory.py --quick      a short run
    python tools/bench_memory.py --only S1 --tiers avx2 --processes 2 --pairs 30 --json figures.json
    python tools/bench_memory.py --json figures.json --docs      measure, then write docs/performance.md's table
    python tools/bench_memory.py --from figures.json --docs      write it from an earlier run

The models are random ones of the shapes of Qwen2.5-0.5B and 1.5B (tools/make_checkpoint.py); where only K/V
memory matters, small ones of their K/V geometry. Load average and steal time are recorded beside every figure.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dev

DOCS = dev.ROOT / "docs/performance.md"
BEGIN, END = "<!-- figures memory: begin -->", "<!-- figures memory: end -->"
SOURCES = (
    "python_binding/superslm/convert",
    "python_binding/superslm/artifact.py",
    "tools/make_checkpoint.py",
)

# Name: (fixture, context cap).
SMALL, LARGE = ("qwen2.5-0.5b", 4096), ("qwen2.5-1.5b", 32768)
SMALL_KV, SMALL_KV_LONG, LARGE_KV = ("cast", 4096), ("cast", 32768), ("cast_wide", 32768)
DECODE_ROWS = [(SMALL, n) for n in (1200, 2044, 3988)] + [(LARGE, n) for n in (8188, 15872, 18678)]
SHARED_ROWS = [(SMALL, n) for n in (1204, 1456, 1608)]
TOKEN_BAR, VERB_BAR, CREATE_BAR, NOISE_BAR = 0.05, 2.0, 100e3, 0.05


class Bench:
    """The program, its artifacts, and what the machine did meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        named = os.environ.get("SUPERSLM_TEST_LIBRARY")
        self.library = Path(named) if named else dev.build("seams")
        self.program = folder / "memory"
        command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-O2"]
        command += [
            f"-I{dev.ROOT / 'include'}",
            f"-I{dev.ROOT / 'tests/c'}",
            str(dev.ROOT / "tools/bench/memory.cpp"),
        ]
        command += ["-o", str(self.program), str(self.library), f"-Wl,-rpath,{self.library.parent}"]
        dev.quiet(command, "compiling tools/bench/memory.cpp")

    def artifact(self, model: tuple[str, int]) -> Path:
        """The artifact of a fixture with another context cap; made once."""
        from make_checkpoint import make_quantized, spec_of
        from superslm.convert.writer import write_artifact

        name, cap = model
        path = self.folder / f"{name}-{cap}-{dev.sources_digest(*SOURCES)}.sslm"
        if not path.is_file():
            for old in self.folder.glob(f"{name}-{cap}-*.sslm"):
                old.unlink()
            print(f"making {path.name}", flush=True)
            spec = dataclasses.replace(spec_of(name), name=f"{name}-{cap}", cap=cap)
            write_artifact(make_quantized(spec, "w8"), path)
        return path

    def run(self, *arguments: object, tier: str = "") -> dict[str, Any]:
        """One call of the program; its JSON with the machine's load beside it."""
        words = [str(self.program), *map(str, arguments)]
        environment = {**os.environ, **({"SSLM_FORCE_TIER": tier} if tier else {})}
        steal, start = steal_seconds(), time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise dev.DevError(f"{shlex.join(words)} ended with {done.returncode}\n{done.stderr}")
        result = json.loads(done.stdout)
        result["load"] = os.getloadavg()[0]
        result["steal"] = (steal_seconds() - steal) / max(time.monotonic() - start, 1e-9)
        return result


def steal_seconds() -> float:
    """CPU seconds that the hypervisor gave to others, over all processors; 0 where it is not told."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def machine(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Load average and stolen share of a processor over some calls."""
    return {"load": max(r["load"] for r in results), "steal": max(r["steal"] for r in results)}


def growth(numerator: Sequence[int], denominator: Sequence[int]) -> float:
    """The median of paired ratios, less 1."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True)) - 1


# ---- The figures ----


def measure_tokens(
    bench: Bench, verb: str, rows: Sequence[tuple[tuple[str, int], int]], tiers: Sequence[str], counts: Any
) -> list[dict[str, Any]]:
    """S1 and S2: the median of paged / contiguous - 1 in each process, and of contiguous / contiguous - 1."""
    out = []
    for tier in tiers:
        for model, length in rows:
            if model[0] in counts.without:
                continue
            calls = []
            for process in range(counts.processes):
                print(
                    f"{verb} {model[0]} at {length}, {tier or 'best'} tier, process {process + 1}", flush=True
                )
                calls.append(
                    bench.run(verb, bench.artifact(model), length, counts.pairs, process + 1, tier=tier)
                )
            paged = [growth(c["paged"], c["contiguous"]) for c in calls]
            again = [growth(c["again"], c["contiguous"]) for c in calls]
            out.append(
                {
                    "model": model[0],
                    "cap": model[1],
                    "length": length,
                    "tier": calls[0]["tier"],
                    "pairs": len(calls[0]["paged"]),
                    "milliseconds": statistics.median(t for c in calls for t in c["contiguous"]) / 1e6,
                    "paged": paged,
                    "again": again,
                    "largest": max(paged),
                    "passes": max(paged) <= TOKEN_BAR,
                    **machine(calls),
                }
            )
    return out


def measure_verbs(bench: Bench, counts: Any) -> list[dict[str, Any]]:
    """S3: the ratios of cap 32,768 over cap 4,096, both holder kinds and verbs."""
    small, large = bench.artifact(SMALL_KV), bench.artifact(SMALL_KV_LONG)
    out = []
    for kind, budget in (("no budget", 0), ("budget", 512)):
        result = bench.run("verbs", small, large, 1000, counts.ratios, budget)
        for verb in ("adopt", "reset"):
            pairs = zip(result[f"{verb}_large"], result[f"{verb}_small"], strict=True)
            ratios = sorted(a / b for a, b in pairs)
            nth = ratios[min(round(120 / 205 * len(ratios)), len(ratios)) - 1]
            out.append(
                {
                    "holder": kind,
                    "verb": verb,
                    "ratios": len(ratios),
                    "ratio": nth,
                    "microseconds": [
                        statistics.median(result[f"{verb}_{cap}"]) / 1e3 for cap in ("small", "large")
                    ],
                    "passes": nth <= VERB_BAR,
                    **machine([result]),
                }
            )
    return out


def measure_create(bench: Bench, counts: Any) -> list[dict[str, Any]]:
    """S4: create without a budget in an empty pool of one block."""
    out = []
    for name, model in (("0.5B", SMALL_KV), ("1.5B", LARGE_KV)):
        result = bench.run("create", bench.artifact(model), counts.ratios)
        median = statistics.median(result["create"])
        out.append(
            {"geometry": name, "cap": model[1], "microseconds": median / 1e3, "passes": median <= CREATE_BAR}
            | machine([result])
        )
    return out


def measure_save(bench: Bench, counts: Any) -> list[dict[str, Any]]:
    """S5: save over a copy of as many bytes, with the copy against itself."""
    out = []
    for name, model in (("0.5B", SMALL_KV), ("1.5B", LARGE_KV)):
        for budgeted in (False, True):
            for length in (16, 1000, model[1]):
                saves = counts.saves if length < 32768 and model is SMALL_KV else max(counts.saves // 5, 9)
                result = bench.run("save", bench.artifact(model), length, saves, int(budgeted))
                save, copy, again = (statistics.median(result[arm]) for arm in ("save", "copy", "again"))
                noise = abs(again / copy - 1)
                out.append(
                    {
                        "geometry": name,
                        "cap": model[1],
                        "holder": "budget" if budgeted else "no budget",
                        "length": length,
                        "size": result["size"],
                        "microseconds": save / 1e3,
                        "ratio": save / copy,
                        "noise": noise,
                        "passes": None if budgeted else save / copy <= 1 + noise and noise <= NOISE_BAR,
                        **machine([result]),
                    }
                )
    return out


def measure_counts(bench: Bench, _: Any) -> dict[str, Any]:
    """S6 to S8: bytes touched by length, and locks and allocations of prefill and decode."""
    result = bench.run("counts", bench.artifact(SMALL_KV))
    page, position = result["page"], result["position"]
    rows = result["rows"]
    for row in rows:
        length, pages = row["length"], -(-row["length"] * position // page)
        row["passes"] = (
            row["share"] == length * position % page
            and row["copy"] == row["restore"] == row["save"] == length * position
            and row["release"] == pages * page
        )
    return result | {
        "passes": all(r["passes"] for r in rows) and not (result["locks"] or result["allocations"])
    }


FIGURES: dict[str, Callable[[Bench, Any], Any]] = {
    "S1": lambda bench, c: measure_tokens(bench, "decode", DECODE_ROWS, c.tiers, c),
    "S2": lambda bench, c: measure_tokens(bench, "shared", SHARED_ROWS, c.tiers[:1], c),
    "S3": measure_verbs,
    "S4": measure_create,
    "S5": measure_save,
    "S6": measure_counts,
}


# ---- The report ----


def percent(value: float) -> str:
    """A part of 1 in percent, with its sign."""
    return f"{100 * value:+.2f} %"


def passes(row: dict[str, Any]) -> str:
    """How a row is marked; one without a bar is not."""
    return {None: "-", True: "yes", False: "**no**"}[row["passes"]]


def table(head: str, rows: Sequence[str]) -> list[str]:
    """A Markdown table; the first column is text, the others are numbers."""
    columns = head.count("|") - 1
    return [head, "|---|" + "---:|" * (columns - 1), *rows, ""]


def report_tokens(rows: Sequence[dict[str, Any]], title: str) -> list[str]:
    """S1 and S2 in Markdown."""
    lines = [
        f"| {r['model']}, cap {r['cap']:,}, at {r['length']:,}, {r['tier']} | {r['milliseconds']:.1f} | "
        f"{len(r['paged'])} x {r['pairs']} | {percent(r['largest'])} | "
        f"{percent(min(r['again']))} .. {percent(max(r['again']))} | {passes(r)} | "
        f"{r['load']:.1f}, {100 * r['steal']:.0f} % |"
        for r in rows
    ]
    return [
        title,
        "",
        *table("| row | ms/token | processes x pairs | largest | A/A | <= 5 % | load, steal |", lines),
    ]


def report(figures: dict[str, Any]) -> str:
    """All figures in Markdown."""
    out = [
        f"Measured {figures['date']} on {figures['machine']}, commit {figures['commit']}. Load is the highest load "
        "average beside a row's samples.",
        "",
    ]
    if "S1" in figures:
        out += report_tokens(figures["S1"], "**S1, tokens from scattered pages over a contiguous pool:**")
    if "S2" in figures:
        out += report_tokens(figures["S2"], "**S2, tokens over a shared prefix over a contiguous pool:**")
    if "S3" in figures:
        out += ["**S3, reset and adopt of 1,000 positions at cap 32,768 over cap 4,096:**", ""]
        rows = [
            f"| {r['verb']}, {r['holder']} | {r['microseconds'][0]:.2f} | {r['microseconds'][1]:.2f} | "
            f"{r['ratio']:.3f} | {passes(r)} | {r['load']:.1f}, {100 * r['steal']:.0f} % |"
            for r in figures["S3"]
        ]
        nth = f"{round(120 / 205 * figures['S3'][0]['ratios'])}th of {figures['S3'][0]['ratios']}"
        out += table(f"| verb | us, 4,096 | us, 32,768 | {nth} ratios | <= 2 | load, steal |", rows)
    if "S4" in figures:
        out += ["**S4, create without a budget:**", ""]
        rows = [
            f"| {r['geometry']}, cap {r['cap']:,} | {r['microseconds']:.2f} | {passes(r)} | "
            f"{r['load']:.1f}, {100 * r['steal']:.0f} % |"
            for r in figures["S4"]
        ]
        out += table("| K/V geometry | us | <= 100 | load, steal |", rows)
    if "S5" in figures:
        out += ["**S5, save over a copy of as many bytes (the bar is for sequences without a budget):**", ""]
        rows = [
            f"| {r['geometry']}, cap {r['cap']:,}, {r['holder']}, at {r['length']:,} | {r['size'] / 2**20:.2f} | "
            f"{r['microseconds']:.0f} | {r['ratio']:.3f} | {r['noise']:.3f} | {passes(r)} | "
            f"{r['load']:.1f}, {100 * r['steal']:.0f} % |"
            for r in figures["S5"]
        ]
        out += table("| K/V geometry | MiB | us | save / copy | A/A | <= 1 + A/A | load, steal |", rows)
    if "S6" in figures:
        s6 = figures["S6"]
        out += [f"**S6, bytes of K/V rows touched, a page being {s6['page']:,}:**", ""]
        rows = [
            f"| {r['length']:,} positions | {r['share']:,} | {r['copy']:,} | {r['save']:,} | {r['restore']:,} | "
            f"{r['release']:,} | {passes(r)} |"
            for r in s6["rows"]
        ]
        out += table(
            "| length | shared adopt | copying adopt | save | restore | release | as promised |", rows
        )
        out += [
            f"**S7 and S8:** prefill and decode of {s6['positions']} positions over page boundaries took the pool's "
            f"lock {s6['locks']} times and allocated {s6['allocations']} times.",
            "",
        ]
    return "\n".join(out)


def write_docs(figures: dict[str, Any]) -> None:
    """Replaces the generated block of docs/performance.md. Raises DevError when it has none."""
    text = DOCS.read_text("utf-8")
    before, found, rest = text.partition(BEGIN)
    _, also_found, after = rest.partition(END)
    if not (found and also_found):
        raise dev.DevError(f"{DOCS} has no block between {BEGIN} and {END}")
    part = DOCS.with_name(f".{DOCS.name}.part")
    part.write_text(f"{before}{BEGIN}\n\n{report(figures).rstrip()}\n\n{END}{after}", "utf-8")
    part.replace(DOCS)


def processor() -> str:
    """The processor's name and the number of threads it runs."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} threads"


def commit() -> str:
    """The commit, marked when the tree differs."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=dev.ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the chosen figures."""
    bench = Bench(dev.CACHE / "bench")
    counts = {name: getattr(options, name) for name in ("pairs", "processes", "ratios", "saves")}
    figures: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": processor(),
        "commit": commit(),
        "counts": counts,
    }
    for name in options.only or FIGURES:
        print(f"== {name}", flush=True)
        figures[name] = FIGURES[name](bench, options)
        if options.json:  # what is measured is kept, should a later figure fail
            part = options.json.with_name(options.json.name + ".part")
            part.write_text(json.dumps(figures, indent=1))
            part.replace(options.json)
    return figures


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=104, help="tokens of each arm per process (S1, S2)")
    parser.add_argument("--processes", type=int, default=5, help="processes of each row (S1, S2)")
    parser.add_argument("--ratios", type=int, default=205, help="samples of S3 and S4")
    parser.add_argument("--saves", type=int, default=101, help="samples of S5; a fifth where blobs are large")
    parser.add_argument("--tiers", nargs="*", default=["", "avx2"], help="kernel tiers of S1; '' is the best")
    parser.add_argument(
        "--only", nargs="*", choices=list(FIGURES), help="some figures; S6 counts S7 and S8 too"
    )
    parser.add_argument("--without", nargs="*", default=[], metavar="MODEL", help="leaves a model out of S1")
    parser.add_argument("--quick", action="store_true", help="few samples, without the 1.5B rows")
    parser.add_argument("--json", type=Path, help="writes the figures there")
    parser.add_argument(
        "--from", dest="source", type=Path, help="figures of an earlier run instead of a new one"
    )
    parser.add_argument("--docs", action="store_true", help="writes the table into docs/performance.md")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.processes, options.ratios, options.saves = 8, 1, 41, 11
        options.without = [LARGE[0]]
    try:
        figures = json.loads(options.source.read_text()) if options.source else measure(options)
        print(report(figures))
        if options.docs:
            write_docs(figures)
    except dev.DevError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
