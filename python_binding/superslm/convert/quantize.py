# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Float checkpoint plus calibration record -> integer model, by the rules of docs/numerics.md, section 5.

All arithmetic is float64, in the order the document writes it, so that any two converters make the same
file from the same record. Matrices stream through in strips of rows; only the integers stay in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .checkpoint import Checkpoint, Config, ConvertError, FloatTensor
from .quantized import BLOCK, Layer, Matrix, MatrixW4, MatrixW8, Norm, QuantizedModel, padded
from .tables import LOG2_E, ceil_log2, position_table, sigmoid_table, sine_table, step_table

Progress = Callable[[float, str], None]

W8_OFFSETS = (0, -1, 1, 2)  # sub-scale candidates around the covering one, in the order that wins ties
W4_FACTORS = (0.85, 0.92, 1.0)  # range shrink candidates, the high end outside, the low end inside
STRIP = 1 << 17  # weights worked on at once: the temporaries then stay in the L2 cache
READ = 1 << 23  # weights read from the source at once
MATRIX_NAMES = ("WQ", "WK", "WV", "WO", "WG", "WU", "WD")


def _blocks(rows: np.ndarray) -> np.ndarray:
    """Rows [n, K] as float64 [32, n, K/32 rounded up], zero padded; element i of a block is index [i]."""
    n, columns = rows.shape
    wide = np.zeros((n, padded(columns)))
    wide[:, :columns] = rows
    return np.ascontiguousarray(np.moveaxis(wide.reshape(n, -1, BLOCK), 2, 0))


def _unblock(values: np.ndarray, kind: type) -> np.ndarray:
    """The inverse of `_blocks`: [32, n, blocks] -> [n, 32 * blocks] in an integer type."""
    _, n, _ = values.shape
    return np.moveaxis(values.astype(kind), 0, 2).reshape(n, -1)


def _squared_error(error: np.ndarray) -> np.ndarray:
    """Sum of squares per block of 32, in a fixed order that decides near ties between candidates.

    Eight partial sums over the elements i, i + 8, i + 16, i + 24, joined pairwise.
    """
    np.multiply(error, error, out=error)
    lanes = error[0:8] + error[8:16] + error[16:24] + error[24:32]
    pairs = lanes[0::2] + lanes[1::2]
    quads = pairs[0::2] + pairs[1::2]
    return quads[0] + quads[1]


def _quantize_w8(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eight-bit blocks of a strip of rows: v int8, s uint8, and the row scales R_r float64."""
    w = _blocks(rows)
    magnitude = np.maximum(w.max(axis=0), -w.min(axis=0)) / 127
    scale = np.maximum(magnitude.max(axis=1) / 15, 1e-20)
    column = scale[:, None]
    first = np.clip(np.ceil(magnitude / column - 1e-9), 1, 15)
    best_error = np.full(first.shape, np.inf)
    best = first.copy()
    v, error = np.empty_like(w), np.empty_like(w)
    for offset in W8_OFFSETS:
        s = first + offset
        valid = (s >= 1) & (s <= 15)
        unit = column * np.clip(s, 1, 15)
        np.divide(w, unit, out=v)
        np.rint(v, out=v)
        np.clip(v, -127, 127, out=v)
        np.multiply(v, unit, out=error)
        np.subtract(w, error, out=error)
        total = _squared_error(error)
        better = valid & (total < best_error)
        best_error[better] = total[better]
        best[better] = s[better]
    np.divide(w, column * best, out=v)
    np.rint(v, out=v)
    np.clip(v, -127, 127, out=v)
    return _unblock(v, np.int8), best.astype(np.uint8), scale


def _quantize_w4(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four-bit blocks of a strip of rows: q uint8, s uint8, u uint8, and the row scales R_r float64."""
    columns = rows.shape[1]
    w = _blocks(rows)
    inside = np.ones((BLOCK, 1, w.shape[2]))
    inside[columns - (w.shape[2] - 1) * BLOCK :, 0, -1] = 0  # padding does not count in the error
    low = np.minimum(w.min(axis=0), 0)
    high = np.maximum(w.max(axis=0), 0)
    scale = np.maximum(((high - low) / 15).max(axis=1) / 255, 1e-20)
    column = scale[:, None]
    ratio = w / column
    best_error = np.full(low.shape, np.inf)
    best_s, best_u = np.ones_like(low), np.zeros_like(low)
    q, error = np.empty_like(w), np.empty_like(w)

    def encode(s: np.ndarray, shift: np.ndarray) -> None:
        np.add(ratio, shift, out=q)
        np.divide(q, s, out=q)
        np.rint(q, out=q)
        np.clip(q, 0, 15, out=q)

    for high_factor in W4_FACTORS:
        for low_factor in W4_FACTORS:
            h, lo = high * high_factor, low * low_factor
            s = np.clip(np.rint((h - lo) / 15 / column), 1, 255)
            u = np.clip(np.rint(-lo / column / 16), 0, 255)
            encode(s, 16 * u)
            np.multiply(q, s, out=error)
            np.subtract(error, 16 * u, out=error)
            np.multiply(error, column, out=error)
            np.subtract(w, error, out=error)
            np.multiply(error, inside, out=error)
            total = _squared_error(error)
            better = total < best_error
            best_error[better] = total[better]
            best_s[better], best_u[better] = s[better], u[better]
    encode(best_s, 16 * best_u)
    np.multiply(q, inside, out=q)
    return _unblock(q, np.uint8), best_s.astype(np.uint8), best_u.astype(np.uint8), scale


def quantize_matrix(tensor: FloatTensor, weights: str, tick: Callable[[int], None] | None = None) -> Matrix:
    """One weight matrix in blocks of 32 with a multiplier per row.

    Args:
        tensor: [rows, columns] floats.
        weights: "w8" or "w4".
        tick: called with the number of weights done since the last call.
    Raises:
        ConvertError: the tensor holds a NaN, an infinity or a value too large to represent.
    """
    rows, columns = tensor.shape
    wide, blocks = padded(columns), padded(columns) // BLOCK
    scale = np.empty(rows)
    body = np.empty((rows, wide), np.int8 if weights == "w8" else np.uint8)
    subscale = np.empty((rows, blocks), np.uint8)
    offset = np.empty((rows, blocks), np.uint8) if weights == "w4" else None
    strip = max(1, STRIP // wide)
    read = max(1, READ // wide // strip) * strip
    nonzero = False  # a matrix of zeros has E = 23 and W = 1
    for start in range(0, rows, read):
        part = tensor.rows(start, min(start + read, rows)).astype(np.float64)
        nonzero = nonzero or bool(part.any())
        for a in range(0, len(part), strip):
            piece = part[a : a + strip]
            at = slice(start + a, start + a + len(piece))
            if offset is None:
                body[at], subscale[at], scale[at] = _quantize_w8(piece)
            else:
                body[at], subscale[at], offset[at], scale[at] = _quantize_w4(piece)
            if tick is not None:
                tick(piece.size)
    E, W = _row_multipliers(scale) if nonzero else (23, np.ones(rows, np.int32))
    if offset is None:
        return MatrixW8(columns, body, subscale, W, E)
    return MatrixW4(columns, body, subscale, offset, W, E)


def _row_multipliers(scale: np.ndarray) -> tuple[int, np.ndarray]:
    """E and W[r] of a matrix from its row scales."""
    E = 23 - int(ceil_log2(float(scale.max())))
    return E, np.maximum(1, np.rint(scale * 2.0**E)).astype(np.int32)


def quantize_norm(gains: np.ndarray, where: str) -> Norm:
    """RMSNorm gains [D] with the largest exponent that cannot overflow."""
    root = math.sqrt(len(gains))
    wide = gains.astype(np.float64)
    EG = int(min(30, 29 - ceil_log2(float(np.abs(wide).max()) * root)))
    _need(EG >= 0, where, f"the gain {np.abs(wide).max():g} is too large for 32 bits")
    return Norm(np.rint(wide * root * 2.0**EG).astype(np.int32), EG)


def _head_norm(gains: np.ndarray, where: str) -> np.ndarray:
    """q/k norm gains [head_dim] in Q16."""
    root = math.sqrt(len(gains))
    wide = gains.astype(np.float64)
    _need(float(np.abs(wide).max()) * root < 2**13, where, f"the gain {np.abs(wide).max():g} is too large")
    return np.rint(wide * root * 2.0**16).astype(np.int32)


def _q16(values: np.ndarray, where: str) -> np.ndarray:
    wide = np.rint(values.astype(np.float64) * 65536)
    _need(bool((np.abs(wide) < 2**31).all()), where, "a value is above 32767")
    return wide.astype(np.int64)


def landing_scales(maxima: np.ndarray) -> np.ndarray:
    """K or V scales of a layer from its maxima [kv_heads, n], with the floors of section 5."""
    scale = 1.1 * maxima / 127
    return np.maximum(np.maximum(scale, 2.0**-12 * scale.max()), 1e-6)


def _landing(scale: np.ndarray, where: str) -> tuple[np.ndarray, int]:
    """Multiplier and shift that divide a Q16 value by its scale."""
    shift = 46 - int(ceil_log2(1 / float(scale.min())))
    _need(1 <= shift <= 62, where, f"the landing shift {shift} lies outside 1..62")
    return np.rint(2.0 ** (shift - 16) / scale).astype(np.int32), shift


def _need(condition: bool, where: str, what: str) -> None:
    if not condition:
        raise ConvertError(
            what,
            where,
            "The integer format cannot hold this model; check the weights and the calibration record.",
        )


class _LayerMaker:
    """Makes one integer layer after the other; holds what all layers share."""

    def __init__(self, config: Config, R: int, encode: Callable[[FloatTensor, str], Matrix]) -> None:
        self.config, self.R, self.encode = config, R, encode

    def matrix(self, tensor: FloatTensor, name: str, source: int, target: int) -> Matrix:
        """A quantised matrix whose shifts are in range for an input in Q_source and a result in Q_target."""
        m = self.encode(tensor, name)
        check_linear(m, source, target, tensor.name)
        return m

    def make(self, parts: dict[str, FloatTensor], record: dict[str, Any], where: str) -> Layer:
        c, R = self.config, self.R
        half = c.head_dim // 2
        sk = landing_scales(np.asarray(record["pk"], np.float64))
        sv = landing_scales(np.asarray(record["v"], np.float64))
        N1 = quantize_norm(parts["N1"].read(), parts["N1"].name)
        N2 = quantize_norm(parts["N2"].read(), parts["N2"].name)
        QH = int(min(20, 29 - ceil_log2(record["h"])))
        ESV = int(min(30, 23 - ceil_log2(float(sv.max()))))
        _need(QH >= 0 and ESV >= 0, where, "an activation is too large for 32 bits")
        mk, SK = _landing(sk, where)
        MV, SV_sh = _landing(sv, where)
        f = sk * LOG2_E / math.sqrt(c.head_dim)
        EQ = 30 - int(ceil_log2(float(f.max())))
        _need(4 <= EQ - 15 <= 60, where, f"the query exponent FQ = {EQ - 15} lies outside 4..60")
        group = np.arange(c.heads) * c.kv_heads // c.heads
        mq = np.rint(f * 2.0**EQ).astype(np.int32)[group]
        biases = {
            n: _q16(parts[n].read(), parts[n].name).astype(np.int32) if n in parts else None
            for n in ("BQ", "BK", "BV")
        }
        centre, MC, EC = self.centre(record, where)
        CK = None
        if centre is not None and c.qk_norm:
            CK = centre.astype(np.int32)
        elif centre is not None:
            bias = 0 if biases["BK"] is None else biases["BK"].astype(np.int64)
            shifted = bias - centre.reshape(-1)
            _need(bool((np.abs(shifted) < 2**31).all()), where, "a centred key bias is above 32767")
            biases["BK"] = shifted.astype(np.int32)
        q16 = {n: self.matrix(parts[n], n, N1.EG, 16) for n in ("WQ", "WK", "WV")}
        return Layer(
            N1=N1,
            N2=N2,
            **q16,
            WO=self.matrix(parts["WO"], "WO", ESV, R),
            WG=self.matrix(parts["WG"], "WG", N2.EG, 16),
            WU=self.matrix(parts["WU"], "WU", N2.EG, 16),
            WD=self.matrix(parts["WD"], "WD", QH, R),
            **biases,
            NQ=_head_norm(parts["NQ"].read(), parts["NQ"].name) if c.qk_norm else None,
            NK=_head_norm(parts["NK"].read(), parts["NK"].name) if c.qk_norm else None,
            CK=CK,
            MK=np.concatenate([mk, mk], axis=1),
            SK=SK,
            MV=MV,
            SV_sh=SV_sh,
            MQ=np.concatenate([mq[:, :half], mq[:, :half]], axis=1),
            FQ=EQ - 15,
            SV=np.rint(sv * 2.0**ESV).astype(np.int32),
            ESV=ESV,
            MC=MC,
            EC=EC,
            QH=QH,
        )

    def centre(self, record: dict[str, Any], where: str) -> tuple[np.ndarray | None, np.ndarray | None, int]:
        """Key centre in Q16 [kv_heads, head_dim], its multipliers MC, and EC; (None, None, 0) without."""
        mu = np.asarray(record.get("mu", 0.0), np.float64)
        if not mu.any():
            return None, None, 0
        mc = mu * LOG2_E / math.sqrt(self.config.head_dim)
        EC = 30 - int(ceil_log2(float(np.abs(mc).max())))
        _need(8 <= EC <= 60, where, f"the centre exponent EC = {EC} lies outside 8..60")
        return _q16(mu, where), np.rint(mc * 2.0**EC).astype(np.int32), EC


def check_linear(m: Matrix, source: int, target: int, where: str) -> None:
    """Raises ConvertError unless every shift of LIN with this matrix is in range (numerics, section 1)."""
    most, least = m.E + source - target - 4, m.E + source - 17 - target - 4
    _need(0 <= least and most <= 62, where, f"the shifts {least}..{most} lie outside 0..62 (E = {m.E})")


def check_record(record: dict[str, Any], config: Config) -> None:
    """Raises ConvertError unless a calibration record has the shape of this model and only finite values."""
    c = config

    def fail(what: str) -> None:
        raise ConvertError(
            what, "calibration record", "Calibrate this model again, or give the record made from it."
        )

    if not isinstance(record, dict) or not isinstance(record.get("layers"), list) or "res" not in record:
        fail("it must be an object with res and layers")
    if len(record["layers"]) != c.layers:
        fail(f"it has {len(record['layers'])} layers where the model has {c.layers}")
    half = c.head_dim // 2
    shapes = {
        "h": (),
        "v": (c.kv_heads, c.head_dim),
        "pk": (c.kv_heads, half),
        "mu": (c.kv_heads, c.head_dim),
    }
    values = [("res", record["res"], ())]
    for index, layer in enumerate(record["layers"]):
        for name, shape in shapes.items():
            if name in layer:
                values.append((f"layer {index} {name}", layer[name], shape))
            elif name != "mu":
                fail(f"layer {index} has no {name}")
    for name, value, shape in values:
        try:
            array = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            fail(f"{name} is not numeric")
        if array.shape != shape:
            fail(f"{name} has shape {list(array.shape)} where {list(shape)} is needed")
        if not np.isfinite(array).all() or (not name.endswith("mu") and (array < 0).any()):
            fail(f"{name} holds a negative or non-finite value")


def _encoder(checkpoint: Checkpoint, progress: Progress | None) -> Callable[[FloatTensor, str], Matrix]:
    """`quantize_matrix` that reports the share of all weights done so far."""
    total = sum(t.shape[0] * t.shape[1] for t in checkpoint.tensors.values() if len(t.shape) == 2)
    done = 0

    def encode(tensor: FloatTensor, weights: str) -> Matrix:
        def tick(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done / total, f"Quantising {tensor.name}")

        return quantize_matrix(tensor, weights, tick)

    return encode


def check_options(weights: str, cap: int, keep_8bit: Iterable[str]) -> None:
    """Raises ConvertError for options that no model can be converted with."""
    kept = set(keep_8bit)
    if weights not in ("w8", "w4"):
        raise ConvertError(f"unknown weight format {weights!r}", "option weights", "Use w8 or w4.")
    if kept - set(MATRIX_NAMES):
        raise ConvertError(
            f"unknown matrix {sorted(kept - set(MATRIX_NAMES))}",
            "option keep_8bit",
            f"Use {' '.join(MATRIX_NAMES)}.",
        )
    if kept and weights == "w8":
        raise ConvertError(
            "it has no meaning where all matrices have eight bits", "option keep_8bit", "Use weights w4."
        )
    if not 1 <= cap <= 1 << 25:
        raise ConvertError(
            f"context cap {cap}", "option context_cap", "Use a number of positions from 1 to 2^25."
        )


def quantize(
    checkpoint: Checkpoint,
    record: dict[str, Any],
    *,
    weights: str = "w8",
    context_cap: int | None = None,
    keep_8bit: Iterable[str] = (),
    progress: Progress | None = None,
    matrix: Callable[[FloatTensor, str], Matrix] | None = None,
) -> QuantizedModel:
    """The integer model of a checkpoint.

    Args:
        checkpoint: the float model.
        record: the calibration record (maxima of docs/numerics.md, section 5), from `calibrate` or a file.
        weights: "w8" or "w4"; embedding and head are always eight-bit.
        context_cap: positions the model file allows; None: the trained length.
        keep_8bit: with "w4", the matrices (of WQ WK WV WO WG WU WD) that stay at eight bits in every layer.
        progress: called with a fraction 0..1 and what is being done.
        matrix: makes the integers of a tensor in a weight format; the default is `quantize_matrix`.
    Raises:
        ConvertError: a value cannot be represented, or the record does not belong to this model.
    """
    c = checkpoint.config
    kept = frozenset(keep_8bit)
    cap = c.context_length if context_cap is None else int(context_cap)
    check_options(weights, cap, kept)
    check_record(record, c)
    encode = matrix or _encoder(checkpoint, progress)
    R = int(min(20, 29 - ceil_log2(float(record["res"]))))
    EPS = round(c.eps * c.hidden * 2.0 ** (2 * R)) if R >= 0 else 0
    _need(R >= 0 and EPS < 1 << 61, checkpoint.source_name, "the residual stream is too large for 32 bits")
    embedding = encode(checkpoint["embedding"], "w8")
    _need(0 <= embedding.E - R <= 62, "embedding", f"its exponent {embedding.E} does not fit R = {R}")
    NF = quantize_norm(checkpoint["NF"].read(), checkpoint["NF"].name)
    head = None if c.tied else encode(checkpoint["head"], "w8")
    check_linear(embedding if head is None else head, NF.EG, 16, "head")
    maker = _LayerMaker(c, R, lambda tensor, name: encode(tensor, "w8" if name in kept else weights))
    layers = [
        maker.make(checkpoint.layer(index), record["layers"][index], f"layer {index}")
        for index in range(c.layers)
    ]
    STEP = step_table(c.frequencies)
    return QuantizedModel(
        hidden=c.hidden,
        heads=c.heads,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        mlp=c.mlp,
        vocab=c.vocab,
        cap=cap,
        R=R,
        EPS=EPS,
        EPS_head=round(c.eps * c.head_dim * 2.0**32) if c.qk_norm else 0,
        embedding=embedding,
        head=head,
        NF=NF,
        layers=layers,
        STEP=STEP,
        SIN=sine_table(),
        SIG=sigmoid_table(),
        T=position_table(STEP, cap) if any(layer.MC is not None for layer in layers) else None,
        stop_ids=list(checkpoint.stop_ids),
        provenance={
            "source": checkpoint.source_name,
            "source_sha256": checkpoint.source_sha256,
            "licence": checkpoint.licence,
            "architecture": c.architecture,
            "options": {"weights": weights, "context_cap": cap, "keep_8bit": sorted(kept)},
            "calibration_record": record,
        },
    )
