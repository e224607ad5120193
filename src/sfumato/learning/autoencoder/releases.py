"""One layer's release: noise on the coefficients of its reconstruction objective.

    >>> layer = LayerRelease.pure(784, 25, 60_000, epsilon=1.0, neighbours=Neighbours.REPLACE_ONE)
    >>> round(layer.mechanism.sensitivity.bound), layer.event.kind
    (19600, 'laplace')
    >>> layer = LayerRelease.normal(784, 25, 60_000, multiplier=4.0)
    >>> round(layer.mechanism.sensitivity.bound, 2), layer.event.kind
    (85.73, 'gaussian')

A code h in [0, 1]^b reconstructs input j as sigmoid(z_j), z_j = h W_j. The cross-entropy of x_j and
sigmoid(z) is ln 2 + (1/2 - x_j) z + z^2 / 8 up to the third order at 0, so that the objective of
all records is, but for a constant,

    f(W) = sum_j  A_j W_j + W_j' B W_j,     A_j = sum (1/2 - x_j) h,   B = sum h h' / 8,

which is least where A_j + 2 B W_j = 0: W_j = -B^-1 A_j / 2. Only A and the upper triangle of B are
released, once and with noise for both; W and everything after it is post-processing. See
:mod:`~sfumato.learning.autoencoder.sensitivity` for how far a record moves them.

The surrogate's own least is z = 4 (x - 1/2): it is least squares for 1/2 + z/4, and an input is
therefore read off as that, cut to [0, 1], and not as sigmoid(z), which would make a white input
0.88.

The noisy B is mirrored and symmetric, but need not be positive: directions in which it is not are
left out (:func:`~sfumato.learning.erm.functional.trimmed_minimiser`), and a public ridge of the
size of the noise's eigenvalues is added to the others.

Guarantee: for the relation and the unit given, pure by Laplace noise or Gaussian, exact as in
:mod:`sfumato.mechanisms`, for every table of rows, whatever is in them and however many there are.
Sums are exact (:func:`~sfumato.learning.erm.functional.exact_sums`) and held to +-4 N; writing them
as floating-point numbers costs a public rounding, which is part of the sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from sfumato.core import validation
from sfumato.core.events import GaussianEvent, LaplaceEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.rounding import at_least_product
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.autoencoder.encoding import Encoder, Floats, on_grid
from sfumato.learning.autoencoder.sensitivity import check_relation, layer_bound, square_weight
from sfumato.learning.erm.functional import exact_sums, trimmed_minimiser
from sfumato.learning.erm.solving import MOST_ROWS
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = ["Coefficients", "LayerRelease", "decoder_of"]

_UP = 1 + 2.0**-40
_LEAST_RIDGE = 1e-6
_BESIDE_SHRINKING = 0.3  # of the ridge, where what is uncertain is shrunk already; by public digits


@final
@dataclass(frozen=True, eq=False)
class Coefficients:
    """Of a reconstruction objective, exact or noisy.

    Attributes:
        linear: A, (columns, width).
        squares: B, (width, width), symmetric.
    """

    linear: Floats
    squares: Floats


def decoder_of(found: Coefficients, strength: float = 0.0, noise: float = 0.0) -> Floats:
    """(columns, width) of W_j = -(2 B + strength I)^-1 A_j, in directions where B is positive.

    >>> one = Coefficients(np.array([[-3.0]]), np.array([[0.75]]))
    >>> decoder_of(one).tolist()
    [[2.0]]

    Along each eigenvector of B, A has d numbers, on each of which there is noise of a known
    standard deviation s; they are multiplied by 1 - d s^2 / ||.||^2, or 0 where that is negative:
    James's and Stein's estimate, so that a direction of which nothing can be seen says nothing.

    Args:
        found: as released, or exact.
        strength: a ridge.
        noise: s, public; 0 for coefficients without noise.
    """
    directions = np.linalg.eigh(np.nan_to_num(found.squares))[1]
    along = np.nan_to_num(found.linear) @ directions
    sizes = np.maximum(np.square(along).sum(axis=0), 1e-300)
    kept = np.maximum(0.0, 1 - len(along) * noise**2 / sizes)
    return trimmed_minimiser(2 * found.squares, -directions @ (along * kept).T, strength).T


@final
@dataclass(frozen=True, eq=False)
class LayerRelease:
    """What a layer releases, known before any row is read.

    Attributes:
        columns: d, of the layer's inputs.
        width: b, of its codes.
        records: N, the public number of rows.
        norm: L1 for Laplace noise, L2 for normal noise.
        amount: the epsilon of Laplace noise, or the multiplier of normal noise.
        neighbours, unit: of the guarantee.
    """

    columns: int
    width: int
    records: int
    norm: Norm
    amount: float
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def __post_init__(self) -> None:
        validation.count("columns", self.columns)
        validation.count("width", self.width)
        validation.count("records", self.records)
        validation.positive("amount", self.amount)
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        check_relation(self.neighbours)
        validation.name("unit", self.unit)

    @classmethod
    def pure(
        cls,
        columns: int,
        width: int,
        records: int,
        *,
        epsilon: float,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
        unit: str = "record",
    ) -> LayerRelease:
        """With Laplace noise, ``epsilon``-DP."""
        return cls(columns, width, records, Norm.L1, epsilon, neighbours, unit)

    @classmethod
    def normal(
        cls,
        columns: int,
        width: int,
        records: int,
        *,
        multiplier: float,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
        unit: str = "record",
    ) -> LayerRelease:
        """With normal noise, of so many times the sensitivity."""
        return cls(columns, width, records, Norm.L2, multiplier, neighbours, unit)

    # --- before any row is read -----------------------------------------------------------------

    @cached_property
    def _weights(self) -> Floats:
        """What each entry of sum h h' on or above the diagonal is multiplied by."""
        upper = np.triu_indices(self.width)
        apart = math.sqrt(2) if self.norm is Norm.L2 else 1.0
        weight = square_weight(self.columns, self.width, self.norm) / 8
        return np.where(upper[0] == upper[1], 1.0, apart) * weight

    @property
    def count(self) -> int:
        """How many numbers are released."""
        return self.columns * self.width + len(self._weights)

    @cached_property
    def rounding(self) -> float:
        """What writing and weighing the sums adds to the sensitivity: a unit for each, twice."""
        order = 1 if self.norm is Norm.L1 else 2
        factors = np.concatenate([self._weights, np.ones(self.columns * self.width)])
        return 2.0**-51 * MOST_ROWS * self.records * float(np.linalg.norm(factors, order)) * _UP

    @cached_property
    def mechanism(self) -> Gaussian | Laplace:
        """The noise on all coefficients together."""
        bound = layer_bound(self.columns, self.width, self.norm, self.neighbours)
        known = Sensitivity(
            bound * _UP + self.rounding, self.norm, self.neighbours, self.unit, self.count
        )
        if self.norm is Norm.L1:
            return Laplace.calibrate(known, epsilon=self.amount)
        return Gaussian(at_least_product(self.amount, known.bound), known)

    @property
    def event(self) -> GaussianEvent | LaplaceEvent:
        """That of the noise."""
        return self.mechanism.event

    @property
    def strength(self) -> float:
        """The ridge: twice the spread of eigenvalues of the noise on B, or 1e-6 N if greater."""
        spread = self.mechanism.standard_deviation / float(self._weights.max()) / 8
        return max(_LEAST_RIDGE * self.records, 2 * spread * math.sqrt(self.width))

    @property
    def facts(self) -> dict[str, Any]:
        """Sensitivity and noise, for the record; public."""
        noise = self.mechanism
        return {
            "inputs": self.columns,
            "codes": self.width,
            "sensitivity": noise.sensitivity.bound,
            "noise": "laplace" if isinstance(noise, Laplace) else "gaussian",
            "noise_scale": noise.scale if isinstance(noise, Laplace) else noise.sigma,
            "noise_on": f"{self.count} coefficients",
            "weight_of_squares": square_weight(self.columns, self.width, self.norm),
            "ridge": self.strength,
            "arithmetic": "sums exact, released on a public grid, noise exact",
        }

    # --- rows -----------------------------------------------------------------------------------

    def told(self, inputs: Floats, codes: Floats) -> Floats:
        """What noise is added to: A, then the weighed upper triangle of sum h h'."""
        upper, most = np.triu_indices(self.width), MOST_ROWS * self.records
        linear = exact_sums(0.5 - on_grid(inputs), codes, most)
        return np.concatenate(
            [linear.ravel(), exact_sums(codes, codes, most)[upper] * self._weights]
        )

    def read(self, told: Floats) -> Coefficients:
        """The coefficients that such numbers stand for; B is mirrored."""
        size = self.columns * self.width
        squares = np.zeros((self.width, self.width))
        squares[np.triu_indices(self.width)] = told[size:] / self._weights / 8
        mirrored = np.triu(squares) + np.triu(squares, 1).T
        return Coefficients(told[:size].reshape(self.columns, self.width), mirrored)

    def release(self, inputs: Floats, encoder: Encoder, coins: Coins) -> Coefficients:
        """Noisy coefficients, which may be shown; a total function of the rows.

        Args:
            inputs: (n, columns) in [0, 1].
            encoder: fixed before: public, or made of earlier releases.
            coins: where noise comes from.
        """
        told = self.told(inputs, encoder.codes(inputs))
        return self.read(np.asarray(self.mechanism.perturb(told, coins=coins)))

    def decoder(self, found: Coefficients) -> Floats:
        """(columns, width) weights from noisy coefficients: post-processing, never fails."""
        ridge = _BESIDE_SHRINKING * self.strength
        return decoder_of(found, ridge, self.mechanism.standard_deviation)
