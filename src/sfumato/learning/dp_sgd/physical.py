"""From lots to physical batches: what fits in memory at a time, with identical results."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.core.neighbours import Neighbours
from sfumato.learning.dp_sgd.lots import Lots, PoissonLots
from sfumato.learning.dp_sgd.streamed_lots import CyclicPoissonLots

__all__ = ["Part", "largest_part", "may_be_cut", "room_for"]

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A physical batch: some of a lot's units, ``copies`` rows each, consecutive.

    Attributes:
        step: the lot's number.
        rows: (units * copies,) positions in the data.
        weights: (units * copies,) what each row's loss counts; a unit's sum to 1 at most.
        units: how many units; 0 for an empty lot.
        last: whether the lot is complete with it.
        padded: how many of the units, at the end, only fill up: their rows have weight 0.
    """

    step: int
    rows: Positions
    weights: NDArray[np.float64]
    units: int
    last: bool
    padded: int = 0

    @property
    def present(self) -> int:
        """How many of its units are the lot's."""
        return self.units - self.padded

    def without(self, rows: NDArray[np.bool_] | None) -> Part:
        """The same with weight 0 for these rows."""
        return self if rows is None else replace(self, weights=np.where(rows, 0.0, self.weights))


def largest_part(expected_size: float, copies: int, most_rows: int | None) -> int:
    """Units in a typical largest physical batch; public."""
    lot = max(1, round(expected_size))
    return lot if most_rows is None else min(lot, max(1, most_rows // copies))


def may_be_cut(
    lots: Lots, neighbours: Neighbours, copies: int, most_rows: int | None, ranks: int = 1
) -> bool:
    """Whether a row that comes may move others to another physical batch.

    Under zero-out and replace-one every row keeps its place.
    """
    if neighbours is not Neighbours.ADD_REMOVE:
        return False
    if ranks > 1 or most_rows is None:
        return ranks > 1
    return lots.max_size is None or lots.max_size > max(1, most_rows // copies)


def room_for(lots: Lots, copies: int, most_rows: int | None, ranks: int = 1) -> int:
    """Units that almost every physical batch fits into: of a Poisson lot, three deviations above.

    Public, as the lots' own size is not. With several ranks, of a rank's share.
    """
    expected = lots.expected_size
    sampled = isinstance(lots, (PoissonLots, CyclicPoissonLots))
    spread = 3 * math.sqrt(expected) if sampled else 0.0
    lot = max(1, math.ceil(expected + spread))
    if isinstance(lots, PoissonLots) and lots.max_size is not None:
        lot = min(lot, lots.max_size)
    lot = -(-lot // ranks)
    return lot if most_rows is None else min(lot, max(1, most_rows // copies))
