"""Input perturbation: every row is noised by itself, before anything is computed of several."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.events import Event
from sfumato.core.randomness import Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.erm.functional import quadratic_of, trimmed_minimiser
from sfumato.learning.erm.stochastic import require_replacements
from sfumato.learning.erm.tasks import Floats, Quadratic, Way
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = ["LocalInput"]

_UP = 1 + 2.0**-40


@final
class LocalInput(Way):
    """Noise on every row and its code: nobody needs to be trusted with them, and it costs dearly.

    A row and its code are one vector, of which a replacement changes all: the row by 2 and the code
    by ``apart`` at most in L2 (by 2 sqrt d and twice ``length_1`` in L1). The coefficients of the
    quadratic objective are estimated from noisy rows without bias, the noise's own variance being
    known: S = sum x'x - n sigma^2 I. For comparison, mostly.
    """

    name: ClassVar[str] = "input"
    says: ClassVar[str] = "noise on every row: local privacy"

    def check(self) -> None:
        """For replacements of a loss that has a polynomial."""
        quadratic_of(self.task, self.name)
        require_replacements(self.task, self.name)

    @property
    def quadratic(self) -> Quadratic:
        """The polynomial."""
        return quadratic_of(self.task, self.name)

    @property
    def usual_regularisation(self) -> float:
        """The spread of the eigenvalues of what the rows' noise leaves in S."""
        noise = self.mechanism.standard_deviation
        spread = (noise**2 + 2 * noise) * math.sqrt(self.task.columns / self.task.records)
        return max(1e-4, self.quadratic.bend * spread)

    @cached_property
    def mechanism(self) -> Gaussian | Laplace:
        """The noise on a row and its code."""
        task, poly = self.task, self.quadratic
        size = task.columns + task.loss.outputs
        if task.delta == 0:
            bound = 2 * (math.sqrt(task.columns) + poly.length_1) * _UP
            known = Sensitivity(bound, Norm.L1, task.neighbours, task.unit, size)
            return Laplace.calibrate(known, epsilon=task.epsilon)
        known = task.sensitivity(math.hypot(2.0, poly.apart) * _UP, size)
        return Gaussian.calibrate(known, epsilon=task.epsilon, delta=task.delta)

    @property
    def event(self) -> Event:
        """That of the noise on one row: others are not in it."""
        return self.mechanism.event

    @property
    def facts(self) -> dict[str, Any]:
        """Sensitivity and noise."""
        return {
            "sensitivity": self.mechanism.sensitivity.bound,
            "noise": "laplace" if self.task.delta == 0 else "gaussian",
            "noise_scale": getattr(self.mechanism, "sigma", getattr(self.mechanism, "scale", None)),
            "noise_on": "every row",
            "arithmetic": "released on a public grid, noise exact",
        }

    def fit(self, rows: Floats, targets: NDArray[Any], codes: Floats, coins: Coins) -> Floats:
        """From noisy rows to weights."""
        noisy = self.mechanism.perturb(np.hstack([rows, codes]), coins=coins)
        x, c = noisy[:, : self.task.columns], noisy[:, self.task.columns :]
        own = len(rows) * self.mechanism.standard_deviation**2
        squares = x.T @ x - own * np.eye(self.task.columns)
        strength = self.regularisation * self.task.records
        return trimmed_minimiser(self.quadratic.bend * squares, x.T @ c, strength)
