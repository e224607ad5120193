"""Bolt-on: plain stochastic gradient descent in a public order, then noise on its last weights."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.erm.gamma_noise import EuclideanLaplace
from sfumato.learning.erm.output import Output, noise_facts
from sfumato.learning.erm.sensitivity import stochastic_bound, stochastic_rates
from sfumato.learning.erm.tasks import Floats, Task, Way, calibrated
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.sampling import permutation

__all__ = ["BoltOn", "require_replacements"]

BATCH, PASSES = 50, 10


@final
class BoltOn(Way):
    """Descent in batches over one random order of the rows, several times, then noise.

    The order is drawn once and counts as public: nothing is gained by it. The sensitivity is
    computed as a sum over the steps (:func:`~sfumato.learning.erm.sensitivity.stochastic_bound`);
    no minimiser is needed, and no tolerance. For replacements alone: a row more or less would move
    all others to other batches.
    """

    name: ClassVar[str] = "sgd"
    says: ClassVar[str] = "stochastic descent, then noise on its weights"

    def check(self) -> None:
        """For replacements alone."""
        require_replacements(self.task, self.name)

    @property
    def usual_regularisation(self) -> float:
        """That of output perturbation, whose sensitivity is about the same."""
        return Output(self.task).usual_regularisation

    @property
    def _batch(self) -> int:
        return min(BATCH, self.task.records)

    @cached_property
    def mechanism(self) -> Gaussian | EuclideanLaplace:
        """The noise."""
        task = self.task
        bound = stochastic_bound(
            task.loss, task.records, self.regularisation, self._batch, PASSES, task.columns
        )
        return calibrated(task, bound)

    @property
    def event(self) -> Event:
        """That of the noise."""
        return self.mechanism.event

    @property
    def facts(self) -> dict[str, Any]:
        """Sensitivity, noise, passes and batches."""
        return noise_facts(self.mechanism) | {"passes": PASSES, "batch": self._batch}

    def fit(self, rows: Floats, targets: NDArray[Any], codes: Floats, coins: Coins) -> Floats:
        """The noisy last weights."""
        assert len(rows) == self.task.records  # as the plan was made; public under replacements
        order = permutation(len(rows), coins)
        return np.asarray(
            self.mechanism.perturb(self.last(rows[order], targets[order]), coins=coins)
        )

    def last(self, rows: Floats, targets: NDArray[Any]) -> Floats:
        """The last weights, of rows in the order they are in; not private."""
        loss, batch, weak = self.task.loss, self._batch, self.regularisation
        weights = np.zeros((self.task.columns, loss.outputs))
        starts = [*range(0, len(rows), batch)] * PASSES
        rates = stochastic_rates(loss, weak, len(starts))
        for start, rate in zip(starts, rates, strict=True):
            x, t = rows[start : start + batch], targets[start : start + batch]
            slope = x.T @ loss.slopes(x @ weights, t) / batch
            weights = weights - rate * (slope + weak * weights)
        return weights


def require_replacements(task: Task, name: str) -> None:
    """Raises unless neighbours are replacements.

    Raises:
        ValueError: with the remedy.
    """
    if task.neighbours is not Neighbours.REPLACE_ONE:
        raise ValueError(
            f"neighbours must be 'replace-one' for way {name!r}, got {task.neighbours.value!r}: "
            "one row more or less would change what is done to the others; or use 'objective'"
        )
