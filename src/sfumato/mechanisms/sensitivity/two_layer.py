"""The gradient of a two-layer network, and how much noise it takes to hide one record in it.

For public weights Theta = (a, W), m hidden units and d inputs, lecture notes by Lei (2024, section
4) release G = sum_i grad L(Theta; x_i, y_i), L = (sum_j a_j s(w_j . x) - y)^2. With the residual
r = sum_j a_j s(w_j . x) - y the blocks of one record's gradient are

    dL/da_j = 2 r s(w_j . x),        dL/dw_j = 2 r a_j s'(w_j . x) x,

hence its L1 norm is exactly

    2 |r| ( ||s(W x)||_1 + sum_j |a_j s'(w_j . x)| ||x||_1 ).

==============  =======================================================  ==================
symbol          here                                                     in the notes
==============  =======================================================  ==================
m, d            ``hidden``, ``input_dimension``                          m (also n), d
a, W            ``output_weights``, ``hidden_weights``                   a_j, w_j
s               ``activation``                                           sigma
R, A, S, L      bounds on |r|, |a_j|, |s|, |s'|                          all folded into C
==============  =======================================================  ==================

What is printed differs: the 2 of the square and the a_j of the second block are missing, and the
two records of (4.9) have become one in (4.10). ``printed_*`` keep that version as specimens for
:func:`~sfumato.mechanisms.sensitivity.falsify`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.sensitivity import values
from sfumato.mechanisms.sensitivity.values import Vector

__all__ = [
    "Activation",
    "PrintedTwoLayerGradient",
    "TwoLayerGradient",
    "printed_two_layer_bound",
    "two_layer_bound",
]


class Activation(StrEnum):
    """An activation function that is 1-Lipschitz."""

    SIGMOID = "sigmoid"
    TANH = "tanh"
    RELU = "relu"


def _sigmoid(z: Vector) -> Vector:
    return (1 + np.tanh(z / 2)) / 2


_FUNCTIONS: dict[Activation, tuple[Callable[[Vector], Vector], Callable[[Vector], Vector]]] = {
    Activation.SIGMOID: (_sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z)),
    Activation.TANH: (np.tanh, lambda z: 1 - np.square(np.tanh(z))),
    Activation.RELU: (lambda z: np.maximum(z, 0.0), lambda z: (z > 0).astype(np.float64)),
}


@dataclass(frozen=True, eq=False)
class TwoLayerGradient:
    """The sum over records of the gradient, each scaled down to an L1 norm of at most C.

    A record is a pair (x, y). Clipped, it contributes a vector of L1 norm at most C: C if present,
    absent or blanked out, and 2 C if replaced, attained by turning the sign of the residual.
    Nothing about the data or the weights is assumed. A record that is no such pair, or whose
    gradient is not finite, contributes the zero vector.

    Attributes:
        hidden_weights: W, of shape (m, d), public.
        output_weights: a, of shape (m,), public.
        clip: C, public.
        activation: s.

    Example:
        >>> gradient = TwoLayerGradient([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], clip=0.5)
        >>> gradient.sensitivity("replace-one").bound, gradient.dimension
        (1.0, 6)
        >>> gradient([((0.6, 0.8), 1.0), "no record"]).shape
        (6,)
    """

    hidden_weights: ArrayLike
    output_weights: ArrayLike
    clip: float
    activation: Activation = Activation.SIGMOID

    def __post_init__(self) -> None:
        hidden = public_array("hidden_weights", self.hidden_weights, 2)
        output = public_array("output_weights", self.output_weights, 1)
        if len(output) != len(hidden):
            validation.fail("output_weights", f"{len(hidden)} numbers, one a unit", output.shape)
        clip = validation.positive("clip", self.clip)
        object.__setattr__(self, "hidden_weights", hidden)
        object.__setattr__(self, "output_weights", output)
        object.__setattr__(self, "clip", values.bounds(-clip, clip)[1])
        activation = validation.choice("activation", self.activation, Activation)
        object.__setattr__(self, "activation", activation)

    @property
    def dimension(self) -> int:
        """How many numbers, m (d + 1): the gradient in a, then in the rows of W."""
        return int(np.size(self.output_weights) + np.size(self.hidden_weights))

    def record_gradient(self, record: Any) -> Vector:
        """One record's gradient before clipping; zeros for a record that has none."""
        with np.errstate(all="ignore"):
            x, residual, fired, slopes = self.forward(record)
            inner = np.outer(np.asarray(self.output_weights) * slopes, x)
            gradient = 2 * residual * np.concatenate((fired, inner.ravel()))
        return gradient if np.isfinite(gradient).all() else np.zeros(self.dimension)

    def record_norm(self, record: Any) -> float:
        """The L1 norm of :meth:`record_gradient` by the formula above, in O(m + d) operations."""
        x, residual, fired, slopes = self.forward(record)
        inner = np.abs(np.asarray(self.output_weights) * slopes).sum() * np.abs(x).sum()
        return float(2 * abs(residual) * (np.abs(fired).sum() + inner))

    def forward(self, record: Any) -> tuple[Vector, float, Vector, Vector]:
        """A record's x, r, s(W x) and s'(W x); r is NaN for a record that is no pair (x, y)."""
        hidden = np.asarray(self.hidden_weights)
        x, y = _pair(record, hidden.shape[1])
        function, derivative = _FUNCTIONS[self.activation]
        before = hidden @ x
        fired = function(before)
        return x, float(np.asarray(self.output_weights) @ fired) - y, fired, derivative(before)

    def __call__(self, data: Iterable[Any], /) -> Vector:
        """The sum of the clipped gradients."""
        gradients = (self.record_gradient(record) for record in values.present(data))
        clipped = (values.clip(gradient, Norm.L1, self.clip) for gradient in gradients)
        return values.total(clipped, self.dimension)

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """C in L1, twice that under replace-one; the same number bounds the other norms."""
        present = Sensitivity(self.clip, Norm.L1, dimension=self.dimension)
        return present.under(neighbours).to(norm or Norm.L1)


def two_layer_bound(
    hidden: int,
    input_dimension: int,
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
    *,
    residual_bound: float = 1.0,
    weight_bound: float = 1.0,
    activation_bound: float = 1.0,
    lipschitz: float = 1.0,
    radius: float = 1.0,
) -> Sensitivity:
    """The L1 bound on the *unclipped* gradient sum that public bounds imply: O(m sqrt(d)).

    2 R (m S + m A L rho sqrt(d)), from ||x||_1 <= sqrt(d) ||x||_2; twice that under replace-one.
    Every bound must really hold. |r| <= 1 does not follow from |a_j| <= 1: without a limit of its
    own the residual reaches m A S + |y|, and the sensitivity O(m^2 sqrt(d)). So clip instead
    (:class:`TwoLayerGradient`); this bound shows what not clipping costs.

    Args:
        hidden: m.
        input_dimension: d.
        neighbours: the relation.
        residual_bound: R >= |r|.
        weight_bound: A >= |a_j|.
        activation_bound: S >= |s|; 0 leaves out the gradient in a, if it is not released.
        lipschitz: L >= |s'|.
        radius: rho >= ||x||_2.

    Example:
        A thousand units on MNIST: 56,000 for the gradient in W, a standard deviation of 79,196 at
        epsilon 1 on numbers that a clip of 1 keeps below 1.

        >>> weights = two_layer_bound(1000, 784, activation_bound=0).bound
        >>> weights, round(math.sqrt(2) * weights)
        (56000.0, 79196)
        >>> two_layer_bound(1000, 784).bound, two_layer_bound(1000, 784, "replace-one").bound
        (58000.0, 116000.0)
    """
    hidden = validation.count("hidden", hidden)
    width = validation.count("input_dimension", input_dimension)
    residual = validation.positive("residual_bound", residual_bound)
    weight = validation.positive("weight_bound", weight_bound)
    fired = validation.non_negative("activation_bound", activation_bound)
    slope = validation.positive("lipschitz", lipschitz)
    longest = validation.positive("radius", radius) * math.sqrt(width)
    record = 2 * residual * hidden * (fired + weight * slope * longest)
    return Sensitivity(record, Norm.L1, dimension=hidden * (width + 1)).under(neighbours)


def printed_two_layer_bound(
    hidden: int, input_dimension: int, *, constant: float = 1.0, failure: float = 0.05
) -> float:
    """SPECIMEN, NOT A BOUND: equation (4.10) of the notes, C m log(m / s) + C m sqrt(d).

    Claimed for replace-one. The undefined n is read as m; s is ``failure``. Besides the factors
    that are missing, it holds only with probability 1 - s over the data, and differential privacy
    has no such exception.
    """
    return constant * hidden * (math.log(hidden / failure) + math.sqrt(input_dimension))


@dataclass(frozen=True, eq=False)
class PrintedTwoLayerGradient:
    """SPECIMEN, NOT PRIVATE: clips by the gradient's norm as the notes print it.

    |r| (||s(W x)||_1 + sum_j |s'(w_j . x)| ||x||_1) misses the 2 and the a_j, so what is "clipped
    to C" has an L1 norm of up to 2 max(1, max_j |a_j|) C.

    Attributes:
        correct: the function it should have been.
    """

    correct: TwoLayerGradient

    def __call__(self, data: Iterable[Any], /) -> Vector:
        """The sum of the gradients, clipped by the wrong norm."""
        clipped = (self._clipped(record) for record in values.present(data))
        return values.total(clipped, self.correct.dimension)

    def _clipped(self, record: Any) -> Vector:
        factor = max(1.0, self.printed_norm(record) / self.correct.clip)
        return self.correct.record_gradient(record) / factor

    def printed_norm(self, record: Any) -> float:
        """The norm as printed."""
        x, residual, fired, slopes = self.correct.forward(record)
        inner = np.abs(slopes).sum() * np.abs(x).sum()
        return float(abs(residual) * (np.abs(fired).sum() + inner))


def _pair(record: Any, width: int) -> tuple[Vector, float]:
    """A record's x and y; zeros and NaN for one that is no such pair."""
    members = values.take(record, 3)
    x = values.as_vector(members[0], width) if len(members) == 2 else None
    return (np.zeros(width), math.nan) if x is None else (x, values.as_number(members[1]))


def public_array(name: str, value: ArrayLike, axes: int) -> Vector:
    """A read-only copy of public weights: within 1e100, not empty, with that many axes."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        validation.fail(name, "numbers", value)
    if array.ndim != axes or not array.size or not (np.abs(array) <= 1e100).all():
        validation.fail(name, f"numbers within 1e100 in an array of {axes} axes", value)
    array.setflags(write=False)
    return array
