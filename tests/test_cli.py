# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The command line as a user meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import functools
import io
import json
import lzma
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from limits import HANG
from make_checkpoint import make_quantized, make_record, spec_of, write_gguf, write_huggingface
from superslm import _library, cli, cli_convert
from superslm.artifact import HEADER, MAX_LAYERS, SECTION, Artifact, GoldenRecord, compute_digests
from superslm.convert.quantized import Adapter, LowRank, MatrixW8
from superslm.convert.tokenizer import build_tokenizer
from superslm.convert.tokenizer_source import hf_tokenizer
from superslm.convert.writer import set_golden_record, set_section, write_adapter, write_artifact
from tokenizer_support import small_source

Capture = pytest.CaptureFixture[str]
RECORD = Path(__file__).parent / "golden/smollm2_record.json.xz"


def refused(arguments: list[str | Path], capsys: Capture, *words: str) -> None:
    """The command exits 1, prints nothing on standard output, and its error holds the words."""
    assert cli.main([str(a) for a in arguments]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    for word in words:
        assert word in err, f"{word!r} is not in {err!r}"


def ran(arguments: list[str | Path], capsys: Capture) -> str:
    """The command exits 0; returns its standard output."""
    code = cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [
        ([], "convert convert-adapter inspect verify run chat score memory schema"),
        (["schema"], "add list test"),
    ],
)
def test_a_command_without_a_command_lists_them(arguments: list[str], commands: str, capsys: Capture) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "usage: superslm" in err
    first = [words[0] for words in map(str.split, err.splitlines()) if words]
    assert [word for word in first if word in commands.split()] == commands.split()


# ---- convert ----


def test_convert_refuses_a_source_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    refused(["convert", tmp_path / "no.gguf", "-o", tmp_path / "m.sslm"], capsys, "no.gguf", "No such file")


def test_convert_refuses_a_file_of_another_kind(tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(b"something else")
    refused(
        ["convert", source, "-o", tmp_path / "m.sslm"], capsys, "neither a GGUF file", "Give a .gguf file"
    )


def test_convert_refuses_impossible_outputs_before_it_works(tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(b"GGUF")
    refused(["convert", source, "-o", tmp_path], capsys, "is a directory", "Give a file name")
    refused(["convert", source, "-o", tmp_path / "a/b.sslm"], capsys, "does not exist", "Create it first")
    refused(["convert", source, "-o", source], capsys, "is an input of this command")


def test_convert_refuses_everything_that_is_known_before_it_calibrates(
    smollm2_gguf: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superslm.convert.pipeline.calibrate", lambda *_, **__: pytest.fail("calibrates"))
    monkeypatch.setattr("superslm.convert.pipeline.quantize", lambda *_, **__: pytest.fail("quantises"))
    text, bad = tmp_path / "text.txt", tmp_path / "bad.json"
    text.write_text("yes\nno\n")
    bad.write_text('{"type": "object", "patternProperties": {}}')
    absent, target = tmp_path / "absent", tmp_path / "m.sslm"
    rows: list[tuple[list[str | Path], tuple[str, ...]]] = [
        (["--schema", f"order={absent}.json"], ("absent.json: No such file", "order=order.json")),
        (["--schema", f"order={bad}"], ("patternProperties",)),
        (["--schema", f"a={text}", "--schema", f"a={text}"], ("given twice",)),
        (["--schema", f"a={text}", "--recursion", "-1"], ("negative",)),
        (["--calibration-text", absent], ("absent: No such file", "4,000 tokens or more")),
        (["--calibration-record", absent], ("absent: No such file", "--export-record wrote")),
        (["--chat-template", absent], ("absent: No such file", "Jinja")),
        (["--export-record", tmp_path / "no/r.json"], ("does not exist", "Create it first")),
        (["--export-record", target], ("have one name",)),
        (["--export-record", text, "--schema", f"a={text}"], ("text.txt is an input",)),
        (["--keep-8bit", "down"], ("no meaning with --weights w8", "--weights w4")),
        (["--weights", "w4", "--context-cap", "0"], ("context cap 0",)),
    ]
    for options, words in rows:
        refused(["convert", smollm2_gguf, "-o", target, *options], capsys, *words)
    if os.path.exists(os.devnull):
        refused(["convert", smollm2_gguf, "-o", os.devnull], capsys, "not a regular file")
    monkeypatch.setenv("SUPERSLM_LIBRARY", str(absent))
    monkeypatch.setattr("superslm._library.library", _library.library.__wrapped__)
    refused(["convert", smollm2_gguf, "-o", target], capsys, "library was not found")
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "bad.json"}


def test_keep_8bit_takes_the_names_of_projections(tmp_path: Path, capsys: Capture) -> None:
    arguments = ["convert", "x", "-o", str(tmp_path / "m.sslm"), "--weights", "w4", "--keep-8bit"]
    assert cli.parser().parse_args([*arguments, "down,v"]).keep_8bit == ["WD", "WV"]
    for names in ("WD", "down,", "", "down v"):
        with pytest.raises(SystemExit) as stopped:
            cli.main([*arguments, names])
        assert stopped.value.code == 2
        assert "is no matrix; there are q,k,v,o,gate,up,down" in capsys.readouterr().err


def test_convert_refuses_a_broken_file_and_leaves_nothing_behind(tmp_path: Path, capsys: Capture) -> None:
    source = write_gguf("tiny", tmp_path / "tiny.gguf")
    source.write_bytes(source.read_bytes()[:2000])
    refused(["convert", source, "-o", tmp_path / "m.sslm"], capsys, "tiny.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]


def test_convert_refuses_a_model_without_a_tokenizer(tmp_path: Path, capsys: Capture) -> None:
    source = write_huggingface("tiny", tmp_path / "tiny")
    refused(["convert", source, "-o", tmp_path / "m.sslm"], capsys, "no tokenizer", "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_record_that_unpacks_without_end_is_refused(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_convert, "MAX_RECORD", 1000)
    source, record = write_huggingface("tiny", tmp_path / "tiny"), tmp_path / "record.json.xz"
    arguments = ["convert", source, "-o", tmp_path / "m.sslm", "--calibration-record", record]
    record.write_bytes(lzma.compress(b" " * 100_000))
    refused(arguments, capsys, "record.json.xz unpacks to more than", "--export-record")
    record.write_bytes(lzma.compress(b"{}" + b" " * 900)[:-20])
    refused(arguments, capsys, "record.json.xz is not a calibration record", "--export-record")


def test_convert_refuses_a_record_of_another_model(
    smollm2_gguf: Path, tmp_path: Path, capsys: Capture
) -> None:
    record = tmp_path / "record.json"
    arguments = ["convert", smollm2_gguf, "-o", tmp_path / "m.sslm", "--calibration-record", record]
    record.write_text("{not json")
    refused(arguments, capsys, "record.json is not a calibration record", "--export-record")
    record.write_text('{"res": 1.0, "layers": []}')
    refused(arguments, capsys, "0 layers where the model has 30")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_convert_refuses_an_impossible_cap_before_it_calibrates(
    smollm2_gguf: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superslm.convert.pipeline.calibrate", lambda *_, **__: pytest.fail("calibrates"))
    for cap in ("0", "-5", str((1 << 25) + 1)):
        arguments = ["convert", smollm2_gguf, "-o", tmp_path / "m.sslm", "--context-cap", cap]
        refused(arguments, capsys, f"context cap {cap}", "from 1 to 2^25")


def test_convert_refuses_short_or_undecodable_calibration_text(
    smollm2_gguf: Path, tmp_path: Path, capsys: Capture
) -> None:
    text = tmp_path / "text.txt"
    arguments = ["convert", smollm2_gguf, "-o", tmp_path / "m.sslm", "--calibration-text", text]
    text.write_text("Too short.")
    refused(arguments, capsys, "at least 4000 are needed", "Use a longer text")
    text.write_bytes(b"caf\xe9")
    refused(arguments, capsys, "byte 3 is not UTF-8")


def test_convert_says_what_to_install_when_its_packages_are_missing(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    for package in ("gguf", "tokenizers"):
        code = f"import sys; sys.modules[{package!r}] = None\nfrom superslm import cli\n"
        code += f"sys.exit(cli.main(['convert', {str(smollm2_gguf)!r}, '-o', {str(tmp_path / 'm.sslm')!r}]))"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert f"needs the package {package}" in done.stderr and "superslm[convert]" in done.stderr


def test_a_library_that_is_missing_or_foreign_is_named(
    fixture_artifact: Callable[..., Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "superslm.cli", "inspect", str(fixture_artifact("tiny"))]
    foreign = tmp_path / "foreign.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(foreign)], check=True)
    for path, words in ((tmp_path / "none.so", "was not found"), (foreign, "another release's library")):
        env = {**environment(), "SUPERSLM_LIBRARY": str(path)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


ENDINGS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
# The command line, which says so and stays there when it comes to a function: "MODULE:FUNCTION COMMAND...".
HELD = """
import functools, importlib, sys, time

def hold(*_):
    print("held", file=sys.stderr, flush=True)
    while True:
        time.sleep(0.01)

module, _, path = sys.argv[1].partition(":")
*owner, name = path.split(".")
setattr(functools.reduce(getattr, owner, importlib.import_module(module)), name, hold)
sys.exit(importlib.import_module("superslm.cli").main(sys.argv[2:]))
"""


def ended(where: str, command: list[str], signal_number: int, code: int) -> None:
    """Ends a command by a signal when it comes to a function; it exits with the code and without a traceback."""
    # A test run in the background of a shell ignores SIGINT, and its children would too.
    heed = functools.partial(signal.signal, signal_number, signal.SIG_DFL)
    words = [sys.executable, "-c", HELD, where, *command]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env=environment(), preexec_fn=heed
    ) as process:
        said = process.stderr.readline()
        assert "Converting" in said
        while "held\n" not in said:
            line = process.stderr.readline()
            assert line, f"it never came to {where}: {said}"
            said += line
        process.send_signal(signal_number)
        assert process.wait(HANG) == code
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(("number", "code"), ENDINGS)
def test_a_conversion_that_is_ended_leaves_nothing_behind(
    number: int, code: int, smollm2_gguf: Path, library_path: Path, tmp_path: Path
) -> None:
    command = ["convert", str(smollm2_gguf), "-o", str(tmp_path / "m.sslm")]
    ended("superslm.cli_output:_Lines.report", command, number, code)
    assert list(tmp_path.iterdir()) == []


def conversion(folder: Path) -> list[str]:
    """The words that convert a small model with a small tokenizer, without the output; its files are made."""
    spec = replace(spec_of("tiny"), name="small", vocab=512)
    source = write_huggingface(spec, folder / "source")
    (source / "tokenizer.json").write_text(hf_tokenizer(small_source()).to_str())
    record = folder / "record.json"
    record.write_text(json.dumps(make_record(spec)))
    return ["convert", str(source), "--calibration-record", str(record)]


@pytest.mark.parametrize(("number", "code"), ENDINGS)
def test_a_conversion_that_is_ended_while_it_writes_leaves_nothing_behind(
    number: int, code: int, library_path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    ended("os:fsync", [*conversion(tmp_path), "-o", str(folder / "m.sslm")], number, code)
    assert list(folder.iterdir()) == []


def test_schemas_are_compiled_while_converting(library_path: Path, tmp_path: Path, capsys: Capture) -> None:
    """The artifact is as if they had been added to the finished one."""
    choice = tmp_path / "answer.txt"
    choice.write_text("yes\nno\n")
    command = [*conversion(tmp_path), "-o"]
    both, plain, added = (str(tmp_path / name) for name in ("both.sslm", "plain.sslm", "added.sslm"))
    assert cli.main([*command, both, "--schema", f"answer={choice}"]) == 0
    assert cli.main([*command, plain]) == 0
    assert cli.main(["schema", "add", plain, f"answer={choice}", "-o", added]) == 0
    one, two = Artifact(both), Artifact(added)
    assert one.model_digest == two.model_digest and {*one.sections} == {*two.sections}
    for name in ("SCHM", "PROV", "GOLD"):
        assert one.section(name) == two.section(name), name
    assert cli.main(["verify", both]) == 0
    assert cli.main(["schema", "test", both, "answer", "yes"]) == 0


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_an_unknown_option_is_wrong_usage(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["convert", "x", "-o", "y", "--weights", "w5"])
    assert stopped.value.code == 2
    assert "w5" in capsys.readouterr().err


@pytest.fixture(scope="module")
def small(smollm2_gguf: Path, library_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 at four bits with a cap of 100 positions, and its exported record beside it."""
    folder = tmp_path_factory.mktemp("small")
    arguments = ["convert", smollm2_gguf, "-o", folder / "small.sslm", "--calibration-record", RECORD]
    arguments += ["--context-cap", "100", "--weights", "w4", "--export-record", folder / "again.json"]
    assert cli.main([str(a) for a in arguments]) == 0
    return folder / "small.sslm"


def test_a_small_cap_and_four_bits_reach_the_artifact(small: Path, capsys: Capture) -> None:
    assert {path.name for path in small.parent.iterdir()} == {"small.sslm", "again.json"}
    facts = json.loads(ran(["inspect", small, "--json"], capsys))
    assert (facts["cap"], facts["weight_bits"], facts["options"]["weights"]) == (100, 0, "w4")
    assert "verified" in ran(["verify", small], capsys)
    assert json.loads((small.parent / "again.json").read_text())["res"] == 24960.0


# ---- inspect and verify ----


def test_inspect_shows_what_a_user_asks_for(smollm2_golden: Path, capsys: Capture) -> None:
    out = ran(["inspect", smollm2_golden], capsys)
    for words in (
        "30 layers",
        "8192 positions",
        "apache-2.0",
        "smollm",
        "lacks 21 bytes",
        "<|im_start|>user",
    ):
        assert words in out
    facts = json.loads(ran(["inspect", smollm2_golden, "--json"], capsys))
    assert facts["kv_per_position"] == 11520 and facts["golden_tokens"] == 64
    assert len(facts["model_digest"]) == 64 and facts["tokenizer"]["stop"]["2"] == "<|im_end|>"


def test_inspect_shows_a_model_without_text(
    library_path: Path, fixture_artifact: Callable[..., Path], capsys: Capture
) -> None:
    out = ran(["inspect", fixture_artifact("tiny")], capsys)
    assert "token ids only" in out and "CC0-1.0" in out


def test_a_damaged_artifact_is_refused_with_the_reason(
    library_path: Path, fixture_artifact: Callable[..., Path], tmp_path: Path, capsys: Capture
) -> None:
    damaged = tmp_path / "damaged.sslm"
    data = bytearray(fixture_artifact("tiny").read_bytes())
    data[5000] ^= 1
    damaged.write_bytes(data)
    for command in ("inspect", "verify"):
        refused([command, damaged], capsys, "damaged.sslm", "digest")
    damaged.write_bytes(b"")
    refused(["verify", damaged], capsys, "empty")


def test_verify_replays_the_golden_record(smollm2_golden: Path, capsys: Capture) -> None:
    assert cli.main(["verify", str(smollm2_golden)]) == 0
    out, err = capsys.readouterr()
    assert "verified: 64 tokens" in out and "tokens, 64 generated" in err


def test_verify_says_that_there_is_no_record(
    library_path: Path, fixture_artifact: Callable[..., Path], capsys: Capture
) -> None:
    refused(["verify", fixture_artifact("tiny")], capsys, "no golden record", "Convert the model again")


def test_verify_names_the_first_different_token(recorded: Path, capsys: Capture) -> None:
    golden = Artifact(recorded).golden_record()
    tokens = list(golden.tokens)
    tokens[4] ^= 1
    set_golden_record(recorded, GoldenRecord(golden.prompt, tuple(tokens), golden.digest))
    message = f"token 5 of {len(tokens)} is {golden.tokens[4]}, the record has {tokens[4]}"
    refused(["verify", recorded], capsys, message)


def test_verify_finds_a_difference_behind_equal_tokens(recorded: Path, capsys: Capture) -> None:
    golden = Artifact(recorded).golden_record()
    set_golden_record(recorded, GoldenRecord(golden.prompt, golden.tokens, bytes(32)))
    refused(["verify", recorded], capsys, "all tokens agree, but logits or K/V bytes")


# ---- run, chat, score ----


def test_run_answers_in_the_chat_format(smollm2_golden: Path, capsys: Capture) -> None:
    out = ran(
        ["run", smollm2_golden, "What is the capital of France?", "--chat", "--max-tokens", "24"], capsys
    )
    assert "Paris" in out and out.endswith("\n")


def test_run_continues_plain_text(smollm2_golden: Path, capsys: Capture) -> None:
    arguments = ["run", smollm2_golden, "The capital of France is", "--max-tokens", "3"]
    assert ran(arguments, capsys).startswith(" Paris")


def test_run_reads_the_prompt_from_standard_input(
    smollm2_golden: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("The capital of France is"))
    assert ran(["run", smollm2_golden, "-", "--max-tokens", "3"], capsys).startswith(" Paris")


@pytest.mark.parametrize(
    "option, message",
    [("--temperature=0", "temperature must be"), ("--temperature=nan", "temperature must be"),
     ("--top-p=2", "top_p must be"), ("--top-k=-1", "top_k must be"), ("--seed=-1", "seed -1 is out of range")],
)  # fmt: skip
def test_run_refuses_sampling_options_out_of_range(
    smollm2_golden: Path, capsys: Capture, option: str, message: str
) -> None:
    refused(["run", smollm2_golden, "hi", "--seed=1", option], capsys, message)


def test_run_refuses_an_empty_prompt_and_a_model_without_text(
    smollm2_golden: Path, fixture_artifact: Callable[..., Path], capsys: Capture
) -> None:
    for options in ([], ["--chat"], ["--system", "Be brief."]):
        refused(["run", smollm2_golden, "", *options], capsys, "the prompt is empty", "Give some text")
    refused(["run", fixture_artifact("tiny"), "Hello"], capsys, "no tokenizer")
    refused(["run", fixture_artifact("tiny"), "Hello", "--chat"], capsys, "no chat format")


def test_a_reply_that_fills_the_context_ends_with_a_note(small: Path, capsys: Capture) -> None:
    assert cli.main(["run", str(small), "Count: 1 2 3 4 5 6", "--max-tokens", "200"]) == 0
    out, err = capsys.readouterr()
    assert out.strip() and "the context is full" in err


def test_chat_remembers_turns_from_a_pipe_and_forgets_them_on_reset(
    smollm2_golden: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "Hello!\nWhat is the capital of France?\n/unknown\n/reset\nHello!\n/quit\nnever read\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert cli.main(["chat", str(smollm2_golden), "--max-tokens", "16"]) == 0
    out, err = capsys.readouterr()
    first, second, third = (line for line in out.splitlines() if line.strip())
    assert first == third and "Paris" in second and "unknown command" in err


def test_an_interrupt_ends_the_reply_and_not_the_chat(smollm2_golden: Path) -> None:
    command = [
        sys.executable,
        "-u",
        "-m",
        "superslm.cli",
        "chat",
        str(smollm2_golden),
        "--max-tokens",
        "4000",
    ]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        process.stdin.write(b"Write a very long story about a ship and every one of its sailors.\n")
        process.stdin.flush()
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        # What follows a reply cut short depends on where it was cut; what follows a reset does not.
        out, err = process.communicate(
            b"/reset\nWhat is the capital of France? Answer briefly.\n/quit\n", timeout=HANG
        )
        assert process.returncode == 0 and b"Traceback" not in err
        assert "Paris" in out.decode()


def test_score_ranks_texts(smollm2_golden: Path, capsys: Capture) -> None:
    out = ran(["score", smollm2_golden, "--after", "The capital of France is", " London", " Paris"], capsys)
    first, second = out.splitlines()
    assert first.endswith("Paris") and second.endswith("London")
    assert -1 < float(first.split()[0]) < 0 and float(second.split()[0]) < -1
    out = ran(["score", smollm2_golden, "Once upon a time", "--tokens"], capsys)
    assert "' upon'" in out and "3 tokens" in out


def test_score_refuses_what_has_no_probability(smollm2_golden: Path, capsys: Capture) -> None:
    refused(["score", smollm2_golden, ""], capsys, "a text to score is empty")
    refused(["score", smollm2_golden, " Paris", "", "--after", "In"], capsys, "a text to score is empty")
    refused(["score", smollm2_golden, "Paris"], capsys, "'Paris' is a single token", "--after")
    assert "1 tokens" in ran(["score", smollm2_golden, " Paris", "--after", "I love"], capsys)


def test_the_module_runs_as_a_program(smollm2_golden: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "superslm.cli",
        "run",
        str(smollm2_golden),
        "1 2 3 4",
        "--max-tokens",
        "4",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert "5" in done.stdout and done.stderr == ""


# ---- files made to mislead ----

ESCAPE = "\x1b[2Jname"
PROVENANCES = [b"[]", b"{", b"[" * 100_000, b"\xff", b'{"source": "\\ud800"}']


@pytest.fixture(scope="module")
def small_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with a tokenizer, in no need of a conversion."""
    path = tmp_path_factory.mktemp("small") / "small.sslm"
    spec = replace(spec_of("tiny"), name="small", vocab=512)
    model = make_quantized(spec, "w8")
    model.tokenizer = build_tokenizer(small_source(), 512)
    write_artifact(model, path)
    return path


@pytest.mark.parametrize("content", PROVENANCES, ids=range(len(PROVENANCES)))
def test_inspect_refuses_a_provenance_that_is_no_object(
    content: bytes, small_artifact: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "odd.sslm"
    set_section(small_artifact, "PROV", content, output=path)
    refused(["inspect", path], capsys, "provenance is not a JSON object")


@pytest.mark.parametrize("value", [None, 1, [1], {"a": [1]}, [], "x", ESCAPE])
def test_inspect_takes_any_provenance_and_sends_no_escapes(
    value: object, small_artifact: Path, tmp_path: Path, capsys: Capture
) -> None:
    keys = ("source", "architecture", "licence", "source_sha256", "options", "tokenizer")
    inner = dict.fromkeys(("pre_tokenizer", "missing_bytes", "no_chat"), value)
    for content in (dict.fromkeys(keys, value), {"tokenizer": inner, "options": {ESCAPE: ESCAPE}}):
        path = tmp_path / "odd.sslm"
        set_section(small_artifact, "PROV", json.dumps(content).encode(), output=path)
        assert "\x1b" not in ran(["inspect", path], capsys)
        json.loads(ran(["inspect", path, "--json"], capsys))


def test_inspect_refuses_an_adapter_whose_table_lies(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "odd.sslm"
    pair = LowRank(*(MatrixW8(32, np.ones((16, 32), np.int8), *ones_of(16)) for _ in range(2)))
    write_adapter(Adapter([{"WQ": pair}]), bytes(32), path)
    ran(["inspect", path], capsys)
    with Artifact(path) as artifact:
        table, end = artifact.sections["TENS"].offset, artifact.sections["DATA"].end
    whole = path.read_bytes()
    lies = [(4, 2**32 - 1), (4, MAX_LAYERS), (8, 7), (16, 2**32 - 1), (20, 2**31), (24, 2**63), (24, 2**20)]
    for at, value in lies:
        lying = bytearray(whole)
        struct.pack_into("<Q" if at == 24 else "<I", lying, table + at, value)
        entries = bytes(lying[HEADER.size : HEADER.size + 3 * SECTION.size])
        lying[32:64], lying[64:96] = compute_digests(io.BytesIO(lying), entries, end)
        path.write_bytes(lying)
        refused(["inspect", path], capsys, "odd.sslm: its tensor table does not describe an adapter")


def ones_of(rows: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Sub-scales, multipliers and exponent of a matrix of one block a row."""
    return np.ones((rows, 1), np.uint8), np.ones(rows, np.int32), 20
