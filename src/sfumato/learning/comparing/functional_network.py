"""A small network by noisy expansions of its loss: pure epsilon, few weights."""

from __future__ import annotations

from typing import ClassVar, final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.methods import QUICK_DEFAULTS, Group, Method, Payer, Training
from sfumato.learning.comparing.tasks import Task, quick_pool
from sfumato.learning.features import MeanPool, Plain
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.functional.training import planned, train_functional

__all__ = ["FunctionalNetwork"]

_HIDDEN = 8


@final
class FunctionalNetwork(Method):
    """One hidden layer of a few units, on the columns or on means over squares of pixels.

    Delta is 0, whatever was asked for: a stronger promise than that of others, and ranked as theirs
    is. Of the ways of :mod:`sfumato.learning.functional` it is the one without curvatures.
    """

    name, group = "functional-network", Group.OBJECTIVE
    about = "noise on expansions of a small network's loss; delta 0"
    goes_on: ClassVar[bool] = False

    def against(self, task: Task, payer: Payer) -> str | None:
        """Not for owners of several rows."""
        if task.data.owners is not None:
            return "it protects rows, and these have owners who may have several"
        if task.neighbours is Neighbours.ZERO_OUT:
            return "it has no guarantee for blanked out records: ask for replace-one"
        return None

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """By the plan of the rounds."""
        return planned(self._recipe(task, epsilon, 0), task.data).guarantee

    def train(self, task: Task, how: Training) -> None:
        """All rounds."""
        recipe = self._recipe(task, how.epsilon, how.seed)
        train_functional(recipe, task.data, **how.payer.of_records(), **how.common)

    def _recipe(self, task: Task, epsilon: float | None, seed: int) -> FunctionalRecipe:
        assert epsilon is not None
        side = quick_pool(task)
        return FunctionalRecipe(
            epsilon=epsilon, neighbours=task.neighbours, unit=task.unit, hidden=(_HIDDEN,),
            curvature="none", features=Plain() if side == 1 else MeanPool(side), seed=seed,
            origin=QUICK_DEFAULTS,
        )  # fmt: skip
