"""Sums of many independent losses by FFT, on a circle of cells just wide enough for them.

The distribution of n equal steps is the n-th power of one step's Fourier transform, transformed
back. What lies beyond the circle wraps around: it is bounded by Chernoff's inequality and charged
as infinite loss. So is rounding: against 80-bit arithmetic, n steps were found to lose no more than
1.3 n 2^-53 of their mass.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft

from sfumato.accounting.dpa import Floats, LossMasses

__all__ = ["ROUNDING", "bound", "mean", "repeated", "variance", "wrap"]

ROUNDING = 1e-15
"""Charged for every step."""


def repeated(step: LossMasses, count: int, tail: float) -> LossMasses:
    """The loss of ``count`` independent steps, but for at most ``tail``, which is charged."""
    if count == 1:
        return step
    nothing = LossMasses(0, np.ones(1), 0.0, step.grid)
    size = len(step.probs) - 1
    low = max(bound(step, nothing, count, tail / 2, upper=False), count * step.lowest)
    high = min(bound(step, nothing, count, tail / 2, upper=True), count * (step.lowest + size))
    lowest, cells = math.floor(low), math.ceil(high) - math.floor(low) + 1
    length = fft.next_fast_len(max(cells, 1), real=True)
    circle = fft.irfft(fft.rfft(wrap(step.probs, step.lowest, length)) ** count, length)
    infinite = -math.expm1(count * math.log1p(-step.infinite)) + tail + count * ROUNDING
    return LossMasses(lowest, np.roll(circle, -lowest), min(1.0, infinite), step.grid)


def wrap(probs: Floats, lowest: int, size: int) -> Floats:
    """Places ``probs``, which begin at cell ``lowest``, on a circle of ``size`` cells."""
    return np.bincount((lowest + np.arange(len(probs))) % size, probs, size).astype(np.float64)


def bound(step: LossMasses, start: LossMasses, count: int, tail: float, upper: bool) -> float:
    """A cell beyond which ``start`` and ``count`` steps lie with probability at most ``tail``.

    Chernoff: Pr[sum >= x] <= e^(-t x) E[e^(t step)]^n E[e^(t start)], best over t.
    """
    sign = 1.0 if upper else -1.0
    deviation = math.sqrt(count * variance(step) + variance(start) + 1.0)
    typical = math.sqrt(-2 * math.log(tail)) / deviation  # the best t, were the sum normal
    # Far from normal (a rare large loss), the best t is of the order of one over that loss.
    heavy = step.grid * np.geomspace(0.1, 30.0, 8)
    best = sign * math.inf
    for t in sign * np.concatenate([typical * np.geomspace(0.1, 2.0, 8), heavy]):
        logs = count * _log_mgf(step, float(t)) + _log_mgf(start, float(t))
        x = (logs - math.log(tail)) / float(t)
        best = min(best, x) if upper else max(best, x)
    return best


def mean(masses: LossMasses) -> float:
    """Of the finite losses, in cells."""
    return masses.lowest + float(np.average(np.arange(len(masses.probs)), weights=masses.probs))


def variance(masses: LossMasses) -> float:
    """Of the finite losses, in cells squared."""
    cells = masses.lowest + np.arange(len(masses.probs))
    return float(np.average((cells - mean(masses)) ** 2, weights=masses.probs))


def _log_mgf(masses: LossMasses, t: float) -> float:
    """At least ln E[e^(t loss)]: what would be subnormal, which is slow, is rounded up."""
    filled = np.flatnonzero(masses.probs > 0)
    powers = t * (masses.lowest + filled)
    most = float(powers.max())
    # A sum, not np.dot: BLAS would start threads for it, which is slower on a busy machine.
    terms = np.exp(np.maximum(powers - most, -200.0)) * np.maximum(masses.probs[filled], 1e-200)
    return most + math.log(float(terms.sum()))
