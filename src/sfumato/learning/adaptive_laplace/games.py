"""Noisy records as a game for an audit: one record or another, and what is told of it.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = record_game(epsilon=2.0, coins=SeededCoins(1))
    >>> game.guarantee
    Guarantee: epsilon 2, delta 0, replace one record
    >>> game.draw(game.records[0], 3).shape
    (3, 3)
    >>> whole = told_game("whole", epsilon=2.0, coins=SeededCoins(1))
    >>> whole.claim, [round(loss, 4) for loss in whole.log_ratios]  # relevance, inputs, labels
    (Guarantee: epsilon 2, delta 0, replace one record, [0.04, 1.0388, 0.9212])
    >>> whole(whole.first, 3).shape
    (3, 5)

The auditor makes up the network of relevance and two records that differ as much as they can.
(1, 0) and (0, 1) differ by the whole range in both inputs; by a linear network with weights of 2 a
record's relevance is all on the input that is 1, and so that of the two is as far apart as it gets,
2. Their labels are different classes. So all three releases show most on one pair of tables. Shares
are made of the relevance released, but add up to d whatever they are, so that the inputs' largest
ratio does not depend on them: given the relevance, the law of the rest is a product, and ratios
multiply. What is told of other records is the same on both tables, and left out. A record is told
by the code that a run calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import LaplaceEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.adaptive_laplace.inputs import NoisyInputs
from sfumato.learning.adaptive_laplace.labels import NoisyLabels
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.relevance.known import KnownModel
from sfumato.learning.relevance.private import PrivateRelevance, relevance_sum
from sfumato.learning.relevance.shares import feature_shares

__all__ = ["RELEASES", "RecordGame", "Rows", "ToldGame", "record_game", "told_game"]

RELEASES = ("relevance", "inputs", "labels", "record", "whole")
"""What may be looked at: each release by itself, inputs and label of a record, all three."""

Rows = tuple[tuple[float, ...], int]
Floats = NDArray[np.float64]

_PARTS = {"record": ("inputs", "labels"), "whole": ("relevance", "inputs", "labels")}
_WEIGHT = 2.0  # of the network of relevance: a record's relevance is longer than 1, and is cut
_ONE, _OTHER = ((1.0, 0.0), 0), ((0.0, 1.0), 1)


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
    draw: Callable[[Any, int], Floats]


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

    def draw(record: Rows, count: int) -> Floats:
        rows = np.tile(np.array(record[0]), (count, 1))
        told = inputs.perturb(rows, coins=coins).astype(np.float64)
        reports = labels.perturb(np.full(count, record[1]), coins=coins)
        return np.column_stack([told, reports])

    size = inputs.inputs
    records: tuple[Rows, Rows] = ((0.0,) * size, 0), ((1.0,) * size, 1)
    return RecordGame(Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE), records, draw)


# --- all three releases ---------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class ToldGame:
    """Some or all releases of a run, and two tables in which one record differs.

    Attributes:
        claim: what is promised of them.
        parts: which of "relevance", "inputs" and "labels" are looked at.
        relevance: how it is released; None for equal shares.
        told: the inputs' noise, by shares.
        labels: how the label is told.
        floor: of shares.
        first, second: the tables: the record, then the others' inputs and labels.
        coins: where noise comes from.
    """

    claim: Guarantee
    parts: tuple[str, ...]
    relevance: PrivateRelevance | None
    told: Callable[[Any], NoisyInputs]
    labels: NoisyLabels
    floor: float
    first: tuple[Rows, ...]
    second: tuple[Rows, ...]
    coins: Coins = SYSTEM

    def __call__(self, table: tuple[Rows, ...], count: int) -> Floats:
        """(count, numbers) of so many independent runs: what the parts say of the first record."""
        if self.relevance is None or self.parts != _PARTS["whole"]:
            return self._in_bulk(table, count)
        row, label = np.array([table[0][0]]), np.array([table[0][1]])
        inputs, seen = _inputs(table), []
        for _ in range(count):
            total = self.relevance.release(_network(), inputs, coins=self.coins).total.ravel()
            noisy = self.told(feature_shares(total, self.floor))
            told = noisy.perturb(row, coins=self.coins)
            report = self.labels.perturb(label, coins=self.coins)
            seen.append(np.concatenate([total, told.ravel(), report.ravel()]))
        return np.array(seen)

    def _in_bulk(self, table: tuple[Rows, ...], count: int) -> Floats:
        """Where shares are equal, or nothing else is looked at."""
        found: list[Floats] = []
        if "relevance" in self.parts and self.relevance is not None:
            inputs, way = _inputs(table), self.relevance
            drawn = (way.release(_network(), inputs, coins=self.coins) for _ in range(count))
            found.append(np.array([one.total.ravel() for one in drawn]))
        if "inputs" in self.parts:
            rows = np.tile(np.array(table[0][0]), (count, 1))
            told = self.told(np.ones(rows.shape[1])).perturb(rows, coins=self.coins)
            found.append(told.astype(np.float64))
        if "labels" in self.parts:
            reports = self.labels.perturb(np.full(count, table[0][1]), coins=self.coins)
            found.append(np.asarray(reports, dtype=np.float64).reshape(count, -1))
        return np.hstack(found)

    @property
    def log_ratios(self) -> tuple[float, ...]:
        """The largest log ratio of probabilities, of each part: reached at once by all of them."""
        made = {
            "relevance": self._of_relevance, "inputs": self._of_inputs, "labels": self._of_labels,
        }  # fmt: skip
        return tuple(made[part]() for part in self.parts)

    @property
    def normal(self) -> bool:
        """No: noise is Laplace's."""
        return False

    @property
    def mus(self) -> tuple[float, ...]:
        """None: no noise here is normal."""
        return ()

    def _of_relevance(self) -> float:
        """How far the sums are apart, over the scale of their noise."""
        if self.relevance is None:
            return 0.0
        sums = (relevance_sum(_network(), _inputs(t), self.relevance.rule) for t in self.tables)
        one, other = sums
        return float(np.abs(one - other).sum()) / self.relevance.scale

    def _of_inputs(self) -> float:
        """The same of inputs; shares that are not equal change it by rounding only."""
        one, other = (np.array(table[0][0]) for table in self.tables)
        scales = self.told(np.ones(len(one))).scales
        return float((np.abs(one - other) / scales).sum())

    def _of_labels(self) -> float:
        """Of the report of one class; or of vectors, which move by 2, over their noise's scale."""
        codes, event = np.array([table[0][1] for table in self.tables]), self.labels.event
        if isinstance(event, LaplaceEvent):
            return 1 / event.noise_multiplier
        chances = self.labels.likelihood(codes)[0, codes]
        return math.log(chances[0] / chances[1])

    @property
    def tables(self) -> tuple[tuple[Rows, ...], tuple[Rows, ...]]:
        """Both."""
        return self.first, self.second


def told_game(
    release: str,
    *,
    epsilon: float,
    relevance_share: float = 0.02,
    label_share: float | None = None,
    labels: str = "response",
    classes: int = 2,
    rows: int = 4,
    unit: str = "record",
    coins: Coins = SYSTEM,
) -> ToldGame:
    """The game in which a run shows most of one record.

    Args:
        release: one of :data:`RELEASES`.
        epsilon: of all three releases together.
        relevance_share: of it, for relevance; 0 for none.
        label_share: of the rest, for labels; None for the usual one.
        labels: "response" or "one-hot".
        classes: how many.
        rows: of either table.
        unit: of the guarantee.
        coins: where noise comes from; seeded in tests only.

    Raises:
        ValueError: for what cannot be.
    """
    if release not in RELEASES:
        validation.fail("release", f"one of {', '.join(RELEASES)}", release)
    recipe = AdaptiveLaplaceRecipe(
        epsilon, relevance_share, label_share, labels=labels, unit=unit, origin="made up"
    )
    parts = _PARTS.get(release, (release,))
    way = recipe.relevance()
    if release == "relevance" and way is None:
        validation.fail("relevance_share", "above 0 for a release of relevance", relevance_share)
    others: tuple[Rows, ...] = ((_ONE, _OTHER) * rows)[: validation.count("rows", rows) - 1]
    known = recipe.parts(validation.at_least("classes", classes, 2))._asdict()
    promised = epsilon if release == "whole" else sum(known[part] for part in parts)
    return ToldGame(
        Guarantee(promised, 0.0, Neighbours.REPLACE_ONE, unit), parts, way,
        lambda shares: recipe.noisy_inputs(classes, shares), recipe.noisy_labels(classes),
        recipe.floor, (_ONE, *others), (_OTHER, *others), coins,
    )  # fmt: skip


def _inputs(table: tuple[Rows, ...]) -> Tensor:
    return torch.tensor([row for row, _ in table], dtype=torch.float32)


@cache
def _network() -> KnownModel:
    """A linear one of two inputs and two classes, all of whose weights are 2."""
    layer = nn.Linear(2, 2, bias=False, dtype=torch.float32)
    layer.requires_grad_(False)
    layer.weight.fill_(_WEIGHT)
    return KnownModel.public(nn.Sequential(nn.Flatten(), layer), "made up")
