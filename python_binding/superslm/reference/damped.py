# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""Damped greedy in unbounded integers: an integer softmax of the best candidates minus an anti-language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

MASKED = -(2**31)  # the logit of a token that the bound schema does not allow
ONE = 32768  # 1.0 in Q15
DEFAULT_ALPHA, DEFAULT_ORDER, DEFAULT_TOP_K = 65536, 2, 6
_DISCOUNT = 29491  # weight of an order relative to the next higher one, Q15
_INT64 = 2**63
_COEFFICIENT_BITS = 30


class NumericRefusal(ArithmeticError):
    """A value of this step left the domain of the integer exponential."""


@dataclass(frozen=True)
class Constants:
    """The polynomial 0.3585 (x + 1.353)^2 + 0.344 of I-BERT on a logit scale."""

    q_ln2: int
    q_b: int
    q_c: int

    @staticmethod
    def derive(mantissa: int, exponent: int) -> Constants:
        """Exact floors for the scale S = mantissa * 2^exponent."""
        scale = Fraction(mantissa) * Fraction(2) ** exponent
        unit = 2**_COEFFICIENT_BITS
        ln2 = Fraction(744261117, unit)  # floor(ln 2 * 2^30) / 2^30
        b = Fraction(1353 * unit // 1000, unit)
        c = Fraction(3440 * unit // 3585, unit)
        return Constants(ln2 // scale, b // scale, c // scale**2)

    @property
    def peak(self) -> int:
        """The exponential at 0."""
        return self.q_b**2 + self.q_c

    def exponential(self, q: int) -> int:
        """The exponential at q <= 0.

        Raises:
            NumericRefusal: a step does not fit 64 bits, or the value is outside [0, peak].
        """
        q = max(q, -30 * self.q_ln2)
        z = -q // self.q_ln2
        root = q + z * self.q_ln2 + self.q_b
        square = root * root
        if not all(-_INT64 <= value < _INT64 for value in (root, square, square + self.q_c)):
            raise NumericRefusal(f"the exponential at {q} does not fit 64 bits")
        value = (square + self.q_c) >> z
        if not 0 <= value <= self.peak:
            raise NumericRefusal(f"the exponential at {q} is {value}, outside 0..{self.peak}")
        return value


@dataclass
class AntiLm:
    """What a sequence has emitted in damped mode, as n-gram counts read off its history."""

    order: int = 0  # 0: nothing emitted yet
    tokens: list[int] = field(default_factory=list)

    def followers(self, context: Sequence[int]) -> dict[int, int]:
        """Counts of the tokens that have followed a context."""
        width, counts = len(context), {}
        for i in range(width, len(self.tokens)):
            if self.tokens[i - width : i] == list(context):
                counts[self.tokens[i]] = counts.get(self.tokens[i], 0) + 1
        return counts

    def penalties(self, order: int, candidates: Sequence[int]) -> list[int]:
        """The repetition of each candidate, Q15 in 0..32768."""
        if order != self.order:  # another order starts over
            return [0] * len(candidates)
        active = []
        for i in range(1, order + 1):
            if i - 1 <= len(self.tokens) and (
                counts := self.followers(self.tokens[len(self.tokens) - (i - 1) :])
            ):
                active.append((_order_weight(order - i), counts))
        if not active:
            return [0] * len(candidates)
        whole = sum(weight for weight, _ in active)
        shares = [(weight << 15) // whole for weight, _ in active]
        shares[-1] = ONE - sum(shares[:-1])
        totals = [sum(counts.values()) for _, counts in active]
        return [
            min(
                max(
                    sum(
                        (share * ((counts.get(token, 0) << 15) // total)) >> 15
                        for share, total, (_, counts) in zip(shares, totals, active, strict=True)
                    ),
                    0,
                ),
                ONE,
            )
            for token in candidates
        ]

    def enter(self, order: int, token: int) -> None:
        """Adds an emitted token."""
        if order != self.order:
            self.order, self.tokens = order, []
        self.tokens.append(token)


def _order_weight(steps: int) -> int:
    weight = ONE
    for _ in range(steps):
        weight = (weight * _DISCOUNT) >> 15
    return weight


def rank(logits: np.ndarray, legal: np.ndarray | None, top_k: int) -> list[int]:
    """The `top_k` positions of a row by masked logit descending, legal before masked, index ascending."""
    row = np.asarray(logits, np.int64)
    masked = np.zeros(row.size, bool) if legal is None else ~np.asarray(legal, bool)
    row = np.where(masked, MASKED, row)
    return np.lexsort((np.arange(row.size), masked, -row))[:top_k].tolist()


def choose(
    logits: np.ndarray,
    history: AntiLm,
    constants: Constants,
    *,
    alpha: int = DEFAULT_ALPHA,
    order: int = DEFAULT_ORDER,
    top_k: int = DEFAULT_TOP_K,
    legal: np.ndarray | None = None,
) -> int | None:
    """One damped greedy step; a chosen token enters the history.

    Args:
        logits: int32 [vocab], unmasked.
        history: the sequence's anti-language model.
        constants: of the model's logit scale.
        alpha: strength of the damping, Q15.
        order: longest n-gram.
        top_k: candidates.
        legal: bool [vocab], or None where every token is.

    Returns:
        The token, or None at a dead end of the schema.

    Raises:
        NumericRefusal: the history is unchanged.
    """
    row = np.asarray(logits, np.int64) if legal is None else np.where(legal, logits, MASKED).astype(np.int64)
    candidates = rank(logits, legal, top_k)
    top = int(row[candidates[0]])
    weights = [constants.exponential(int(row[c]) - top) for c in candidates]
    whole = max(sum(weights), 1)
    repeated = history.penalties(order, candidates)
    scores = []
    for candidate, weight, omega in zip(candidates, weights, repeated, strict=True):
        score = (weight << 15) // whole - ((alpha * omega) >> 15)
        scores.append(score if legal is None or legal[candidate] else -_INT64)
    best = max(scores)
    token = min(c for c, score in zip(candidates, scores, strict=True) if score == best)
    if legal is not None and not legal[token]:
        return None
    history.enter(order, token)
    return token
