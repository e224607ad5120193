"""The Laplace mechanism: noise with density e^(-|y|/b) / 2b on each number, pure DP.

A noisy count whose noise has standard deviation 2 (b = sqrt 2) is 0.7071-DP:

    >>> noisy = Laplace(scale=2 / math.sqrt(2), sensitivity=Sensitivity(1.0))
    >>> noisy.guarantee()
    Guarantee: epsilon 0.7072, delta 0, add or remove one record
    >>> round(noisy.standard_deviation, 9), round(noisy.expected_error, 4)
    (2.0, 1.4142)
    >>> Laplace.calibrate(Sensitivity(1.0), epsilon=0.1).half_width(0.95) < 30
    True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import LaplaceEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.rounding import at_least_ratio, at_most_ratio
from sfumato.core.sensitivity import Norm, Sensitivity, required
from sfumato.mechanisms.additive import Additive
from sfumato.mechanisms.sampling import add_laplace, grid_for

__all__ = ["Laplace"]


@final
@dataclass(frozen=True)
class Laplace(Additive):
    """f(D) + Lap(b) on each coordinate, rounded to a grid of powers of two.

    Formal guarantees
        - (Delta_1 / b)-DP for the relation and the unit of ``sensitivity``, whose L1 bound Delta_1
          says how far one neighbour step moves the whole vector.
        - (epsilon, delta) for every delta: epsilon = Delta_1 / b + 2 ln(1 - delta), which is tight.
        - Rounding is post-processing of the ideal continuous mechanism: it costs nothing, needs no
          larger sensitivity, and leaves no trace of the value in the low bits of the output
          (Mironov, "On significance of the least significant bits for differential privacy", 2012).

    The value is taken as exactly what it is: an integer of any size or a fraction is not rounded to
    a float before the noise is there. What is no finite number counts as 0.

    The argument: the ratio of the densities of f(D) + Y and f(D') + Y at one point is at most
    e^(||f(D) - f(D')||_1 / b). The (epsilon, delta) curve is the one of a single coordinate that
    moves by Delta_1, the worst case (see :class:`~sfumato.core.events.LaplaceEvent`).

    Attributes:
        scale: b; the standard deviation is b sqrt(2), E |noise| is b.
        sensitivity: an L1 bound.
        grid: the step of the output, a power of two; None for one far below the scale.

    Reference: Dwork, McSherry, Nissim and Smith, "Calibrating noise to sensitivity in private data
    analysis" (2006), theorem 1; Dwork and Roth (2014), theorem 3.6.
    """

    scale: float
    sensitivity: Sensitivity
    grid: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", validation.positive("scale", self.scale))
        required(self.sensitivity, Norm.L1)
        self.perturb(())  # the sampler checks its parameters, before there is a value

    @classmethod
    def calibrate(
        cls, sensitivity: Sensitivity, *, epsilon: float, grid: float | None = None
    ) -> Self:
        """The least noise that is ``epsilon``-DP: b = Delta_1 / epsilon, never rounded down."""
        epsilon = validation.positive("epsilon", epsilon)
        bound = required(sensitivity, Norm.L1)
        scale = at_least_ratio(bound, epsilon)
        # The event states b / Delta_1, rounded down: its epsilon must not exceed the target either.
        while at_least_ratio(1.0, at_most_ratio(scale, bound)) > epsilon:
            scale = math.nextafter(scale, math.inf)
        return cls(scale, sensitivity, grid)

    @property
    def resolution(self) -> float:
        """The step of the grid on which outputs lie."""
        return grid_for(self.scale) if self.grid is None else self.grid

    @property
    def event(self) -> LaplaceEvent:
        """Laplace noise of scale b / Delta_1 relative to the sensitivity."""
        known = self.sensitivity
        return LaplaceEvent(at_most_ratio(self.scale, known.bound), known.neighbours, known.unit)

    @property
    def standard_deviation(self) -> float:
        """B sqrt(2), before rounding to the grid (which moves a number by half a step at most)."""
        return math.sqrt(2) * self.scale

    @property
    def expected_error(self) -> float:
        """B, before rounding to the grid."""
        return self.scale

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Delta_1 / b at ``delta`` 0, Delta_1 / b + 2 ln(1 - delta) above, and never below 0.

        From delta(epsilon) = 1 - e^((epsilon - Delta_1 / b) / 2) for epsilon up to Delta_1 / b.
        """
        delta = validation.delta("delta", delta)
        pure = at_least_ratio(self.sensitivity.bound, self.scale)
        gain = 2 * math.log1p(-delta)
        slack = 2 * math.ulp(max(pure, -gain)) if delta > 0 else 0.0
        return self._promise(max(0.0, min(pure, pure + gain + slack)), delta, "exact")

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """``values`` of any shape plus fresh noise; what is no finite number counts as 0."""
        return add_laplace(values, self.scale, self.resolution, coins)

    @property
    def _stated_delta(self) -> float:
        return 0.0

    def _error_beyond(self, probability: float) -> float:
        """Pr[|Y| > t] = e^(-t/b)."""
        return -self.scale * math.log(probability) + self.resolution / 2
