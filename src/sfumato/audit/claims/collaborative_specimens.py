"""Specimens: rounds of collaborative training, done right and with one fault each.

Written from what Flower 1.41.0 does, in our own words; the tests run both and compare. All are
without noise: how large it is, is stated apart, so that audits can compute and never sample.
Updates are rows, one a participant; ``clip`` is the norm C, ``noise`` the noise multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Clipping",
    "clipped",
    "clipped_by_division",
    "fresh_answers",
    "local_deviation",
    "mean_deviation",
    "next_clip",
    "next_clip_backwards",
    "weighted_mean",
]

_Floats = NDArray[np.float64]
Clipping = Callable[[_Floats, float], _Floats]
"""From an update and C to what is averaged."""


def clipped(update: _Floats, clip: float) -> _Floats:
    """An update of norm C at most: what is not finite is no update, and nothing stays nothing."""
    if not np.isfinite(update).all():
        return np.zeros_like(update)
    largest = float(np.abs(update).max(initial=0.0))
    if largest == 0:
        return update
    norm = largest * float(np.linalg.norm(update / largest))  # no overflow on the way
    return update * min(1.0, clip / norm)


def clipped_by_division(update: _Floats, clip: float) -> _Floats:
    """Fault: scales by the smaller of 1 and C / norm, whatever the norm is.

    C / NaN is not smaller than 1, so the rest of such an update keeps its length. C / 0 is an
    error.
    """
    norm = float(np.linalg.norm(update))
    return update * min(1, clip / norm)


def weighted_mean(
    updates: Sequence[_Floats],
    weights: Sequence[float],
    clip: float,
    clipping: Clipping = clipped,
) -> _Floats:
    """The mean of clipped updates, weighted as by numbers of examples; equal weights are right."""
    rows = np.array([clipping(np.asarray(update, np.float64), clip) for update in updates])
    shares = np.asarray(weights, np.float64)
    return shares @ rows / shares.sum()


def mean_deviation(noise: float, clip: float, participants: int) -> float:
    """The standard deviation of noise on a mean, noise C / n: right where all weigh the same."""
    return noise * clip / participants


def next_clip(
    clip: float, fraction_clipped: float, target: float = 0.5, rate: float = 0.2
) -> float:
    """C for the next round: larger where more than the target was clipped.

    Andrew et al., arXiv:1905.03871, count the updates that are *not* clipped, b, and take C times
    e^(-rate (b - target)).
    """
    return clip * math.exp(-rate * ((1 - fraction_clipped) - target))


def next_clip_backwards(
    clip: float, fraction_clipped: float, target: float = 0.5, rate: float = 0.2
) -> float:
    """Fault: the same formula with the updates that *are* clipped, so that C runs away."""
    return clip * math.exp(-rate * (fraction_clipped - target))


def local_deviation(sensitivity: float, epsilon: float, delta: float) -> float:
    """The noise of one message, by the textbook formula; of one, however many are sent."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def fresh_answers(gradient: _Floats, bound: float, per_parameter: float) -> tuple[_Floats, float]:
    """Selective sharing of all parameters: their bounded values, and the scale of their noise.

    Lap(2 c Delta / eps2) with Delta = 2 bound and eps2 = 2/9 c (epsilon / c), for c parameters.
    """
    total = per_parameter * len(gradient)
    scale = 2 * len(gradient) * 2 * bound / (2 / 9 * total)
    return np.clip(gradient, -bound, bound), scale
