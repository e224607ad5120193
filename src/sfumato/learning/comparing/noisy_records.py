"""Every record told once, with noise by relevance: the adaptive Laplace mechanism, corrected."""

from __future__ import annotations

from typing import ClassVar, final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.adaptive_laplace.training import planned, train_adaptive_laplace
from sfumato.learning.comparing.methods import QUICK_DEFAULTS, Group, Method, Payer, Training
from sfumato.learning.comparing.tasks import Task, quick_pool

__all__ = ["NoisyRecords"]


@final
class NoisyRecords(Method):
    """Class means of noisy inputs and noisy labels, of columns or of means over squares of pixels.

    The guarantee is pure, for replacements, and nearly all of it local: the price is noise in
    proportion to the number of inputs.
    """

    name, group = "adaptive-laplace", Group.INPUT
    about = "noise on every input and label, less where inputs matter; delta 0"
    goes_on: ClassVar[bool] = False

    def against(self, task: Task, payer: Payer) -> str | None:
        """Not for owners of several rows."""
        if task.data.owners is not None:
            return "it tells each row once, and these have owners who may have several"
        return None

    def relation(self, task: Task) -> Neighbours:
        """Of one record, since it tells how many there are."""
        return Neighbours.REPLACE_ONE

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """Of relevance, inputs and labels together."""
        return planned(self._recipe(task, epsilon, 0), task.data)[1]

    def train(self, task: Task, how: Training) -> None:
        """Three releases, and a model of them."""
        recipe = self._recipe(task, how.epsilon, how.seed)
        train_adaptive_laplace(recipe, task.data, **how.payer.of_records(), **how.common)

    def _recipe(self, task: Task, epsilon: float | None, seed: int) -> AdaptiveLaplaceRecipe:
        assert epsilon is not None
        return AdaptiveLaplaceRecipe(
            epsilon=epsilon, pool=quick_pool(task), unit=task.unit, seed=seed, origin=QUICK_DEFAULTS
        )
