# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

"""Choosing a token and scoring one: greedy (section 2), sampling and log-probability (section 12)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .primitives import sat32, softmax_weight

DEAD_END = -2  # no token is left to choose from
INV_T_ONE = round(math.log2(math.e) * 2**32)  # invT at temperature 1
_MASK32 = 0xFFFFFFFF


def inverse_temperature(temperature: float) -> int:
    """`invT = round(log2(e)/T * 2^32)` (section 12).

    Raises:
        ValueError: the result is outside [1, 2^47).
    """
    inv_t = round(math.log2(math.e) / temperature * 2**32) if temperature > 0 else 0
    if not 1 <= inv_t < 2**47:
        raise ValueError(f"temperature {temperature} is outside the range that invT in [1, 2^47) can express")
    return inv_t


@dataclass
class Sampling:
    """Parameters of one draw (section 12)."""

    seed: int = 0  # the host's 64-bit seed
    inv_t: int = INV_T_ONE  # log2(e)/T in Q32
    top_k: int = 0  # 0 keeps all
    top_p: int = 32768  # 1..32768, Q15
    min_p: int = 0  # 0..32768, Q15
    bias: Iterable[tuple[int, int]] = ()  # (token, bias_q16)
    penalties: Iterable[tuple[int, int]] = ()  # (token, count)
    frequency: int = 0  # frequency_q16, per count
    presence: int = 0  # presence_q16, once per entry
    banned: Iterable[int] = field(default_factory=tuple)


def greedy(logits: np.ndarray) -> int:
    """The largest logit, lowest id on a tie (section 2, step 3)."""
    return int(np.argmax(logits))


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10: four 32-bit words from a 128-bit counter and a 64-bit key (section 12)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK32
        k0, k1 = (k0 + 0x9E3779B9) & _MASK32, (k1 + 0xBB67AE85) & _MASK32
    return c0, c1, c2, c3


def adjust(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Logits after bias and penalties, each entry saturated with sat32, int64 [vocab] (section 12)."""
    row = np.asarray(logits, np.int64).copy()
    for token, bias in sampling.bias:
        row[token] = sat32(row[token] + bias)[0]
    for token, count in sampling.penalties:
        row[token] = sat32(row[token] - sampling.frequency * count - sampling.presence)[0]
    return row


def temperature_weights(distance: np.ndarray, inv_t: int) -> np.ndarray:
    """Weights of logits `distance` below the largest (uint32, Q16 nats), 30 bits (section 12)."""
    d = np.asarray(distance).astype(np.uint64)
    z = d * np.uint64(inv_t >> 32) + ((d * np.uint64(inv_t & _MASK32)) >> np.uint64(32))
    return softmax_weight(z.astype(np.int64))


def candidates(logits: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Kept tokens in rank order and their weights, after top_k, top_p and min_p (section 12)."""
    row = adjust(logits, sampling)
    allowed = np.ones(row.size, bool)
    allowed[list(sampling.banned)] = False
    ids = np.flatnonzero(allowed)
    ids = ids[np.argsort(-row[ids], kind="stable")]  # stable: the lower id first on a tie
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    if ids.size == 0:
        return ids, np.zeros(0, np.int64)
    p = temperature_weights(row[ids[0]] - row[ids], sampling.inv_t)
    # uint64: a sum over 2^19 tokens times 2^15 stays just below 2^64.
    running = np.cumsum(p).astype(np.uint64)
    enough = running * np.uint64(32768) >= np.uint64(sampling.top_p) * running[-1]
    keep = int(np.argmax(enough)) + 1
    ids, p = ids[:keep], p[:keep]
    likely = p * 32768 >= sampling.min_p * p[0]
    return ids[likely], p[likely]


def sample(logits: np.ndarray, length: int, sampling: Sampling) -> int:
    """Draw a token (section 12).

    Args:
        logits: int32 [vocab], Q16 nats.
        length: committed positions of the sequence at the finish.
        sampling: the parameters.

    Returns:
        The token, or `DEAD_END` when nothing is left.
    """
    ids, p = candidates(logits, sampling)
    if ids.size == 0:
        return DEAD_END
    key = (sampling.seed & _MASK32, sampling.seed >> 32)
    out = philox((length & _MASK32, length >> 32, 0, 0), key)
    running = np.cumsum(p)
    r = ((out[0] | out[1] << 32) * int(running[-1])) >> 64
    return int(ids[np.argmax(running > r)])


def log2_q16(value: int) -> int:
    """LOG2: base-2 logarithm of a positive integer in Q16, rounded down (section 12)."""
    n = value.bit_length()
    y = value >> (n - 32) if n > 32 else value << (32 - n)
    r = (n - 1) << 16
    for k in range(15, -1, -1):
        y = (y * y) >> 31
        if y >= 2**32:
            y >>= 1
            r |= 1 << k
    return r


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Log-probability of every token, int64 [vocab], Q16 nats (section 12)."""
    row = np.asarray(logits, np.int64)
    below = row - row.max()
    total = int(temperature_weights(-below, INV_T_ONE).sum())
    return below - (((log2_q16(total) - 30 * 65536) * 45426) >> 16)
