"""Exact discrete Gaussian noise: Pr[K = k] proportional to exp(-k^2 / (2 sigma^2)), k an integer.

For many draws of a moderate sigma a table of cumulative probabilities is made once (its integers
are certified, see :mod:`.tables`) and a draw is one word and one look-up. Otherwise, a discrete
Laplace draw Y of scale t = floor(sigma) + 1 is kept with probability

    exp(-(|Y| - sigma^2/t)^2 / (2 sigma^2)),

about three times in four. Both routes give the same law; which is taken depends on sigma and the
number of draws alone.

Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy",
arXiv:2004.00010, algorithm 3 for the rejection.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.sampling.flips import accept_exp
from sfumato.mechanisms.sampling.laplace import draw_laplace
from sfumato.mechanisms.sampling.lazy import Source, blocks
from sfumato.mechanisms.sampling.tables import gaussian_table

__all__ = ["discrete_gaussian", "draw_by_rejection", "draw_gaussian"]

_LARGEST = 2.0**40
_TABULATED = 2.0**12


def discrete_gaussian(sigma: float, size: int, coins: Coins = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent draws of Pr[K = k] ∝ exp(-k^2 / (2 sigma^2)), exactly.

    Args:
        sigma: above 0, at most 2^40; taken as the exact dyadic number it is. The standard deviation
            of the draws is at most sigma, and within a millionth of it from sigma = 1 on.
        size: how many.
        coins: where the bits come from.

    Exactness: total variation distance 0 from the stated law, given ideal coins and the
    floating-point assumption of :mod:`sfumato.mechanisms.sampling.lazy`.
    """
    sigma = validation.positive("sigma", sigma)
    size = validation.at_least("size", size, 0)
    if sigma > _LARGEST:
        validation.fail("sigma", "at most 2^40 for 64-bit results", sigma)
    return draw_gaussian(sigma, size, Source(coins))


def draw_gaussian(sigma: float, size: int, source: Source) -> NDArray[np.int64]:
    """:func:`discrete_gaussian` for checked arguments and an adjustable number of first bits."""
    # A table takes about 10 microseconds per unit of sigma to make.
    if sigma <= min(_TABULATED, 64 + size / 64):
        return gaussian_table(sigma, source.bits).draw(size, source)
    return draw_by_rejection(sigma, size, source)


def draw_by_rejection(sigma: float, size: int, source: Source) -> NDArray[np.int64]:
    """The law from discrete Laplace proposals; right for every sigma, meant for large ones."""
    result = np.empty(size, dtype=np.int64)
    for block in blocks(size):
        filled = block.start
        while filled < block.stop:
            wanted = block.stop - filled
            kept = _accepted(sigma, wanted * 4 // 3 + 8, source)[:wanted]
            result[filled : filled + kept.size] = kept
            filled += kept.size
    return result


def _accepted(sigma: float, proposals: int, source: Source) -> NDArray[np.int64]:
    """Those of ``proposals`` Laplace draws that the rejection keeps.

    The exponent is x = d^2/2 with d = |Y|/sigma - sigma/t. In floating point d is off by less than
    2^-50 (|d| + 2), hence exp(-x) by less than 2^-48, as |d| (|d| + 2) exp(-d^2/2) < 2.
    """
    t = math.floor(sigma) + 1
    drawn = draw_laplace(float(t), proposals, source)
    deviation = np.abs(drawn) / sigma - sigma / t
    variance = Fraction(sigma) ** 2

    def exact(i: int) -> Fraction:
        return (abs(int(drawn[i])) - variance / t) ** 2 / (2 * variance)

    return drawn[accept_exp(0.5 * deviation * deviation, exact, source)]
