# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""One decoder layer on a chunk of positions (section 2, step 2) and its saturation counters (section 4)."""

from __future__ import annotations

import numpy as np

from superslm.convert.quantized import Adapter, Layer, QuantizedModel

from .attention import attend, land
from .linear import Dot, lin
from .primitives import norm, quant15, rotate, rsh, sat32, silu

# The eight counters of section 4 in its order, then the two diagnostics outside the five counts.
SITES = ("res", "qkv", "rope_q", "rope_k", "k_land", "v_land", "gateup", "ffn")
DIAGNOSTICS = ("emb", "logit")


def new_counters() -> dict[str, int]:
    """All counters at zero."""
    return dict.fromkeys(SITES + DIAGNOSTICS, 0)


def five_counts(counters: dict[str, int]) -> list[int]:
    """The contract's counts: total of the eight, V landing, K landing, RoPE Q, RoPE K (section 4)."""
    total = sum(counters[site] for site in SITES)
    return [total] + [counters[site] for site in ("v_land", "k_land", "rope_q", "rope_k")]


class LayerPass:
    """One layer applied to consecutive positions; `x` is the residual, int64 [n, hidden] in Q_R."""

    def __init__(
        self, model: QuantizedModel, index: int, dot: Dot, adapter: Adapter | None, counters: dict[str, int]
    ) -> None:
        """Bind the layer `index` of `model`; clamps are added to `counters`."""
        self.model, self.index, self.dot, self.adapter, self.counters = model, index, dot, adapter, counters
        self.layer: Layer = model.layers[index]
        self.last = index == len(model.layers) - 1

    def run(
        self,
        x: np.ndarray,
        positions: np.ndarray,
        trig: tuple[np.ndarray, np.ndarray],
        k_rows: np.ndarray,
        v_rows: np.ndarray,
        first: int = 0,
    ) -> np.ndarray:
        """Write the K/V rows of all positions and return the new residual of those from `first` on.

        Args:
            x: residual of the chunk, int64 [n, hidden].
            positions: consecutive positions [n].
            trig: cosine and sine of the positions, Q30 [n, head_dim / 2].
            k_rows: int8 [capacity, kv_heads, head_dim]; rows at `positions` are written.
            v_rows: the same for V.
            first: the chunk's earlier rows need K and V only.
        """
        m, layer = self.model, self.layer
        a, sh = quant15(norm(x, layer.N1.G, m.EPS))
        k, v = self._keys_and_values(a, sh, trig)
        k_rows[positions], v_rows[positions] = k, v
        if first == len(x):
            return x[first:]
        x, positions = x[first:], positions[first:]
        q = self._query(a[first:], sh[first:], (trig[0][first:], trig[1][first:]))
        seen = int(positions[-1]) + 1
        o = attend(q, k_rows[:seen], v_rows[:seen], positions, layer, m.T)
        x = self._residual_add(x, o, layer.ESV, "WO")
        return self._feed_forward(x)

    def _project(
        self,
        a: np.ndarray,
        sh: np.ndarray,
        q_in: int,
        target: str,
        q_out: int,
        bias: np.ndarray | None = None,
    ) -> np.ndarray:
        low_rank = self.adapter.of(self.index, target) if self.adapter else None
        return lin(self.dot, a, sh, q_in, getattr(self.layer, target), q_out, bias, low_rank)

    def _count(self, site: str, result: tuple[np.ndarray, int], of_kv: bool = False) -> np.ndarray:
        """Add the clamps of a site; of the last layer only those of k and v count (section 4)."""
        values, clipped = result
        if of_kv or not self.last:
            self.counters[site] += clipped
        return values

    def _head_projection(
        self, a: np.ndarray, sh: np.ndarray, target: str, bias: np.ndarray | None, of_kv: bool
    ) -> np.ndarray:
        y = self._project(a, sh, self.layer.N1.EG, target, 16, bias)
        return self._count("qkv", sat32(y), of_kv).reshape(len(a), -1, self.model.head_dim)

    def _query(self, a: np.ndarray, sh: np.ndarray, trig: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Rotated query in Q16, [n, heads, head_dim] (steps 1 and 2)."""
        layer = self.layer
        q = self._head_projection(a, sh, "WQ", layer.BQ, of_kv=False)
        if layer.NQ is not None:
            q = self._count("qkv", sat32(norm(q, layer.NQ, self.model.EPS_head)))
        return self._count("rope_q", rotate(q, *trig))

    def _keys_and_values(
        self, a: np.ndarray, sh: np.ndarray, trig: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Landed rows, int8 [n, kv_heads, head_dim] each (steps 1 to 3, CK of section 9)."""
        layer = self.layer
        k = self._head_projection(a, sh, "WK", layer.BK, of_kv=True)
        v = self._head_projection(a, sh, "WV", layer.BV, of_kv=True)
        if layer.NK is not None:
            k = self._count("qkv", sat32(norm(k, layer.NK, self.model.EPS_head)), of_kv=True)
        if layer.CK is not None:
            k = self._count("qkv", sat32(k - layer.CK.astype(np.int64)), of_kv=True)
        k = self._count("rope_k", rotate(k, *trig), of_kv=True)
        k8 = self._count("k_land", land(k, layer.MK, layer.SK), of_kv=True)
        v8 = self._count("v_land", land(v, layer.MV, layer.SV_sh), of_kv=True)
        return k8, v8

    def _residual_add(self, x: np.ndarray, y: np.ndarray, q_in: int, target: str) -> np.ndarray:
        """`sat32(x + LIN(y))` (steps 8 and 11)."""
        return self._count("res", sat32(x + self._project(*quant15(y), q_in, target, self.model.R)))

    def _feed_forward(self, x: np.ndarray) -> np.ndarray:
        """The gated MLP and its residual add (steps 9 to 11)."""
        layer = self.layer
        a, sh = quant15(norm(x, layer.N2.G, self.model.EPS))
        gate, up = (
            self._count("gateup", sat32(self._project(a, sh, layer.N2.EG, target, 16)))
            for target in ("WG", "WU")
        )
        h = self._count("ffn", sat32(rsh(silu(gate, self.model.SIG) * up, 32 - layer.QH)))
        return self._residual_add(x, h, layer.QH, "WD")
