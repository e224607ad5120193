"""Laplace noise at the source: each person's number is noisy before it leaves the phone.

No one has to trust the server, and the price is noise n times over: a sum of n numbers in [0, 1] is
off by sqrt(2 n) / epsilon instead of sqrt(2) / epsilon.

    >>> print(error_comparison(n=10_000, epsilon=1.0, categories=10, frequency=0.3))
    central Laplace 1.414, local Laplace 141.4, randomised response 95.95, 10-ary 224.2
    >>> phone = LocalLaplace(1.0, lower=0, upper=24)     # uses of the phone a day, at most 24
    >>> phone.scale
    24.0
    >>> phone.guarantee()
    Guarantee: epsilon 1, delta 0, replace one person

What is protected depends on the range. Noise Lap(1 / epsilon) on a person's count of uses, as
lecture slides have it, hides *one use* of the phone (a step of 1); whoever used it 24 times has
epsilon 24. To hide a person, noise needs the whole range: Lap((upper - lower) / epsilon).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import LaplaceEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Release
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.private_values import as_bounded
from sfumato.mechanisms.randomized_response import RandomizedResponse

__all__ = ["ErrorComparison", "LocalLaplace", "error_comparison"]


@final
@dataclass(frozen=True)
class LocalLaplace:
    """A person's number in [lower, upper], plus Laplace noise of scale (upper - lower) / epsilon.

    Formal guarantee: epsilon-DP for replacing one person's number by any other. Numbers are clamped
    to the declared range, so two of them differ by at most its width; the released value is the
    exact rounding, to a public grid, of number plus ideal Laplace noise, whose scale is rounded up.
    Whether a person reports at all is not hidden, hence no add/remove guarantee. If every person
    reports once, this is also the guarantee of all reports together.

    Attributes:
        epsilon: the guarantee.
        lower, upper: the declared range of a person's number.
        default: what stands for a number that is missing or not finite; ``lower`` unless declared.
        unit: whose number it is.

    Reference: Kasiviswanathan et al., "What Can We Learn Privately?", arXiv:0803.0924 (the local
    model); Dwork and Roth (2014), theorem 3.6 (Laplace) and section 12.1 (the local model).
    """

    epsilon: float
    lower: float
    upper: float
    default: float | None = None
    unit: str = "person"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        lower, upper = validation.interval("range", self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        if self.default is not None:
            default = validation.finite("default", self.default)
            if not lower <= default <= upper:
                validation.fail("default", f"from {lower} to {upper}", default)
            object.__setattr__(self, "default", default)
        _ = self.noise.resolution  # a range or a unit that no noise fits is an error now

    @cached_property
    def noise(self) -> Laplace:
        """The Laplace mechanism on one person's clamped number."""
        width = self.upper - self.lower
        if math.isinf(width):
            validation.fail("range", "narrower than the largest float", (self.lower, self.upper))
        if Fraction(width) < Fraction(self.upper) - Fraction(self.lower):
            width = math.nextafter(width, math.inf)
        step = Sensitivity(width, Norm.L1, Neighbours.REPLACE_ONE, self.unit)
        return Laplace.calibrate(step, epsilon=self.epsilon)

    @property
    def scale(self) -> float:
        """The noise's scale, (upper - lower) / epsilon, rounded up."""
        return self.noise.scale

    @property
    def event(self) -> LaplaceEvent:
        """One number with Laplace noise of 1 / epsilon times its range."""
        return self.noise.event

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Epsilon-DP at ``delta`` 0; a little less than epsilon above."""
        return self.noise.guarantee(delta)

    def sum_standard_deviation(self, n: int) -> float:
        """Of the sum of ``n`` people's reports about the sum of their numbers: sqrt(2 n) scale."""
        return math.sqrt(2 * validation.count("n", n)) * self.scale

    def release(self, value: Any, *, confidence: float = 0.95, coins: Coins = SYSTEM) -> Release:
        """One person's report of the private number ``value``."""
        return self.noise.release(
            float(self._clamp([value])[0]), confidence=confidence, coins=coins
        )

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """One report for each private number: the bulk form of ``release``."""
        return self.noise.perturb(self._clamp(values), coins=coins)

    def _clamp(self, values: ArrayLike) -> NDArray[np.float64]:
        default = self.lower if self.default is None else self.default
        return as_bounded(values, self.lower, self.upper, default)


@final
@dataclass(frozen=True)
class ErrorComparison:
    """The standard deviation of one private count of n people, in four ways.

    Attributes:
        central: a trusted curator adds Laplace noise once: sqrt(2) / eps.
        local_laplace: every person adds Laplace noise to a 0 or 1: sqrt(2 n) / eps.
        randomized_response: every person answers yes or no: sqrt(n e^eps) / (e^eps - 1).
        categorical_response: every person names one of K categories, one of which is counted:
            sqrt(n (K - 2 + e^eps) / (e^eps - 1)^2 + n f (K - 2) / (e^eps - 1)).
        categories: K.
    """

    central: float
    local_laplace: float
    randomized_response: float
    categorical_response: float
    categories: int

    def __str__(self) -> str:
        return (
            f"central Laplace {self.central:.4g}, local Laplace {self.local_laplace:.4g}, "
            f"randomised response {self.randomized_response:.4g}, "
            f"{self.categories}-ary {self.categorical_response:.4g}"
        )


def error_comparison(
    n: int, epsilon: float, categories: int = 2, frequency: float = 0.5
) -> ErrorComparison:
    """What protecting at the source costs: errors of one count under replace-one, same epsilon.

    Args:
        n: how many people.
        epsilon: of each person's guarantee.
        categories: K, for the K-ary response.
        frequency: the share of people in the category counted; matters only for K > 2.
    """
    bit = LocalLaplace(epsilon, 0.0, 1.0)
    return ErrorComparison(
        central=math.sqrt(2) * bit.scale,
        local_laplace=bit.sum_standard_deviation(n),
        randomized_response=RandomizedResponse(epsilon).standard_deviation(n, frequency),
        categorical_response=RandomizedResponse(epsilon, categories).standard_deviation(
            n, frequency
        ),
        categories=categories,
    )
