# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""How the next token is chosen: greedy, damped greedy, or drawn by a seed."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from superslm import _abi
from superslm._handles import int32_pointer

Q15, Q16 = 1 << 15, 1 << 16
_INT32 = (1 << 31) - 1


@dataclass(frozen=True)
class Damped:
    """Greedy, less what repeats the text so far; never random.

    Args:
        alpha: strength, 0 to below 32; 0 is plain greedy over the candidates.
        order: longest run of tokens that is compared, 1..82. Another order starts with an empty history.
        top_k: candidates among the best tokens, 1..vocabulary.

    >>> from superslm import Damped, Model
    >>> with Model.load(example_artifact) as model, model.pool() as pool, pool.sequence() as sequence:
    ...     text = "".join(sequence.generate("Once", selection=Damped(alpha=3.0), max_tokens=8))
    >>> len(text) > 0
    True
    """

    alpha: float = _abi.SSLM_DAMPED_GREEDY_DEFAULT_ALPHA_Q15 / Q15
    order: int = _abi.SSLM_DAMPED_GREEDY_DEFAULT_ANTI_LM_ORDER
    top_k: int = _abi.SSLM_DAMPED_GREEDY_DEFAULT_TOP_K


@dataclass(frozen=True)
class Sampling:
    """A seeded draw: the same seed, model and text give the same token on every machine.

    Args:
        seed: 64 bits.
        temperature: above 0; below 1 prefers likely tokens, above 1 unlikely ones.
        top_p: keeps the best tokens that together have this probability, above 0 and up to 1.
        top_k: keeps so many of the best tokens; 0 keeps all.
        min_p: drops tokens less likely than this part of the best one, 0 to 1.
        banned: ids that are never drawn.
        bias: id -> nats added to its logit.
        counts: id -> how often it has been used, for the two penalties.
        frequency: nats taken off per use.
        presence: nats taken off once for a used id.

    >>> from superslm import Model, Sampling
    >>> with Model.load(example_artifact) as model, model.pool() as pool, pool.sequence() as sequence:
    ...     text = "".join(sequence.generate("Once", selection=Sampling(7, temperature=0.8), max_tokens=8))
    ...     sequence.reset()
    ...     text == "".join(sequence.generate("Once", seed=7, temperature=0.8, max_tokens=8))
    True
    """

    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    banned: Sequence[int] = ()
    bias: Mapping[int, float] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)
    frequency: float = 0.0
    presence: float = 0.0


Selection = Damped | Sampling


def inverse_temperature(temperature: float) -> int:
    """round(log2(e) / temperature * 2^32). Raises ValueError outside 1..2^47-1."""
    value = round(math.log2(math.e) / temperature * 2**32) if temperature > 0 else 0
    if not 1 <= value < 1 << 47:
        raise ValueError(f"temperature must be above 0.00005 and below 6e9, not {temperature}")
    return value


def damped_params(model: Any, layer_budget: int, damped: Damped) -> _abi.sslm_decode_params:
    """Parameters of a damped call. Raises what sslm_decode_params_init refuses, and ValueError."""
    from superslm._library import check

    params = _abi.sslm_decode_params()
    status = model._lib.sslm_decode_params_init(
        model._handle.value, _abi.SSLM_DECODE_MODE_DAMPED_GREEDY, layer_budget, ctypes.byref(params)
    )
    check(status, "sslm_decode_params_init", f"damped greedy, layer_budget {layer_budget}")
    limits = {"alpha": (0, 32), "order": (1, 83), "top_k": (1, model.info.vocab + 1)}
    for name, (low, high) in limits.items():
        if not low <= getattr(damped, name) < high:
            raise ValueError(f"{name} must be at least {low} and below {high}, not {getattr(damped, name)}")
    params.alpha_q15 = min(round(damped.alpha * Q15), (1 << 20) - 1)
    params.anti_lm_max_order, params.top_k = damped.order, damped.top_k
    return params


class SamplingArray:
    """`sslm_ext_sample_params` of a batch, with the arrays they point to."""

    def __init__(self, samplings: Sequence[Sampling]) -> None:
        self.params = (_abi.sslm_ext_sample_params * len(samplings))()
        self._arrays: list[np.ndarray] = []
        for params, sampling in zip(self.params, samplings, strict=True):
            self._fill(params, sampling)

    def keep(self) -> Any:
        """The argument of the verb; it keeps the arrays alive."""
        pointer = ctypes.cast(self.params, ctypes.POINTER(_abi.sslm_ext_sample_params))
        pointer.owner = self  # type: ignore[attr-defined]
        return pointer

    def _array(self, values: Sequence[int]) -> Any:
        self._arrays.append(np.array(list(values), np.int32))
        return int32_pointer(self._arrays[-1])

    def _fill(self, params: _abi.sslm_ext_sample_params, s: Sampling) -> None:
        if not 0 < s.top_p <= 1 or not 0 <= s.min_p <= 1:
            raise ValueError(
                f"top_p must be above 0 and min_p at least 0, both up to 1: {s.top_p}, {s.min_p}"
            )
        if not 0 <= s.top_k <= _INT32:
            raise ValueError(f"top_k must be at least 0, not {s.top_k}")
        params.struct_size = ctypes.sizeof(params)
        params.seed = s.seed & ((1 << 64) - 1)
        params.inverse_temperature = inverse_temperature(s.temperature)
        params.top_k = s.top_k
        params.top_p_q15 = max(1, round(s.top_p * Q15))
        params.min_p_q15 = round(s.min_p * Q15)
        params.banned, params.banned_count = self._array(s.banned), len(s.banned)
        params.bias_tokens, params.bias_count = self._array(s.bias), len(s.bias)
        params.bias_q16 = self._array([_q16(nats) for nats in s.bias.values()])
        params.penalty_tokens, params.penalty_count = self._array(s.counts), len(s.counts)
        params.penalty_counts = self._array(s.counts.values())
        params.frequency_q16, params.presence_q16 = _q16(s.frequency), _q16(s.presence)


def _q16(nats: float) -> int:
    if math.isnan(nats):
        raise ValueError("a bias or penalty must be a number of nats, not nan")
    return int(max(-_INT32, min(_INT32, round(max(-1e5, min(1e5, nats)) * Q16))))
