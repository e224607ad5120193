"""A sigmoid network's quadratic expansion, and the noise theorem that is printed for it.

FunctionalNetDP, as its slides have it, expands the squared error of a network without biases to
second order, with LeCun's diagonal in place of the Hessian, and releases per weight from unit j to
unit i

    g_ij = sum_x delta_i z_j,        h_ij = sum_x b_i z_j^2        (its equations 1 to 6).

With s_0 inputs and layers of s_1, ..., s_m units, inputs and targets in [0, 1], |sigma'| <= 1/4 and
|sigma''| <= 1/10, the terms of one record obey

    delta_m <= 0.25                            b_m <= 0.0625 + 0.1 = 0.1625
    delta_l <= 0.25 s_{l+1} delta_{l+1}        b_l <= s_{l+1} (0.1 delta_{l+1} + 0.0625 b_{l+1})

where all |w| <= 1, and |z| <= 1 makes its L1 norm at most sum_l s_l s_{l-1} (delta_l + b_l).

The printed theorem keeps one layer of that sum, leaves out s_0 and multiplies the b recursion
wrongly. It is below the truth: :func:`printed_network_bound` is a specimen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.sensitivity import values
from sfumato.mechanisms.sensitivity.two_layer import public_array
from sfumato.mechanisms.sensitivity.values import Vector

__all__ = ["NetworkExpansion", "network_bound", "printed_network_bound"]

_SLOPE, _CURVATURE = 0.25, 0.1
"""Bounds on |sigma'| and |sigma''| (the latter is at most 0.0963)."""


@dataclass(frozen=True, eq=False)
class NetworkExpansion:
    """The coefficients (g, h) of the expansion at public weights, layer by layer.

    A record is a pair (x, t) of vectors with entries in [0, 1]; entries beyond are clamped, and a
    record that is no such pair contributes the zero vector. One record contributes at most what the
    recursion above gives with the actual |w| in place of 1, so weights beyond [0, 1] are covered
    too; replacing it moves the sum by at most twice that.

    Attributes:
        weights: one matrix a layer, the l-th of shape (s_l, s_{l-1}), public.

    Example:
        >>> expansion = NetworkExpansion([np.ones((10, 10)), np.ones((10, 10))])
        >>> expansion.sensitivity("replace-one").bound == network_bound((10, 10), 10).bound
        True
    """

    weights: Sequence[ArrayLike]

    def __post_init__(self) -> None:
        layers = tuple(public_array("weights", layer, 2) for layer in self.weights)
        chained = all(a.shape[0] == b.shape[1] for a, b in itertools.pairwise(layers))
        if not layers or not chained:
            shapes = [layer.shape for layer in layers]
            validation.fail("weights", "matrices, each with a column per unit before", shapes)
        object.__setattr__(self, "weights", layers)
        self.sensitivity()  # finite, hence so are the coefficients of every table

    @property
    def _layers(self) -> list[Vector]:
        return [np.asarray(layer) for layer in self.weights]

    @property
    def dimension(self) -> int:
        """Two coefficients a weight."""
        return 2 * sum(layer.size for layer in self._layers)

    def record_coefficients(self, record: Any) -> Vector:
        """One record's part of (g, h); zeros for a record that is no pair of the right lengths."""
        pair = self._pair(record)
        if pair is None:
            return np.zeros(self.dimension)
        activations = self._forward(pair[0])
        gradients: list[Vector] = []
        curvatures: list[Vector] = []
        for before, (delta, b) in zip(
            activations[-2::-1], self._backward(activations, pair[1]), strict=True
        ):
            gradients.insert(0, np.outer(delta, before).ravel())
            curvatures.insert(0, np.outer(b, np.square(before)).ravel())
        return np.concatenate(gradients + curvatures)

    def _pair(self, record: Any) -> tuple[Vector, Vector] | None:
        members = values.take(record, 3)
        if len(members) != 2:
            return None
        x = values.as_vector(members[0], self._layers[0].shape[1])
        t = values.as_vector(members[1], self._layers[-1].shape[0])
        return None if x is None or t is None else (np.clip(x, 0, 1), np.clip(t, 0, 1))

    def _forward(self, x: Vector) -> list[Vector]:
        """The z of every layer, the input first."""
        activations = [x]
        for layer in self._layers:
            activations.append((1 + np.tanh(layer @ activations[-1] / 2)) / 2)
        return activations

    def _backward(self, activations: list[Vector], t: Vector) -> Iterable[tuple[Vector, Vector]]:
        """The delta and b of every layer, the last first (equations 2, 4, 5, 6)."""
        z = activations[-1]
        slope, curvature = _derivatives(z)
        delta, b = (z - t) * slope, np.square(slope) + (z - t) * curvature
        yield delta, b
        for layer, z in zip(self._layers[:0:-1], activations[-2:0:-1], strict=True):
            slope, curvature = _derivatives(z)
            back = layer.T @ delta
            b = curvature * back + np.square(slope) * (np.square(layer).T @ b)
            delta = slope * back
            yield delta, b

    def __call__(self, data: Iterable[Any], /) -> Vector:
        """All g, then all h, summed over the records."""
        records = (self.record_coefficients(record) for record in values.present(data))
        return values.total(records, self.dimension)

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """The L1 bound of the recursion, doubled under replace-one; safe in the other norms."""
        with np.errstate(over="ignore", invalid="ignore"):
            record = self._largest_record()
        present = Sensitivity(record, Norm.L1, dimension=self.dimension)
        return present.under(neighbours).to(norm or Norm.L1)

    def _largest_record(self) -> float:
        """The bound on one record's L1 norm; infinite or NaN for weights far too large."""
        layers = self._layers
        delta, b = _last_layer(layers[-1].shape[0])
        record = layers[-1].shape[1] * float((delta + b).sum())
        for layer, before in zip(layers[:0:-1], layers[-2::-1], strict=True):
            back, squared = np.abs(layer).T @ delta, np.square(layer).T @ b
            delta, b = _SLOPE * back, _CURVATURE * back + _SLOPE**2 * squared
            record += before.shape[1] * float((delta + b).sum())
        return record


def _derivatives(z: Vector) -> tuple[Vector, Vector]:
    """The first two derivatives of sigma, where sigma is z."""
    slope = z * (1 - z)
    return slope, slope * (1 - 2 * z)


def _last_layer(units: int) -> tuple[Vector, Vector]:
    return np.full(units, _SLOPE), np.full(units, _SLOPE**2 + _CURVATURE)


def network_bound(
    widths: Sequence[int],
    input_width: int,
    neighbours: Neighbours | str = Neighbours.REPLACE_ONE,
) -> Sensitivity:
    """The L1 bound for every network of these widths with all |w| <= 1.

    The sum over layers of s_l s_{l-1} (delta_l + b_l), doubled under replace-one. It is the bound
    of :class:`NetworkExpansion` at weights of 1, where it is largest.

    Example:
        >>> network_bound((10, 10), 10).bound, network_bound((10, 10), 784).bound
        (277.8125, 15395.0)
    """
    sizes = [validation.count("input_width", input_width), *_checked(widths)]
    delta, b = _SLOPE, _SLOPE**2 + _CURVATURE
    record = 0.0
    for after, before in itertools.pairwise(reversed(sizes)):
        record += after * before * (delta + b)
        delta, b = after * _SLOPE * delta, after * (_CURVATURE * delta + _SLOPE**2 * b)
    dimension = 2 * sum(a * b for a, b in itertools.pairwise(sizes))
    return Sensitivity(record, Norm.L1, dimension=dimension).under(neighbours)


def printed_network_bound(widths: Sequence[int]) -> float:
    """SPECIMEN, NOT A BOUND: as printed, 2 (0.25^m P + P (0.1^m + 0.001625 m)), P = prod s.

    Claimed for replace-one, weights in [0, 1] and any number of inputs. Ten inputs of 1, weights of
    1 and then ln(2) / 10, and targets of 0 against targets of 1 move the coefficients by 29.63.

    Example:
        >>> round(printed_network_bound((10, 10)), 2)
        15.15
    """
    sizes = _checked(widths)
    layers, units = len(sizes), math.prod(sizes)
    return 2 * units * (0.25**layers + 0.1**layers + 0.001625 * layers)


def _checked(widths: Sequence[int]) -> list[int]:
    sizes = [validation.count("widths", width) for width in widths]
    if not sizes:
        validation.fail("widths", "one or more whole numbers", widths)
    return sizes
