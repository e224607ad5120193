"""Noisy records as a game for an audit: one record or another, and what is told of it.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = record_game(epsilon=2.0, coins=SeededCoins(1))
    >>> game.guarantee
    Guarantee: epsilon 2, delta 0, replace one record
    >>> game.draw(game.records[0], 3).shape
    (3, 3)

The auditor makes up shares of two inputs and two records that differ as much as they can: in both
inputs, by their whole range, and in the label. A record is told by the code that a run calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.adaptive_laplace.inputs import NoisyInputs
from sfumato.learning.adaptive_laplace.labels import NoisyLabels

__all__ = ["RecordGame", "Rows", "record_game"]

Rows = tuple[tuple[float, ...], int]


@final
@dataclass(frozen=True, eq=False)
class RecordGame:
    """What is told of one record.

    Attributes:
        guarantee: what is promised: of inputs and label together.
        records: two, as far apart as can be: inputs, and a label.
        draw: ``draw(record, count)``: so many independent reports of a record, each a row.
    """

    guarantee: Guarantee
    records: tuple[Rows, Rows]
    draw: Callable[[Any, int], NDArray[np.float64]]


def record_game(
    *,
    epsilon: float,
    label_share: float = 0.5,
    shares: tuple[float, ...] = (1.5, 0.5),
    coins: Coins = SYSTEM,
) -> RecordGame:
    """The game of one record with two classes.

    Args:
        epsilon: of inputs and label together.
        label_share: of it, for the label.
        shares: beta; they add up to their number.
        coins: where noise comes from; seeded in tests only.
    """
    share = validation.open_probability("label_share", label_share)
    inputs = NoisyInputs((1 - share) * epsilon, shares)
    labels = NoisyLabels(share * epsilon, 2)

    def draw(record: Rows, count: int) -> NDArray[np.float64]:
        rows = np.tile(np.array(record[0]), (count, 1))
        told = inputs.perturb(rows, coins=coins).astype(np.float64)
        reports = labels.perturb(np.full(count, record[1]), coins=coins)
        return np.column_stack([told, reports])

    size = inputs.inputs
    records: tuple[Rows, Rows] = ((0.0,) * size, 0), ((1.0,) * size, 1)
    return RecordGame(Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE), records, draw)
