"""The exact privacy of Gaussian noise: delta at an epsilon, and back.

For noise of standard deviation m times the L2 sensitivity (m is the noise multiplier),

    delta(epsilon) = Phi(1/2m - epsilon m) - e^epsilon Phi(-1/2m - epsilon m).

Any adaptive composition of Gaussian releases is exactly one, with 1/m^2 the sum of theirs.

References: Balle and Wang, "Improving the Gaussian mechanism for differential privacy",
arXiv:1805.06530, theorem 8; Dong, Roth and Su, "Gaussian differential privacy", arXiv:1905.02383,
corollaries 2.13 and 3.3.

This module needs SciPy, so ``sfumato.core`` does not import it by itself.

    >>> round(least_multiplier(1.0, 1e-5), 4), round(gaussian_epsilon(3.7306, 1e-5), 4)
    (3.7306, 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from sfumato.core import validation
from sfumato.core.rounding import calibration_target, least, least_epsilon

__all__ = [
    "composed_multiplier",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "least_multiplier",
]


def composed_multiplier(releases: Iterable[tuple[float, int]]) -> float:
    """The noise multiplier of (noise multiplier, count) releases together: 1/m^2 adds."""
    counted = [(m, count) for m, count in releases if count]
    if not counted:
        return math.inf
    least_noise = min(m for m, _ in counted)
    # Relative to the least, so that nothing overflows.
    signal = math.fsum(count * (least_noise / m) ** 2 for m, count in counted)
    return least_noise / math.sqrt(signal)


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """The exact delta of Gaussian noise of ``noise_multiplier`` at ``epsilon``."""
    return math.exp(gaussian_log_delta(noise_multiplier, epsilon))


def gaussian_log_delta(noise_multiplier: float, epsilon: float) -> float:
    """The ln(delta) of Gaussian noise at ``epsilon``, to about 13 digits whatever their size.

    With a = 1/2m - epsilon m and b = a - 1/m, e^epsilon phi(b) = phi(a), so

        delta = Phi(a) - e^epsilon Phi(b) = phi(a) (M(a) - M(b)),    M = Phi / phi,

    where nothing overflows. M' = 1 + x M is positive, so where a and b are close their difference
    is an integral without cancellation.
    """
    m = validation.positive("noise_multiplier", noise_multiplier)
    epsilon = validation.non_negative("epsilon", epsilon)
    half, middle = 0.5 / m, -epsilon * m
    a, b = middle + half, middle - half
    log_density = -a * a / 2 - 0.5 * math.log(2 * math.pi)
    if half < 0.5:
        return log_density + math.log(
            half * float(np.dot(_WEIGHTS, _slope(middle + half * _NODES)))
        )
    if a <= 0:
        return log_density + math.log(_mills(a) - _mills(b))
    return math.log(float(ndtr(a)) - math.exp(log_density) * _mills(b))


def least_multiplier(epsilon: float, delta: float) -> float:
    """The least sigma / Delta_2 whose exact delta at ``epsilon`` is at most ``delta``."""
    target = calibration_target(delta)
    return least(lambda m: gaussian_log_delta(m, epsilon) - target, guess=1 / math.sqrt(epsilon))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """The exact epsilon at ``delta``, rounded up; infinite at delta 0, or beyond 10^300."""
    if validation.positive("noise_multiplier", noise_multiplier) < 1e-150:
        return math.inf
    return least_epsilon(lambda epsilon: gaussian_log_delta(noise_multiplier, epsilon), delta)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def _mills(x: float) -> float:
    """M(x) = Phi(x) / phi(x), for x <= 0."""
    return math.sqrt(math.pi / 2) * float(erfcx(-x / math.sqrt(2)))


def _slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """M'(x) = 1 + x M(x), for x below 1; far out by its series, which does not cancel."""
    near = np.maximum(x, -1e3)
    slope = 1 + near * math.sqrt(math.pi / 2) * erfcx(-near / math.sqrt(2))
    return np.where(x < near, np.minimum(x, -1.0) ** -2.0, slope)
