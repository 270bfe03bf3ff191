# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Integers and decimals between bounds, as regular expressions over their digits."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

DIGITS = 15  # of a number: any decimal of so many digits survives a float64
FRACTION = 6  # behind the point, where the bounds do not ask for more
MAX_BOUND_DIGITS = 40


@dataclass(frozen=True)
class Bounds:
    """An interval; None: open on that side."""

    low: Decimal | None = None
    high: Decimal | None = None
    low_excluded: bool = False
    high_excluded: bool = False

    def scaled(self, digits: int) -> tuple[int | None, int | None]:
        """The least and the greatest integer n for which n / 10^digits lies inside."""
        return _scale(self.low, digits, ROUND_CEILING, 1, self.low_excluded), _scale(
            self.high, digits, ROUND_FLOOR, -1, self.high_excluded
        )


def _scale(bound: Decimal | None, digits: int, rounding: str, inward: int, excluded: bool) -> int | None:
    if bound is None:
        return None
    with localcontext() as context:
        context.prec = 2 * MAX_BOUND_DIGITS + 20
        exact = bound.scaleb(digits)
        value = exact.to_integral_value(rounding)
    return int(value) + (inward if excluded and value == exact else 0)


def integer(bounds: Bounds) -> str | None:
    """Integers without leading zeros or `-0`; None when there are none. An open side ends at 15 digits."""
    low, high = bounds.scaled(0)
    low, high = _closed(low, high, 10**DIGITS - 1)
    return _signed(low, high, _naturals)


def decimal(bounds: Bounds) -> str | None:
    """Decimals without exponent, up to 15 digits of which 6 or more lie behind the point; None: there are none."""
    low, high = bounds.scaled(0)
    low, high = _closed(low, high, 10 ** (DIGITS - FRACTION) - 1)
    whole = len(str(max(abs(low), abs(high))))
    wanted = max(
        [FRACTION, *(-int(b.as_tuple().exponent) for b in (bounds.low, bounds.high) if b is not None)]
    )
    fraction = max(0, min(wanted, DIGITS - whole))
    unit = 10**fraction
    exact_low, exact_high = bounds.scaled(fraction)
    low = low * unit if exact_low is None else exact_low
    high = high * unit + unit - 1 if exact_high is None else exact_high
    return _signed(low, high, lambda a, b: _decimals(a, b, fraction))


def _closed(low: int | None, high: int | None, most: int) -> tuple[int, int]:
    """Ends for open sides: `most` digits, or more where the other bound is beyond that."""
    if low is None:
        low = -most if high is None or high > -most else 10 * high
    if high is None:
        high = most if low < most else 10 * low
    return low, high


def _signed(low: int, high: int, naturals) -> str | None:
    parts = []
    if low < 0 and low <= high:
        parts.append("-(?:" + naturals(max(1, -high), -low) + ")")
    if high >= 0 and low <= high:
        parts.append(naturals(max(0, low), high))
    return "|".join(parts) if parts else None


def _naturals(low: int, high: int) -> str:
    """The numbers low..high, 0 <= low <= high."""
    parts = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = min(high, 10**length - 1)
        parts.append(_same_length(str(first), str(last)))
    return "|".join(parts)


def _digit(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"


def _same_length(low: str, high: str) -> str:
    """Numbers of one length, digit by digit."""
    if not low:
        return ""
    rest = len(low) - 1
    a, b = int(low[0]), int(high[0])
    if a == b:
        return low[0] + _grouped(_same_length(low[1:], high[1:]))
    parts = []
    if low[1:].strip("0"):
        parts.append(low[0] + _grouped(_same_length(low[1:], "9" * rest)))
        a += 1
    last = None
    if high[1:].strip("9"):
        last = high[0] + _grouped(_same_length("0" * rest, high[1:]))
        b -= 1
    if a <= b:
        parts.append(_digit(a, b) + (f"[0-9]{{{rest}}}" if rest else ""))
    if last is not None:
        parts.append(last)
    return "|".join(parts)


def _grouped(expression: str) -> str:
    return f"(?:{expression})" if "|" in expression else expression


def _decimals(low: int, high: int, fraction: int) -> str:
    """The numbers n / 10^fraction for n in low..high, 0 <= low <= high, with up to `fraction` decimals."""
    unit = 10**fraction
    if fraction == 0:
        return _naturals(low, high)
    (first, first_rest), (last, last_rest) = divmod(low, unit), divmod(high, unit)
    if first == last:
        return str(first) + _fraction(first_rest, last_rest, fraction)
    parts = []
    if first_rest:
        parts.append(str(first) + _fraction(first_rest, unit - 1, fraction))
        first += 1
    if last_rest != unit - 1:
        parts.append(str(last) + _fraction(0, last_rest, fraction))
        last -= 1
    if first <= last:
        parts.append(f"(?:{_naturals(first, last)})(?:\\.[0-9]{{1,{fraction}}})?")
    return "|".join(parts)


def _fraction(low: int, high: int, digits: int) -> str:
    """What follows a whole number: a point and decimals worth low..high, or nothing where low is 0."""
    body = f"(?:\\.(?:{_tail(low, high, digits, False)}))"
    return body + ("?" if low == 0 else "")


def _tail(low: int, high: int, digits: int, may_end: bool) -> str:
    """Up to `digits` decimals whose value, filled with zeros, lies in low..high."""
    if digits == 0:
        return ""
    unit = 10 ** (digits - 1)
    if low == 0 and high == 10 * unit - 1:
        return f"[0-9]{{{0 if may_end else 1},{digits}}}"
    parts, free = [], []
    for d in range(10):
        a, b = max(low - d * unit, 0), min(high - d * unit, unit - 1)
        if a > b:
            continue
        if a == 0 and b == unit - 1:
            free.append(d)
        else:
            parts.append(str(d) + _grouped(_tail(a, b, digits - 1, a == 0)))
    if free:
        rest = f"[0-9]{{0,{digits - 1}}}" if digits > 1 else ""
        parts.append(_digit(free[0], free[-1]) + rest)
    if may_end and low == 0:
        parts.append("")
    return "(?:" + "|".join(parts) + ")" if len(parts) > 1 else parts[0]
