# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The numerics once more, one value at a time on unbounded Python integers: slow, and free of overflow.

It restates docs/numerics.md as literally as Python allows, so that a vectorised int64 implementation can
be compared with it. `wide` asserts the bounds of section 3 on every product that must fit int64.
"""

from __future__ import annotations

import math

from superslm.convert.quantized import BLOCK, Matrix, MatrixW8, QuantizedModel
from superslm.reference import Adapter

SITES = ("res", "qkv", "rope_q", "rope_k", "k_land", "v_land", "gateup", "ffn")


def wide(x: int) -> int:
    assert -(2**63) <= x < 2**63, x
    return x


def rsh(x: int, s: int) -> int:
    wide(x)
    if s > 0:
        return wide(x + (1 << (s - 1))) >> s
    return wide(x << -s)


def quant15(y: list[int]) -> tuple[list[int], int]:
    sh = max(0, max(abs(v) for v in y).bit_length() - 14)
    return [rsh(v, sh) for v in y], sh


def norm(x: list[int], gains: list[int], eps: int) -> list[int]:
    s = max(0, max(abs(v) for v in x).bit_length() - 23)
    v = sum(rsh(value, s) ** 2 for value in x) + (eps >> (2 * s))
    v = v or 1
    lz = (62 - v.bit_length()) & ~1
    t = math.isqrt(v << lz)
    assert 2**30 <= t < 2**31
    inv = 2**61 // t
    return [rsh(rsh(wide(value * inv), 31 + s - lz // 2) * g, 30) for value, g in zip(x, gains, strict=True)]


def exp2n(f: int) -> int:
    return 65535 - ((f * (45324 - ((f * (15149 - ((f * 2596) >> 15))) >> 15))) >> 15)


def weight(z: int) -> int:
    return 0 if z >= 31 * 65536 else (exp2n((z >> 1) & 32767) << 14) >> (z >> 16)


def silu(g: int, sig: list[int]) -> int:
    x = abs(g)
    if x >= 16 * 65536:
        n = 0
    else:
        i, f = x >> 10, x & 1023
        n = sig[i] - (((sig[i] - sig[i + 1]) * f) >> 10)
    return rsh(wide(g * (n if g < 0 else 2**30 - n)), 30)


def trig(pos: int, step: int, sin: list[int]) -> tuple[int, int]:
    ph = ((pos * step) % 2**64) >> 32

    def s(p: int) -> int:
        i, fr = p >> 20, (p >> 4) & 65535
        return sin[i] + rsh((sin[i + 1] - sin[i]) * fr, 16)

    return s((ph + 2**30) % 2**32), s(ph)


def dot(a: list[int], m: Matrix, row: int) -> int:
    acc = 0
    for b in range(m.s.shape[1]):
        span = range(b * BLOCK, min((b + 1) * BLOCK, m.cols))
        if isinstance(m, MatrixW8):
            acc += int(m.s[row, b]) * sum(int(m.v[row, i]) * a[i] for i in span)
        else:
            acc += int(m.s[row, b]) * sum(int(m.q[row, i]) * a[i] for i in span)
            acc -= 16 * int(m.u[row, b]) * sum(a[i] for i in span)
    return acc


def lin(a: list[int], sh: int, q_in: int, m: Matrix, q_out: int) -> list[int]:
    shift = m.E + q_in - sh - q_out - 4
    assert 0 <= shift <= 62
    return [rsh(wide(rsh(dot(a, m, r), 4) * int(m.W[r])), shift) for r in range(m.rows)]


class ScalarSequence:
    """One sequence, one token at a time; keeps every residual, K/V row and count."""

    def __init__(self, model: QuantizedModel, adapter: Adapter | None = None) -> None:
        self.m, self.adapter = model, adapter
        self.k = [[] for _ in model.layers]  # [layer][position][kv head][channel]
        self.v = [[] for _ in model.layers]
        self.counters = dict.fromkeys((*SITES, "emb"), 0)
        self.residuals: list[list[list[int]]] = []  # [position][layer][channel]

    def clamp(self, values: list[int], site: str, counted: bool = True, limit: int = 2**31 - 1) -> list[int]:
        out = [max(-limit, min(limit, v)) for v in values]
        if counted:
            self.counters[site] += sum(a != b for a, b in zip(values, out, strict=True))
        return out

    def project(self, index: int, name: str, y: list[int], q_in: int, q_out: int, bias=None) -> list[int]:
        a, sh = quant15(y)
        result = lin(a, sh, q_in, getattr(self.m.layers[index], name), q_out)
        pair = self.adapter.of(index, name) if self.adapter else None
        if pair is not None:
            t = [max(-(2**31) + 1, min(2**31 - 1, v)) for v in lin(a, sh, q_in, pair.A, 16)]
            b, sb = quant15(t)
            result = [r + d for r, d in zip(result, lin(b, sb, 16, pair.B, q_out), strict=True)]
        return result if bias is None else [r + int(b) for r, b in zip(result, bias, strict=True)]

    def rotate(self, x: list[int], pos: int) -> list[int]:
        half = self.m.head_dim // 2
        sin = self.m.SIN.tolist()
        out = [0] * len(x)
        for f in range(half):
            c, s = trig(pos, int(self.m.STEP[f]), sin)
            a, b = x[f], x[f + half]
            out[f], out[f + half] = rsh(a * c - b * s, 30), rsh(b * c + a * s, 30)
        return out

    def heads(self, x: list[int]) -> list[list[int]]:
        hd = self.m.head_dim
        return [x[i : i + hd] for i in range(0, len(x), hd)]

    def centre_terms(self, q: list[int], mc: list[int]) -> tuple[list[int], int]:
        half = len(q) // 2
        a = [rsh(q[f] * mc[f] + q[f + half] * mc[f + half], 32) for f in range(half)]
        b = [rsh(q[f + half] * mc[f] - q[f] * mc[f + half], 32) for f in range(half)]
        return quant15(a + b)

    def attend(self, index: int, h: int, q: list[int]) -> list[int]:
        m, layer = self.m, self.m.layers[index]
        g = h * m.kv_heads // m.heads
        a, qs = quant15([rsh(wide(v * s), 31) for v, s in zip(q, layer.MQ[h].tolist(), strict=True)])
        f = layer.FQ - qs
        keys = [row[g] for row in self.k[index]]
        scores = [sum(x * y for x, y in zip(a, key, strict=True)) for key in keys]
        if layer.MC is not None:
            w, cs = self.centre_terms(q, layer.MC[g].tolist())
            fd = layer.EC - 2 - cs
            fm = min(f, fd, 20)
            for j, s in enumerate(scores):
                d = sum(x * y for x, y in zip(w, m.T[j].tolist(), strict=True))
                scores[j] = rsh(s, min(62, f - fm)) + rsh(d, min(62, fd - fm))
            f = fm
        largest = max(scores)
        p = []
        for s in scores:
            t = min(largest - s, 2**32 - 1)
            p.append(weight(wide(t >> (f - 16) if f >= 16 else t << (16 - f))))
        total = sum(p)
        n = total.bit_length()
        rv = 2**61 // (total >> (n - 31) if n > 31 else total << (31 - n))
        out = []
        for c in range(m.head_dim):
            o = sum(x * row[g][c] for x, row in zip(p, self.v[index], strict=True))
            u = rsh(wide(rsh(o, n - 24) * rv), 30)
            out.append(rsh(u * int(layer.SV[g, c]), 24))
        return out

    def land(self, heads: list[list[int]], scale, shift: int, site: str) -> list[list[int]]:
        return [
            self.clamp(
                [rsh(wide(v * s), shift) for v, s in zip(h, row.tolist(), strict=True)], site, limit=127
            )
            for h, row in zip(heads, scale, strict=True)
        ]

    def feed(self, token: int) -> None:
        m = self.m
        e = m.embedding
        pos = len(self.residuals)
        w = [int(e.v[token, i]) * int(e.s[token, i // BLOCK]) for i in range(m.hidden)]
        x = self.clamp([rsh(v * int(e.W[token]), e.E - m.R) for v in w], "emb")
        trace = []
        for index in range(len(m.layers)):
            x = self.layer(index, x, pos)
            trace.append(x)
        self.residuals.append(trace)

    def layer(self, index: int, x: list[int], pos: int) -> list[int]:
        m, layer = self.m, self.m.layers[index]
        counted = index < len(m.layers) - 1
        y = norm(x, layer.N1.G.tolist(), m.EPS)
        eg = layer.N1.EG
        q = self.heads(self.clamp(self.project(index, "WQ", y, eg, 16, layer.BQ), "qkv", counted))
        k = self.heads(self.clamp(self.project(index, "WK", y, eg, 16, layer.BK), "qkv"))
        v = self.heads(self.clamp(self.project(index, "WV", y, eg, 16, layer.BV), "qkv"))
        if layer.NQ is not None:
            q = [self.clamp(norm(h, layer.NQ.tolist(), m.EPS_head), "qkv", counted) for h in q]
            k = [self.clamp(norm(h, layer.NK.tolist(), m.EPS_head), "qkv") for h in k]
        if layer.CK is not None:
            k = [
                self.clamp([a - b for a, b in zip(h, centre.tolist(), strict=True)], "qkv")
                for h, centre in zip(k, layer.CK, strict=True)
            ]
        q = [self.clamp(self.rotate(h, pos), "rope_q", counted) for h in q]
        k = [self.clamp(self.rotate(h, pos), "rope_k") for h in k]
        self.k[index].append(self.land(k, layer.MK, layer.SK, "k_land"))
        self.v[index].append(self.land(v, layer.MV, layer.SV_sh, "v_land"))
        o = [value for h in range(m.heads) for value in self.attend(index, h, q[h])]
        add = self.project(index, "WO", o, layer.ESV, m.R)
        x = self.clamp([a + b for a, b in zip(x, add, strict=True)], "res", counted)
        y = norm(x, layer.N2.G.tolist(), m.EPS)
        gate = self.clamp(self.project(index, "WG", y, layer.N2.EG, 16), "gateup", counted)
        up = self.clamp(self.project(index, "WU", y, layer.N2.EG, 16), "gateup", counted)
        sig = m.SIG.tolist()
        h = [rsh(wide(silu(a, sig) * b), 32 - layer.QH) for a, b in zip(gate, up, strict=True)]
        h = self.clamp(h, "ffn", counted)
        add = self.project(index, "WD", h, layer.QH, m.R)
        return self.clamp([a + b for a, b in zip(x, add, strict=True)], "res", counted)

    def logits(self) -> list[int]:
        m = self.m
        y = norm(self.residuals[-1][-1], m.NF.G.tolist(), m.EPS)
        a, sh = quant15(y)
        row = lin(a, sh, m.NF.EG, m.embedding if m.head is None else m.head, 16)
        return [max(-(2**31) + 1, min(2**31 - 1, v)) for v in row]
