"""The discrete Gaussian mechanism: whole noise on whole numbers, calibrated by its own law.

    >>> noisy = DiscreteGaussian.calibrate(Sensitivity(1), epsilon=1.0, delta=1e-5)
    >>> noisy.guarantee(1e-5)
    Guarantee: epsilon 1, delta 1e-05, add or remove one record
    >>> isinstance(noisy.release(1204).value, int)
    True

For one number it is about as large as the continuous noise (here sigma 3.7405 for 3.7306), but
neither bounds the other: at epsilon 0.1 it is a little smaller, and for large epsilon much, because
an integer may be released unchanged most of the time.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import DiscreteGaussianEvent, ZcdpEvent
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.rounding import calibration_target, least, least_epsilon
from sfumato.core.sensitivity import Norm, Sensitivity, required
from sfumato.mechanisms import discrete_gaussian_law as law
from sfumato.mechanisms.additive import (
    Additive,
    as_whole,
    check_one_coordinate,
    saturating_sum,
    whole_sensitivity,
)
from sfumato.mechanisms.sampling import discrete_gaussian

__all__ = ["DiscreteGaussian"]

_LEAST_SIGMA = 1e-100


@final
@dataclass(frozen=True)
class DiscreteGaussian(Additive):
    """f(D) + Y on each coordinate, Pr[Y = k] proportional to e^(-k^2 / 2 sigma^2) on the integers.

    Formal guarantees
        - For one number, or where one step moves only one, by a whole number: (epsilon, delta)-DP
          by the exact curve of theorem 7.
        - Where several may move: rho-zCDP with rho = Delta_2^2 / 2 sigma^2 (theorem 4), hence
          (epsilon, delta)-DP by proposition 12, for the L2 bound Delta_2.
        - No pure guarantee: epsilon is infinite at delta 0.

    All for the relation and the unit of ``sensitivity``, which says how far one neighbour step
    moves the whole vector of integers.

    A float is rounded to the nearest integer first, and the sensitivity is that of the rounded
    value: in k dimensions rounding adds up to sqrt(k) to an L2 bound. What is not a finite number
    counts as 0; what does not fit into 64 bits is clamped, before and after.

    Attributes:
        sigma: the parameter; the standard deviation is a little less.
        sensitivity: an L2 bound; whole where one coordinate moves.
        delta: the one at which a release states its guarantee, as calibrated.
        one_coordinate: whether one step moves one coordinate only: the cells of a histogram under
            add/remove, if no unit has records in two of them.

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy",
    arXiv:2004.00010.
    """

    sigma: float
    sensitivity: Sensitivity
    delta: float = 0.0
    one_coordinate: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", validation.positive("sigma", self.sigma))
        object.__setattr__(self, "delta", validation.delta("delta", self.delta))
        if self.sigma < _LEAST_SIGMA:
            validation.fail(
                "sigma", f"at least {_LEAST_SIGMA} (there is no noise below)", self.sigma
            )
        _check_sensitivity(self.sensitivity, self.one_coordinate)
        self.perturb(())  # the sampler checks its parameters, before there is a value

    @classmethod
    def calibrate(
        cls,
        sensitivity: Sensitivity,
        *,
        epsilon: float,
        delta: float,
        one_coordinate: bool = False,
    ) -> Self:
        """The least noise that is (``epsilon``, ``delta``)-DP, never short of it.

        More noise is not always safer here. Where epsilon exceeds the sensitivity, the noise is so
        small that the integers show: delta falls and rises as sigma grows. The least sigma of all
        is found by a walk from below, in eighths of an integer; up to half the sensitivity delta is
        taken to fall with sigma. That the result is private is verified; that it is the least rests
        on these two observations, not on a proof.
        """
        epsilon = validation.positive("epsilon", epsilon)
        delta = validation.open_probability("delta", delta)
        bound = _check_sensitivity(sensitivity, one_coordinate)
        target = calibration_target(delta)

        def excess(sigma: float) -> float:
            return _log_delta(sigma, sensitivity, one_coordinate, epsilon) - target

        guess = bound * least_multiplier(epsilon, delta)
        if not _moves_one(sensitivity, one_coordinate):
            sigma = least(excess, guess)
        elif epsilon <= bound / 2:
            sigma = least(excess, guess * (1 - 1e-6), guess * (1 + 1e-6))
        else:
            # The loss at x is (x + bound/2) bound / sigma^2. Its threshold, the x at which it is
            # epsilon, grows with sigma; between two integers delta changes smoothly.
            thresholds = (-0.5 + i / 8 for i in itertools.count(1))
            walk = (math.sqrt(bound * (x + bound / 2) / epsilon) for x in thresholds)
            below, above = next(
                (low, high) for low, high in itertools.pairwise(walk) if excess(high) <= 0
            )
            sigma = least(excess, below, above)
        mechanism = cls(sigma, sensitivity, delta, one_coordinate)
        # Where delta falls off a cliff at epsilon, the last digit of epsilon may be over it.
        while mechanism.guarantee(delta).epsilon > epsilon:
            mechanism = replace(mechanism, sigma=mechanism.sigma * (1 + 2.0**-40))
        return mechanism

    @property
    def event(self) -> DiscreteGaussianEvent | ZcdpEvent:
        """The exact law where one coordinate moves, zCDP where several may."""
        known = self.sensitivity
        if _moves_one(known, self.one_coordinate):
            shift = whole_sensitivity(known.bound)
            return DiscreteGaussianEvent(self.sigma, shift, known.neighbours, known.unit)
        return ZcdpEvent(_rho(self.sigma, known.bound), known.neighbours, known.unit)

    @property
    def standard_deviation(self) -> float:
        """Exactly that of the discrete law: sigma from 3 on, less below."""
        return law.standard_deviation(self.sigma)

    @property
    def expected_error(self) -> float:
        """E |Y| of the discrete law."""
        return law.expected_magnitude(self.sigma)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """The least epsilon at ``delta``, rounded up; infinite at 0."""
        delta = validation.delta("delta", delta)
        known, single = self.sensitivity, self.one_coordinate
        epsilon = least_epsilon(lambda e: _log_delta(self.sigma, known, single, e), delta)
        return self._promise(epsilon, delta, "exact" if _moves_one(known, single) else "zcdp")

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """``values`` of any shape, rounded, plus fresh noise; what is no number counts as 0."""
        cells = as_whole(values)
        noise = discrete_gaussian(self.sigma, cells.size, coins)
        return saturating_sum(cells, noise.reshape(cells.shape))

    @property
    def _stated_delta(self) -> float:
        return self.delta

    def _error_beyond(self, probability: float) -> float:
        return float(law.magnitude_quantile(self.sigma, probability))


def _moves_one(sensitivity: Sensitivity, one_coordinate: bool) -> bool:
    return one_coordinate or sensitivity.dimension == 1


def _check_sensitivity(sensitivity: Sensitivity, one_coordinate: bool) -> float:
    bound = required(sensitivity, Norm.L2)
    if one_coordinate:
        check_one_coordinate(sensitivity)
    return whole_sensitivity(bound) if _moves_one(sensitivity, one_coordinate) else bound


def _rho(sigma: float, bound: float) -> float:
    """Delta_2^2 / 2 sigma^2, rounded up."""
    return (bound / sigma) ** 2 / 2 * (1 + 2.0**-50)


def _log_delta(
    sigma: float, sensitivity: Sensitivity, one_coordinate: bool, epsilon: float
) -> float:
    """The curve of one coordinate that moves, or that of zCDP where several may."""
    bound = sensitivity.bound
    if _moves_one(sensitivity, one_coordinate):
        return law.log_delta(sigma, whole_sensitivity(bound), epsilon)
    return law.zcdp_log_delta(_rho(sigma, bound), epsilon)
