# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The `.sslm` container seen from Python: layout constants, digests, and a reader for the NumPy witness.

docs/sslm_format.md is the norm. The C library judges files; this module only reads files whose digest
matches, and never explains why a bad file is bad.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, BinaryIO

import numpy as np

from .convert.quantized import (
    BLOCK,
    TARGETS,
    Adapter,
    Layer,
    LowRank,
    Matrix,
    MatrixW4,
    MatrixW8,
    Norm,
    QuantizedModel,
    padded,
)

MAGIC = b"SUPERSLM"
VERSION = 1
KIND_MODEL = 1
KIND_ADAPTER = 2
MODEL_START = 1024  # the header and the section table lie before
ALIGNMENT = 64
CHUNK = 1 << 20  # piece of both digests
FILE_DIGEST_OFFSET = 32
MODEL_DIGEST_OFFSET = 64
CRITICAL = 1  # section flag: a reader that does not know the section refuses the file

HEADER = struct.Struct("<8sIIQII32s32s32x")
SECTION = struct.Struct("<4sIQQ8x")
CONFIG = struct.Struct("<9IiQQI16I36x")
LAYER = struct.Struct("<6i8x")
TENSOR = struct.Struct("<IIIiIIQQQ16x")
SCALE = struct.Struct("<qq")  # DGC1
BASE = struct.Struct("<32s32x")  # model digest of an adapter's base
GOLDEN = struct.Struct("<II32s")

MODEL_SECTIONS = ("CONF", "LAYR", "TENS", "DATA", "TOKN", "DGC1")
ADAPTER_SECTIONS = ("BASE", "TENS", "DATA")
NAMED_SECTIONS = {
    KIND_MODEL: MODEL_SECTIONS,
    KIND_ADAPTER: ADAPTER_SECTIONS,
}  # the header's digest names them
WHOLE_MODEL = 0xFFFFFFFF  # `layer` of a tensor that belongs to no layer

W8, W4, TILED8, INT32, INT16, UINT64 = 1, 2, 3, 16, 17, 18
TILE = 16  # rows of a tile in TILED8
NUMBER_TYPES = {INT32: np.dtype("<i4"), INT16: np.dtype("<i2"), UINT64: np.dtype("<u8")}

# Roles in the order of the tensor table. A layer's names are also the fields of `Layer`.
MODEL_ROLES = {"embedding": 1, "head": 2, "NF": 3, "STEP": 4, "SIN": 5, "SIG": 6, "T": 7}
LAYER_NAMES = "N1 N2 WQ WK WV WO WG WU WD BQ BK BV NQ NK CK MK MV MQ SV MC".split()
LAYER_ROLES = {name: 16 + i for i, name in enumerate(LAYER_NAMES)}
ADAPTER_ROLES = {
    (name, half): 64 + 2 * i + j for i, name in enumerate(TARGETS) for j, half in enumerate("AB")
}
LAYER_SCALARS = ("SK", "SV_sh", "FQ", "ESV", "EC", "QH")

MAX_STOP_IDS = 16
MAX_LAYERS = 1024
GOLDEN_TOKENS = 64


class ArtifactError(ValueError):
    """The file is not an artifact this release reads, or its bytes do not match its digest."""


@dataclass(frozen=True)
class Section:
    """One entry of the section table; `offset` and `size` in bytes."""

    name: str
    flags: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True)
class GoldenRecord:
    """What an engine computed from a prompt: token ids and a SHA-256 over logits and K/V bytes."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    digest: bytes

    def pack(self) -> bytes:
        """The bytes of the `GOLD` section."""
        ids = np.array(self.prompt + self.tokens, "<u4").tobytes()
        return GOLDEN.pack(len(self.prompt), len(self.tokens), self.digest) + ids

    @staticmethod
    def unpack(data: bytes) -> GoldenRecord:
        """Reads the bytes of the `GOLD` section."""
        prompt, tokens, digest = GOLDEN.unpack_from(data)
        ids = tuple(np.frombuffer(data, "<u4", prompt + tokens, GOLDEN.size).tolist())
        return GoldenRecord(ids[:prompt], ids[prompt:], digest)


def aligned(offset: int) -> int:
    """`offset` rounded up to the next multiple of 64."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def compute_digests(file: BinaryIO, model_entries: bytes, model_end: int) -> tuple[bytes, bytes]:
    """File digest and model digest of an open artifact.

    Args:
        file: the artifact, readable and seekable.
        model_entries: section table entries of the model part.
        model_end: offset behind the model part, in bytes.

    The header's own file digest counts as zero; its model digest must already be right for the file digest
    to be final, so the first chunk is hashed with the new one in place.
    """
    file.seek(0)
    first = bytearray(file.read(CHUNK))
    pieces = [hashlib.sha256(first[MODEL_START : min(model_end, CHUNK)]).digest()]
    chunks = []
    position = len(first)
    while chunk := file.read(CHUNK):
        chunks.append(hashlib.sha256(chunk).digest())
        inside = min(model_end - position, len(chunk))
        if inside > 0:
            whole = inside == len(chunk)
            pieces.append(chunks[-1] if whole else hashlib.sha256(chunk[:inside]).digest())
        position += len(chunk)
    model_digest = hashlib.sha256(model_entries + b"".join(pieces)).digest()
    first[FILE_DIGEST_OFFSET : FILE_DIGEST_OFFSET + 32] = bytes(32)
    first[MODEL_DIGEST_OFFSET : MODEL_DIGEST_OFFSET + 32] = model_digest
    chunks.insert(0, hashlib.sha256(first).digest())
    return hashlib.sha256(b"".join(chunks)).digest(), model_digest


def sections_of(data: memoryview) -> dict[str, memoryview]:
    """The sections of an artifact in memory that the library has accepted, by name."""
    count = HEADER.unpack_from(data)[4]
    found = {}
    for i in range(count):
        name, _, offset, size = SECTION.unpack_from(data, HEADER.size + i * SECTION.size)
        found[name.decode("latin-1")] = data[offset : offset + size]
    return found


def text_of(value: Any) -> str | None:
    """A text of the provenance, which nothing has checked; None for anything else."""
    return value if isinstance(value, str) else None


def object_of(value: Any) -> dict[str, Any]:
    """An object of the provenance; empty for anything else."""
    return value if isinstance(value, dict) else {}


class Artifact:
    """A mapped `.sslm` file: its sections as read-only bytes, and the digests of its header.

    As a context manager it ends the mapping, for which no view of a section may be left; else the garbage
    collector ends it after the last view.

    Args:
        path: the file.
        verify: compare the file digest (a pass over the whole file); False where the C library has
            accepted the very same file before.

    Raises:
        ArtifactError: another format or version, a truncated file, or a digest that does not match.
    """

    def __init__(self, path: str | PathLike[str], *, verify: bool = True) -> None:
        self.path = path
        with open(path, "rb") as file:
            head = file.read(MODEL_START)
            if len(head) < MODEL_START or head[:8] != MAGIC:
                raise ArtifactError(f"{path}: not a SuperSLM artifact; convert the source model first")
            _, version, self.kind, size, count, _, self.file_digest, self.model_digest = HEADER.unpack_from(
                head
            )
            if version != VERSION:
                raise ArtifactError(
                    f"{path}: format version {version}, this release reads {VERSION}; convert again"
                )
            if size != file.seek(0, 2) or not 1 <= count <= (MODEL_START - HEADER.size) // SECTION.size:
                raise ArtifactError(f"{path}: truncated or damaged; `superslm verify` names the reason")
            self.sections: dict[str, Section] = {}
            for i in range(count):
                name, *rest = SECTION.unpack_from(head, HEADER.size + i * SECTION.size)
                section = Section(name.decode("latin-1"), *rest)
                self.sections[section.name] = section
            named = NAMED_SECTIONS.get(self.kind, MODEL_SECTIONS)
            model = [s for s in self.sections.values() if s.name in named]
            entries = head[HEADER.size : HEADER.size + len(model) * SECTION.size]
            end = max((s.end for s in model), default=0)
            if verify and compute_digests(file, entries, end) != (self.file_digest, self.model_digest):
                raise ArtifactError(f"{path}: the digest does not match; the file is damaged, fetch it again")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> Artifact:
        return self

    def __exit__(self, *_: object) -> None:
        self._bytes.close()

    def section(self, name: str) -> memoryview | None:
        """The bytes of a section in the mapping, or None where the artifact has no such section."""
        found = self.sections.get(name)
        return None if found is None else memoryview(self._bytes)[found.offset : found.end]

    def provenance(self) -> dict[str, Any]:
        """The provenance object; empty where the artifact has none.

        Raises:
            ArtifactError: it is no JSON object; the library does not read it.
        """
        data = self.section("PROV")
        try:
            found = {} if data is None else json.loads(bytes(data))
            json.dumps(found, ensure_ascii=False).encode()  # "\ud800" is JSON and no text
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ArtifactError(f"{self.path}: its provenance is not a JSON object; convert the model again")
        return found

    def golden_record(self) -> GoldenRecord | None:
        """The golden record, or None where the artifact has none."""
        data = self.section("GOLD")
        return None if data is None else GoldenRecord.unpack(bytes(data))


def load_quantized(
    path: str | PathLike[str], *, verify: bool = True, matrices: bool = True
) -> QuantizedModel:
    """The integer model stored in an artifact; large arrays are read-only views of the mapping.

    Args:
        path: the artifact.
        verify: as for `Artifact`.
        matrices: False leaves every matrix out (None), for callers that need shape, norms and scales only.

    Raises:
        ArtifactError: see `Artifact`.

    The field `tokenizer` holds the bytes of the tokenizer section.
    """
    artifact = Artifact(path, verify=verify)
    if artifact.kind != KIND_MODEL:
        raise ArtifactError(f"{path}: holds an adapter, not a model")
    hidden, layers, heads, kv_heads, head_dim, mlp, vocab, cap, _, R, eps, eps_head, stops, *ids = (
        CONFIG.unpack(artifact.section("CONF"))
    )
    tensors = {(layer, role): value for layer, role, value in _tensors(artifact, matrices)}
    whole = {name: tensors.get((WHOLE_MODEL, role)) for name, role in MODEL_ROLES.items()}
    tokenizer, scale = artifact.section("TOKN"), artifact.section("DGC1")
    for name in ("STEP", "SIN", "SIG"):
        whole[name] = whole[name].reshape(-1)
    return QuantizedModel(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=mlp,
        vocab=vocab,
        cap=cap,
        R=R,
        EPS=eps,
        EPS_head=eps_head,
        layers=[_layer(artifact, tensors, i) for i in range(layers)],
        stop_ids=list(ids[:stops]),
        DGC1=None if scale is None else SCALE.unpack(scale),
        tokenizer=None if tokenizer is None else bytes(tokenizer),
        provenance=artifact.provenance(),
        **whole,
    )


def _layer(artifact: Artifact, tensors: dict[tuple[int, int], Any], index: int) -> Layer:
    fields = {name: tensors.get((index, role)) for name, role in LAYER_ROLES.items()}
    for name in ("BQ", "BK", "BV", "NQ", "NK"):
        if fields[name] is not None:
            fields[name] = fields[name].reshape(-1)
    fields.update(
        zip(LAYER_SCALARS, LAYER.unpack_from(artifact.section("LAYR"), index * LAYER.size), strict=True)
    )
    return Layer(**fields)


def load_adapter(path: str | PathLike[str], *, verify: bool = True) -> Adapter:
    """The LoRA pairs stored in an adapter file; values are read-only views of the mapping.

    Args:
        path: the adapter.
        verify: as for `Artifact`.

    Raises:
        ArtifactError: see `Artifact`.
    """
    artifact = Artifact(path, verify=verify)
    if artifact.kind != KIND_ADAPTER:
        raise ArtifactError(f"{path}: holds a model, not an adapter")
    try:  # without its base, the library cannot have judged it
        tensors = {(layer, role): value for layer, role, value in _tensors(artifact)}
        layers = 1 + max((layer for layer, _ in tensors), default=-1)
        if layers > MAX_LAYERS:
            raise ValueError
        return Adapter(
            [
                {
                    name: LowRank(tensors[i, ADAPTER_ROLES[name, "A"]], tensors[i, ADAPTER_ROLES[name, "B"]])
                    for name in TARGETS
                    if (i, ADAPTER_ROLES[name, "A"]) in tensors
                }
                for i in range(layers)
            ]
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error):
        raise ArtifactError(
            f"{path}: its tensor table does not describe an adapter; convert it again"
        ) from None


def _tensors(
    artifact: Artifact, matrices: bool = True
) -> Iterator[tuple[int, int, Matrix | Norm | np.ndarray]]:
    """(layer, role, value) of each entry of the tensor table."""
    data = artifact.section("DATA")
    for role, layer, kind, exponent, rows, cols, values, scales, multipliers in TENSOR.iter_unpack(
        artifact.section("TENS")
    ):
        if kind in UNPACK:
            if not matrices:
                continue
            W = np.frombuffer(data, "<i4", rows, multipliers)
            yield layer, role, UNPACK[kind](data, rows, cols, values, scales, W, exponent)
            continue
        array = np.frombuffer(data, NUMBER_TYPES[kind], rows * cols, values).reshape(rows, cols)
        is_norm = role in (MODEL_ROLES["NF"], LAYER_ROLES["N1"], LAYER_ROLES["N2"])
        yield layer, role, Norm(array.reshape(-1), exponent) if is_norm else array


def _matrix_w8(data, rows: int, cols: int, values: int, scales: int, W: np.ndarray, E: int) -> MatrixW8:
    blocks = padded(cols) // BLOCK
    v = np.frombuffer(data, np.int8, rows * padded(cols), values).reshape(rows, -1)
    nibbles = np.frombuffer(data, np.uint8, rows * ((blocks + 1) // 2), scales).reshape(rows, -1)
    s = np.stack([nibbles & 15, nibbles >> 4], axis=2).reshape(rows, -1)[:, :blocks]
    return MatrixW8(cols, v, np.ascontiguousarray(s), W, E)


def _matrix_w4(data, rows: int, cols: int, values: int, scales: int, W: np.ndarray, E: int) -> MatrixW4:
    blocks = padded(cols) // BLOCK
    nibbles = np.frombuffer(data, np.uint8, rows * blocks * 16, values).reshape(rows, blocks, 16)
    q = np.concatenate([nibbles & 15, nibbles >> 4], axis=2).reshape(rows, -1)
    su = np.frombuffer(data, np.uint8, rows * blocks * 2, scales).reshape(rows, blocks, 2)
    return MatrixW4(cols, q, np.ascontiguousarray(su[..., 0]), np.ascontiguousarray(su[..., 1]), W, E)


def _matrix_tiled(data, rows: int, cols: int, values: int, scales: int, W: np.ndarray, E: int) -> MatrixW8:
    tiles, pairs, blocks = -(-rows // TILE), -(-cols // 2), padded(cols) // BLOCK
    lanes = np.frombuffer(data, np.int8, tiles * pairs * TILE * 2, values).reshape(tiles, pairs, TILE, 2)
    v = np.zeros((tiles * TILE, padded(cols)), np.int8)
    v[:, : 2 * pairs] = lanes.swapaxes(1, 2).reshape(tiles * TILE, -1)
    s = np.frombuffer(data, np.uint8, tiles * blocks * TILE, scales).reshape(tiles, blocks, TILE)
    return MatrixW8(cols, v[:rows], s.swapaxes(1, 2).reshape(-1, blocks)[:rows], W, E)


UNPACK = {W8: _matrix_w8, W4: _matrix_w4, TILED8: _matrix_tiled}
