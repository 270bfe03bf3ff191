# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Writes a `QuantizedModel` as an `.sslm` artifact (docs/sslm_format.md): streaming, atomic, deterministic."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np

from .. import artifact as fmt
from .quantized import (
    BLOCK,
    TARGETS,
    Adapter,
    Layer,
    Matrix,
    MatrixW4,
    MatrixW8,
    Norm,
    QuantizedModel,
    padded,
)

Progress = Callable[[int, int], None]  # bytes written so far, bytes in all


@dataclass
class _Tensor:
    """One entry of the tensor table and the parts of DATA it points to, made when they are written."""

    role: int
    layer: int
    format: int
    exponent: int
    rows: int
    cols: int
    parts: list[tuple[int, Callable[[], Iterator[bytes]]]]  # size in bytes, producer of the bytes


def write_artifact(
    model: QuantizedModel, path: str | PathLike[str], *, progress: Progress | None = None
) -> None:
    """Writes the artifact of a model; the file appears under its name only when it is whole.

    Args:
        model: the integer model; its optional parts may be None. `tokenizer` is bytes or has `section_bytes()`.
        path: the file to write.
        progress: called with (bytes written, bytes in all) as the file grows.

    Raises:
        ValueError: more than 16 stop ids, or an array whose shape does not fit the model.
        OSError: the file cannot be written.
    """
    tensors = list(_tensors(model))
    table, offsets, data_size = _tensor_table(tensors)
    small = {
        "CONF": _config(model),
        "LAYR": b"".join(_scalars(layer) for layer in model.layers),
        "TENS": table,
    }
    tail = {"TOKN": _tokenizer(model), "DGC1": None if model.DGC1 is None else fmt.SCALE.pack(*model.DGC1)}
    tail["SCHM"] = model.schemas
    tail["PROV"] = _json(model.provenance)
    contents = {**small, "DATA": None, **{name: data for name, data in tail.items() if data is not None}}
    _write_file(path, fmt.KIND_MODEL, contents, (tensors, offsets, data_size), progress)


def write_adapter(
    adapter: Adapter, base_digest: bytes, path: str | PathLike[str], *, provenance: dict | None = None
) -> None:
    """Writes an adapter file (docs/adapter_format.md); it appears under its name only when it is whole.

    Args:
        adapter: the LoRA pairs.
        base_digest: model digest of the model they were made for, 32 bytes.
        path: the file to write.
        provenance: JSON-serialisable remarks about the origin.

    Raises:
        OSError: the file cannot be written.
    """
    tensors = [
        _factor(getattr(layer[name], half), i, name, half)
        for i, layer in enumerate(adapter.layers)
        for name in TARGETS
        if name in layer
        for half in "AB"
    ]
    table, offsets, data_size = _tensor_table(tensors)
    contents = {"BASE": fmt.BASE.pack(base_digest), "TENS": table, "DATA": None}
    if provenance:
        contents["PROV"] = _json(provenance)
    _write_file(path, fmt.KIND_ADAPTER, contents, (tensors, offsets, data_size), None)


def set_golden_record(path: str | PathLike[str], record: fmt.GoldenRecord) -> None:
    """Adds or replaces the golden record of an artifact; see `set_section`.

    Args:
        path: an existing artifact.
        record: prompt, tokens and digest as docs/sslm_format.md section 8 defines them.
    """
    set_section(path, "GOLD", record.pack())


def set_section(
    path: str | PathLike[str], name: str, data: bytes | None, *, output: str | PathLike[str] | None = None
) -> None:
    """Adds, replaces or (with None) removes a section outside the model part, atomically.

    The file digest is renewed; the model digest stays, since it does not cover such sections.

    Args:
        path: an existing artifact.
        name: four characters, such as "GOLD"; no section of the model part.
        data: the section's bytes.
        output: the file to write; default: in place.

    Raises:
        ArtifactError: the file is no intact artifact.
        ValueError: the section belongs to the model part.
        OSError: the file cannot be written.
    """
    if name in fmt.MODEL_SECTIONS:
        raise ValueError(f"{name} belongs to the model part; write the artifact again")
    with fmt.Artifact(path) as old:
        model = [s for s in old.sections.values() if s.name in fmt.MODEL_SECTIONS]
        tail = {s.name: bytes(old.section(s.name)) for s in old.sections.values() if s not in model}
        flags = {s.name: s.flags for s in old.sections.values()}
    tail[name] = data
    tail = {name: data for name, data in tail.items() if data is not None}
    sections, end = list(model), model[-1].end
    for tail_name, content in tail.items():
        sections.append(fmt.Section(tail_name, flags.get(tail_name, 0), fmt.aligned(end), len(content)))
        end = sections[-1].end
    with _replacing(path if output is None else output) as file:
        with open(path, "rb") as source:
            _copy(source, file, model[-1].end)
        _write_head(file, sections, bytes(64))
        for section in sections[len(model) :]:
            _write_at(file, section.offset, tail[section.name])
        _seal(file, sections)


def _write_file(
    path: str | PathLike[str],
    kind: int,
    contents: dict[str, bytes | None],
    data: tuple[list[_Tensor], list[list[int]], int],
    progress: Progress | None,
) -> None:
    """Writes all sections in order; the one without bytes takes the tensors (with their offsets and size)."""
    tensors, offsets, data_size = data
    sizes = {name: data_size if part is None else len(part) for name, part in contents.items()}
    sections = _place(sizes, kind)
    total = sections[-1].end
    with _replacing(path) as file:
        _write_head(file, sections, bytes(64), kind)
        for section in sections:
            part = contents[section.name]
            if part is not None:
                _write_at(file, section.offset, part)
            else:
                _write_tensors(file, section.offset, tensors, offsets, progress, total)
        _seal(file, sections, kind)
    if progress is not None:
        progress(total, total)


# --- content of the sections ------------------------------------------------------------------------------


def _config(model: QuantizedModel) -> bytes:
    if len(model.stop_ids) > fmt.MAX_STOP_IDS:
        raise ValueError(f"{len(model.stop_ids)} stop ids; an artifact holds at most {fmt.MAX_STOP_IDS}")
    shape = (model.hidden, len(model.layers), model.heads, model.kv_heads, model.head_dim)
    sizes = (model.mlp, model.vocab, model.cap, 1)
    stops = list(model.stop_ids) + [0] * (fmt.MAX_STOP_IDS - len(model.stop_ids))
    return fmt.CONFIG.pack(*shape, *sizes, model.R, model.EPS, model.EPS_head, len(model.stop_ids), *stops)


def _scalars(layer: Layer) -> bytes:
    return fmt.LAYER.pack(*(getattr(layer, name) for name in fmt.LAYER_SCALARS))


def _tokenizer(model: QuantizedModel) -> bytes | None:
    tokenizer = model.tokenizer
    if tokenizer is None or isinstance(tokenizer, (bytes, bytearray, memoryview)):
        return None if tokenizer is None else bytes(tokenizer)
    return tokenizer.section_bytes()


def _json(value: dict) -> bytes | None:
    if not value:
        return None
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _tensors(model: QuantizedModel) -> Iterator[_Tensor]:
    """Every tensor of the model in the order of the table."""
    H, hd, kv, q = model.hidden, model.head_dim, model.kv_heads * model.head_dim, model.heads * model.head_dim
    per_kv_head, vector = (model.kv_heads, hd), (1, hd)
    whole_shapes = {"embedding": (model.vocab, H), "head": (model.vocab, H), "NF": (1, H)}
    whole_shapes |= {"STEP": (1, hd // 2), "SIN": (1, 4097), "SIG": (1, 1025), "T": (model.cap, hd)}
    layer_shapes = {"N1": (1, H), "N2": (1, H), "WQ": (q, H), "WK": (kv, H), "WV": (kv, H), "WO": (H, q)}
    layer_shapes |= {
        "WG": (model.mlp, H),
        "WU": (model.mlp, H),
        "WD": (H, model.mlp),
        "MQ": (model.heads, hd),
    }
    layer_shapes |= {"BQ": (1, q), "BK": (1, kv), "BV": (1, kv), "NQ": vector, "NK": vector}
    layer_shapes |= dict.fromkeys(("CK", "MK", "MV", "SV", "MC"), per_kv_head)
    for name, role in fmt.MODEL_ROLES.items():
        if (value := getattr(model, name)) is not None:
            yield _tensor(value, role, fmt.WHOLE_MODEL, name, whole_shapes[name])
    for i, layer in enumerate(model.layers):
        for name, role in fmt.LAYER_ROLES.items():
            if (value := getattr(layer, name)) is not None:
                yield _tensor(value, role, i, f"layer {i} {name}", layer_shapes[name])


def _tensor(
    value: Matrix | Norm | np.ndarray,
    role: int,
    layer: int,
    name: str,
    shape: tuple[int, int] | None = None,
) -> _Tensor:
    """A table entry; a matrix without a given shape is stored in its own."""
    if isinstance(value, (MatrixW8, MatrixW4)):
        shape = shape or (value.rows, value.cols)
        if (value.rows, value.cols) != shape:
            raise ValueError(f"{name}: shape {(value.rows, value.cols)}, the model needs {shape}")
        kind = fmt.W8 if isinstance(value, MatrixW8) else fmt.W4
        return _Tensor(role, layer, kind, value.E, *shape, _matrix_parts(value))
    exponent = value.EG if isinstance(value, Norm) else 0
    array = value.G if isinstance(value, Norm) else value
    kind = {"STEP": fmt.UINT64, "T": fmt.INT16}.get(name, fmt.INT32)
    if array.size != shape[0] * shape[1]:
        raise ValueError(f"{name}: shape {array.shape}, the model needs {shape}")
    stored = fmt.NUMBER_TYPES[kind]
    if not np.can_cast(array.dtype, stored, "same_kind"):
        raise ValueError(f"{name}: element type {array.dtype}, the artifact stores {stored}")

    def numbers() -> Iterator[bytes]:
        yield np.ascontiguousarray(array, stored).tobytes()

    return _Tensor(role, layer, kind, exponent, *shape, [(array.size * stored.itemsize, numbers)])


def _factor(m: MatrixW8, layer: int, target: str, half: str) -> _Tensor:
    """The entry of one half of a LoRA pair."""
    role = fmt.ADAPTER_ROLES[target, half]
    return _Tensor(role, layer, fmt.TILED8, m.E, m.rows, m.cols, _tiled_parts(m))


def _tiled_parts(m: MatrixW8) -> list[tuple[int, Callable[[], Iterator[bytes]]]]:
    """Values, sub-scales and multipliers of a matrix in tiles of 16 rows, whose columns lie in pairs."""
    tiles, pairs, blocks = -(-m.rows // fmt.TILE), -(-m.cols // 2), padded(m.cols) // BLOCK
    v = np.zeros((tiles * fmt.TILE, 2 * pairs), np.int8)
    v[: m.rows, : m.cols] = m.v[:, : m.cols]
    s = np.zeros((tiles * fmt.TILE, blocks), np.uint8)
    s[: m.rows] = m.s
    values = np.ascontiguousarray(v.reshape(tiles, fmt.TILE, pairs, 2).swapaxes(1, 2)).tobytes()
    scales = np.ascontiguousarray(s.reshape(tiles, fmt.TILE, blocks).swapaxes(1, 2)).tobytes()
    multipliers = np.ascontiguousarray(m.W, "<i4").tobytes()
    return [(len(part), lambda part=part: iter([part])) for part in (values, scales, multipliers)]


def _matrix_parts(m: Matrix) -> list[tuple[int, Callable[[], Iterator[bytes]]]]:
    """Values, sub-scales and multipliers; the values are packed some rows at a time."""
    blocks = padded(m.cols) // BLOCK
    step = max(1, (4 << 20) // padded(m.cols))  # rows: about 4 MiB of unpacked values

    def slices() -> Iterator[slice]:
        return (slice(i, min(i + step, m.rows)) for i in range(0, m.rows, step))

    def multipliers() -> Iterator[bytes]:
        yield np.ascontiguousarray(m.W, "<i4").tobytes()

    if isinstance(m, MatrixW8):
        width = (blocks + 1) // 2
        values = (m.v.size, lambda: (np.ascontiguousarray(m.v[r], np.int8).tobytes() for r in slices()))
        scales = (m.rows * width, lambda: iter([_nibble_pairs(m.s, width)]))
    else:
        values = (m.rows * blocks * 16, lambda: (_block_nibbles(m.q[r], blocks) for r in slices()))
        scales = (
            m.rows * blocks * 2,
            lambda: iter([np.stack([m.s, m.u], axis=2).astype(np.uint8).tobytes()]),
        )
    return [values, scales, (4 * m.rows, multipliers)]


def _nibble_pairs(s: np.ndarray, width: int) -> bytes:
    """Two values a byte, the even one in the low nibble; an odd row ends with an empty nibble."""
    even = np.zeros((s.shape[0], width), np.uint8)
    even[:] = s[:, 0::2]
    even[:, : s.shape[1] // 2] |= s[:, 1::2].astype(np.uint8) << 4
    return even.tobytes()


def _block_nibbles(q: np.ndarray, blocks: int) -> bytes:
    """16 bytes a block: byte i holds input i (low) and input i + 16 (high)."""
    halves = q.reshape(q.shape[0], blocks, 2, 16).astype(np.uint8)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).tobytes()


def _tensor_table(tensors: list[_Tensor]) -> tuple[bytes, list[list[int]], int]:
    """The bytes of TENS, each tensor's part offsets in DATA, and the size of DATA."""
    entries, all_offsets, position = [], [], 0
    for t in tensors:
        offsets = []
        for size, _ in t.parts:
            position = fmt.aligned(position)
            offsets.append(position)
            position += size
        all_offsets.append(offsets)
        stored = offsets + [0] * (3 - len(offsets))
        entries.append(fmt.TENSOR.pack(t.role, t.layer, t.format, t.exponent, t.rows, t.cols, *stored))
    return b"".join(entries), all_offsets, position


# --- the file ---------------------------------------------------------------------------------------------


def _place(sizes: dict[str, int], kind: int) -> list[fmt.Section]:
    """Sections in file order at their offsets."""
    sections, end = [], fmt.MODEL_START
    for name, size in sizes.items():
        flags = fmt.CRITICAL if name in fmt.NAMED_SECTIONS[kind] else 0
        sections.append(fmt.Section(name, flags, fmt.aligned(end), size))
        end = sections[-1].end
    return sections


def _entries(sections: list[fmt.Section]) -> bytes:
    return b"".join(fmt.SECTION.pack(s.name.encode("latin-1"), s.flags, s.offset, s.size) for s in sections)


def _write_head(
    file: BinaryIO, sections: list[fmt.Section], digests: bytes, kind: int = fmt.KIND_MODEL
) -> None:
    head = fmt.HEADER.pack(
        fmt.MAGIC, fmt.VERSION, kind, sections[-1].end, len(sections), 0, digests[:32], digests[32:]
    )
    _write_at(file, 0, (head + _entries(sections)).ljust(fmt.MODEL_START, b"\0"))


def _write_at(file: BinaryIO, offset: int, data: bytes) -> None:
    file.seek(offset)  # skipped bytes read as zero
    file.write(data)


def _write_tensors(
    file: BinaryIO,
    base: int,
    tensors: list[_Tensor],
    offsets: list[list[int]],
    progress: Progress | None,
    total: int,
) -> None:
    for tensor, places in zip(tensors, offsets, strict=True):
        for (size, produce), place in zip(tensor.parts, places, strict=True):
            file.seek(base + place)
            for data in produce():
                file.write(data)
            if file.tell() != base + place + size:
                raise ValueError(
                    f"tensor role {tensor.role}, layer {tensor.layer}: its array does not fit its shape"
                )
            if progress is not None:
                progress(file.tell(), total)


def _seal(file: BinaryIO, sections: list[fmt.Section], kind: int = fmt.KIND_MODEL) -> None:
    """Computes both digests from the file's bytes and stores them."""
    model = [s for s in sections if s.name in fmt.NAMED_SECTIONS[kind]]
    file_digest, model_digest = fmt.compute_digests(file, _entries(model), model[-1].end)
    _write_head(file, sections, file_digest + model_digest, kind)


def _copy(source: BinaryIO, target: BinaryIO, count: int) -> None:
    while count > 0:
        data = source.read(min(count, 4 << 20))
        target.write(data)
        count -= len(data)


@contextmanager
def _replacing(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """A temporary file beside `path` that takes its name on success and vanishes on failure."""
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=target.name + ".", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.name == "posix":
            os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
