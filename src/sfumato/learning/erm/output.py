"""Output perturbation: minimise, then add noise to the minimiser."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.events import Event
from sfumato.core.randomness import Coins
from sfumato.learning.erm.gamma_noise import EuclideanLaplace
from sfumato.learning.erm.sensitivity import minimiser_bound, one_step
from sfumato.learning.erm.solving import Accuracy, Objective, least_regularisation, minimise
from sfumato.learning.erm.tasks import Floats, Way, calibrated
from sfumato.mechanisms.gaussian import Gaussian

__all__ = ["Output", "noise_facts"]

_TYPICAL = 1.0  # a guess at the length of weights that are worth their noise


@final
class Output(Way):
    """argmin J + noise, for the L2 sensitivity of the minimiser.

    2 G / (N lambda) for a replacement, G / (N lambda) where one is added or removed and N is
    declared, and twice the distance from the minimiser at which the solver stops. The event is a
    Gaussian one, exactly, or for a delta of 0 pure epsilon.

    All of it holds for tables of any size. Where there are more than 4 N rows the minimiser may be
    longer than any of fewer; it is held to their ball, which brings no two of them further apart.
    """

    name: ClassVar[str] = "output"
    says: ClassVar[str] = "noise on the minimiser"

    def check(self) -> None:
        """The solver must be able to do it."""
        _ = self.accuracy

    @property
    def usual_regularisation(self) -> float:
        """Where the cost of noise, (beta/2) (noise on z)^2, and that of lambda together are least.

        Noise on z = x W has about the standard deviation (noisiness / sqrt(columns)) k G / (N
        lambda), and lambda costs lambda ||W||^2 / 2: the sum is least at lambda^3 = 2 beta
        (noisiness k G / N)^2 / (columns ||W||^2).
        """
        task, loss = self.task, self.task.loss
        spread = task.noisiness * one_step(task.neighbours) * loss.lipschitz / task.records
        best = (2 * loss.smoothness * spread**2 / task.columns / _TYPICAL**2) ** (1 / 3)
        return max(best, least_regularisation(loss))

    @cached_property
    def accuracy(self) -> Accuracy:
        """Of the solver."""
        task = self.task
        return Accuracy(task.loss, task.records, task.columns, self.regularisation)

    @cached_property
    def mechanism(self) -> Gaussian | EuclideanLaplace:
        """The noise."""
        task = self.task
        bound = minimiser_bound(
            task.loss, task.records, self.regularisation, task.neighbours, self.accuracy.distance
        )
        return calibrated(task, bound)

    @property
    def event(self) -> Event:
        """That of the noise."""
        return self.mechanism.event

    @property
    def facts(self) -> dict[str, Any]:
        """Sensitivity, noise and the solver's accuracy."""
        return noise_facts(self.mechanism) | {"solved_within": self.accuracy.distance}

    def fit(self, rows: Floats, targets: NDArray[Any], codes: Floats, coins: Coins) -> Floats:
        """The noisy minimiser."""
        self.admit(len(rows))
        found = minimise(Objective(self.accuracy, rows, targets))
        return np.asarray(self.mechanism.perturb(found, coins=coins))


def noise_facts(mechanism: Gaussian | EuclideanLaplace) -> dict[str, Any]:
    """Sensitivity and noise, for a record."""
    gaussian = isinstance(mechanism, Gaussian)
    return {
        "sensitivity": mechanism.sensitivity.bound,
        "noise": "gaussian" if gaussian else "euclidean laplace",
        "noise_scale": mechanism.sigma if gaussian else mechanism.scale,
        "arithmetic": "released on a public grid, noise exact but for 2^-128",
    }
