"""Functions of each number by itself, to the last bit, whoever stands beside it.

    >>> import torch
    >>> logistic(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
    [0.5, 0.7310585786300049]

A sum over records has the sensitivity of one record only if the others' parts stay as they are when
one comes or goes. Matrix products and the exponentials of mathematical libraries may round a row
differently from one place in a batch to another. Here is nothing but +, -, *, / and comparisons,
which IEEE 754 rounds in one way, on each record by itself and in a fixed order; so a record's part
is a function of the record, bit for bit.

All arrays are (numbers, records) in double precision.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["added_up", "exponential", "hyperbolic_tangent", "logistic", "softmax", "weighed"]

_LEAST = -700.0  # below, e^x counts as e^-700
_LN2_HIGH = math.floor(math.log(2) * 2**32) / 2**32  # times a whole number up to 2^20: exact
_LN2_LOW = 1.9082149292705877e-10  # the rest of ln 2
_POWERS = torch.tensor([2.0**-k for k in range(1023)], dtype=torch.float64)
_TAYLOR = [1 / math.factorial(k) for k in range(14)]


def exponential(x: Tensor) -> Tensor:
    """e^x of numbers that are 0 or below, to some units in the last place.

    x = r - k ln 2 with |r| <= (ln 2)/2, where 13 terms of Taylor's series are enough. Of
    what is no number nothing comes, and no error either.
    """
    x = x.clamp(_LEAST, 0.0)
    k = torch.nan_to_num(torch.round(x * (-1 / math.log(2))), nan=0.0)
    r = (x + k * _LN2_HIGH) + k * _LN2_LOW
    series = torch.full_like(r, _TAYLOR[-1])
    for term in reversed(_TAYLOR[:-1]):
        series = series * r + term
    return series * _POWERS[k.long()]


def logistic(x: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    small = exponential(-x.abs())
    return torch.where(x >= 0, 1 / (1 + small), small / (1 + small))


def hyperbolic_tangent(x: Tensor) -> Tensor:
    """The hyperbolic tangent, to 1e-15 or so."""
    small = exponential(-2 * x.abs())
    size = (1 - small) / (1 + small)
    return torch.where(x >= 0, size, -size)


def added_up(numbers: Tensor) -> Tensor:
    """The sum over the first axis, one after the other."""
    total = torch.zeros_like(numbers[0])
    for number in numbers:
        total = total + number
    return total


def weighed(weights: Tensor, numbers: Tensor) -> Tensor:
    """The matrix product of (m, k) public weights and (k, n) numbers, column by column."""
    total = torch.zeros(len(weights), numbers.shape[1], dtype=torch.float64)
    for column, row in zip(weights.T, numbers, strict=True):
        total = total + column[:, None] * row
    return total


def softmax(scores: Tensor) -> Tensor:
    """Probabilities over the first axis."""
    parts = exponential(scores - scores.amax(dim=0))
    return parts / added_up(parts)
