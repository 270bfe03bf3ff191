# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""The whole model and a sequence of tokens: prefill, decode, logits (section 2)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens

import numpy as np

from superslm.convert.quantized import Adapter, QuantizedModel

from .layer import LayerPass, five_counts, new_counters
from .linear import Dot, embed, lin
from .primitives import norm, quant15, sat32, trigonometry
from .sampling import greedy

MID_TOKEN = -1  # decode stopped between two layers of a token


class ReferenceModel:
    """A quantised model that computes; sequences made from it share its expanded weights."""

    def __init__(self, quantized_model: QuantizedModel, cache_bytes: int = 2 << 30) -> None:
        """Wrap `quantized_model`; at most `cache_bytes` of float64 weights stay expanded."""
        self.quantized = quantized_model
        self.dot = Dot(cache_bytes)

    def new_sequence(
        self, adapter: Adapter | None = None, chunk: int = 64, trace: bool = False
    ) -> ReferenceSequence:
        """An empty sequence.

        Args:
            adapter: LoRA pairs to apply, or None.
            chunk: positions computed at once by `prefill`; it never changes a result.
            trace: keep `layer_residuals` of every position.
        """
        return ReferenceSequence(self, adapter, chunk, trace)

    def logits(self, residual: np.ndarray) -> tuple[np.ndarray, int]:
        """Logits int32 [vocab] in Q16 nats and how many sat32 changed (section 2, step 3)."""
        m = self.quantized
        a, sh = quant15(norm(residual[None, :], m.NF.G, m.EPS))
        head = m.embedding if m.head is None else m.head
        row, clipped = sat32(lin(self.dot, a, sh, m.NF.EG, head, 16))
        return row[0].astype(np.int32), clipped


class ReferenceSequence:
    """Tokens with their K/V rows, in the states Fresh, Ready, Pending and Mid-token of the contract.

    Attributes:
        length: committed positions.
        residual: int32 [hidden], the vector after the last layer that ran.
        counters: the eight counters of section 4 and the diagnostics `emb` and `logit`.
        pending: the emitted token that the next decode embeds, or None.
        layer_residuals: with `trace`, one int32 [layers, hidden] per committed position; else None.
    """

    def __init__(self, model: ReferenceModel, adapter: Adapter | None, chunk: int, trace: bool) -> None:
        """See `ReferenceModel.new_sequence`."""
        m = model.quantized
        self.model, self.adapter, self.chunk = model, adapter, chunk
        self.length = 0
        self.residual = np.zeros(m.hidden, np.int32)
        self.counters = new_counters()
        self.pending: int | None = None
        self.layer_residuals: list[np.ndarray] | None = [] if trace else None
        self._k = np.zeros((len(m.layers), 0, m.kv_heads, m.head_dim), np.int8)
        self._v = self._k.copy()
        self._layer = 0  # next layer of the unfinished token
        self._unfinished: np.ndarray | None = None  # its residual, int64 [1, hidden]
        self._unfinished_trace: list[np.ndarray] = []
        self._row: np.ndarray | None = None  # logits of the committed state, once taken

    @property
    def k(self) -> np.ndarray:
        """Committed K rows, int8 [layers, position, kv_heads, head_dim]."""
        return self._k[:, : self.length]

    @property
    def v(self) -> np.ndarray:
        """Committed V rows, int8 [layers, position, kv_heads, head_dim]."""
        return self._v[:, : self.length]

    @property
    def counts(self) -> list[int]:
        """The contract's five counts: total, V landing, K landing, RoPE Q, RoPE K."""
        return five_counts(self.counters)

    @property
    def ready(self) -> bool:
        """Whether the next decode emits without layer work."""
        return self.length > 0 and self.pending is None and self._unfinished is None

    def prefill(self, tokens: Tokens[int]) -> None:
        """Append `tokens`; the sequence is then ready. A pending or unfinished token is dropped.

        Raises:
            ValueError: a token is outside the vocabulary, or the context cap would be passed.
        """
        m = self.model.quantized
        ids = np.asarray(tokens, np.int64)
        if ids.size == 0:
            return
        if ids.min() < 0 or ids.max() >= m.vocab:
            raise ValueError(f"prefill: token ids must lie in 0..{m.vocab - 1}, got {ids.min()}..{ids.max()}")
        self._reserve(ids.size)
        self.pending, self._unfinished, self._layer, self._row = None, None, 0, None
        for start in range(0, ids.size, self.chunk):
            part = ids[start : start + self.chunk]
            self._prefill_chunk(part, final=start + part.size == ids.size)

    def decode(self, choose: Callable[[np.ndarray], int] = greedy, layer_budget: int | None = None) -> int:
        """Emit one token; it is then pending.

        Args:
            choose: picks the token from the logits row; greedy by default.
            layer_budget: the most layers to run in this call; None runs all.

        Returns:
            The token, or `MID_TOKEN` (-1) when the budget ended between two layers.

        Raises:
            ValueError: the sequence is empty, or the context cap is reached.
        """
        if self.length == 0:
            raise ValueError("decode: the sequence is empty; prefill at least one token first")
        if not self.ready and not self._advance(layer_budget):
            return MID_TOKEN
        token = int(choose(self.logits()))
        if token >= 0:
            self.pending = token
        return token

    def logits(self) -> np.ndarray:
        """Logits int32 [vocab], Q16 nats, of the last committed position; changes nothing.

        Raises:
            ValueError: the sequence is not ready: no position has a final residual to take them from.
        """
        if self._row is None:
            if not self.ready:
                raise ValueError("logits: the sequence has no finished position")
            self._row, clipped = self.model.logits(self.residual.astype(np.int64))
            self.counters["logit"] += clipped
        return self._row

    def _reserve(self, count: int) -> None:
        """Make room for `count` further rows."""
        m = self.model.quantized
        needed = self.length + count
        if needed > m.cap:
            raise ValueError(
                f"context cap {m.cap} passed: {self.length} positions held, {count} more asked for"
            )
        have = self._k.shape[1]
        if needed > have:
            grow = ((0, 0), (0, min(m.cap, max(needed, 2 * have)) - have), (0, 0), (0, 0))
            self._k, self._v = np.pad(self._k, grow), np.pad(self._v, grow)

    def _run_layer(self, index: int, x: np.ndarray, first: int = 0) -> np.ndarray:
        m = self.model.quantized
        positions = np.arange(self.length, self.length + len(x))
        layer = LayerPass(m, index, self.model.dot, self.adapter, self.counters)
        trig = trigonometry(positions, m.STEP, m.SIN)
        return layer.run(x, positions, trig, self._k[index], self._v[index], first)

    def _embed(self, ids: np.ndarray) -> np.ndarray:
        m = self.model.quantized
        x, clipped = embed(m.embedding, ids, m.R)
        self.counters["emb"] += clipped
        return x

    def _prefill_chunk(self, ids: np.ndarray, final: bool) -> None:
        """One chunk through all layers; the last layer runs in full only where its result is needed."""
        layers = len(self.model.quantized.layers)
        x = self._embed(ids)
        trace = []
        for index in range(layers):
            first = 0
            if index == layers - 1 and self.layer_residuals is None:
                first = ids.size - 1 if final else ids.size
            x = self._run_layer(index, x, first)
            trace.append(x.astype(np.int32))
        if self.layer_residuals is not None:
            self.layer_residuals.extend(np.stack(trace, axis=1))
        self.length += ids.size
        if final:
            self.residual = x[-1].astype(np.int32)

    def _advance(self, layer_budget: int | None) -> bool:
        """Run layers of the current token; True when its last layer is done and its row committed."""
        layers = len(self.model.quantized.layers)
        if self._unfinished is None:
            self._reserve(1)
            self._unfinished = self._embed(np.array([self.pending]))
            self._unfinished_trace, self._row, self._layer, self.pending = [], None, 0, None
        stop = layers if layer_budget is None else min(layers, self._layer + layer_budget)
        while self._layer < stop:
            self._unfinished = self._run_layer(self._layer, self._unfinished)
            self._layer += 1
            self.residual = self._unfinished[0].astype(np.int32)
            self._unfinished_trace.append(self.residual)
        if self._layer < layers:
            return False
        if self.layer_residuals is not None:
            self.layer_residuals.append(np.stack(self._unfinished_trace))
        self.length += 1
        self._unfinished, self._layer = None, 0
        return True
