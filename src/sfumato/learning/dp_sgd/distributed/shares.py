"""One lot for all ranks: drawn once, cut into shares, each rank's share into physical batches.

Guarantee. The lot is the plan's: rank 0 draws it from its own coins. Its units are dealt out like
cards (unit i to rank i mod W), so each is with exactly one rank, and the ranks' clipped sums add
up to the lot's. One unit more or less moves one rank's sum by at most C and no other rank's,
hence the total by at most C; which rank it is does not matter. (With each rank drawing for
itself, or all ranks taking the whole lot, neither would hold.)

All ranks take the same number of turns with as many units in each: where the lot does not come
out even, a share is filled up by a unit whose rows have weight 0, which contributes exactly
nothing and is not counted. So a rank without a unit does not keep others waiting.

    >>> rows, ones = np.array([[4], [7], [9]]), np.ones((3, 1))
    >>> for rank in range(2):
    ...     (part,) = share_in_parts(rows, ones, step=0, copies=1, most_rows=None,
    ...                              rank=rank, count=2)
    ...     print(part.rows, part.weights, part.present)
    [4 9] [1. 1.] 2
    [7 4] [1. 0.] 1
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sfumato.learning.dp_sgd.physical import Part

__all__ = ["largest_share", "share_in_parts"]

Table = NDArray[np.int64]


def share_in_parts(
    rows: Table,
    weights: NDArray[np.float64],
    *,
    step: int,
    copies: int,
    most_rows: int | None,
    rank: int = 0,
    count: int = 1,
) -> Iterator[Part]:
    """A rank's physical batches of a lot: of ``most_rows``, if a unit is not more; the rest last.

    One unit more leaves all of them as they are but two: the one in whose place it comes, and the
    last (:func:`~sfumato.learning.dp_sgd.draws.arrangement`).

    Args:
        rows: (units, rows of each) of the whole lot.
        weights: what each of them counts.
        step: the lot's number.
        copies: how often each row is seen, differently augmented.
        most_rows: the most rows at a time, on this rank.
        rank: whose share.
        count: of how many.
    """
    if not len(rows):
        yield Part(step, np.zeros(0, np.int64), np.zeros(0), 0, last=True)
        return
    share = -(-len(rows) // count)
    own, counted = rows[rank::count], weights[rank::count]
    filled = share - len(own)  # 0 or 1
    own = np.concatenate([own, rows[:filled]])
    counted = np.concatenate([counted, np.zeros((filled, rows.shape[1]))])
    own, counted = np.repeat(own, copies, axis=1), np.repeat(counted / copies, copies, axis=1)
    most = max(1, (most_rows or own.size) // own.shape[1])
    for start in range(0, share, most):
        stop = min(start + most, share)
        last = stop == share
        yield Part(
            step,
            own[start:stop].ravel(),
            counted[start:stop].ravel(),
            stop - start,
            last=last,
            padded=filled if last else 0,
        )


def largest_share(units: int, count: int) -> int:
    """The most that one of ``count`` ranks gets of so many units."""
    return -(-units // count)
