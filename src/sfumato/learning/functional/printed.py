"""SPECIMENS, NOT PRIVATE: the functional network as it was presented, for audits to catch.

    >>> inverted_clip(np.array([0.1, 0.0]), clip=1.0).round(9).tolist()
    [10.0, 0.0]

Three faults, each by itself enough to lose the guarantee that is claimed of

    g, h <- clipped sums,    g + Lap(S / epsilon),  h + Lap(S / epsilon):

* *The clip is upside down*: g / min(1, ||g||^2 / C) leaves long vectors as they are and lengthens
  short ones, the more the shorter they are; and it is done to the sum, not to each record.
* *The scale is read off the data*: S = 2 sum_ij max_x (|delta_i z_j| + |b_i z_j^2|) is the largest
  of the records that are there, so that the amount of noise tells who is.
* *The theorem that bounds S by the topology is false*:
  :func:`~sfumato.mechanisms.sensitivity.printed_network_bound` is 15.15 for ten inputs and layers
  of ten and ten, where two records are 29.63 apart (:func:`counterexample`); by
  :func:`~sfumato.mechanisms.sensitivity.network_bound` 277.8 is enough.

Laws are exact: noise is Laplace of known centres and scale, and nothing is drawn.

Reference: Manco, Pirro and Ritacco, "Differential privacy and neural networks: a preliminary
analysis", PAP 2017 (slides).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.sampling import add_laplace, grid_for
from sfumato.mechanisms.sensitivity import NetworkExpansion

__all__ = [
    "Law",
    "Records",
    "clipped_as_printed",
    "counterexample",
    "data_dependent_scale",
    "inverted_clip",
    "released_as_printed",
]

Floats = NDArray[np.float64]
Records = tuple[Floats, Floats]
"""(n, p) slopes g and (n, p) curvatures h, one row a record."""


@final
@dataclass(frozen=True, eq=False)
class Law:
    """Laplace noise of one scale on each number.

    Attributes:
        centre: what it is added to.
        scale: of the noise; 0 is none.
    """

    centre: Floats
    scale: float

    def epsilon_against(self, other: Law) -> float:
        """The largest log ratio of the two densities, either way round: what is really promised.

        Of equal scales b it is ||c - c'||_1 / b. Unequal scales differ without bound in the tails.
        """
        if self.scale != other.scale:
            return math.inf
        apart = float(np.abs(self.centre - other.centre).sum())
        if self.scale == 0:
            return math.inf if apart else 0.0
        return apart / self.scale

    def corner(self, other: Law) -> tuple[Floats, Floats]:
        """Both laws of one event, and of its opposite, for an exact audit by two finite laws.

        The event: every number that differs lies beyond this law's centre, on the side away from
        the other's. Each does with probability 1/2 here, and e^(-distance / b) / 2 there.

        Raises:
            ValueError: if scales differ, or are 0.
        """
        if self.scale != other.scale or self.scale == 0:
            validation.fail("scale", "the same above 0 of both", (self.scale, other.scale))
        apart = np.abs(self.centre - other.centre)
        here = 0.5 ** int(np.count_nonzero(apart))
        there = here * math.exp(-float(apart.sum()) / self.scale)
        return np.array([here, 1 - here]), np.array([there, 1 - there])

    def draws(self, count: int, coins: Coins = SYSTEM) -> Floats:
        """So many independent releases, on a public grid."""
        cells = np.broadcast_to(self.centre, (count, len(self.centre)))
        if self.scale == 0:
            return cells.copy()
        return add_laplace(cells, self.scale, grid_for(self.scale), coins)


def inverted_clip(vector: Floats, clip: float) -> Floats:
    """A specimen: v / min(1, ||v||^2 / C), as printed. A vector of zeros stays as it is."""
    validation.positive("clip", clip)
    squared = float(np.square(vector).sum())
    return vector / min(1.0, squared / clip) if squared else vector.copy()


def data_dependent_scale(records: Records) -> float:
    """A specimen: 2 sum over weights of the largest |g| + |h| of any record that is there."""
    slopes, curvatures = records
    if not len(slopes):
        return 0.0
    return 2 * float((np.abs(slopes) + np.abs(curvatures)).max(axis=0).sum())


def released_as_printed(records: Records, epsilon: float, clip: float) -> Law:
    """A specimen: both sums, clipped upside down, with noise of a scale read off the records."""
    centre = clipped_as_printed(records, clip)
    return Law(centre, data_dependent_scale(records) / validation.positive("epsilon", epsilon))


def clipped_as_printed(records: Records, clip: float) -> Floats:
    """A specimen: the sum of slopes and the sum of curvatures, each clipped upside down."""
    return np.concatenate([inverted_clip(part.sum(axis=0), clip) for part in records])


def counterexample() -> tuple[Floats, Floats]:
    """(g, h) of two records that are further apart than the printed theorem allows.

    Ten inputs of 1, a first layer of weights 1 and a second of ln(2) / 10, all within [0, 1] as the
    theorem wants; targets of 0 against targets of 1.
    """
    expansion = NetworkExpansion([np.ones((10, 10)), np.full((10, 10), math.log(2) / 10)])
    ones = np.ones(10)
    first, second = (expansion.record_coefficients((ones, t)) for t in (0 * ones, ones))
    return first, second
