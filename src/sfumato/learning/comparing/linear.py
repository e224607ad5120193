"""Linear models by one release: noise on rows, objectives or weights."""

from __future__ import annotations

from typing import ClassVar, final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.methods import QUICK, Group, Method, Payer, Training
from sfumato.learning.comparing.tasks import Task
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.training import planned, train_erm

__all__ = ["Linear"]

_REPLACING = ("input", "sgd")  # defined for replacements alone


@final
class Linear(Method):
    """Logistic regression by one of the ways of :mod:`sfumato.learning.erm`.

    Args:
        way: its name there.
        group: where the noise goes.
        about: in a few words.
    """

    goes_on: ClassVar[bool] = False

    def __init__(self, way: str, group: Group, about: str) -> None:
        self.way, self.group, self.about = way, group, about
        self.name = f"erm-{way}"

    def against(self, task: Task, payer: Payer) -> str | None:
        """Not for owners of several rows."""
        if task.data.owners is not None:
            return "it protects rows, and these have owners who may have several"
        if self.relation(task) is Neighbours.ZERO_OUT:
            return "it has no guarantee for blanked out records: ask for replace-one"
        return None

    def relation(self, task: Task) -> Neighbours:
        """As asked for, but where one row more would change what is done to others."""
        return Neighbours.REPLACE_ONE if self.way in _REPLACING else task.neighbours

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """By the plan of the fit."""
        return planned(self._recipe(task, epsilon), task.data, task.columns).guarantee

    def train(self, task: Task, how: Training) -> None:
        """One fit."""
        recipe = self._recipe(task, how.epsilon)
        train_erm(recipe, task.data, declared=task.columns, **how.payer.of_records(), **how.common)

    def _recipe(self, task: Task, epsilon: float | None) -> ErmRecipe:
        assert epsilon is not None
        return ErmRecipe(
            way=self.way, epsilon=epsilon, delta=task.delta, neighbours=self.relation(task),
            unit=task.unit, features=task.features, origin=QUICK,
        )  # fmt: skip
