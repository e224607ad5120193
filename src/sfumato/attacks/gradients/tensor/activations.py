"""Activations of a hidden layer, and the mean of each derivative over normal inputs.

For an input x of length 1 and weights w ~ N(0, I), z = w.x is standard normal. All that the attack
needs of an activation are the numbers

    s_p = E[sigma^(p)(z)] = E[sigma(z) He_p(z)],        p = 0, ..., 4

with He_p the Hermite polynomials 1, z, z^2 - 1, z^3 - 3z, z^4 - 6z^2 + 3. The two are equal by
Stein's identity, p integrations by parts; the second needs no derivative and is what is meant where
there is none, as with ReLU. It is computed by Gauss-Hermite quadrature, or in closed form.

    >>> CUBIC.means  # z^2 + z^3: means 1, of 2z + 3z^2: 3, of 2 + 6z: 2, of 6: 6, then 0
    (1.0, 3.0, 2.0, 6.0, 0.0)
    >>> [round(mean, 4) for mean in TANH.means], TANH.odd
    ([0.0, 0.6057, 0.0, -0.3636, 0.0], True)
    >>> SIGMOID.odd, RELU.has(2), RELU.has(3), RELU.has(4)
    (True, True, False, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = [
    "ACTIVATIONS",
    "CUBIC",
    "RELU",
    "SIGMOID",
    "SOFTPLUS",
    "TANH",
    "Activation",
    "gaussian_means",
]

ORDERS = 5
_NODES = 128  # tanh, the worst of those below, is right to 1e-13
_NOTHING = 1e-6  # a mean below this share of the largest counts as 0: quadrature leaves 1e-14

Function = Callable[[NDArray[np.float64]], NDArray[Any]]


@final
@dataclass(frozen=True)
class Activation:
    """What a hidden unit makes of w.x.

    Attributes:
        name: for tables.
        value: sigma.
        slope: its derivative.
        means: s_0 to s_4.
    """

    name: str
    value: Function
    slope: Function
    means: tuple[float, ...]

    @classmethod
    def of(cls, name: str, value: Function, slope: Function) -> Activation:
        """A smooth one of your own; its means by quadrature. Both functions take arrays."""
        return cls(name, value, slope, gaussian_means(value))

    def __post_init__(self) -> None:
        if len(self.means) != ORDERS or not np.isfinite(self.means).all():
            validation.fail("means", f"{ORDERS} finite numbers", self.means)

    def __str__(self) -> str:
        return self.name

    def has(self, order: int) -> bool:
        """Whether s_p is not 0, so that the moment of this order shows the inputs."""
        return abs(self.means[order]) > _NOTHING * max(abs(mean) for mean in self.means)

    @property
    def odd(self) -> bool:
        """Odd but for a constant, as far as the attack can tell: s_2 and s_4 are 0."""
        return not self.has(2) and not self.has(4)


def gaussian_means(value: Function) -> tuple[float, ...]:
    """E[sigma(z) He_p(z)] for p = 0, ..., 4, by Gauss-Hermite quadrature.

    Exact for polynomials. A kink costs digits: of |z| the first one or two are right, so that an
    activation with kinks is better given its means in closed form.
    """
    from scipy.special import eval_hermitenorm, roots_hermitenorm

    nodes, weights = roots_hermitenorm(_NODES)
    weighted = weights / weights.sum() * np.asarray(value(nodes), np.float64)
    sums = [float(weighted @ eval_hermitenorm(order, nodes)) for order in range(ORDERS)]
    return tuple(round(one, 12) + 0.0 for one in sums)


def _sigmoid(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 + 0.5 * np.tanh(z / 2)  # never overflows


def _relu(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(z, 0.0)


CUBIC = Activation.of("z^2 + z^3", lambda z: z**2 + z**3, lambda z: 2 * z + 3 * z**2)
"""The simplest one whose second and third moments both show the inputs."""

TANH = Activation.of("tanh", np.tanh, lambda z: 1 - np.tanh(z) ** 2)

SIGMOID = Activation.of("sigmoid", _sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z))

SOFTPLUS = Activation.of("softplus", lambda z: np.logaddexp(0.0, z), _sigmoid)

_PEAK = 1 / math.sqrt(2 * math.pi)  # of the normal density

RELU = Activation("relu", _relu, lambda z: (z > 0) * 1.0, (_PEAK, 0.5, _PEAK, 0.0, -_PEAK))

ACTIVATIONS = {one.name: one for one in (CUBIC, TANH, SIGMOID, SOFTPLUS, RELU)}
"""By name."""
