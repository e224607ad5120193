"""Each record's slopes and curvatures as one vector of bounded length, in whole numbers.

A record's vector is v = (g, kappa h), and becomes v / max(1, ||v|| / C) in the L1 norm (for Laplace
noise) or the L2 norm (for normal noise). Then it is written in units of C / 2^30, rounded towards
0, which makes no entry larger:

* the units of one record have length 2^30 at most, exactly: the factor is made smaller by 2^-36,
  which is more than all rounding on the way to it;
* whole numbers are added without rounding, in any order;
* a record's units are a function of that record and of public weights alone, bit for bit.

Hence **adding or removing a record moves the sum by at most 2^30 units, replacing one by at most
2^31**, for every table. A vector that is not finite counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core.sensitivity import Norm
from sfumato.learning.functional.arithmetic import added_up
from sfumato.learning.functional.expansion import Expansion

__all__ = ["UNITS", "Integers", "record_norms", "record_units", "unit_sums"]

UNITS = 2**30
"""Units of the clip norm."""

_JUST_BELOW = 1 - 2.0**-36
_LARGEST = 2**53  # sums are held within, where every whole number is a float

Integers = NDArray[np.int64]


def record_norms(expansion: Expansion, kappa: float, norm: Norm) -> Tensor:
    """(n,) the length of each record's (g, kappa h), before clipping.

    By layers: the L1 norm of all delta_i z_j is that of delta times that of z; squares likewise.
    """
    length = _sum_of_sizes if norm is Norm.L1 else _sum_of_squares
    factor = kappa if norm is Norm.L1 else kappa * kappa
    total = torch.zeros_like(expansion.deltas[0][0])
    for place, (delta, z) in enumerate(zip(expansion.deltas, expansion.before, strict=True)):
        total = total + length(delta) * length(z)
        if expansion.curvatures is not None:
            total = total + factor * (length(expansion.curvatures[place]) * length(z * z))
    return total if norm is Norm.L1 else torch.sqrt(total)


def record_units(expansion: Expansion, clip: float, kappa: float, norm: Norm) -> Integers:
    """(n, dimension): all g, then all h, of each clipped record, in units."""
    parts = [piece for matrix in _matrices(expansion, clip, kappa, norm) for piece in matrix]
    return np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts]).T


def unit_sums(expansion: Expansion, clip: float, kappa: float, norm: Norm) -> Integers:
    """(dimension,): their sum over the records, exact."""
    matrices = _matrices(expansion, clip, kappa, norm)
    return np.concatenate([np.stack([p.sum(axis=1) for p in m]).ravel() for m in matrices])


def held(sums: Integers) -> NDArray[np.float64]:
    """Exact floats; beyond 2^53, where only billions of records get, the nearer end.

    Holding brings no two sums further apart.
    """
    return np.clip(sums, -_LARGEST, _LARGEST).astype(np.float64)


def _sum_of_sizes(numbers: Tensor) -> Tensor:
    return added_up(numbers.abs())


def _sum_of_squares(numbers: Tensor) -> Tensor:
    return added_up(numbers * numbers)


def _matrices(
    expansion: Expansion, clip: float, kappa: float, norm: Norm
) -> Iterator[Sequence[Integers]]:
    """Of each layer's g, then of each layer's h: (k, n) units of every row of the matrix."""
    norms = record_norms(expansion, kappa, norm)
    finite = torch.isfinite(norms)
    # The division rounds, and so does the product with an entry: each by 2^-53 of itself.
    shares = torch.where(finite, UNITS * _JUST_BELOW / norms.clamp(min=clip), 0.0)
    for delta, z in zip(expansion.deltas, expansion.before, strict=True):
        yield _rows(delta, z, shares, finite)
    if expansion.curvatures is not None:
        for b, z in zip(expansion.curvatures, expansion.before, strict=True):
            yield _rows(b, z * z, kappa * shares, finite)


def _rows(after: Tensor, before: Tensor, shares: Tensor, finite: Tensor) -> list[Integers]:
    """Row i of the matrix: after_i times before_j, times each record's share, towards 0."""
    made = []
    for unit in after:
        entries = torch.trunc(unit * before * shares)
        made.append(torch.where(finite, entries, 0.0).to(torch.int64).numpy())
    return made
