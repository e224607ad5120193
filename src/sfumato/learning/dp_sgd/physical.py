"""From lots to physical batches: what fits in memory at a time, with identical results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Coins
from sfumato.learning.dp_sgd.lots import Lots, PoissonLots
from sfumato.learning.dp_sgd.owners import Owners, RowsAreUnits
from sfumato.learning.dp_sgd.streamed_lots import CyclicPoissonLots

__all__ = ["Part", "largest_part", "parts_of", "room_for"]

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
    """

    step: int
    rows: Positions
    weights: NDArray[np.float64]
    units: int
    last: bool


def parts_of(
    lot: Positions,
    step: int,
    owners: Owners | RowsAreUnits,
    coins: Coins,
    copies: int,
    most_rows: int | None,
) -> Iterator[Part]:
    """A lot in parts of nearly equal size, none above ``most_rows`` unless a single unit is.

    Args:
        lot: the sampled units.
        step: the lot's number.
        owners: which rows a unit holds.
        coins: to choose among a unit's rows.
        copies: how often each row is seen, differently augmented.
        most_rows: the most rows at a time.
    """
    if not len(lot):
        yield Part(step, lot, np.zeros(0), 0, last=True)
        return
    rows, weights = owners.rows_of(lot, coins)
    rows, weights = np.repeat(rows, copies, axis=1), np.repeat(weights / copies, copies, axis=1)
    most = max(1, (most_rows or rows.size) // rows.shape[1])
    bounds = np.linspace(0, len(lot), -(-len(lot) // most) + 1).round().astype(int)
    for start, stop in itertools.pairwise(bounds.tolist()):
        yield Part(
            step,
            rows[start:stop].ravel(),
            weights[start:stop].ravel(),
            stop - start,
            last=stop == len(lot),
        )


def largest_part(expected_size: float, copies: int, most_rows: int | None) -> int:
    """Units in a typical largest physical batch; public."""
    lot = max(1, round(expected_size))
    return lot if most_rows is None else min(lot, max(1, most_rows // copies))


def room_for(lots: Lots, copies: int, most_rows: int | None) -> int:
    """Units that almost every physical batch fits into: of a Poisson lot, three deviations above.

    Public, as the lots' own size is not.
    """
    expected = lots.expected_size
    sampled = isinstance(lots, (PoissonLots, CyclicPoissonLots))
    spread = 3 * math.sqrt(expected) if sampled else 0.0
    lot = max(1, math.ceil(expected + spread))
    if isinstance(lots, PoissonLots) and lots.max_size is not None:
        lot = min(lot, lots.max_size)
    return lot if most_rows is None else min(lot, max(1, most_rows // copies))
