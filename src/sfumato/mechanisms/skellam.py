"""The Skellam mechanism: whole noise that many can add in parts, with exactly the law of the whole.

    >>> noisy = Skellam.calibrate(Sensitivity(1), epsilon=1.0, delta=1e-5)
    >>> noisy.guarantee(1e-5)
    Guarantee: epsilon 1, delta 1e-05, add or remove one record
    >>> isinstance(noisy.release(1204).value, int)
    True

Skellam noise of variance v is the difference of two Poisson numbers of mean v/2. The sum of n
independent ones of variance v/n has exactly the law of one of variance v, which the discrete
Gaussian lacks: that is why it is used where n clients add a share each and only the sum is seen
(:mod:`sfumato.federated.integer_noise`). For one holder of the data, the discrete Gaussian is a
little better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import RdpCurveEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.rounding import least
from sfumato.core.sensitivity import Norm, Sensitivity, required
from sfumato.mechanisms import skellam_law as law
from sfumato.mechanisms.additive import Additive, as_whole, saturating_sum, whole_sensitivity
from sfumato.mechanisms.sampling import skellam
from sfumato.mechanisms.sampling.skellam import LARGEST_VARIANCE, check_variance

__all__ = ["Skellam", "skellam_curve"]

_LARGEST_ORDER = 4096


def skellam_curve(
    variance: float, squared_l2: float, l1: float, like: Sensitivity
) -> RdpCurveEvent:
    """The RDP of Skellam noise on whole vectors so far apart; relation and unit are ``like``'s."""
    return RdpCurveEvent.of_whole_orders(
        lambda order: law.rdp(variance, squared_l2, l1, order),
        _LARGEST_ORDER,
        like.neighbours,
        like.unit,
    )


@final
@dataclass(frozen=True)
class Skellam(Additive):
    """f(D) + Y on each coordinate, Y the difference of two Poisson numbers of mean variance/2.

    Formal guarantees
        - (alpha, v(alpha))-RDP at whole orders by :func:`sfumato.mechanisms.skellam_law.rdp`, and
          by convexity between them, for whole vectors at most Delta_2 apart in L2. Their L1
          distance is at most min(sqrt(k) Delta_2, Delta_2^2), because |n| <= n^2 for whole n.
        - Hence (epsilon, delta)-DP by proposition 12 of Canonne, Kamath and Steinke,
          arXiv:2004.00010.
        - No pure guarantee: epsilon is infinite at delta 0.

    All for the relation and the unit of ``sensitivity``, which says how far one neighbour step
    moves the whole vector of integers. Values are rounded and clamped as by
    :class:`~sfumato.mechanisms.discrete_gaussian.DiscreteGaussian`.

    Attributes:
        variance: of the noise on each number, 2^-40 to 2^30.
        sensitivity: an L2 bound; whole in one dimension.
        delta: the one at which a release states its guarantee, as calibrated.

    Reference: Agarwal, Kairouz and Liu, arXiv:2110.04995.
    """

    variance: float
    sensitivity: Sensitivity
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", check_variance("variance", self.variance))
        object.__setattr__(self, "delta", validation.delta("delta", self.delta))
        _bounds(self.sensitivity)

    @classmethod
    def calibrate(cls, sensitivity: Sensitivity, *, epsilon: float, delta: float) -> Self:
        """The least noise whose RDP proves (``epsilon``, ``delta``)-DP.

        Raises:
            ValueError: if it would exceed the largest variance that is drawn.
        """
        epsilon = validation.positive("epsilon", epsilon)
        delta = validation.open_probability("delta", delta)
        bounds = _bounds(sensitivity)

        def excess(variance: float) -> float:
            return _epsilon(skellam_curve(variance, *bounds, sensitivity), delta) - epsilon

        if excess(LARGEST_VARIANCE) > 0:
            validation.fail(
                "epsilon",
                "met by noise of variance at most 2^30: release in coarser steps",
                epsilon,
            )
        guess = bounds[0] * 2 * math.log(1 / delta) / epsilon**2 + 1e-3
        variance = least(excess, min(guess, LARGEST_VARIANCE / 2))
        return cls(max(variance, 2.0**-40), sensitivity, delta)

    @property
    def event(self) -> RdpCurveEvent:
        """The RDP at orders from 2 to 4096."""
        return skellam_curve(self.variance, *_bounds(self.sensitivity), self.sensitivity)

    @property
    def standard_deviation(self) -> float:
        """The root of the variance."""
        return math.sqrt(self.variance)

    @property
    def expected_error(self) -> float:
        """E |Y|."""
        return law.expected_magnitude(self.variance)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """The least epsilon that the RDP proves at ``delta``; infinite at 0."""
        delta = validation.delta("delta", delta)
        return self._promise(_epsilon(self.event, delta), delta, "rdp")

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """``values`` of any shape, rounded, plus fresh noise; what is no number counts as 0."""
        cells = as_whole(values)
        return saturating_sum(cells, skellam(self.variance, cells.size, coins).reshape(cells.shape))

    @property
    def _stated_delta(self) -> float:
        return self.delta

    def _error_beyond(self, probability: float) -> float:
        return float(law.magnitude_quantile(self.variance, probability))


def _bounds(sensitivity: Sensitivity) -> tuple[float, float]:
    """Delta_2^2 and Delta_1, rounded up."""
    bound = required(sensitivity, Norm.L2)
    if sensitivity.dimension == 1:
        bound = whole_sensitivity(bound)
        return float(bound) ** 2, float(bound)
    return bound * bound * (1 + 2.0**-50), law.largest_l1(bound, sensitivity.dimension)


def _epsilon(curve: RdpCurveEvent, delta: float) -> float:
    """Min over orders a of v + ln(1 - 1/a) - ln(delta a)/(a - 1), never below 0; rounded up."""
    if delta == 0:
        return math.inf
    a, v = np.asarray(curve.orders), np.asarray(curve.values)
    best = float(np.min(v + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)))
    return max(0.0, best + 1e-14 * (1 + abs(best)))
