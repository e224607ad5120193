"""Noise of density e^(-||v|| / b) in d dimensions: pure privacy for an L2 sensitivity.

    >>> noise = EuclideanLaplace.calibrate(Sensitivity(0.2, Norm.L2, dimension=3), epsilon=1.0)
    >>> noise.scale, noise.guarantee()
    (0.2, Guarantee: epsilon 1, delta 0, add or remove one record)

Its direction is uniform and its length is Gamma(d, b): d times b on the average, where Laplace
noise on each number would need a scale of b sqrt(d), and be sqrt(2) as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.rounding import at_least_ratio
from sfumato.core.sensitivity import Norm, Sensitivity, required
from sfumato.mechanisms.additive import as_floats
from sfumato.mechanisms.sampling import grid_for

__all__ = ["EuclideanLaplace", "euclidean_draw"]

_WORDS = 4  # 64-bit words of a uniform
_PRECISION = 320


@final
@dataclass(frozen=True)
class EuclideanLaplace:
    """f(D) + V with V of density proportional to e^(-||v||_2 / b), rounded to a public grid.

    Formal guarantees
        - (Delta_2 / b)-DP for the relation and the unit of ``sensitivity``: the ratio of densities
          at one point is at most e^(||f(D) - f(D')||_2 / b), by the triangle inequality.
        - Rounding to the grid is post-processing of the noisy value.
        - Draws are made of 256-bit uniforms in arithmetic of 320 bits and then rounded, the sum
          included, to a grid of a millionth of the scale: within 2^-128 in total variation of the
          ideal law on the grid, for up to 2^20 dimensions. (A longer sum of logarithms, or one that
          falls within 2^-200 of the middle between two grid points, is what the 2^-128 stands for.)

    As an event it is opaque, epsilon and no more: composed at its worst.

    Attributes:
        scale: b.
        sensitivity: an L2 bound.

    Reference: Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk
    minimization", JMLR 12 (2011), algorithm 1; Hardt and Talwar, "On the geometry of differential
    privacy", arXiv:0907.3754, section 4 (the K-norm mechanism, of the Euclidean ball).
    """

    scale: float
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", validation.positive("scale", self.scale))
        required(self.sensitivity, Norm.L2)
        grid_for(self.scale)  # within range

    @classmethod
    def calibrate(cls, sensitivity: Sensitivity, *, epsilon: float) -> EuclideanLaplace:
        """The least noise that is ``epsilon``-DP: b = Delta_2 / epsilon, never rounded down."""
        epsilon = validation.positive("epsilon", epsilon)
        return cls(at_least_ratio(required(sensitivity, Norm.L2), epsilon), sensitivity)

    @property
    def epsilon(self) -> float:
        """Delta_2 / b, rounded up."""
        return at_least_ratio(self.sensitivity.bound, self.scale)

    @property
    def event(self) -> EpsilonDeltaEvent:
        """Opaque: pure epsilon."""
        known = self.sensitivity
        return EpsilonDeltaEvent(self.epsilon, 0.0, known.neighbours, known.unit)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Epsilon; a ``delta`` above 0 gains nothing here."""
        known = self.sensitivity
        return Guarantee(self.epsilon, delta, known.neighbours, known.unit, "exact")

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """``values``, taken together as one vector, plus one draw of noise."""
        private = as_floats(values)
        grid = grid_for(self.scale)
        noise = euclidean_draw(private.size, coins)
        made = np.empty(private.size)
        with mpmath.workprec(_PRECISION):
            ratio = mpmath.mpf(self.scale) / grid
            for at, (value, draw) in enumerate(zip(private.ravel(), noise, strict=True)):
                steps = mpmath.floor(mpmath.mpf(float(value)) / grid + ratio * draw + 0.5)
                made[at] = float(steps * grid)
        return made.reshape(private.shape)


def euclidean_draw(dimension: int, coins: Coins = SYSTEM) -> list[Any]:
    """One vector of density proportional to e^(-||v||), to 256 bits, as mpmath numbers.

    The length is minus the logarithm of a product of uniforms, the direction that of independent
    normal numbers (Box and Muller).
    """
    if dimension == 0:
        return []
    pairs = -(-dimension // 2)
    with mpmath.workprec(_PRECISION):
        drawn = _uniforms(dimension + 2 * pairs, coins)
        length = -mpmath.log(mpmath.fprod(drawn[:dimension]))
        normals: list[Any] = []
        for i in range(pairs):
            first, second = drawn[dimension + 2 * i : dimension + 2 * i + 2]
            radius = mpmath.sqrt(-2 * mpmath.log(first))
            cosine, sine = mpmath.cos_sin(2 * mpmath.pi * second)
            normals += [radius * cosine, radius * sine]
        normals = normals[:dimension]
        share = length / mpmath.sqrt(mpmath.fsum(normals, squared=True))
        return [share * normal for normal in normals]


def _uniforms(count: int, coins: Coins) -> list[Any]:
    """Numbers strictly between 0 and 1, of 256 bits."""
    words = coins.words(_WORDS * count).tolist()
    made: list[Any] = []
    for i in range(count):
        whole = 0
        for word in words[_WORDS * i : _WORDS * (i + 1)]:
            whole = whole << 64 | word
        made.append(mpmath.ldexp(mpmath.mpf(2 * whole + 1), -64 * _WORDS - 1))
    return made
