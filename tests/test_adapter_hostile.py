# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The adapter reader against hostile files: every check, the order of the contract, thousands of mutations."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from adapter_support import random_file
from artifact_support import run, sanitized
from make_adapter import AdapterSpec
from superslm import Model, SuperslmError
from superslm import artifact as fmt
from superslm.adapter import Adapter
from superslm.artifact import Artifact, load_adapter
from superslm.convert import writer
from superslm.convert.quantized import Adapter as Pairs

MUTATIONS = 5_000  # of the long run; the fast one makes a fifth
ROLE, LAYER, FORMAT, EXPONENT, ROWS, COLUMNS = 0, 4, 8, 12, 16, 20
FORGED = bytes(range(32))


@pytest.fixture(scope="module")
def base(library_path: Path, fixture_artifact: Callable[..., Path]) -> Iterator[Model]:
    with Model.load(fixture_artifact("tiny")) as model:
        yield model


@pytest.fixture(scope="module")
def intact(base: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = AdapterSpec(rank=4, targets=("WQ", "WD"))
    return random_file("tiny", Path(base.name), spec, tmp_path_factory.mktemp("intact"))


@pytest.fixture
def copy(intact: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy.sslm"
    path.write_bytes(intact.read_bytes())
    return path


def verdict(base: Model, data: bytes) -> str:
    """Status and reason, or "ok"."""
    try:
        Adapter(base, np.frombuffer(data, np.uint8)).close()
    except SuperslmError as error:
        return str(error).removeprefix("sslm_adapter_map: ").replace("<bytes>: ", "")
    return "ok"


def changed(path: Path, section: str, offset: int, value: bytes) -> bytes:
    """The file's bytes with some of a section replaced and the digests repaired."""
    with Artifact(path) as whole:
        sections = list(whole.sections.values())
        start = whole.sections[section].offset + offset
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(value)
        writer._seal(file, sections, fmt.KIND_ADAPTER)
    return path.read_bytes()


# The entries of the file: layer 0 A and B of WQ, A and B of WD, then layer 1.
A_WQ, B_WQ, A_WD, B_WD = range(4)
DEFECTS = {
    "rank 0": (A_WQ, ROWS, 0, "layer 0 A of WQ: rank is 0, must be 1..256"),
    "rank 257": (A_WQ, ROWS, 257, "layer 0 A of WQ: rank is 257, must be 1..256"),
    "a huge rank": (A_WD, ROWS, 0xFFFFFFFF, "layer 0 A of WD: rank is 4294967295, must be 1..256"),
    "another rank of B": (B_WQ, COLUMNS, 5, "layer 0 B of WQ: columns is 5, must be 4"),
    "fewer inputs": (A_WQ, COLUMNS, 32, "layer 0 A of WQ: columns is 32, must be 64"),
    "fewer outputs": (B_WD, ROWS, 63, "layer 0 B of WD: rows is 63, must be 64"),
    "4-bit factors": (A_WQ, FORMAT, 2, "layer 0 A of WQ: format is 2, must be 3"),
    "rows of 8 bits": (B_WD, FORMAT, 1, "layer 0 B of WD: format is 1, must be 3"),
    "numbers": (B_WQ, FORMAT, 16, "layer 0 B of WQ: format is 16, must be 3"),
    "a coarse A": (A_WQ, EXPONENT, 0, "layer 0 A of WQ: exponent E is 0, must be "),
    "a fine B": (B_WD, EXPONENT, 90, "layer 0 B of WD: exponent E is 90, must be "),
    "a lonely A": (B_WQ, ROLE, 99, "layer 0 B of WQ: absent from the tensor table"),
    "a lonely B": (A_WQ, ROLE, 65, "TENS: entry 0 has role 65 and layer 0, which is unknown, repeated"),
    "an unknown role": (A_WQ, ROLE, 78, "TENS: entry 0 has role 78"),
    "a role of models": (A_WQ, ROLE, 18, "TENS: entry 0 has role 18"),
    "a pair twice": (A_WD, ROLE, 64, "TENS: entry 2 has role 64"),
    "an unknown layer": (6, LAYER, 2, "TENS: entry 6 has role 76 and layer 2"),
    "the whole model's layer": (A_WQ, LAYER, 0xFFFFFFFF, "TENS: entry 0 has role 64 and layer 4294967295"),
    "misaligned values": (A_WQ, 24, 8, "layer 0 A of WQ: offset of the values is not a multiple of 64"),
    "values outside": (
        B_WD,
        24,
        1 << 30,
        "layer 0 B of WD: offset of the values leads behind the end of DATA",
    ),
    "reserved bytes": (A_WQ, 60, 1, "layer 0 A of WQ: reserved is not 0"),
}


@pytest.mark.parametrize("case", DEFECTS)
def test_a_defect_of_the_tensor_table_is_named(case: str, base: Model, copy: Path) -> None:
    entry, field, value, message = DEFECTS[case]
    said = verdict(base, changed(copy, "TENS", 64 * entry + field, struct.pack("<I", value)))
    assert said.startswith(f"SSLM_ARTIFACT_REJECTED: {message}"), said


@pytest.mark.parametrize("value", [0, (1 << 23) + 1, 0xFFFFFFFF])
def test_row_multipliers_keep_their_range(value: int, base: Model, copy: Path) -> None:
    with Artifact(copy) as whole:
        offset = struct.unpack_from("<Q", whole.section("TENS"), 64 * B_WD + 40)[0]
    said = verdict(base, changed(copy, "DATA", offset + 4 * 63, struct.pack("<I", value)))
    assert said.startswith("SSLM_ARTIFACT_REJECTED: layer 0 B of WD: multiplier of row 63 is ")


def test_the_base_is_told_apart_before_the_pairs_are_read_and_after_the_container(
    base: Model, copy: Path
) -> None:
    """The contract's order: container, provenance, base, pairs."""
    good = copy.read_bytes()
    broken_pair = changed(copy, "TENS", ROWS, struct.pack("<I", 0))
    foreign_and_broken = changed(copy, "BASE", 0, FORGED)
    assert verdict(base, broken_pair).startswith("SSLM_ARTIFACT_REJECTED: layer 0 A of WQ: rank is 0")
    assert verdict(base, foreign_and_broken).startswith("SSLM_ADAPTER_MODEL_MISMATCH: BASE: model digest")
    malformed = changed(copy, "BASE", 40, b"\1")
    assert verdict(base, malformed) == "SSLM_ARTIFACT_REJECTED: BASE: reserved is not 0"
    damaged = bytearray(malformed)
    damaged[-1] ^= 1
    assert verdict(base, bytes(damaged)).startswith("SSLM_ARTIFACT_REJECTED: header: file digest")
    assert verdict(base, good) == "ok"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("BASE", "SSLM_ARTIFACT_REJECTED: "),
        ("TENS", "SSLM_ARTIFACT_REJECTED: TENS: section is absent"),
        ("DATA", "SSLM_ARTIFACT_REJECTED: DATA: section is absent"),
    ],
)
def test_an_absent_section_is_named(section: str, message: str, base: Model, copy: Path) -> None:
    with Artifact(copy) as whole:
        sections = list(whole.sections.values())
    last = section == "DATA"  # one that hides inside the part is out of order as well
    kept = [s for s in sections if s.name != section] if last else sections
    hidden = [dataclasses.replace(s, name="hide", flags=0) if s.name == section else s for s in kept]
    with open(copy, "r+b") as file:
        if last:
            file.truncate(hidden[-1].end)
        writer._write_head(file, hidden, bytes(64), fmt.KIND_ADAPTER)
        writer._seal(file, hidden, fmt.KIND_ADAPTER)
    said = verdict(base, copy.read_bytes())
    assert said.startswith(message) or said.startswith("SSLM_ARTIFACT_REJECTED: DATA: id is out of order"), (
        said
    )


def test_a_base_section_has_64_bytes(
    base: Model, intact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fmt, "BASE", struct.Struct("<32s"))
    writer.write_adapter(load_adapter(intact), bytes.fromhex(base.info.model_digest), tmp_path / "a.sslm")
    said = verdict(base, (tmp_path / "a.sslm").read_bytes())
    assert said == "SSLM_ARTIFACT_REJECTED: BASE: size is 32, must be 64"


def test_an_adapter_without_pairs_is_refused(base: Model, tmp_path: Path) -> None:
    writer.write_adapter(Pairs([]), bytes.fromhex(base.info.model_digest), tmp_path / "a.sslm")
    said = verdict(base, (tmp_path / "a.sslm").read_bytes())
    assert said == "SSLM_ARTIFACT_REJECTED: TENS: entries are absent: the adapter has no pair"


@pytest.mark.parametrize(("place", "value"), [(0, 16), (63, 255)])
def test_sub_scales_keep_their_range(place: int, value: int, base: Model, copy: Path) -> None:
    """A larger one could leave the bounds of the numerics."""
    with Artifact(copy) as whole:
        offset = struct.unpack_from("<Q", whole.section("TENS"), 64 * B_WQ + 32)[0]
    said = verdict(base, changed(copy, "DATA", offset + place, bytes([value])))
    expected = f"layer 0 B of WQ: sub-scale {place} is {value}, must be 0..15"
    assert said.startswith(f"SSLM_ARTIFACT_REJECTED: {expected}"), said


def test_other_files_are_refused_by_name(base: Model, intact: Path) -> None:
    data = intact.read_bytes()
    cases = {
        "header: the file is shorter": data[:1023],
        "header: magic is not SUPERSLM; this is no artifact": b"x",
        "header: this is a GGUF file": b"GGUF" + bytes(4000),
        "header: magic is not SUPERSLM": b"SSLM" + bytes(4000),
        "header: format version is 7": data[:8] + struct.pack("<I", 7) + data[12:],
        "header: kind is not 2: the file holds no adapter": data[:12] + struct.pack("<I", 1) + data[16:],
        "header: file size is": data + b"\0",
        "header: file digest does not match": data[:-1] + bytes([data[-1] ^ 1]),
    }
    for message, content in cases.items():
        assert verdict(base, content).startswith("SSLM_ARTIFACT_REJECTED: " + message)
    for cut in (1024, 1025, len(data) // 2, len(data) - 1):
        assert verdict(base, data[:cut]).startswith("SSLM_ARTIFACT_REJECTED: header: file size is")


def mutate(count: int, base: Path, c_program: Callable[..., Path], folder: Path, seed: int) -> None:
    specs = [
        AdapterSpec(rank=1),
        AdapterSpec(rank=16, targets=("WQ", "WV")),
        AdapterSpec(rank=33, targets=("WO", "WD")),
        AdapterSpec(rank=256, targets=("WK",)),
    ]
    files = [random_file("odd", base, spec, folder / str(i)) for i, spec in enumerate(specs)]
    program = sanitized(c_program, "artifact_mutate")
    (summary,) = run(program, "--decode", "--base", base, seed, count, *files)
    print(summary)
    words = summary.replace(",", "").split()
    accepted, refused, ran = int(words[1]), int(words[3]), int(words[8])
    assert accepted + refused == count + len(files)
    assert refused > count // 3 and ran > count // 10


def test_no_mutation_is_accepted_unsafely(
    fixture_artifact: Callable[..., Path], c_program: Callable[..., Path], tmp_path: Path
) -> None:
    """Under the address and undefined-behaviour checkers; what is accepted also runs."""
    mutate(MUTATIONS // 5, fixture_artifact("odd"), c_program, tmp_path, seed=1)


@pytest.mark.long
def test_no_mutation_of_many_is_accepted_unsafely(
    fixture_artifact: Callable[..., Path], c_program: Callable[..., Path], tmp_path: Path
) -> None:
    mutate(MUTATIONS, fixture_artifact("odd"), c_program, tmp_path, seed=100_000)
