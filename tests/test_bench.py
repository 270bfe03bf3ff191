# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The benchmark: it runs on small models, its arithmetic is right, and what it refuses it explains."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import bench
import bench_engines
import bench_models
import bench_plot
import bench_report
import dev
import numpy as np
import pytest
from make_checkpoint import spec_of, write_gguf
from schema_fixtures import with_schemas
from superslm.artifact import load_quantized
from superslm.convert.pipeline import load_checkpoint
from superslm.convert.tokenizer import TokenizerSource, hf_tokenizer


def run_bench(
    library: Path, *arguments: object, script: str = "bench.py"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(dev.ROOT / "tools" / script), *map(str, arguments)]
    path = os.pathsep.join([str(dev.ROOT / "python_binding"), str(dev.ROOT / "tools")])
    env = {**os.environ, "PYTHONPATH": path, "SUPERSLM_LIBRARY": str(library)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.fixture(scope="module")
def figures(
    fixture_artifact: Callable[..., Path], library_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict:
    """A run of every row on a small model, without a peer."""
    target = tmp_path_factory.mktemp("bench") / "figures.json"
    model = fixture_artifact("cells")
    done = run_bench(library_path, "--model", model, "--rounds", 2, "--json", target)
    assert done.returncode == 0, done.stderr
    return json.loads(target.read_text())


def test_every_row_is_measured_and_none_is_empty(figures: dict) -> None:
    names = [row["name"] for row in figures["rows"]]
    expected = [row.name for row in bench.ROWS if row.verb not in ("slices", "memory")]
    assert names == [*expected, "slice-median", "slice-worst", "peak", "heap"]
    for row in figures["rows"]:
        ours = row["engines"]["superslm"]
        assert ours["low"] <= ours["median"] <= ours["high"], row["name"]
        # Of a model this small the system may take back as much resident memory as it gives.
        assert ours["low"] > 0 or row["name"] in ("peak", "heap"), row["name"]
        assert row["load"] >= 0 and row["ratios"] == {}


def test_the_json_says_what_was_measured_with_and_names_no_folder(figures: dict) -> None:
    ours = figures["engines"]["superslm"]
    assert ours["tier"] and ours["version"] and ours["compiler"] != "unknown"
    assert (
        figures["commit"]
        and figures["machine"]
        and figures["command"].startswith("python tools/dev.py bench")
    )
    assert str(dev.ROOT) not in json.dumps(figures) and "/tmp" not in json.dumps(figures)


def test_shares_are_of_the_machines_limits(figures: dict) -> None:
    rows = {row["name"]: row for row in figures["rows"]}
    prefill, reading = rows["prefill-512-1t"]["limit"], rows["decode-128-1t"]["limit"]
    assert reading["unit"] == "GB/s" and prefill.get("unit") in ("GMAC/s", None)
    for limit in filter(None, (prefill, reading)):
        reached, rate = limit["reached"]["values"], limit["rate"]["values"]
        assert min(*reached, *rate) > 0
        assert limit["share"]["values"] == pytest.approx([a / b for a, b in zip(reached, rate, strict=True)])


def test_a_model_with_a_small_cap_leaves_out_the_rows_that_do_not_fit(
    fixture_artifact: Callable[..., Path], library_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "figures.json"
    done = run_bench(library_path, "--model", fixture_artifact("cap64"), "--rounds", 1, "--json", target)
    assert done.returncode == 0, done.stderr
    names = [row["name"] for row in json.loads(target.read_text())["rows"]]
    assert names[:2] == ["load", "answer"] and not [name for name in names if name.startswith("decode")]
    assert "the context cap is 64" in done.stderr


@pytest.mark.parametrize("weights", ["w8", "w4"])
def test_bytes_and_products_per_token_are_those_of_the_matrices(
    fixture_artifact: Callable[..., Path], library_path: Path, weights: str
) -> None:
    sys.path.insert(0, str(bench_engines.WORKERS))
    try:
        from worker_superslm import weights_of
    finally:
        sys.path.pop(0)
    from superslm import Model

    for name in ("untied", "odd"):
        path = fixture_artifact(name, weights)
        with Model.load(path) as model:
            found = weights_of(model)
        q = load_quantized(path)
        matrices = [getattr(layer, key) for layer in q.layers for key in "WQ WK WV WO WG WU WD".split()]
        head = q.head if q.head is not None else q.embedding
        assert found["layer_products"] == sum(m.rows * m.cols for m in matrices)
        assert found["head_products"] == head.rows * head.cols
        size = 0
        for m in (*matrices, head):
            values = m.v.nbytes if hasattr(m, "v") else m.q.size // 2
            scales = m.rows * -(-m.s.shape[1] // 2) if hasattr(m, "v") else m.s.nbytes + m.u.nbytes
            size += values + scales + m.W.nbytes
        assert found["bytes"] == size, name


def test_a_ratio_above_one_is_in_our_favour_in_every_unit() -> None:
    ours, theirs = bench.series([2.0, 3.0]), bench.series([1.0, 1.0])
    engines = {bench.OURS: ours, "llama.cpp": theirs}
    fast, slow = (bench.described(bench.ROWS[0], unit, engines, "w8") for unit in ("tokens/s", "ms"))
    assert fast["ratios"]["llama.cpp"]["values"] == [2, 3] and fast["ratios"]["llama.cpp"]["median"] == 2.5
    assert slow["ratios"]["llama.cpp"]["values"] == [1 / 2, 1 / 3] and slow["goal"] == 1.0


def compared(figures: dict) -> dict:
    """The figures with our own samples in reverse as those of a peer: real numbers for the report."""
    out = json.loads(json.dumps(figures))
    out["engines"]["llama.cpp"] = {**out["engines"]["superslm"], "name": "llama.cpp"}
    for row in out["rows"]:
        ours = row["engines"]["superslm"]
        engines = {bench.OURS: ours, "llama.cpp": {**ours, **bench.series(ours["values"][::-1])}}
        named = next(
            (r for r in bench.ROWS if r.name == row["name"]), bench.Row(row["name"], row["title"], "")
        )
        row.update(bench.described(named, row["unit"], engines, "w8"))
    return out


def test_the_table_has_a_row_for_each_figure_and_equal_columns(figures: dict) -> None:
    for one in (figures, compared(figures)):
        lines = [line for line in bench_report.markdown(one).splitlines() if line.startswith("|")]
        assert len(lines) == 2 + len(one["rows"])
        assert len({line.count("|") for line in lines}) == 1


def test_the_picture_is_well_formed_and_draws_each_ratio(figures: dict) -> None:
    ElementTree.fromstring(bench_plot.plot(figures))
    drawing = ElementTree.fromstring(bench_plot.plot(compared(figures)))
    texts = [t.text for t in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "decode at 128, 1 thread" in texts and "goal beside llama.cpp" in texts


def test_an_earlier_run_can_be_printed_and_drawn_again(
    figures: dict, library_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "figures.json").write_text(json.dumps(compared(figures)))
    done = run_bench(library_path, "--from", tmp_path / "figures.json", "--plot", tmp_path / "figures.svg")
    assert done.returncode == 0, done.stderr
    assert "x llama.cpp" in done.stdout and (tmp_path / "figures.svg").is_file()


def test_a_run_in_parts_keeps_the_rows_of_the_first(
    fixture_artifact: Callable[..., Path], library_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "figures.json"
    for part in ("prefill-512-1t", "load"):
        options = [
            "--model",
            fixture_artifact("cells"),
            "--rounds",
            1,
            "--only",
            part,
            "--json",
            target,
            "--add",
        ]
        done = run_bench(library_path, *options)
        assert done.returncode == 0, done.stderr
    both = json.loads(target.read_text())
    assert [row["name"] for row in both["rows"]] == ["load", "prefill-512-1t"]
    assert both["command"].count("--only") == 2 and both["facts"]["layers"] == 4
    other = run_bench(
        library_path, "--model", fixture_artifact("deep"), "--only", "load", "--json", target, "--add"
    )
    assert other.returncode == 1 and "measure all rows again" in other.stderr


def test_the_made_up_vocabulary_is_a_tokenizer(tmp_path: Path) -> None:
    size = 70_000
    spec = dataclasses.replace(spec_of("bias"), name="vocabulary", vocab=size)
    path = write_gguf(spec, tmp_path / "v.gguf", "F16", lambda w: bench_models.add_vocabulary(w, size))
    source = TokenizerSource.from_checkpoint(load_checkpoint(path))
    assert source is not None and len(source.vocab) + len(source.added) == size
    encoder = hf_tokenizer(source)
    text = "The dragon guards 3 books, <|im_start|> and no more."
    ids = encoder.encode(text, add_special_tokens=False).ids
    assert encoder.decode(ids, skip_special_tokens=False) == text and 1 in ids
    assert np.mean([i >= 259 for i in ids]) > 0.5, "most tokens are merged ones"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "nowhere.gguf"], "no such file"),
        (["--model", __file__], "give a .gguf file or a .sslm file"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--from", "nowhere.json"], "nowhere.json"),
    ],
)
def test_a_refusal_says_what_is_wrong(arguments: list[str], words: str, library_path: Path) -> None:
    done = run_bench(library_path, *arguments)
    assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr


def test_a_ready_artifact_cannot_be_compared(
    fixture_artifact: Callable[..., Path], library_path: Path
) -> None:
    done = run_bench(library_path, "--model", fixture_artifact("cells"), "--peer", "llama.cpp")
    assert done.returncode == 1 and "Give the GGUF file that it was made from" in done.stderr


def test_the_cost_of_a_schema_is_measured_for_each_selection(
    fixture_artifact: Callable[..., Path], library_path: Path, tmp_path: Path
) -> None:
    artifact = with_schemas(fixture_artifact("cells"), tmp_path / "own.sslm", spec_of("cells").vocab)
    options = ["--model", artifact, "--source", "parity", "--steps", 600]  # longer than a sequence's budget
    done = run_bench(library_path, *options, script="bench_schema.py")
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.startswith("own, schema parity, 600 pairs")
    assert [line.split()[0] for line in lines] == ["greedy", "damped", "sampled"]
    done = run_bench(library_path, "--model", artifact, "--source", "nothing", script="bench_schema.py")
    assert done.returncode == 1 and "nothing" in done.stderr and "parity" in done.stderr


def test_a_peer_whose_interpreter_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = bench_engines.PEERS["llama.cpp"]
    monkeypatch.setenv(peer.variable, "/nowhere/python")
    with pytest.raises(dev.DevError, match=f"{peer.variable} names /nowhere/python"):
        bench_engines.peer_python(peer)


def test_a_peer_that_pip_cannot_have_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peer = bench_engines.PEERS["openvino"]
    monkeypatch.delenv(peer.variable, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(dev, "CACHE", tmp_path)
    with pytest.raises(dev.DevError, match=f"(?s)pip could not install openvino-genai.*{peer.variable}"):
        bench_engines.peer_python(peer)
    assert not (tmp_path / "peers/openvino/superslm-packages.txt").exists(), "the next run tries again"


def test_an_engine_reports_its_own_errors_and_its_end(library_path: Path) -> None:
    with bench_engines.start("superslm") as engine:
        assert engine.about["name"] == "SuperSLM"
        with pytest.raises(dev.DevError, match="superslm, 'open': FileNotFoundError"):
            engine.ask("open", path="/nowhere/model.sslm", variant="")
    with pytest.raises(dev.DevError, match="ended with .* during 'about'"):
        bench_engines.Engine("nobody", sys.executable, "no_such_worker.py")
