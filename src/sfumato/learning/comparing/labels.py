"""Labels alone are private: another promise, shown beside the others and never ranked with them."""

from __future__ import annotations

from typing import final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.methods import QUICK, Group, Method, Payer, Training
from sfumato.learning.comparing.tasks import Task
from sfumato.learning.label_dp.presets import label_preset
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.training import train_label_dp

__all__ = ["PrivateLabels"]

_ENOUGH = 1000  # rows, for two epochs to be many steps


@final
class PrivateLabels(Method):
    """Each label is randomised once; inputs are taken to be public."""

    name, group = "label-dp", Group.LABELS
    about = "labels are randomised; inputs are public"

    def against(self, task: Task, payer: Payer) -> str | None:
        """For public inputs, one label a person, and a budget of labels."""
        if not task.published:
            return (
                "it takes inputs for public, and these are not published: train it by itself "
                "(sfumato train label-dp) if yours are"
            )
        if payer.ledger is not None and not payer.labels:
            return "labels have a budget of their own: name it (--label-dataset)"
        return None

    def relation(self, task: Task) -> Neighbours:
        """Of one label."""
        return Neighbours.REPLACE_ONE

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """Pure, for one label."""
        return self._recipe(task, epsilon, 0).guarantee

    def train(self, task: Task, how: Training) -> None:
        """One stage."""
        recipe = self._recipe(task, how.epsilon, how.seed)
        train_label_dp(
            recipe, task.data, resume=how.resume, **how.payer.of_labels(), **how.common
        )  # fmt: skip

    def _recipe(self, task: Task, epsilon: float | None, seed: int) -> LabelRecipe:
        """One stage, one network, half as long as the preset's."""
        assert epsilon is not None
        name = "wavelets" if _wavelets(task) else "table"
        found = label_preset(task.data, epsilon, 1, name)
        epochs = found.epochs / 2 if task.size >= _ENOUGH else found.epochs
        changes = {"rounds": 1, "epochs": epochs, "seed": seed, "origin": QUICK}
        return label_preset(task.data, epsilon, 1, name, **changes)


def _wavelets(task: Task) -> bool:
    return task.pictures and all(n % 4 == 0 and n >= 8 for n in task.data.shape[:2])
