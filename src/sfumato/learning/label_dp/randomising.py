"""Randomising the labels of one stage, piece by piece, each label once.

Formal guarantee. Which labels a stage reads depends on a public seed and an order of the rows that
no label decides (:mod:`~sfumato.learning.label_dp.ordering`), and the sets that it reports within
on reports of other labels. Every label is in one piece of one stage, and a piece is
randomised at most once, in this process and in all that go on with its journal. So everything that
is ever returned is epsilon-DP for replacing one label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.randomness import Coins, SeededCoins
from sfumato.learning.label_dp.alibi import NoisyOneHot
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.label_dp.top_k import Sets, TopKResponse

__all__ = [
    "PIECE", "LabelSource", "Reporting", "Reports", "check_mechanism", "randomise_stage", "split",
]  # fmt: skip

PIECE = 2048
"""Labels that are read together, and lost together if the process is killed meanwhile."""


class Reporting(Protocol):
    """How a label is told: the mechanism, and the epsilon of a report."""

    @property
    def mechanism(self) -> str:
        """Its name."""
        ...

    @property
    def epsilon(self) -> float:
        """Of a report."""
        ...


class LabelSource(Protocol):
    """Private labels by their places: classes, as numbers from 0. Read where they are asked for."""

    def __getitem__(self, places: Any, /) -> NDArray[Any]: ...


@final
@dataclass(frozen=True, eq=False)
class Reports:
    """What is known of one stage's labels. Released.

    Attributes:
        rows: the numbers of the rows that have a report.
        told: a class for each, or a noisy vector.
        likelihood: (rows, classes) of what was told under each class, up to a factor.
        lost: labels without a report, their piece having been cut off.
    """

    rows: NDArray[np.int64]
    told: NDArray[Any]
    likelihood: NDArray[np.float64]
    lost: int


def split(count: int, shares: tuple[float, ...], seed: int) -> list[NDArray[np.int64]]:
    """The rows of each stage: by a public seed, never by a label; rising numbers.

    >>> [part.tolist() for part in split(5, (0.6, 0.4), seed=1)]
    [[0, 1, 4], [2, 3]]
    """
    order = np.random.default_rng(seed).permutation(count)
    ends = np.rint(np.cumsum(shares) * count).astype(np.int64)[:-1]
    return [np.sort(part) for part in np.split(order, ends)]


def check_mechanism(recipe: Reporting, classes: int) -> None:
    """Raises what the recipe's numbers would raise later: a report of a label that is no one's."""
    sets = np.ones((1, classes), dtype=np.bool_)
    made = _randomised(recipe, np.zeros(1, dtype=np.int64), sets, SeededCoins(0))
    if not np.isfinite(made).all() or not np.isfinite(_likelihood(recipe, made, sets)).all():
        validation.fail("epsilon", "one that reports can be computed for", recipe.epsilon)


def randomise_stage(
    recipe: Reporting,
    stage: int,
    rows: NDArray[np.int64],
    sets: Sets,
    labels: LabelSource,
    journal: LabelJournal,
    coins: Coins,
    told: Callable[[int, int], object] = lambda done, total: None,
    order: NDArray[np.int64] | None = None,
) -> Reports:
    """Reports of all labels of a stage, those of before included.

    Args:
        recipe: how.
        stage: its number, from 0.
        rows: of the stage.
        sets: (rows, classes) what may be reported of each; all True for ALIBI.
        labels: of the whole data set. Private; read only where no report is on disk.
        journal: of the run.
        coins: where the randomness comes from.
        told: how far it is.
        order: where among ``labels`` that of each row is; None for the same place.
    """
    places = rows if order is None else order[rows]
    pieces = range(-(-len(rows) // PIECE))
    for piece in pieces:
        if journal.begin(stage, piece):
            part = slice(piece * PIECE, (piece + 1) * PIECE)
            made = _randomised(recipe, labels[places[part]], sets[part], coins)
            journal.finish(stage, piece, made.tolist())
        told(piece + 1, len(pieces))
    return _gathered(recipe, stage, rows, sets, journal)


def _randomised(recipe: Reporting, labels: NDArray[Any], sets: Sets, coins: Coins) -> NDArray[Any]:
    if recipe.mechanism == "alibi":
        return NoisyOneHot(recipe.epsilon, sets.shape[1]).perturb(labels, coins=coins)
    return TopKResponse(recipe.epsilon).perturb(labels, sets, coins=coins)


def _gathered(
    recipe: Reporting, stage: int, rows: NDArray[np.int64], sets: Sets, journal: LabelJournal
) -> Reports:
    """What the journal holds of a stage."""
    known = sorted(piece for at, piece in journal.reports if at == stage)
    have = [np.arange(p * PIECE, min((p + 1) * PIECE, len(rows))) for p in known]
    places = np.concatenate([np.zeros(0, dtype=np.int64), *have])
    flat = [report for piece in known for report in journal.reports[stage, piece]]
    if recipe.mechanism == "alibi":
        found = np.array(flat, dtype=np.float64).reshape(-1, sets.shape[1])
    else:
        found = np.array(flat, dtype=np.int64)
    likelihood = _likelihood(recipe, found, sets[places])
    return Reports(rows[places], found, likelihood, len(rows) - len(places))


def _likelihood(recipe: Reporting, told: NDArray[Any], sets: Sets) -> NDArray[np.float64]:
    if recipe.mechanism == "alibi":
        return NoisyOneHot(recipe.epsilon, sets.shape[1]).likelihood(told)
    return TopKResponse(recipe.epsilon).likelihood(told, sets)
