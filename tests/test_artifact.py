# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The `.sslm` artifact: what the writer stores is what both readers find."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from artifact_support import differences, mixed, run, sanitized, written
from make_checkpoint import make_quantized
from superslm.artifact import Artifact, ArtifactError, GoldenRecord, load_quantized
from superslm.convert import writer

SHAPES = "tiny hd64 hd96 gqa3 gqa8 bias qknorm centred partial untied odd cap40 cap65".split()


@pytest.fixture(scope="module")
def inspect(c_program: Callable[..., Path]) -> Callable[..., list[str]]:
    """The C reader's verdict on each of some files."""
    program = sanitized(c_program, "artifact_inspect")
    return lambda *paths: run(program, *paths)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return written(make_quantized("tiny"), tmp_path / "tiny.sslm")


@pytest.mark.parametrize("weights", ["w8", "w4"])
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_written_is_what_is_read(name: str, weights: str, tmp_path: Path, inspect: Callable) -> None:
    model = make_quantized(name, weights)
    path = written(model, tmp_path / "model.sslm")
    assert differences(model, load_quantized(path)) == []
    shape = (model.hidden, len(model.layers), model.heads, model.kv_heads, model.head_dim)
    numbers = (*shape, model.mlp, model.vocab, model.cap)
    verdicts = inspect(path, path, path, path)  # each at another alignment
    assert verdicts == [f"ok {' '.join(map(str, numbers))} {Artifact(path).model_digest.hex()}"] * 4


def test_every_matrix_chooses_its_own_format(tmp_path: Path, inspect: Callable) -> None:
    model = mixed("odd")
    path = written(model, tmp_path / "mixed.sslm")
    assert differences(model, load_quantized(path)) == []
    assert inspect(path)[0].startswith("ok ")


def test_optional_parts_may_be_missing(tmp_path: Path, inspect: Callable) -> None:
    model = dataclasses.replace(make_quantized("tiny"), DGC1=None, tokenizer=None, stop_ids=[], provenance={})
    path = written(model, tmp_path / "bare.sslm")
    assert differences(model, load_quantized(path)) == []
    assert list(Artifact(path).sections) == ["CONF", "LAYR", "TENS", "DATA"]
    assert inspect(path)[0].startswith("ok ")


def test_equal_input_gives_equal_bytes(tmp_path: Path, tiny: Path) -> None:
    again = written(make_quantized("tiny"), tmp_path / "again.sslm")
    assert again.read_bytes() == tiny.read_bytes()


def test_a_tokenizer_is_stored_as_it_stands(tmp_path: Path) -> None:
    class Tokenizer:
        def section_bytes(self) -> bytes:
            return b"anything but a tokenizer"

    for tokenizer in (Tokenizer(), Tokenizer().section_bytes()):
        model = dataclasses.replace(make_quantized("tiny"), tokenizer=tokenizer)
        path = written(model, tmp_path / "tokenizer.sslm")
        assert load_quantized(path).tokenizer == b"anything but a tokenizer"


def test_the_reader_judges_the_tokenizer(tmp_path: Path, inspect: Callable) -> None:
    model = dataclasses.replace(make_quantized("tiny"), tokenizer=b"anything but a tokenizer")
    (verdict,) = inspect(written(model, tmp_path / "tokenizer.sslm"))
    assert verdict.startswith("rejected: TOKN: ")


def test_digests_follow_the_document(tiny: Path) -> None:
    data = bytearray(tiny.read_bytes())
    artifact = Artifact(tiny)
    model = [s for s in artifact.sections.values() if s.flags == 1]
    pieces = hashlib.sha256(data[1024 : model[-1].end]).digest()  # the file has a single chunk
    entries = bytes(data[128 : 128 + 32 * len(model)])
    assert artifact.model_digest == hashlib.sha256(entries + pieces).digest()
    data[32:64] = bytes(32)
    assert artifact.file_digest == hashlib.sha256(hashlib.sha256(data).digest()).digest()


@pytest.mark.parametrize("extra", [0, 1, 63, 64, 1000])
def test_digests_of_files_around_whole_chunks(extra: int, tmp_path: Path, inspect: Callable) -> None:
    bare = dataclasses.replace(make_quantized("tiny"), provenance={"note": ""})
    start = Artifact(written(bare, tmp_path / "bare.sslm")).sections["PROV"]
    for chunks in (1, 2, 3, 4):
        note = "x" * (chunks * (1 << 20) - start.end + extra - 32)
        path = written(dataclasses.replace(bare, provenance={"note": note}), tmp_path / "long.sslm")
        assert inspect(path)[0].startswith("ok ")
        tokenizer = written(dataclasses.replace(bare, tokenizer=note.encode()), tmp_path / "tokenizer.sslm")
        assert inspect(tokenizer)[0].startswith("rejected: TOKN: ")  # both digests were accepted before


def test_a_golden_record_changes_the_file_digest_only(tiny: Path, inspect: Callable) -> None:
    before = Artifact(tiny)
    for seed in (1, 2):  # added, then replaced
        record = GoldenRecord((5, 6, 7), tuple(range(61)), bytes([seed]) * 32)
        writer.set_golden_record(tiny, record)
        after = Artifact(tiny)
        assert after.golden_record() == record
        assert after.model_digest == before.model_digest
        assert after.file_digest != before.file_digest
        assert after.provenance() == before.provenance()
        assert inspect(tiny)[0].startswith("ok ")
    assert [p.name for p in tiny.parent.iterdir()] == [tiny.name]


def test_a_failed_write_leaves_the_old_file(tiny: Path) -> None:
    old = tiny.read_bytes()
    model = make_quantized("tiny")

    def fail(done: int, total: int) -> None:
        assert 0 < done <= total
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.write_artifact(model, tiny, progress=fail)
    assert tiny.read_bytes() == old
    assert [p.name for p in tiny.parent.iterdir()] == [tiny.name]


def test_progress_rises_to_the_size_of_the_file(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = tmp_path / "model.sslm"
    writer.write_artifact(make_quantized("tiny"), path, progress=lambda *step: seen.append(step))
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size,) * 2


def test_the_writer_refuses_what_does_not_fit(tmp_path: Path) -> None:
    model = make_quantized("tiny")
    layer = model.layers[1]
    cases = {
        "stop ids": dataclasses.replace(model, stop_ids=list(range(17))),
        "layer 1 MK": dataclasses.replace(
            model, layers=[model.layers[0], dataclasses.replace(layer, MK=layer.MK[:, :-1])]
        ),
        "layer 1 WD": dataclasses.replace(
            model, layers=[model.layers[0], dataclasses.replace(layer, WD=layer.WO)]
        ),
        "SIN": dataclasses.replace(model, SIN=model.SIN.astype(np.float64)),
    }
    for name, broken in cases.items():
        with pytest.raises(ValueError, match=name):
            writer.write_artifact(broken, tmp_path / "broken.sslm")
    assert list(tmp_path.iterdir()) == []


def test_python_reads_no_damaged_file(tiny: Path) -> None:
    data = tiny.read_bytes()
    middle = len(data) // 2
    damaged = {
        "digest": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "truncated": data[:-1],
        "version": data[:8] + struct.pack("<I", 2) + data[12:],
        "not a SuperSLM artifact": b"GGUF" + data[4:],
    }
    for reason, content in damaged.items():
        tiny.write_bytes(content)
        with pytest.raises(ArtifactError, match=reason):
            load_quantized(tiny)


def test_sha256_agrees_with_hashlib(tmp_path: Path, c_program: Callable[..., Path]) -> None:
    content = random.Random(1).randbytes(1 << 16)
    file = tmp_path / "content"
    file.write_bytes(content)
    sizes = [*range(130), 1000, 4095, 4096, 65536]
    kernels, *digests = run(sanitized(c_program, "artifact_sha256"), file, *sizes)
    assert digests == [hashlib.sha256(content[:size]).hexdigest() for size in sizes]
    print(kernels)


# --- damped greedy: constants against exact fractions ---

COEFFICIENTS = (
    Fraction(744261117, 1 << 30),  # ln 2
    Fraction(int(Fraction("1.353") * (1 << 30)), 1 << 30),
    Fraction(int(Fraction("0.344") / Fraction("0.3585") * (1 << 30)), 1 << 30),
)
INT64_MAX = (1 << 63) - 1


def _derived(m: int, e: int) -> str:
    if not 1 << 30 <= m < 1 << 31 or abs(e) > 1000:
        return "refused"
    scale = m * Fraction(2) ** e
    q_ln2, q_b, q_c = (int(c // s) for c, s in zip(COEFFICIENTS, (scale, scale, scale**2), strict=True))
    fits = 1 <= q_ln2 <= INT64_MAX // 30 and q_b <= INT64_MAX and q_c <= INT64_MAX
    return f"{q_ln2} {q_b} {q_c}" if fits else "refused"


def test_damped_constants_equal_exact_fractions(c_program: Callable[..., Path]) -> None:
    rng = random.Random(2)
    scales = [(1 << 30, -46), (0, 0), ((1 << 30) - 1, -46), (1 << 31, -46), (-(1 << 30), -46)]
    scales += [(1 << 30, e) for e in (-(1 << 63), -(1 << 40), 1 << 40, INT64_MAX)]
    scales += [(rng.randrange(1 << 30, 1 << 31), e) for e in range(-110, 20) for _ in range(20)]
    lines = run(sanitized(c_program, "artifact_damped"), text="".join(f"derive {m} {e}\n" for m, e in scales))
    assert lines == [_derived(m, e) for m, e in scales]
    assert "refused" in lines[200:] and sum(line != "refused" for line in lines) > 500


def test_damped_domains_equal_exact_integers(c_program: Callable[..., Path]) -> None:
    rng = random.Random(3)
    root = 1 << 23
    interesting = [0, 1, -1, root, root + 1, 11863283, 11863284, 1 << 32, INT64_MAX, -INT64_MAX - 1]
    interesting += [1 << 47, (1 << 47) + 1, -(1 << 47), -(root**2)]
    cases = [(1, b, c, w) for b in interesting for c in interesting for w in (0, 1, 65536, 65537, 1 << 19)]
    cases += [(ln2, 100, 5, 7) for ln2 in (0, -1, 1, INT64_MAX // 30, INT64_MAX // 30 + 1)]
    cases += [
        tuple(rng.randrange(-(1 << rng.randrange(1, 60)), 1 << 40) for _ in range(3)) + (9,)
        for _ in range(400)
    ]
    text = "".join("check {} {} {} {}\n".format(*case) for case in cases)
    expected = []
    for ln2, b, c, width in cases:
        peak = b * b + c
        inside = 0 <= peak <= 1 << 47
        expected.append(
            f"{int(inside and peak >= 1 and 1 <= ln2 <= INT64_MAX // 30)} "
            f"{int(inside and width * peak <= INT64_MAX)}"
        )
    assert run(sanitized(c_program, "artifact_damped"), text=text) == expected
