"""Accuracy on private rows as a charged release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.core.sensitivity import Sensitivity
from sfumato.learning.erm.base import PrivateLinear
from sfumato.learning.erm.cells import Column, as_objects, class_numbers, same
from sfumato.learning.erm.charging import Charge, same_ledger
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace

__all__ = ["ChargedAccuracy"]


@final
@dataclass(frozen=True)
class ChargedAccuracy:
    """A scorer for searches: the share of rows that are classified rightly, with noise.

    ``GridSearchCV(estimator, grid, scoring=ChargedAccuracy(0.1, ledger, "patients"))`` charges 0.1
    for each score: candidates times folds of them. One replaced row changes the count of rows that
    are classified rightly by 1; it gets discrete Laplace noise, and is divided by n, which is
    public under replacements. (Scores of several folds compose as if they had rows in common, which
    they have not.) A label that is none of the classes is never classified rightly.

    An estimator that has a ledger must have this one, and the same dataset in it.

    Attributes:
        epsilon: of one score.
        ledger: the address of the one that is charged.
        dataset: whose budget.
        analyst: in whose name.
        unit: whom it protects.
        coins: where noise comes from.
    """

    epsilon: float
    ledger: str | Path
    dataset: str
    analyst: str = ""
    unit: str = "record"
    coins: Coins = SYSTEM

    def __call__(self, estimator: Any, rows: Any, labels: Any) -> float:
        """A noisy share, between 0 and 1.

        Raises:
            ValueError: if the estimator is charged to another ledger or dataset, or there are not
                as many labels as rows.
        """
        self._require_same_budget(estimator)
        column = Column.of(labels)
        if (rows.shape[0] if hasattr(rows, "shape") else len(rows)) != column.length:
            raise ValueError("labels must be as many as rows: inconsistent lengths")
        known = Sensitivity(1.0, neighbours=Neighbours.REPLACE_ONE, unit=self.unit)
        noise = DiscreteLaplace.calibrate(known, epsilon=self.epsilon)
        charge = Charge(self.ledger, self.dataset, self.analyst, "erm score")
        charge.make(noise.event, 0.0, {"score": "accuracy", "epsilon": self.epsilon})
        right = _right(estimator, rows, column.read())
        count = int(noise.perturb(right, coins=self.coins))
        shown = min(max(count, 0), column.length) / max(column.length, 1)
        record = Record("erm-score", {"epsilon": self.epsilon}, noise.event, noise.guarantee())
        record.touch(self.coins)
        record.facts["accuracy"] = shown
        charge.finish(record.to_dict())
        return shown

    def _require_same_budget(self, estimator: Any) -> None:
        learnt = _private_part(estimator)
        if learnt is None or learnt.ledger is None:
            return
        if learnt.dataset != self.dataset or not same_ledger(learnt.ledger, self.ledger):
            raise ValueError(
                "ledger and dataset of the score must be those of the estimator, whose rows it "
                f"reads: dataset={learnt.dataset!r}, and the same ledger"
            )


def _private_part(estimator: Any) -> PrivateLinear | None:
    """The private estimator in a pipeline or a search; itself."""
    while not isinstance(estimator, PrivateLinear):
        if hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return None
    return estimator


def _right(estimator: Any, rows: Any, labels: NDArray[Any]) -> int:
    """How many are classified rightly: each counts 0 or 1, whatever the others are."""
    try:
        found = list(estimator.predict(rows))
    except Exception:  # of a step before that does not take some row: then each by itself
        found = [_one(estimator, rows, at) for at in range(len(labels))]
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return sum(map(same, found, labels))
    numbers = class_numbers(labels, classes, -1)
    said = class_numbers(as_objects(found), classes, -2)
    return int(np.sum(numbers == said))


def _one(estimator: Any, rows: Any, at: int) -> Any:
    try:
        part = rows.iloc[at : at + 1] if hasattr(rows, "iloc") else rows[at : at + 1]
        return estimator.predict(part)[0]
    except Exception:  # a row that is not taken is not classified rightly
        return None
