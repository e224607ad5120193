"""The Gaussian mechanism: normal noise on each number, calibrated exactly.

    >>> exact = Gaussian.calibrate(Sensitivity(1.0, Norm.L2), epsilon=1.0, delta=1e-5)
    >>> round(exact.sigma, 4), exact.guarantee(1e-5)
    (3.7306, Guarantee: epsilon 1, delta 1e-05, add or remove one record)

Textbooks print sigma = Delta_2 sqrt(2 ln(c/delta)) / epsilon with three different c. Each adds more
noise than needed for small epsilon, and **each is wrong for large epsilon**:

    >>> [round(first_failure(c, delta=1e-5), 2) for c in PRINTED]
    [8.42, 9.39, 7.97]
    >>> Gaussian.calibrate(Sensitivity(1.0), epsilon=10, delta=1e-5, method="dwork-roth")
    Traceback (most recent call last):
    ...
    ValueError: epsilon must be below 8.42... for the 'dwork-roth' formula at delta 1e-05, got 10.0:
    its noise has a true delta of 2.27e-05; use method='analytic'

Symbols: m = sigma / Delta_2 is the noise multiplier; everything about privacy depends on m alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sfumato.core import validation
from sfumato.core.events import GaussianEvent
from sfumato.core.gaussian_profile import (
    gaussian_epsilon,
    gaussian_log_delta,
    least_multiplier,
)
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.rounding import at_least_product, at_most_ratio, calibration_target, least
from sfumato.core.sensitivity import Norm, Sensitivity, required
from sfumato.mechanisms.additive import Additive
from sfumato.mechanisms.sampling import add_gaussian, grid_for

__all__ = ["PRINTED", "Gaussian", "Method", "first_failure"]


class Method(StrEnum):
    """How sigma is chosen for a target (epsilon, delta)."""

    ANALYTIC = "analytic"
    """The least sigma there is, for every epsilon (Balle and Wang, arXiv:1805.06530)."""
    DWORK_ROTH = "dwork-roth"
    """c = 1.25. Dwork and Roth (2014), theorem 3.22 and appendix A: **proved for epsilon < 1**."""
    TWO_OVER_DELTA = "two-over-delta"
    """c = 2, printed for every epsilon."""
    ONE_OVER_DELTA = "one-over-delta"
    """c = 1: delta = e^(-(epsilon sigma)^2 / 2), printed as an approximation."""


PRINTED: dict[Method, float] = {
    Method.DWORK_ROTH: 1.25,
    Method.TWO_OVER_DELTA: 2.0,
    Method.ONE_OVER_DELTA: 1.0,
}
"""The constant c of each printed formula."""


@final
@dataclass(frozen=True)
class Gaussian(Additive):
    """f(D) + N(0, sigma^2) on each coordinate, rounded to a grid of powers of two.

    Formal guarantees
        - (epsilon, delta)-DP exactly where delta >= Phi(1/2m - epsilon m) - e^epsilon Phi(-1/2m -
          epsilon m), m = sigma / Delta_2, for the relation and the unit of ``sensitivity``, whose
          L2 bound Delta_2 says how far one neighbour step moves the whole vector.
        - No pure guarantee: epsilon is infinite at delta 0.
        - Rounding is post-processing of the ideal continuous mechanism: it costs nothing, needs no
          larger sensitivity, and leaves no trace of the value in the low bits of the output
          (Mironov, "On significance of the least significant bits for differential privacy", 2012).

    The value is taken as exactly what it is: an integer of any size or a fraction is not rounded to
    a float before the noise is there. What is no finite number counts as 0.

    The argument: turn the axes so that f(D) - f(D') lies along the first. The other coordinates of
    the noise carry nothing, and on the first the privacy loss is normal, with mean 1/2m^2 and
    variance 1/m^2.

    Attributes:
        sigma: the standard deviation of the noise.
        sensitivity: an L2 bound.
        delta: the one at which a release states its guarantee, as calibrated.
        grid: the step of the output, a power of two; None for one far below sigma.

    Reference: Balle and Wang, "Improving the Gaussian mechanism for differential privacy",
    arXiv:1805.06530, theorem 8.
    """

    sigma: float
    sensitivity: Sensitivity
    delta: float = 0.0
    grid: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", validation.positive("sigma", self.sigma))
        object.__setattr__(self, "delta", validation.delta("delta", self.delta))
        required(self.sensitivity, Norm.L2)
        self.perturb(())  # the sampler checks its parameters, before there is a value

    @classmethod
    def calibrate(
        cls,
        sensitivity: Sensitivity,
        *,
        epsilon: float,
        delta: float,
        method: Method | str = Method.ANALYTIC,
        grid: float | None = None,
    ) -> Self:
        """The noise of ``method`` for (``epsilon``, ``delta``), never short of it.

        Raises:
            ValueError: for a printed formula where it does not keep its promise.
        """
        epsilon = validation.positive("epsilon", epsilon)
        delta = validation.open_probability("delta", delta)
        method = validation.choice("method", method, Method)
        bound = required(sensitivity, Norm.L2)
        if method is Method.ANALYTIC:
            multiplier = least_multiplier(epsilon, delta)
        else:
            multiplier = _printed_multiplier(method, epsilon, delta)
            _check_printed(method, multiplier, epsilon, delta)
        return cls(at_least_product(multiplier, bound), sensitivity, delta, grid)

    @property
    def noise_multiplier(self) -> float:
        """Sigma over the sensitivity, rounded down."""
        return at_most_ratio(self.sigma, self.sensitivity.bound)

    @property
    def resolution(self) -> float:
        """The step of the grid on which outputs lie."""
        return grid_for(self.sigma) if self.grid is None else self.grid

    @property
    def event(self) -> GaussianEvent:
        """Gaussian noise of ``noise_multiplier`` relative to the sensitivity."""
        known = self.sensitivity
        return GaussianEvent(self.noise_multiplier, known.neighbours, known.unit)

    @property
    def standard_deviation(self) -> float:
        """Sigma, before rounding to the grid (which moves a number by half a step at most)."""
        return self.sigma

    @property
    def expected_error(self) -> float:
        """Sigma sqrt(2 / pi), before rounding to the grid."""
        return self.sigma * math.sqrt(2 / math.pi)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """The exact epsilon at ``delta``, rounded up; infinite at 0."""
        delta = validation.delta("delta", delta)
        epsilon = gaussian_epsilon(self.noise_multiplier, delta)
        return self._promise(epsilon, delta, "exact")

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """``values`` of any shape plus fresh noise; what is no finite number counts as 0."""
        return add_gaussian(values, self.sigma, self.resolution, coins)

    @property
    def _stated_delta(self) -> float:
        return self.delta

    def _error_beyond(self, probability: float) -> float:
        """Pr[|Y| > t] = 2 Phi(-t/sigma)."""
        return -self.sigma * float(ndtri(probability / 2)) + self.resolution / 2


def first_failure(method: Method | str, delta: float) -> float:
    """The epsilon from which a printed formula's noise no longer is (epsilon, ``delta``)-DP.

    Below it the formula holds, if with more noise than needed; from there on it never does, because
    its sigma falls like 1/epsilon where 1/sqrt(2 epsilon) is necessary.
    """
    delta = validation.open_probability("delta", delta)
    method = validation.choice("method", method, Method)
    if method is Method.ANALYTIC:
        return math.inf
    target = math.log(delta)

    def room(epsilon: float) -> float:
        m = _printed_multiplier(method, epsilon, delta)
        return target - gaussian_log_delta(m, epsilon)

    return least(room, guess=1.0)


def _printed_multiplier(method: Method, epsilon: float, delta: float) -> float:
    return math.sqrt(2 * math.log(PRINTED[method] / delta)) / epsilon


def _check_printed(method: Method, multiplier: float, epsilon: float, delta: float) -> None:
    log_delta = gaussian_log_delta(multiplier, epsilon)
    if log_delta > calibration_target(delta):
        raise ValueError(
            f"epsilon must be below {first_failure(method, delta):.4g} for the {method.value!r} "
            f"formula at delta {delta:g}, got {epsilon!r}: its noise has a true delta of "
            f"{math.exp(log_delta):.3g}; use method='analytic'"
        )
