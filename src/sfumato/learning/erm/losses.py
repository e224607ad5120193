"""Losses of a linear model, with every constant that privacy depends on.

A record is a row x of length 1 at most and a target. With weights W (a column for each output) its
loss is l(z; target), z = x W, so the gradient is the *slope* s = dl/dz times x: one direction x, in
as many copies as there are outputs. All that noise is calibrated to follows from the slopes:

================  ==================================================================================
``lipschitz``     G, the greatest length of a slope, hence of one record's gradient
``at_zero``       the greatest loss of a record at z = 0
``smoothness``    beta, the greatest eigenvalue of the curvature d^2 l / dz^2
``corners``       how many points, and how long, whose convex hull (with 0) holds all slopes that
                  one record with a known target can have
``log_volume``    ln det(I + curvature / Lambda) at most: how far one record changes the volume that
                  the map from noise to minimisers stretches by
``rounding``      by how many units in the last place a computed slope is off
================  ==================================================================================

Slopes are computed in whatever arithmetic z comes in: double precision, numpy's long one, or
mpmath's numbers in an array of objects.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import mpmath
import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["NARROWEST", "HuberHinge", "HuberSquare", "Loss", "SimplexLogistic"]

Floats = NDArray[np.float64]

_INSIDE = 1 - 2.0**-50  # more than the rounding of a code
NARROWEST = 0.01
"""The least width of a hinge: the steps that a solver may need grow like its root's inverse."""


def _exponential(z: Any) -> Any:
    if z.dtype != object:
        return np.exp(z)
    return np.frompyfunc(mpmath.exp, 1, 1)(z)


@dataclass(frozen=True)
class Loss(ABC):
    """A convex loss of the outputs z of a linear model, a record a row. Subclasses are final."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many numbers z has."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """G."""

    @property
    @abstractmethod
    def at_zero(self) -> float:
        """The greatest loss at z = 0."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Beta."""

    @property
    @abstractmethod
    def corners(self) -> tuple[tuple[int, float], ...]:
        """(how many, how long)."""

    @abstractmethod
    def log_volume(self, strength: float) -> float:
        """An upper bound, for a regulariser (``strength`` / 2) ||W||^2 of the sum of losses."""

    @abstractmethod
    def rounding(self, columns: int, radius: float) -> float:
        """By how much a slope computed at x W is off, ||W|| <= ``radius``, in units (2^-52).

        Sums of k terms err by k units of the sum of absolute values, whatever their order.
        """

    @abstractmethod
    def values(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """(n,) losses."""

    @abstractmethod
    def slopes(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """(n, outputs) of dl/dz."""

    @abstractmethod
    def curvatures(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """(n, outputs, outputs) of d^2 l / dz^2."""


@final
@dataclass(frozen=True)
class SimplexLogistic(Loss):
    """Multinomial logistic loss, with classes at the corners of a regular simplex of edge 1.

    Class k of K has a code q_k in K - 1 dimensions, any two of them 1 apart, and the logit q_k . z.
    (Soft-max models are the same up to a constant added to all logits, which changes nothing and
    would only be one more thing to noise.) For two classes codes are -1/2 and 1/2: ordinary
    logistic regression on z.

    With p the soft-max of the logits, the slope is sum_k p_k q_k - q_y: a mean of the differences
    q_k - q_y, which are 0 and K - 1 corners of length 1. So G = 1, whatever K. The curvature is the
    covariance of the codes under p: along any direction they lie within 1 of each other, so that no
    eigenvalue exceeds 1/4 (Popoviciu), and its trace is half the sum of p_j p_k over j != k, that
    is (1 - sum p_k^2) / 2 <= (K - 1) / 2K. The K - 1 factors 1 + mu_j / Lambda have
    the greatest product for equal mu_j (arithmetic and geometric mean):

        ln det(I + curvature / Lambda) <= (K - 1) ln(1 + 1 / (2 K Lambda)),

    reached where all classes are equally likely; ln(1 + 1/(4 Lambda)) for two.

    Codes are taken to be the floating-point numbers that :attr:`codes` has, which are a hair less
    than 1 apart: all of this is true of them as they are.

    Attributes:
        classes: K.
    """

    classes: int = 2

    @property
    def codes(self) -> Floats:
        """(K, K - 1) corners: Helmert's matrix without its constant row, over the root of 2."""
        k = self.classes
        made = np.zeros((k, k - 1))
        for j in range(1, k):
            made[:j, j - 1] = -1
            made[j, j - 1] = j
            made[:, j - 1] /= math.sqrt(2 * j * (j + 1))
        return made * _INSIDE

    @property
    def outputs(self) -> int:
        """K - 1."""
        return self.classes - 1

    @property
    def lipschitz(self) -> float:
        """1."""
        return 1.0

    @property
    def at_zero(self) -> float:
        """Ln K."""
        return math.log(self.classes)

    @property
    def smoothness(self) -> float:
        """1/4."""
        return 0.25

    @property
    def corners(self) -> tuple[tuple[int, float], ...]:
        """K - 1 of length 1."""
        return ((self.classes - 1, 1.0),)

    def log_volume(self, strength: float) -> float:
        """(K - 1) ln(1 + 1 / (2 K strength))."""
        return (self.classes - 1) * math.log1p(1 / (2 * self.classes * strength))

    def rounding(self, columns: int, radius: float) -> float:
        """Of z, of K - 1 products for each logit, of K exponentials, and of their mean code.

        A logit that is off by a changes its probability by a factor of e^(+-2a) at most.
        """
        logits = (2 * self.outputs + 8) * radius
        return self.smoothness * columns * radius + logits + 4 * self.classes + 16

    def probabilities(self, z: Floats) -> Floats:
        """(n, K)."""
        logits = z @ self.codes.T
        made = _exponential(logits - logits.max(axis=1, keepdims=True))
        return made / made.sum(axis=1, keepdims=True)

    def values(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """The logarithm of sum_k e^(q_k . z) - q_y . z."""
        logits = z @ self.codes.T
        top = logits.max(axis=1)
        total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        return total - logits[np.arange(len(z)), targets]

    def slopes(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """The mean code less the record's own."""
        codes = self.codes
        return self.probabilities(z) @ codes - codes[targets]

    def curvatures(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """The covariance of codes."""
        p, codes = self.probabilities(z), self.codes
        mean = p @ codes
        squares = np.einsum("ki,kj->kij", codes, codes).reshape(self.classes, -1)
        second = (p @ squares).reshape(-1, self.outputs, self.outputs)
        return second - mean[:, :, None] * mean[:, None, :]


@final
@dataclass(frozen=True)
class HuberHinge(Loss):
    """The hinge loss of a support vector machine, rounded off over a width h on both sides of 1.

    Of the margin m = t z with t = -1 or 1: 0 above 1 + h, 1 - m below 1 - h, (1 + h - m)^2 / 4h
    between (Chapelle's). Several outputs are as many machines, one class against the others each;
    their losses add, and what is claimed is about all of them at once.

    The slope of each is between 0 and -t: one of 2^k corners, of which C(k, j) have length sqrt j.
    Curvatures are 1/2h at most, on the diagonal.

    Attributes:
        machines: 1 for two classes, else one for each class.
        width: h, from :data:`NARROWEST` to 1.

    Reference: Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk
    minimization", JMLR 12 (2011), section 3.4.2.
    """

    machines: int = 1
    width: float = 0.5

    def __post_init__(self) -> None:
        if not NARROWEST <= validation.finite("width", self.width) <= 1:
            validation.fail("width", f"from {NARROWEST} to 1", self.width)

    @property
    def outputs(self) -> int:
        """As many as machines."""
        return self.machines

    @property
    def lipschitz(self) -> float:
        """The root of the number of machines."""
        return math.sqrt(self.machines)

    @property
    def at_zero(self) -> float:
        """1 for each machine."""
        return float(self.machines)

    @property
    def smoothness(self) -> float:
        """1 / 2h."""
        return 1 / (2 * self.width)

    @property
    def corners(self) -> tuple[tuple[int, float], ...]:
        """C(k, j) of length sqrt j."""
        k = self.machines
        return tuple((math.comb(k, j), math.sqrt(j)) for j in range(1, k + 1))

    def log_volume(self, strength: float) -> float:
        """K ln(1 + 1 / (2 h strength)), of k machines."""
        return self.machines * math.log1p(self.smoothness / strength)

    def rounding(self, columns: int, radius: float) -> float:
        """Of z, of 1 + h - t z and of its quotient."""
        root = math.sqrt(self.machines)
        return self.smoothness * ((columns + 4) * radius + 8 * root) + 4 * root

    def values(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """The sum over machines; ``targets`` are (n, machines) of -1 and 1."""
        margins, h = targets * z, self.width
        middle = (1 + h - margins) ** 2 / (4 * h)
        return np.where(margins > 1 + h, 0, np.where(margins < 1 - h, 1 - margins, middle)).sum(1)

    def slopes(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """-t times a number between 0 and 1."""
        beyond = 1 - targets * z + self.width  # in this order: 1 + h alone would be rounded
        return -targets * np.clip(beyond / (2 * self.width), 0.0, 1.0)

    def curvatures(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """1 / 2h within the width."""
        within = np.abs(1 - targets * z) <= self.width
        return within[:, :, None] * np.eye(self.machines) * self.smoothness


@final
@dataclass(frozen=True)
class HuberSquare(Loss):
    """Half the squared residual up to a threshold T, linear beyond: least squares with a bound.

    The slope is the residual, held between -T and T: two corners of length T, curvature 1 at most.
    With targets between -1 and 1 and T = 2 it is least squares wherever predictions are within the
    declared range.

    Attributes:
        threshold: T.
    """

    threshold: float = 1.0

    @property
    def outputs(self) -> int:
        """1."""
        return 1

    @property
    def lipschitz(self) -> float:
        """T."""
        return self.threshold

    @property
    def at_zero(self) -> float:
        """1/2, of targets between -1 and 1."""
        return 0.5

    @property
    def smoothness(self) -> float:
        """1."""
        return 1.0

    @property
    def corners(self) -> tuple[tuple[int, float], ...]:
        """-T and T."""
        return ((2, self.threshold),)

    def log_volume(self, strength: float) -> float:
        """Ln(1 + 1 / strength)."""
        return math.log1p(1 / strength)

    def rounding(self, columns: int, radius: float) -> float:
        """Of z and of the residual."""
        return (columns + 4) * radius + 4

    def values(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """Huber's loss; ``targets`` are (n,) numbers."""
        size = np.abs(z[:, 0] - targets)
        t = self.threshold
        return np.where(size <= t, size**2 / 2, t * (size - t / 2))

    def slopes(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """The residual, held."""
        return np.clip(z - targets[:, None], -self.threshold, self.threshold)

    def curvatures(self, z: Floats, targets: NDArray[Any]) -> Floats:
        """1 up to the threshold."""
        return (np.abs(z - targets[:, None]) <= self.threshold)[:, :, None].astype(np.float64)
