"""Laplace or Gaussian? In k dimensions, at the same (epsilon, delta).

One step changes every coordinate by 1, so Delta_1 = k and Delta_2 = sqrt(k). Laplace noise must
grow like k, Gaussian noise like sqrt(k): beyond some dimension the Gaussian is smaller. What it
costs is the delta, which Laplace does not need.

    >>> laplace_or_gaussian(epsilon=1.0, delta=1e-5, dimension=1).better
    'laplace'
    >>> crossover_dimension(epsilon=1.0, delta=1e-5)
    7
    >>> crossover_dimension(epsilon=1.0, delta=1e-5, criterion="l1")
    9

Both are calibrated exactly: Laplace to the pure epsilon, Gaussian by the analytic formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, gammaln

from sfumato.core import validation
from sfumato.core.gaussian_profile import least_multiplier

__all__ = [
    "Comparison",
    "Criterion",
    "CrossoverCurve",
    "crossover_curve",
    "crossover_dimension",
    "laplace_or_gaussian",
]


class Criterion(StrEnum):
    """What "better" means: which error is smaller."""

    STANDARD_DEVIATION = "standard-deviation"
    """Of the noise on each number; equally the root mean square of its L2 norm."""
    L1 = "l1"
    """E ||noise||_1, the sum of the absolute errors."""
    L2 = "l2"
    """E ||noise||_2, the length of the error."""


@dataclass(frozen=True)
class Comparison:
    """Both errors in one dimension.

    Attributes:
        epsilon: the target.
        delta: the target; Laplace noise does not use it.
        dimension: how many numbers, each moved by 1.
        criterion: which error.
        laplace: that of Laplace noise of scale k / epsilon.
        gaussian: that of Gaussian noise calibrated to sqrt(k).
    """

    epsilon: float
    delta: float
    dimension: int
    criterion: Criterion
    laplace: float
    gaussian: float

    @property
    def better(self) -> str:
        """The one of smaller error; "laplace", which has no delta, where they tie."""
        return "gaussian" if self.gaussian < self.laplace else "laplace"


@dataclass(frozen=True, eq=False)
class CrossoverCurve:
    """Both errors over dimensions, ready to plot.

    Attributes:
        criterion: which error.
        dimensions: k.
        laplace: the error of Laplace noise at each k.
        gaussian: the error of Gaussian noise at each k.
        crossover: the smallest k at which the Gaussian is better.
    """

    criterion: Criterion
    dimensions: NDArray[np.int64]
    laplace: NDArray[np.float64]
    gaussian: NDArray[np.float64]
    crossover: int


def laplace_or_gaussian(
    epsilon: float,
    delta: float,
    dimension: int,
    criterion: Criterion | str = Criterion.STANDARD_DEVIATION,
) -> Comparison:
    """Both errors at (``epsilon``, ``delta``) in ``dimension`` dimensions."""
    criterion = validation.choice("criterion", criterion, Criterion)
    k = validation.count("dimension", dimension)
    multiplier = _multiplier(epsilon, delta)
    laplace, gaussian = _errors(epsilon, multiplier, k, criterion)
    return Comparison(epsilon, delta, k, criterion, laplace, gaussian)


def crossover_dimension(
    epsilon: float, delta: float, criterion: Criterion | str = Criterion.STANDARD_DEVIATION
) -> int:
    """The smallest dimension in which Gaussian noise is the smaller at (``epsilon``, ``delta``).

    With m the noise multiplier, it is the first whole number above (m epsilon)^2 / 2 by standard
    deviation, above 2 (m epsilon)^2 / pi by L1; found by bisection for L2. In every larger
    dimension the Gaussian stays ahead, because the ratio of the errors grows like sqrt(k).
    """
    criterion = validation.choice("criterion", criterion, Criterion)
    multiplier = _multiplier(epsilon, delta)

    def gaussian_wins(k: int) -> bool:
        laplace, gaussian = _errors(epsilon, multiplier, k, criterion)
        return gaussian < laplace

    high = 1
    while not gaussian_wins(high):
        high *= 2
    low = high // 2  # Laplace still wins here, or it is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if gaussian_wins(middle) else (middle, high)
    return high


def crossover_curve(
    epsilon: float,
    delta: float,
    dimensions: Sequence[int] | NDArray[np.int64],
    criterion: Criterion | str = Criterion.STANDARD_DEVIATION,
) -> CrossoverCurve:
    """Both errors at (``epsilon``, ``delta``) in each of ``dimensions``."""
    criterion = validation.choice("criterion", criterion, Criterion)
    ks = [validation.count("dimensions", k) for k in dimensions]
    multiplier = _multiplier(epsilon, delta)
    errors = np.array([_errors(epsilon, multiplier, k, criterion) for k in ks]).reshape(-1, 2)
    return CrossoverCurve(
        criterion=criterion,
        dimensions=np.array(ks, dtype=np.int64),
        laplace=errors[:, 0],
        gaussian=errors[:, 1],
        crossover=crossover_dimension(epsilon, delta, criterion),
    )


def _multiplier(epsilon: float, delta: float) -> float:
    epsilon = validation.positive("epsilon", epsilon)
    return least_multiplier(epsilon, validation.open_probability("delta", delta))


def _errors(epsilon: float, multiplier: float, k: int, criterion: Criterion) -> tuple[float, float]:
    """The error of Laplace noise of scale k / epsilon and of Gaussian noise of m sqrt(k)."""
    scale, sigma = k / epsilon, multiplier * math.sqrt(k)
    if criterion is Criterion.STANDARD_DEVIATION:
        return math.sqrt(2) * scale, sigma
    if criterion is Criterion.L1:
        return k * scale, k * sigma * math.sqrt(2 / math.pi)
    return scale * _laplace_length(k), sigma * _gaussian_length(k)


def _gaussian_length(k: int) -> float:
    """E ||Y||_2 of k standard normal numbers: sqrt(2) Gamma((k+1)/2) / Gamma(k/2)."""
    return math.sqrt(2) * math.exp(float(gammaln((k + 1) / 2) - gammaln(k / 2)))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def _laplace_length(k: int) -> float:
    """E ||Y||_2 of k Laplace numbers of scale 1.

    For S >= 0, E sqrt(S) = (1 / 2 sqrt(pi)) times the integral of (1 - E e^(-tS)) t^(-3/2) over
    t > 0. With S = ||Y||^2, E e^(-t y^2) = L(s) = (sqrt(pi) s / 2) erfcx(s / 2) for t = 1 / s^2, so

        E ||Y||_2 = (1 / sqrt(pi)) integral over s > 0 of 1 - L(s)^k.

    The integrand falls from 1 near s = sqrt(k), and like 2k / s^2 at the end: s = c (1 + u)/(1 - u)
    with c = sqrt(k) brings it to u in (-1, 1), smoothly.
    """
    z = 0.5 * math.sqrt(k) * (1 + _NODES) / (1 - _NODES)  # s / 2
    jacobian = 2 * math.sqrt(k) / (1 - _NODES) ** 2
    # 1 - L(s); far out by its series, which does not cancel.
    series = 1 / (2 * z**2) - 3 / (4 * z**4) + 15 / (8 * z**6)
    short = np.where(z > 50, series, 1 - math.sqrt(math.pi) * z * erfcx(z))
    return float(np.dot(_WEIGHTS, -np.expm1(k * np.log1p(-short)) * jacobian)) / math.sqrt(math.pi)
