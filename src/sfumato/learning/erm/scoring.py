"""Accuracy on private rows as a charged release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.core.sensitivity import Sensitivity
from sfumato.learning.erm.charging import Charge
from sfumato.mechanisms.laplace import Laplace

__all__ = ["ChargedAccuracy"]


@final
@dataclass(frozen=True)
class ChargedAccuracy:
    """A scorer for searches: the share of rows that are classified rightly, with Laplace noise.

    ``GridSearchCV(estimator, grid, scoring=ChargedAccuracy(0.1, ledger, "patients"))`` charges 0.1
    for each score: candidates times folds of them. One replaced row changes a count of n by 1 and
    the share by 1/n, and n is public under replacements. (To be exact, it is the count of one fold;
    scores of several folds compose as if they had rows in common, which they have not.)

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
        """A noisy share, between 0 and 1."""
        count = len(labels)
        known = Sensitivity(1 / max(count, 1), neighbours=Neighbours.REPLACE_ONE, unit=self.unit)
        noise = Laplace.calibrate(known, epsilon=self.epsilon)
        charge = Charge(self.ledger, self.dataset, self.analyst, "erm score")
        charge.make(noise.event, 0.0, {"score": "accuracy", "epsilon": self.epsilon})
        right = np.asarray(estimator.predict(rows)) == np.asarray(labels)
        share = float(noise.perturb(np.mean(right) if count else 0.0, coins=self.coins))
        shown = min(max(share, 0.0), 1.0)
        record = Record("erm-score", {"epsilon": self.epsilon}, noise.event, noise.guarantee())
        record.touch(self.coins)
        record.facts["accuracy"] = shown
        charge.finish(record.to_dict())
        return shown
