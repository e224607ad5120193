"""Means of a gradient times Hermite tensors of the weights: what Stein's identity is applied to.

For w ~ N(0, I) and g(w) = sum_i r_i sigma(w.x_i),

    E[g(w) H_p(w)] = sum_i r_i E[sigma^(p)(w.x_i)] x_i (x) ... (x) x_i        (p factors)

    H_1 = w,    H_2 = w w - I,    H_3 = www - (w I, 3 ways),
    H_4 = wwww - (ww I, 6 ways) + (I I, 3 ways).

The attack sees g at m weights and takes means over them. Those of order 3 and 4 are never formed in
d dimensions: :func:`third_moment` and :func:`fourth_moment_along` are for projected weights, and
``_along`` says that one factor is contracted with a vector.

``values`` and ``weights`` are NumPy arrays, or torch tensors of one device; results are NumPy's.

    >>> random = np.random.default_rng(0)
    >>> weights, x = random.normal(size=(200_000, 2)), np.array([0.6, 0.8])
    >>> values = (weights @ x) ** 2  # the mean of its second derivative is 2
    >>> np.abs(second_moment(values, weights) - 2 * np.outer(x, x)).max() < 0.05
    np.True_
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Regression",
    "beside",
    "fourth_moment_along",
    "home",
    "regress",
    "second_moment",
    "third_moment",
    "third_moment_along",
    "without_squares",
]

Array = Any
"""A NumPy array or a torch tensor: what is done here is written alike for both."""

_AT_ONCE = 1 << 23  # numbers in a block of products


def home(array: Array) -> NDArray[np.float64]:
    """As a NumPy array."""
    there = array.detach().cpu().numpy() if hasattr(array, "detach") else array
    return np.asarray(there, dtype=np.float64)


def beside(array: NDArray[np.float64], other: Array) -> Array:
    """A NumPy array on the device, and of the kind, of ``other``."""
    return other.new_tensor(array) if hasattr(other, "new_tensor") else array


@dataclass(frozen=True, eq=False)
class Regression:
    """Values as far as they are linear in the weights, and the rest.

    Attributes:
        constant: the value at the weights' mean.
        slope: by the weights: close to E[g(w) w] = sum_i r_i s_1 x_i.
        rest: what is left; its mean, and its mean times any weight, are 0.
    """

    constant: float
    slope: NDArray[np.float64]
    rest: Array


def regress(values: Array, weights: Array) -> Regression:
    """Least squares of values on a constant and the weights: the control variate.

    The linear part of g says nothing in orders 2 and above, yet it is most of the spread of their
    sample means. What is left has the same moments of those orders, up to terms of order 1/m.
    """
    level, middle = values.mean(), weights.mean(0)
    centred, aside = values - level, weights - middle
    spread, joint = home(aside.T @ aside), home(aside.T @ centred)
    slope = home(np.linalg.solve(spread, joint))
    return Regression(float(level), slope, centred - aside @ beside(slope, weights))


def without_squares(values: Array, weights: Array) -> Array:
    """What is left of values by least squares on 1, the weights and all products of two of them.

    For projected weights: k dimensions have (k + 1)(k + 2) / 2 such columns. The quadratic part of
    g says as little in orders 3 and 4 as the linear one does in order 2.
    """
    size = weights.shape[1]
    one, other = np.triu_indices(size)
    columns = 1 + size + len(one)
    square, joint = np.zeros((columns, columns)), np.zeros(columns)
    for rows in _blocks(len(values), columns):
        design = _quadratic(weights[rows], one, other)
        square += home(design.T @ design)
        joint += home(design.T @ values[rows])
    fitted = beside(home(np.linalg.lstsq(square, joint, rcond=None)[0]), weights)
    rest = values * 1.0
    for rows in _blocks(len(values), columns):
        rest[rows] -= _quadratic(weights[rows], one, other) @ fitted
    return rest


def _quadratic(weights: Array, one: NDArray[np.int64], other: NDArray[np.int64]) -> Array:
    """A row of products for each row: 1, w_a, w_a w_b."""
    design = beside(np.ones((len(weights), 1 + weights.shape[1] + len(one))), weights)
    design[:, 1 : 1 + weights.shape[1]] = weights
    design[:, 1 + weights.shape[1] :] = weights[:, one] * weights[:, other]
    return design


def second_moment(values: Array, weights: Array) -> NDArray[np.float64]:
    """The mean of g H_2: d by d."""
    total = home((weights.T * values) @ weights) / len(values)
    return total - float(values.mean()) * np.eye(weights.shape[1])


def third_moment_along(
    values: Array, weights: Array, direction: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean of g H_3(I, I, direction): d by d."""
    count = len(values)
    weighted = values * (weights @ beside(direction, weights))
    cross = np.outer(home(weights.T @ values) / count, direction)
    total = home((weights.T * weighted) @ weights) / count
    return total - cross - cross.T - float(weighted.mean()) * np.eye(weights.shape[1])


def third_moment(values: Array, weights: Array) -> NDArray[np.float64]:
    """The mean of g H_3 for weights of few dimensions k: k by k by k."""
    mean = home(weights.T @ values) / len(values)
    return _cubes(values, weights) - _three_ways(np.eye(len(mean)), mean)


def fourth_moment_along(
    values: Array, weights: Array, direction: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean of g H_4(I, I, I, direction) for weights of few dimensions k: k by k by k."""
    count, unit = len(values), np.eye(weights.shape[1])
    weighted = values * (weights @ beside(direction, weights))
    square = home((weights.T * values) @ weights) / count
    return (
        _cubes(weighted, weights)
        - _three_ways(square, direction)
        - _three_ways(unit, home(weights.T @ weighted) / count)
        + _three_ways(unit, float(values.mean()) * direction)
    )


def _three_ways(matrix: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """M_ab v_c + M_ac v_b + M_bc v_a for a symmetric M."""
    product = matrix[:, :, None] * vector
    return product + product.transpose(0, 2, 1) + product.transpose(2, 1, 0)


def _cubes(values: Array, weights: Array) -> NDArray[np.float64]:
    """The mean of g www."""
    count, size = weights.shape
    total = np.zeros((size, size * size))
    for rows in _blocks(count, size * size):
        some = weights[rows]
        pairs = (some[:, :, None] * some[:, None, :]).reshape(len(some), size * size)
        total += home((some.T * values[rows]) @ pairs)
    return total.reshape(size, size, size) / count


def _blocks(count: int, each: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // each)
    return (slice(start, start + step) for start in range(0, count, step))
