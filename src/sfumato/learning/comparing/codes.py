"""Codes by a private auto-encoder, and a private linear classifier of codes, in one account."""

from __future__ import annotations

import math
from typing import ClassVar, final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe
from sfumato.learning.autoencoder.training import plan_of, train_autoencoder
from sfumato.learning.comparing.methods import QUICK_DEFAULTS, Group, Method, Payer, Training
from sfumato.learning.comparing.tasks import Task

__all__ = ["PrivateCodes"]

_FEWEST, _MOST = 4, 25  # codes
_EACH = 4  # inputs, or more, for each code


@final
class PrivateCodes(Method):
    """One layer by noisy coefficients of its objective; its head by a random tilt of another."""

    name, group = "autoencoder", Group.OBJECTIVE
    about = "noise on the objectives of an auto-encoder and of a classifier of its codes"
    goes_on: ClassVar[bool] = False

    def against(self, task: Task, payer: Payer) -> str | None:
        """Not for owners of several rows."""
        if task.data.owners is not None:
            return "it protects rows, and these have owners who may have several"
        if task.neighbours is Neighbours.ZERO_OUT:
            return "it has no guarantee for blanked out records: ask for replace-one"
        return None

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """Of layers and head together."""
        return plan_of(self._recipe(task, epsilon, 0), task.data).guarantee

    def train(self, task: Task, how: Training) -> None:
        """Codes, then classes."""
        recipe = self._recipe(task, how.epsilon, how.seed)
        train_autoencoder(recipe, task.data, **how.payer.of_records(), **how.common)

    def _recipe(self, task: Task, epsilon: float | None, seed: int) -> AutoEncoderRecipe:
        assert epsilon is not None
        width = min(_MOST, max(_FEWEST, math.prod(task.data.shape) // _EACH))
        return AutoEncoderRecipe(
            widths=(width,), epsilon=epsilon, delta=task.delta, neighbours=task.neighbours,
            unit=task.unit, seed=seed, origin=QUICK_DEFAULTS,
        )  # fmt: skip
