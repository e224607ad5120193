"""The discrete Laplace (geometric) mechanism: whole noise on whole numbers, pure DP.

    >>> noisy_count(1204, epsilon=0.1).guarantee
    Guarantee: epsilon 0.1, delta 0, add or remove one record
    >>> DiscreteLaplace.calibrate(Sensitivity(1), epsilon=0.1).half_width(0.95)
    30.0

Symbols: b is the scale, p = e^(-1/b), Pr[k] = (1 - p) / (1 + p) p^|k|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import DiscreteLaplaceEvent, EpsilonDeltaEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Release
from sfumato.core.rounding import at_least_ratio
from sfumato.core.sensitivity import Norm, Sensitivity, required
from sfumato.mechanisms.additive import (
    Additive,
    as_whole,
    check_one_coordinate,
    one_whole,
    saturating_sum,
    whole_sensitivity,
)
from sfumato.mechanisms.sampling import discrete_laplace

__all__ = ["DiscreteLaplace", "noisy_count"]


@final
@dataclass(frozen=True)
class DiscreteLaplace(Additive):
    """f(D) + Y on each coordinate, Pr[Y = k] proportional to e^(-|k|/b) on the integers.

    Formal guarantees
        - (Delta_1 / b)-DP for the relation and the unit of ``sensitivity``, whose L1 bound Delta_1,
          a whole number, says how far one neighbour step moves the whole vector of integers.
        - For one number, or where one step moves only one: (epsilon, delta) for every delta by the
          exact curve. Otherwise the pure epsilon is stated at every delta.

    The argument: Pr[Y = k] / Pr[Y = k - d] <= e^(|d|/b), and coordinates multiply.

    A float is rounded to the nearest integer first, and the sensitivity is that of the rounded
    value: a sum of floats that moves by at most 2.5 moves its rounding by at most 3. What is not a
    finite number counts as 0; what does not fit into 64 bits is clamped, before and after.

    Attributes:
        scale: b.
        sensitivity: an L1 bound, whole.
        one_coordinate: whether one step moves one coordinate only: the cells of a histogram under
            add/remove, if no unit has records in two of them.

    Reference: Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy
    mechanisms", arXiv:0811.2841, definition 2.1.
    """

    scale: float
    sensitivity: Sensitivity
    one_coordinate: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", validation.positive("scale", self.scale))
        whole_sensitivity(required(self.sensitivity, Norm.L1))
        if self.one_coordinate:
            check_one_coordinate(self.sensitivity)
        self.perturb(())  # the sampler checks its parameters, before there is a value

    @classmethod
    def calibrate(
        cls, sensitivity: Sensitivity, *, epsilon: float, one_coordinate: bool = False
    ) -> Self:
        """The least noise that is ``epsilon``-DP: b = Delta_1 / epsilon, never rounded down."""
        epsilon = validation.positive("epsilon", epsilon)
        scale = at_least_ratio(required(sensitivity, Norm.L1), epsilon)
        return cls(scale, sensitivity, one_coordinate)

    @property
    def event(self) -> DiscreteLaplaceEvent | EpsilonDeltaEvent:
        """The exact law where one coordinate moves, the pure epsilon where several may."""
        known = self.sensitivity
        if self._moves_one:
            shift = whole_sensitivity(known.bound)
            return DiscreteLaplaceEvent(self.scale, shift, known.neighbours, known.unit)
        return EpsilonDeltaEvent(self._pure_epsilon, 0.0, known.neighbours, known.unit)

    @property
    def standard_deviation(self) -> float:
        """The root of 2p / (1 - p)^2, which is 1 / (sqrt(2) sinh(1/2b))."""
        half = 0.5 / self.scale
        # 1 / sinh(x) = 2 e^-x / (1 - e^-2x), where a large x does not overflow.
        return math.sqrt(2) * math.exp(-half) / -math.expm1(-2 * half)

    @property
    def expected_error(self) -> float:
        """E |Y| = 2p / (1 - p^2)."""
        return 2 * math.exp(-1 / self.scale) / -math.expm1(-2 / self.scale)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Delta_1 / b at ``delta`` 0; less above, by the exact curve, where one coordinate moves.

        With d = Delta_1, the best test of d against 0 is a threshold m, 0 <= m < d, and

            delta(epsilon) = max over m of 1 - p^(m+1) / (1 + p) - e^epsilon p^(d-m) / (1 + p),

        so that e^epsilon = max over m of ((1 - delta) (1 + p) - p^(m+1)) p^(m-d).
        """
        delta = validation.delta("delta", delta)
        pure = self._pure_epsilon
        if delta == 0 or not self._moves_one:
            return self._promise(pure, delta, "exact" if delta == 0 else "pure")
        shift = whole_sensitivity(self.sensitivity.bound)
        level = (1 - delta) * (1 + math.exp(-1 / self.scale))
        # With y = p^(m+1), maximise (level - y) y: at y = level / 2, between two whole m.
        best = -self.scale * math.log(level / 2) - 1
        thresholds = {min(max(m, 0), shift - 1) for m in (math.floor(best), math.ceil(best))}
        epsilon = max(self._epsilon_by_threshold(m, shift, level) for m in thresholds)
        slack = 8 * math.ulp(max(pure, 1.0))
        return self._promise(max(0.0, min(pure, epsilon + slack)), delta, "exact")

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """``values`` of any shape, rounded, plus fresh noise; what is no number counts as 0."""
        cells = as_whole(values)
        noise = discrete_laplace(self.scale, cells.size, coins)
        return saturating_sum(cells, noise.reshape(cells.shape))

    @property
    def _moves_one(self) -> bool:
        return self.one_coordinate or self.sensitivity.dimension == 1

    @property
    def _pure_epsilon(self) -> float:
        return at_least_ratio(self.sensitivity.bound, self.scale)

    def _epsilon_by_threshold(self, m: int, shift: int, level: float) -> float:
        rest = level - math.exp(-(m + 1) / self.scale)
        return math.log(rest) + (shift - m) / self.scale if rest > 0 else -math.inf

    @property
    def _stated_delta(self) -> float:
        return 0.0

    def _error_beyond(self, probability: float) -> float:
        """Pr[|Y| > t] = 2 p^(t+1) / (1 + p) for whole t."""
        log_twice = math.log(2) - math.log1p(math.exp(-1 / self.scale))
        log_goal = math.log(probability)
        t = max(0, math.ceil(self.scale * (log_twice - log_goal) - 1) - 1)
        while log_twice - (t + 1) / self.scale > log_goal:
            t += max(1, int(math.ulp(t)))
        return float(t)


def noisy_count(
    count: Any,
    epsilon: float,
    *,
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
    unit: str = "record",
    confidence: float = 0.95,
    coins: Coins = SYSTEM,
) -> Release:
    """How many records satisfy a predicate, with discrete Laplace noise: ``epsilon``-DP.

    One step moves such a count by at most 1 under every relation: a unit comes or goes, is blanked
    out, or is replaced by one that does (not) satisfy the predicate. (For a unit that may hold
    several records, calibrate :class:`DiscreteLaplace` to how many.) The result is unbiased, and so
    may be negative; clamping it at 0 afterwards is free.

    Args:
        count: the true count, of any size; a number that is no whole one is rounded, and what is no
            number counts as 0.
        epsilon: what the release may cost.
        neighbours: the relation.
        unit: whose data one step changes.
        confidence: of the stated half-width.
        coins: where the noise comes from.
    """
    sensitivity = Sensitivity(1.0, neighbours=Neighbours.parse(neighbours), unit=unit)
    mechanism = DiscreteLaplace.calibrate(sensitivity, epsilon=epsilon)
    # Python's integers have room for any count, and noise has a scale that 64 bits have room for.
    noise = mechanism.release(0, confidence=confidence, coins=coins)
    return replace(noise, value=one_whole(count) + noise.value)
