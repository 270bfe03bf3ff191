# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The artifact reader against hostile files: every range at both ends, every absent part, 10,000 mutations."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact_support import mixed, run, sanitized, written
from make_checkpoint import make_quantized
from superslm import artifact as fmt
from superslm.convert import writer
from superslm.convert.quantized import Norm, QuantizedModel
from superslm.convert.tokenizer import build_tokenizer
from tokenizer_support import small_source

MUTATIONS = 10_000
LIMIT = 1 << 30


@pytest.fixture(scope="module")
def verdict(c_program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """What the C reader says of a model, or of bytes."""
    program = sanitized(c_program, "artifact_inspect")
    path = tmp_path_factory.mktemp("hostile") / "model.sslm"

    def ask(content: QuantizedModel | bytes) -> str:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            written(content, path)
        return run(program, path)[0]

    return ask


@pytest.fixture(scope="module")
def models() -> dict[str, QuantizedModel]:
    return {name: make_quantized(name) for name in ("tiny", "bias", "qknorm", "centred", "untied")}


def with_layer(model: QuantizedModel, **changes: Any) -> QuantizedModel:
    """The model with changes in its last layer."""
    return dataclasses.replace(
        model, layers=[*model.layers[:-1], dataclasses.replace(model.layers[-1], **changes)]
    )


def poked(array: np.ndarray, value: int) -> np.ndarray:
    """The array with its last element replaced."""
    copy = array.copy()
    copy.reshape(-1)[-1] = value
    return copy


# --- ranges ---

LAYER_ARRAYS = {
    "MK": (-LIMIT, LIMIT),
    "MV": (-LIMIT, LIMIT),
    "MQ": (-LIMIT, LIMIT),
    "MC": (-LIMIT, LIMIT),
    "SV": (0, 1 << 23),
}
SCALARS = {"SK": (1, 62), "SV_sh": (1, 62), "FQ": (4, 60), "EC": (8, 60)}
EXPONENTS = {"ESV": "WO", "QH": "WD"}  # ranged 0..30, and part of a matrix's shift


@pytest.mark.parametrize("name", LAYER_ARRAYS)
def test_layer_arrays_keep_their_range(name: str, models: dict, verdict: Callable) -> None:
    model = models["centred"]
    array = getattr(model.layers[-1], name)
    low, high = LAYER_ARRAYS[name]
    for inside in (low, high):
        assert verdict(with_layer(model, **{name: poked(array, inside)})).startswith("ok ")
    for outside in (low - 1, high + 1):
        answer = verdict(with_layer(model, **{name: poked(array, outside)}))
        rows, cols = array.shape
        row = f" of row {rows - 1}" if rows > 1 else ""
        where = f"layer 1 {name}: value {cols - 1}{row}"
        assert answer == f"rejected: {where} is {outside}, must be {low}..{high}"


@pytest.mark.parametrize("name", SCALARS)
def test_layer_scalars_keep_their_range(name: str, models: dict, verdict: Callable) -> None:
    low, high = SCALARS[name]
    for inside in (low, high):
        assert verdict(with_layer(models["centred"], **{name: inside})).startswith("ok ")
    for outside in (low - 1, high + 1, -(1 << 31), (1 << 31) - 1):
        answer = verdict(with_layer(models["centred"], **{name: outside}))
        assert answer.startswith("rejected: layer 1 LAYR: " + name)


@pytest.mark.parametrize("name", EXPONENTS)
def test_output_exponents_keep_their_range(name: str, models: dict, verdict: Callable) -> None:
    model = models["tiny"]
    matrix = getattr(model.layers[-1], EXPONENTS[name])
    for value in (0, 30):
        moved = dataclasses.replace(matrix, E=40 + model.R - value)  # a shift of 36
        changed = with_layer(model, **{name: value, EXPONENTS[name]: moved})
        assert verdict(changed).startswith("ok ")
    for value in (-1, 31):
        answer = verdict(with_layer(model, **{name: value}))
        assert answer == f"rejected: layer 1 LAYR: {name} is {value}, must be 0..30"


@pytest.mark.parametrize("name", ["N1", "N2", "NF"])
def test_norm_gains_keep_their_range(name: str, models: dict, verdict: Callable) -> None:
    model = models["tiny"]

    def with_norm(norm: Norm) -> QuantizedModel:
        changed = {name: norm}
        return dataclasses.replace(model, **changed) if name == "NF" else with_layer(model, **changed)

    norm = model.NF if name == "NF" else getattr(model.layers[-1], name)
    site = name if name == "NF" else f"layer 1 {name}"
    for gain in (-LIMIT, LIMIT):
        assert verdict(with_norm(Norm(poked(norm.G, gain), norm.EG))).startswith("ok ")
    for gain in (-LIMIT - 1, LIMIT + 1):
        answer = verdict(with_norm(Norm(poked(norm.G, gain), norm.EG)))
        assert answer.startswith(f"rejected: {site}: value {model.hidden - 1} is {gain}")
    for exponent in (-1, 31):
        answer = verdict(with_norm(Norm(norm.G, exponent)))
        assert answer == f"rejected: {site}: exponent EG is {exponent}, must be 0..30"


@pytest.mark.parametrize("name", ["NQ", "NK"])
def test_head_norms_keep_their_range(name: str, models: dict, verdict: Callable) -> None:
    array = getattr(models["qknorm"].layers[-1], name)
    assert verdict(with_layer(models["qknorm"], **{name: poked(array, LIMIT)})).startswith("ok ")
    answer = verdict(with_layer(models["qknorm"], **{name: poked(array, LIMIT + 1)}))
    assert answer.startswith(f"rejected: layer 1 {name}: value {array.size - 1} is {LIMIT + 1}")


@pytest.mark.parametrize("name", ["embedding", "head", *(f"W{c}" for c in "QKVOGUD")])
def test_row_multipliers_keep_their_range(name: str, models: dict, verdict: Callable) -> None:
    model = models["untied"]
    whole = name in ("embedding", "head")
    matrix = getattr(model if whole else model.layers[-1], name)

    def with_multiplier(value: int) -> QuantizedModel:
        changed = {name: dataclasses.replace(matrix, W=poked(matrix.W, value))}
        return dataclasses.replace(model, **changed) if whole else with_layer(model, **changed)

    site = name if whole else f"layer 1 {name}"
    for inside in (1, 1 << 23):
        assert verdict(with_multiplier(inside)).startswith("ok ")
    for outside in (0, -1, (1 << 23) + 1):
        field = f"multiplier of row {matrix.rows - 1} is {outside}, must be 1..8388608"
        assert verdict(with_multiplier(outside)) == f"rejected: {site}: {field}"


def _shift_limits(model: QuantizedModel, name: str) -> tuple[int, int]:
    """The least and the largest E of a matrix."""
    layer = model.layers[-1]
    if name == "embedding":
        return model.R, model.R + 62
    inputs = {"WO": layer.ESV, "WG": layer.N2.EG, "WU": layer.N2.EG, "WD": layer.QH, "head": model.NF.EG}
    outputs = {"WO": model.R, "WD": model.R}
    offset = inputs.get(name, layer.N1.EG) - outputs.get(name, 16) - 4
    return 17 - offset, 62 - offset


@pytest.mark.parametrize("name", ["embedding", "head", *(f"W{c}" for c in "QKVOGUD")])
def test_every_shift_stays_inside_its_bounds(name: str, models: dict, verdict: Callable) -> None:
    model = models["untied"]
    whole = name in ("embedding", "head")
    matrix = getattr(model if whole else model.layers[-1], name)

    def with_exponent(E: int) -> QuantizedModel:
        changed = {name: dataclasses.replace(matrix, E=E)}
        return dataclasses.replace(model, **changed) if whole else with_layer(model, **changed)

    low, high = _shift_limits(model, name)
    site = name if whole else f"layer 1 {name}"
    for inside in (low, high):
        assert verdict(with_exponent(inside)).startswith("ok ")
    for outside in (low - 1, high + 1, -(1 << 31), (1 << 31) - 1):
        answer = verdict(with_exponent(outside))
        assert answer == f"rejected: {site}: exponent E is {outside}, must be {low}..{high}"


def test_a_tied_embedding_is_checked_as_head(models: dict, verdict: Callable) -> None:
    model = models["tiny"]
    _, high = _shift_limits(model, "head")
    assert high < model.R + 62
    big = dataclasses.replace(model, embedding=dataclasses.replace(model.embedding, E=high + 1))
    assert verdict(big).startswith("rejected: embedding (as head): exponent E is")


TABLES = {
    "SIN": [("SIN: value 4096 is 1073741825", LIMIT + 1), ("SIN: value 4096 is -1073741825", -LIMIT - 1)],
    "SIG": [("SIG: value 1024 is -1", -1), ("SIG: step behind value 1023 is -", LIMIT)],
    "T": [("T: value 31 of row 63 is 16385", 16385), ("T: value 31 of row 63 is -16385", -16385)],
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_keep_their_range(name: str, models: dict, verdict: Callable) -> None:
    model = models["centred"]
    for message, value in TABLES[name]:
        changed = dataclasses.replace(model, **{name: poked(getattr(model, name), value)})
        assert verdict(changed).startswith("rejected: " + message)


def test_the_sigmoid_table_has_small_steps(models: dict, verdict: Callable) -> None:
    ramp = (np.arange(1024, -1, -1) << 19).astype(np.int32)
    steep, steeper = ramp.copy(), ramp.copy()
    steep[0] = ramp[1] + (1 << 22)
    steeper[0] = ramp[1] + (1 << 22) + 1
    assert verdict(dataclasses.replace(models["tiny"], SIG=steep)).startswith("ok ")
    answer = verdict(dataclasses.replace(models["tiny"], SIG=steeper))
    assert answer == "rejected: SIG: step behind value 0 is 4194305, must be 0..4194304"


CONFIG_FIELDS = {
    "hidden size": (0, [0, 32769, 1 << 31]),
    "layers": (4, [0, 1025, 0xFFFFFFFF]),
    "heads": (8, [0, 32769, 1 << 20]),
    "kv_heads": (12, [0, 3, 0xFFFFFFFF]),
    "head_dim": (16, [0, 1, 31, 513, 514]),
    "MLP size": (20, [0, 65537]),
    "vocabulary": (24, [0, (1 << 19) + 1]),
    "context cap": (28, [0, (1 << 25) + 1]),
    "K/V bytes": (32, [0, 2]),
    "R is": (36, [21, 0xFFFFFFFF]),
    "EPS is": (44, [1 << 29, 0xFFFFFFFF]),
    "EPS of the q/k norms": (52, [1 << 29, 0xFFFFFFFF]),
    "number of stop ids": (56, [17, 0xFFFFFFFF]),
    "stop id": (60, [263, 0xFFFFFFFF]),
    "reserved": (124, [1]),
}


def changed_file(path: Path, section: str, offset: int, value: bytes) -> bytes:
    """The artifact's bytes with some of a section replaced and the digests repaired."""
    with fmt.Artifact(path) as whole:
        sections = list(whole.sections.values())
        start = whole.sections[section].offset + offset
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(value)
        writer._seal(file, sections)
    return path.read_bytes()


@pytest.mark.parametrize("name", CONFIG_FIELDS)
def test_the_configuration_keeps_its_ranges(
    name: str, models: dict, verdict: Callable, tmp_path: Path
) -> None:
    offset, values = CONFIG_FIELDS[name]
    for value in values:
        path = written(dataclasses.replace(models["tiny"], stop_ids=[1]), tmp_path / "model.sslm")
        answer = verdict(changed_file(path, "CONF", offset, struct.pack("<I", value)))
        assert answer.startswith("rejected: CONF: ") and name in answer, answer


def test_the_whole_of_a_head_row_is_bounded(models: dict, verdict: Callable, tmp_path: Path) -> None:
    path = written(models["tiny"], tmp_path / "model.sslm")
    answer = verdict(changed_file(path, "CONF", 8, struct.pack("<III", 4096, 4096, 32)))
    assert answer == "rejected: CONF: heads * head_dim is 131072, must be 2..65536"


# --- absent and superfluous parts ---

OPTIONAL = {"head", "T", "BQ", "BK", "BV", "NQ", "NK", "CK", "MC"}


@pytest.mark.parametrize("name", [n for n in (*fmt.MODEL_ROLES, *fmt.LAYER_ROLES) if n not in OPTIONAL])
def test_an_absent_tensor_is_named(name: str, models: dict, verdict: Callable, tmp_path: Path) -> None:
    role = fmt.MODEL_ROLES.get(name, fmt.LAYER_ROLES.get(name))
    path = written(models["tiny"], tmp_path / "model.sslm")
    with fmt.Artifact(path) as whole:
        entries = [e for e in fmt.TENSOR.iter_unpack(bytes(whole.section("TENS")))]
    index = max(i for i, e in enumerate(entries) if e[0] == role)
    answer = verdict(changed_file(path, "TENS", 64 * index, struct.pack("<I", 99)))
    site = name if name in fmt.MODEL_ROLES else f"layer 1 {name}"
    assert answer == f"rejected: {site}: absent from the tensor table, or out of order"


OPTIONAL_PAIRS = {
    "NQ": ("qknorm", {"NQ": None}, "layer 1 NQ: absent"),
    "NK": ("qknorm", {"NK": None}, "layer 1 NK: absent"),
    "BK": ("centred", {"BK": None}, "layer 1 BK: absent"),
    "MC": ("qknorm_centred", {"MC": None}, "layer 1 CK: belongs to a centred layer"),
    "CK": ("qknorm_centred", {"CK": None}, "layer 1 CK: belongs to a centred layer"),
    "EC": ("centred", {"MC": None}, "layer 1 LAYR: EC of a layer that is not centred"),
}


@pytest.mark.parametrize("name", OPTIONAL_PAIRS)
def test_optional_parts_come_together(name: str, models: dict, verdict: Callable) -> None:
    fixture, changes, message = OPTIONAL_PAIRS[name]
    if fixture == "qknorm_centred":
        base = models["qknorm"]
        shape = (base.kv_heads, base.head_dim)
        ones = np.ones(shape, np.int32)
        base = with_layer(base, MC=ones, CK=ones, EC=20)
        model = dataclasses.replace(base, T=np.zeros((base.cap, base.head_dim), np.int16))
        assert verdict(model).startswith("ok ")
    else:
        model = models[fixture]
    assert verdict(with_layer(model, **changes)).startswith("rejected: " + message)


def test_rotary_rows_exist_exactly_when_a_layer_is_centred(models: dict, verdict: Callable) -> None:
    rows = models["centred"].T
    assert verdict(dataclasses.replace(models["centred"], T=None)).startswith("rejected: T: absent")
    tiny = dataclasses.replace(models["tiny"], T=rows[: models["tiny"].cap, : models["tiny"].head_dim])
    assert verdict(tiny).startswith("rejected: T: present, but no layer is centred")


@pytest.mark.parametrize("section", ["CONF", "LAYR", "TENS", "DATA"])
def test_an_absent_section_is_named(section: str, models: dict, verdict: Callable, tmp_path: Path) -> None:
    path = written(models["tiny"], tmp_path / "model.sslm")
    with fmt.Artifact(path) as whole:
        sections = list(whole.sections.values())
    hidden = [dataclasses.replace(s, name="hide", flags=0) if s.name == section else s for s in sections]
    with open(path, "r+b") as file:
        writer._write_head(file, hidden, bytes(64))
        writer._seal(file, hidden)
    answer = verdict(path.read_bytes())
    assert answer.startswith("rejected: ") and ("absent" in answer or "out of order" in answer)


def test_an_unknown_section_is_ignored_unless_critical(
    models: dict, verdict: Callable, tmp_path: Path
) -> None:
    path = written(models["tiny"], tmp_path / "model.sslm")
    writer.set_section(path, "NEW1", b"from a later release")
    assert verdict(path.read_bytes()).startswith("ok ")
    with fmt.Artifact(path) as whole:
        sections = list(whole.sections.values())
    sections[-1] = dataclasses.replace(sections[-1], flags=fmt.CRITICAL)
    with open(path, "r+b") as file:
        writer._write_head(file, sections, bytes(64))
        writer._seal(file, sections)
    assert verdict(path.read_bytes()).startswith("rejected: NEW1: id is unknown and the section is critical")


def test_other_files_and_releases_are_refused_by_name(
    models: dict, verdict: Callable, tmp_path: Path
) -> None:
    data = written(models["tiny"], tmp_path / "model.sslm").read_bytes()
    cases = {
        "header: the file is shorter than 1024 bytes; it is empty or truncated": b"",
        "header: magic is not SUPERSLM": b"SSLM" + bytes(4000),
        "header: magic is not SUPERSLM; this is no artifact": b"x",
        "header: this is a GGUF file; make an artifact of it with `superslm convert`": b"GGUF" + bytes(4),
        "header: format version is 7": data[:8] + struct.pack("<I", 7) + data[12:],
        "header: kind is not 1": data[:12] + struct.pack("<I", 2) + data[16:],
        "header: file size is": data + b"\0",
        "header: file digest does not match": data[:-1] + bytes([data[-1] ^ 1]),
        "header: model digest does not match": _wrong_model_digest(data),
    }
    for message, content in cases.items():
        assert verdict(content).startswith("rejected: " + message)


def _wrong_model_digest(data: bytes) -> bytes:
    content = bytearray(data[:64] + bytes([data[64] ^ 1]) + data[65:])
    content[32:64] = bytes(32)
    chunks = [hashlib.sha256(content[i : i + fmt.CHUNK]).digest() for i in range(0, len(content), fmt.CHUNK)]
    content[32:64] = hashlib.sha256(b"".join(chunks)).digest()
    return bytes(content)


# --- damped greedy, golden record ---


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ((0, 0), "DGC1: m is 0"),
        (((1 << 30) - 1, -46), "DGC1: m is 1073741823"),
        ((1 << 31, -46), "DGC1: m is 2147483648"),
        ((1 << 30, 0), "DGC1: e leads to constants outside their domain"),
        ((1 << 30, -(1 << 63)), "DGC1: e leads to constants outside their domain"),
        ((1 << 30, -54), "DGC1: e leads to a peak outside 1..2^47"),
    ],
)
def test_a_useless_logit_scale_is_refused(
    scale: tuple[int, int], message: str, models: dict, verdict: Callable
) -> None:
    assert verdict(dataclasses.replace(models["tiny"], DGC1=scale)).startswith("rejected: " + message)


def test_a_logit_scale_has_sixteen_bytes(
    models: dict, verdict: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fmt, "SCALE", struct.Struct("<qq8x"))
    path = written(models["tiny"], tmp_path / "model.sslm")
    assert verdict(path.read_bytes()).startswith("rejected: DGC1: size is 24, must be 16")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (((), (1,) * 64), "GOLD: prompt length is 0"),
        (((1,), (1,) * 64), "GOLD: token count is 64, must be 63"),
        (((1,), (1,) * 62), "GOLD: token count is 62, must be 63"),
        (((263,), (1,) * 63), "GOLD: token id is 263, must be 0..262"),
    ],
)
def test_a_golden_record_fits_the_model(
    record: tuple, message: str, models: dict, verdict: Callable, tmp_path: Path
) -> None:
    path = written(models["tiny"], tmp_path / "model.sslm")  # cap 64
    writer.set_golden_record(path, fmt.GoldenRecord(*record, bytes(32)))
    assert verdict(path.read_bytes()).startswith("rejected: " + message)


# --- mutations ---


def test_no_mutation_is_accepted_unsafely(
    models: dict, c_program: Callable[..., Path], tmp_path: Path
) -> None:
    files = [written(model, tmp_path / f"{name}.sslm") for name, model in models.items()]
    tokenizer = build_tokenizer(small_source())
    files.append(written(dataclasses.replace(mixed("odd"), tokenizer=tokenizer), tmp_path / "mixed.sslm"))
    writer.set_golden_record(files[0], fmt.GoldenRecord((1,), tuple(range(63)), bytes(32)))
    program = sanitized(c_program, "artifact_mutate")
    (summary,) = run(program, "--decode", 1, MUTATIONS, *files)
    print(summary)
    words = summary.replace(",", "").split()
    accepted, refused, ran = int(words[1]), int(words[3]), int(words[8])
    assert accepted + refused == MUTATIONS + len(files)
    assert refused > MUTATIONS // 3 and ran > MUTATIONS // 10
