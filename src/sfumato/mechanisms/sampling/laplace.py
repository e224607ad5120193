"""Exact discrete Laplace noise: Pr[K = k] proportional to exp(-|k| / scale) on the integers.

With p = exp(-1/scale), Pr[|K| >= k] = 2 p^k / (1 + p) for k >= 1. For a uniform tail q on [0, 1/2)
and an independent sign, |K| >= k exactly if q < p^k / (1 + p), hence

    |K| = floor(-scale * ln(q (1 + p))) = floor(scale * z + scale * (ln 2 - ln(1 + p))),
    z = -ln(2 q),

which is one word and one logarithm a draw. Where the scale is so large that doubles would leave too
many floors open, memorylessness splits a geometric into digits: for m = 2^j,

    exp(-(m h + l) / scale) = exp(-h / (scale / m)) * exp(-l / scale),   0 <= l < m,

so h is geometric of scale/m, independent of l, a uniform j-bit integer kept with probability
exp(-l/scale) > 1 - 2^-19. A sign is then attached, and minus zero drawn again.

References: Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy
mechanisms", arXiv:0811.2841; Canonne, Kamath and Steinke, "The discrete Gaussian for differential
privacy", arXiv:2004.00010, algorithm 2 (the same law by another route).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.sampling.flips import accept_exp
from sfumato.mechanisms.sampling.lazy import Source, blocks, settle_floor
from sfumato.mechanisms.sampling.precise import Bounds, exp_bounds

__all__ = ["discrete_laplace", "draw_laplace"]

_LARGEST = 2.0**50
_SPLIT = 2.0**22
_DIGIT = 20
"""Above _SPLIT the high digit gets a scale in [2^19, 2^20)."""


def discrete_laplace(scale: float, size: int, coins: Coins = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent draws of Pr[K = k] ∝ exp(-|k| / scale), exactly.

    Args:
        scale: above 0, at most 2^50 so that 64-bit integers hold every draw; taken as the exact
            dyadic number it is.
        size: how many.
        coins: where the bits come from.

    Exactness: total variation distance 0 from the stated law, given ideal coins and the
    floating-point assumption of :mod:`sfumato.mechanisms.sampling.lazy`. (Values of 2^63 or more,
    whose probability at the largest scale is below exp(-8000), do not fit the result.)
    """
    scale = validation.positive("scale", scale)
    size = validation.at_least("size", size, 0)
    if scale > _LARGEST:
        validation.fail("scale", "at most 2^50 for 64-bit results", scale)
    return draw_laplace(scale, size, Source(coins))


def draw_laplace(scale: float, size: int, source: Source) -> NDArray[np.int64]:
    """:func:`discrete_laplace` for checked arguments and an adjustable number of first bits."""
    result = np.empty(size, dtype=np.int64)
    draw = _whole if scale <= _SPLIT else _by_digits
    for block in blocks(size):
        result[block] = draw(scale, block.stop - block.start, source)
    return result


def _whole(scale: float, size: int, source: Source) -> NDArray[np.int64]:
    ratio = math.exp(-1 / scale)
    offset = scale * (math.log(2) - math.log1p(ratio))
    sign, magnitude = _signed_geometric(scale, size, offset, partial(_folded_tail, scale), source)
    return (magnitude ^ sign) - sign


def _by_digits(scale: float, size: int, source: Source) -> NDArray[np.int64]:
    """Draws until ``size`` remain; each attempt fails with probability below 2^-18."""
    digits = math.frexp(scale)[1] - _DIGIT
    kept: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    while kept.size < size:
        kept = np.concatenate([kept, _attempt(scale, digits, size - kept.size, source)])
    return kept


def _attempt(scale: float, digits: int, size: int, source: Source) -> NDArray[np.int64]:
    high_scale = math.ldexp(scale, -digits)
    tail = partial(_plain_tail, high_scale)
    sign, high = _signed_geometric(high_scale, size, 0.0, tail, source)
    low = (source.coins.words(size) >> np.uint64(64 - digits)).view(np.int64)
    exact_scale = Fraction(scale)
    accepted = accept_exp(low / scale, lambda i: int(low[i]) / exact_scale, source)
    magnitude = (high << np.int64(digits)) | low
    accepted &= (magnitude > 0) | (sign == 0)
    return ((magnitude ^ sign) - sign)[accepted]


def _signed_geometric(
    scale: float,
    size: int,
    offset: float,
    tail: Callable[[int], Callable[[int], Bounds]],
    source: Source,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Signs (0 or -1) and floor(-scale ln(2q) + offset), whose tails are given exactly by k."""
    sign, numerators = source.signed(size)
    tails = np.maximum(numerators, 1).astype(np.float64) * 2.0 ** (1 - source.bits)
    quantile = -np.log(tails)
    return sign, settle_floor(quantile, scale, offset, numerators, lambda _, k: tail(k), source)


def _plain_tail(scale: float, k: int) -> Callable[[int], Bounds]:
    """Bounds on p^k / 2, the geometric's tail halved."""

    def bounds(prec: int) -> Bounds:
        return exp_bounds(max(k, 0) / Fraction(scale), prec - 1)

    return bounds


def _folded_tail(scale: float, k: int) -> Callable[[int], Bounds]:
    """Bounds on p^k / (1 + p), the discrete Laplace tail Pr[K >= k], for k >= 1; 1 for k <= 0."""

    def bounds(prec: int) -> Bounds:
        if k <= 0:
            return 1 << prec, 1 << prec
        one = 1 << prec
        power, ratio = exp_bounds(k / Fraction(scale), prec), exp_bounds(1 / Fraction(scale), prec)
        return (power[0] << prec) // (one + ratio[1]), -(-(power[1] << prec) // (one + ratio[0]))

    return bounds
