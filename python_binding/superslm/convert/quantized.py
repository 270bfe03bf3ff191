"""The integer model: every parameter of docs/numerics.md, as arrays.

`quantize.py` makes it, `writer.py` stores it, `superslm.reference` computes with it.
Names are those of docs/numerics.md. Arrays are C-contiguous and row-major.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BLOCK = 32


def padded(columns: int) -> int:
    """`columns` rounded up to whole blocks of 32."""
    return -(-columns // BLOCK) * BLOCK


@dataclass
class MatrixW8:
    """Eight-bit weights: `w = v * s[block] * W[row] * 2^-E`."""

    cols: int  # logical inputs K; the arrays below are padded to `padded(cols)` with zeros
    v: np.ndarray  # int8 [rows, padded(cols)], -127..127
    s: np.ndarray  # uint8 [rows, padded(cols) / 32], 1..15
    W: np.ndarray  # int32 [rows], 1..2^23
    E: int

    @property
    def rows(self) -> int:
        return int(self.v.shape[0])


@dataclass
class MatrixW4:
    """Four-bit weights with offset: `w = (q * s - 16 * u) * W[row] * 2^-E`."""

    cols: int
    q: np.ndarray  # uint8 [rows, padded(cols)], 0..15, one per byte here; stored as nibbles
    s: np.ndarray  # uint8 [rows, padded(cols) / 32], 1..255
    u: np.ndarray  # uint8 [rows, padded(cols) / 32], 0..255
    W: np.ndarray  # int32 [rows], 1..2^23
    E: int

    @property
    def rows(self) -> int:
        return int(self.q.shape[0])


Matrix = MatrixW8 | MatrixW4


@dataclass
class Norm:
    """RMSNorm gains: `G = round(g * sqrt(D) * 2^EG)`."""

    G: np.ndarray  # int32 [D]
    EG: int


@dataclass
class Layer:
    """One decoder layer. Optional fields are None where the model has no such part."""

    N1: Norm
    N2: Norm
    WQ: Matrix
    WK: Matrix
    WV: Matrix
    WO: Matrix
    WG: Matrix
    WU: Matrix
    WD: Matrix
    BQ: np.ndarray | None  # int32 [heads * head_dim], Q16
    BK: np.ndarray | None  # int32 [kv_heads * head_dim], Q16; holds the negated centre where centred
    BV: np.ndarray | None
    NQ: np.ndarray | None  # int32 [head_dim]: q/k norm gains in Q16 (EG is fixed to 16)
    NK: np.ndarray | None
    CK: np.ndarray | None  # int32 [kv_heads, head_dim], Q16: only a centred layer with q/k norms
    MK: np.ndarray  # int32 [kv_heads, head_dim]
    SK: int
    MV: np.ndarray  # int32 [kv_heads, head_dim]
    SV_sh: int
    MQ: np.ndarray  # int32 [heads, head_dim]
    FQ: int
    SV: np.ndarray  # int32 [kv_heads, head_dim]
    ESV: int
    MC: np.ndarray | None  # int32 [kv_heads, head_dim]: the layer is centred
    EC: int  # 0 where MC is None
    QH: int


@dataclass
class QuantizedModel:
    """A whole model in integers. `head` is None where embedding and head are tied."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    cap: int  # context cap in positions
    R: int  # residual Q format
    EPS: int  # round(eps * hidden * 2^(2R))
    EPS_head: int  # round(eps * head_dim * 2^32), for q/k norms; 0 without them
    embedding: Matrix
    head: Matrix | None
    NF: Norm
    layers: list[Layer]
    STEP: np.ndarray  # uint64 [head_dim / 2]
    SIN: np.ndarray  # int32 [4097], Q30
    SIG: np.ndarray  # int32 [1025], Q30
    T: np.ndarray | None  # int16 [cap, head_dim], Q14: present when any layer is centred
    stop_ids: list[int] = field(default_factory=list)
    DGC1: tuple[int, int] | None = (1 << 30, -46)  # damped-greedy scale (m, e)
    tokenizer: Any = None  # the tokenizer tables, see convert/tokenizer.py; None: no tokenizer
    schemas: bytes | None = None  # the schema section, see convert/schema/section.py
    provenance: dict[str, Any] = field(default_factory=dict)  # JSON-serialisable


# The projections that an adapter may change, named as the fields of `Layer`, in the order of the artifact.
TARGETS = ("WQ", "WK", "WV", "WO", "WG", "WU", "WD")


@dataclass
class LowRank:
    """One LoRA pair; alpha is folded into B by the converter (docs/numerics.md, section 11)."""

    A: MatrixW8  # [rank, inputs]
    B: MatrixW8  # [outputs, rank]


@dataclass
class Adapter:
    """LoRA pairs of every layer: `layers[i]` maps a name of `TARGETS` to its pair."""

    layers: list[dict[str, LowRank]] = field(default_factory=list)

    def of(self, layer: int, target: str) -> LowRank | None:
        """The pair of one target, or None where the adapter leaves it alone."""
        return self.layers[layer].get(target) if layer < len(self.layers) else None
