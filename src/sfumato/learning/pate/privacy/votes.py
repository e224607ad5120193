"""Votes as the analysis reads them: sorted counts, and what one neighbour step does to them.

Votes are an array of one row for each question and one column for each class; a single question may
be one row. Counts that are not finite or below 0 count as 0: votes are private, and nothing about
them may cause an error. The shape is public.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.mechanisms.sampling import grid_for

__all__ = ["Floats", "as_counts", "as_grid", "as_orders", "gaps"]

Floats = NDArray[np.float64]


def as_counts(votes: ArrayLike) -> Floats:
    """(questions, classes) counts, each row in descending order."""
    counts = np.atleast_2d(np.asarray(votes, dtype=np.float64))
    if counts.ndim != 2 or counts.shape[1] < 2:
        validation.fail("votes", "(questions, classes) with two classes or more", counts.shape)
    valid = np.where(np.isfinite(counts) & (counts > 0), counts, 0.0)
    return -np.sort(-valid, axis=1)


def gaps(votes: ArrayLike) -> Floats:
    """(questions, classes - 1): how far each other class lies behind the first, nearest first."""
    counts = as_counts(votes)
    return counts[:, :1] - counts[:, 1:]


def as_orders(orders: Sequence[float] | Floats) -> Floats:
    """RDP orders, each above 1."""
    given = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if given.ndim != 1 or not given.size or not (np.isfinite(given) & (given > 1)).all():
        validation.fail("orders", "finite numbers above 1", orders)
    return given


def as_grid(grid: float | None, scale: float) -> float:
    """The grid noisy counts are rounded to; 0 for ideal noise, by default the samplers' own."""
    return grid_for(scale) if grid is None else validation.non_negative("grid", grid)
