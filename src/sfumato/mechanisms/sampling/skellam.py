"""Exact Skellam noise: the difference of two independent Poisson numbers of mean variance/2 each.

    Pr[K = k] = e^(-v) I_|k|(v),   v the variance, I_k the modified Bessel function.

A draw is one word and one look-up in a table of cumulative probabilities whose integers are
certified, as for the discrete Gaussian (:mod:`.tables`). The table needs no Bessel function: from
the recurrence I_(k-1) = (2k/v) I_k + I_(k+1) the ratios r_k = I_k / I_(k-1) satisfy

    r_k = v / (2k + v r_(k+1)),   0 < r_k < 1,

which taken downwards forgets where it started, and Pr[k] / Pr[0] = r_1 r_2 ... r_k. A sum of
independent Skellam numbers is one whose variance is the sum of theirs, so a large variance is drawn
as a sum of equal pieces: exactly the same law.

    >>> from sfumato.core.randomness import SeededCoins
    >>> skellam(9.0, 3, SeededCoins(1)).dtype
    dtype('int64')

Reference: Abramowitz and Stegun (1964), 9.6.26 for the recurrence and 9.6.34 for the sum.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.sampling.lazy import Source, locate
from sfumato.mechanisms.sampling.tables import Table, symmetric_table

__all__ = [
    "LARGEST_VARIANCE",
    "SMALLEST_VARIANCE",
    "check_variance",
    "draw_skellam",
    "log_tail",
    "skellam",
    "skellam_table",
]

LARGEST_VARIANCE = 2.0**30
SMALLEST_VARIANCE = 2.0**-40
_TABULATED = 2.0**22
_WIDTH = 1 << 12
"""How far apart, in working units, the two bounds on the first ratio may be."""


def skellam(variance: float, size: int, coins: Coins = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent draws of Pr[K = k] = e^(-v) I_|k|(v), exactly.

    Args:
        variance: v, from 2^-40 to 2^30, taken as the exact dyadic number it is.
        size: how many.
        coins: where the bits come from.

    Exactness: total variation distance 0 from the stated law, given ideal coins. No floating-point
    function decides a draw.
    """
    variance = check_variance("variance", variance)
    size = validation.at_least("size", size, 0)
    return draw_skellam(variance, size, Source(coins))


def check_variance(name: str, value: object) -> float:
    """A variance that can be drawn."""
    variance = validation.positive(name, value)
    if not SMALLEST_VARIANCE <= variance <= LARGEST_VARIANCE:
        validation.fail(
            name, "between 2^-40 and 2^30 (whole steps, squared: use coarser ones)", value
        )
    return variance


def draw_skellam(variance: float, size: int, source: Source) -> NDArray[np.int64]:
    """:func:`skellam` for checked arguments and an adjustable number of first bits."""
    halvings = max(0, math.frexp(variance / _TABULATED)[1])
    table = skellam_table(math.ldexp(variance, -halvings), source.bits)
    total = table.draw(size, source)
    for _ in range((1 << halvings) - 1):
        total += table.draw(size, source)
    return total


@lru_cache(maxsize=16)
def skellam_table(variance: float, bits: int = 64) -> Table:
    """The table of the law; about 10 microseconds for each unit of the standard deviation."""
    return symmetric_table(partial(_half_sums, variance), bits)


@lru_cache(maxsize=8)
def _half_sums(variance: float, prec: int) -> list[int]:
    """B_0 = 0, B_1, B_2, ... in units of 2^-prec, each within [-1, 2] units of the truth.

    Fixed point with W = 2^work. The ratio beyond the last is known to 2^12 units by bounds from
    both sides. A step r = v / (2k + v r') never enlarges an error (its derivative is -r^2, of size
    below 1) and adds a unit, so over n steps every ratio is within 2^12 + n units; the products w_k
    are then within n (2^12 + n + 1) and their sums within n^2 (2^12 + n + 1) units, that is less
    than 2^-10 units of the result: the working precision has 3 log2(n) + 32 bits to spare. What
    lies beyond has probability below 2^-(prec + 30).
    """
    exact = Fraction(variance)
    steps = _steps(variance, prec)
    work = prec + 3 * steps.bit_length() + 32
    low, high = _first_ratio(exact, steps, work)
    ratios = [(low + high) // 2]
    for k in range(steps, 0, -1):
        ratios.append(_down(exact, k, ratios[-1], work))
    term, total = 1 << work, -1 << (work - 1)  # w_0 counts half
    sums = [0]
    for ratio in reversed(ratios):
        total += term
        sums.append(total)
        term = term * ratio >> work
    return [(s << (prec - 1)) // total for s in sums]


def _down(variance: Fraction, k: int, ratio: int, work: int) -> int:
    """The floor of v / (2k + v r) in units of 2^-work."""
    a, b = variance.numerator, variance.denominator
    return (a << (2 * work)) // ((2 * k * b << work) + a * ratio)


def _first_ratio(variance: Fraction, steps: int, work: int) -> tuple[int, int]:
    """Bounds on r_(steps + 1), from 0 < r < 1 so many steps above that they nearly meet."""
    above = 64
    while True:
        low, high = 0, 1 << work
        for k in range(steps + above, steps, -1):
            low, high = _down(variance, k, high, work), _down(variance, k, low, work) + 1
        if high - low <= _WIDTH:
            return low, high
        above *= 2


def _steps(variance: float, prec: int) -> int:
    """The least n with Pr[|K| > n] below 2^-(prec + 30), by :func:`log_tail`."""
    limit = -math.log(2) * (prec + 32)
    return locate(lambda n: n < 1 or log_tail(variance, float(n)) > limit, 1) + 1


def log_tail(variance: float, t: float) -> float:
    """Chernoff's bound on ln Pr[K >= t] for t >= 0.

    With E e^(s K) = e^(v (cosh s - 1)) it is the least v (cosh s - 1) - s t over s,
    sqrt(t^2 + v^2) - v - t asinh(t / v).
    """
    return t * t / (math.hypot(t, variance) + variance) - t * math.asinh(t / variance)
