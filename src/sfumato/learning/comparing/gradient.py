"""Noise on every step: DP-SGD, and its twin without any."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, final

from sfumato.core.guarantee import Guarantee
from sfumato.learning.comparing.methods import QUICK, Group, Method, Payer, Training
from sfumato.learning.comparing.tasks import Task
from sfumato.learning.features import Plain
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.recipes.plain import plain_schedule, train_plain
from sfumato.learning.recipes.presets import preset
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.recipes.training import train

__all__ = ["Convolutional", "LinearSteps", "WithoutPrivacy"]

_CNN_EPOCHS = 6.0
_PLAIN_EPOCHS, _PLAIN_STEPS, _BATCH = 10, 1500, 128
_ANY = 8.0  # a run without privacy takes no epsilon of the recipe


def _quick_recipe(task: Task, name: str, epsilon: float, seed: int) -> Recipe:
    found = preset(name, task.data, epsilon=epsilon).changed(
        delta=task.delta, neighbours=task.neighbours, unit=task.unit,
        rows_per_owner=task.rows_per_owner, seed=seed,
    )  # fmt: skip
    return replace(found, origin=f"preset {name} ({found.origin}); {QUICK}")


def _linear_recipe(task: Task, epsilon: float, seed: int) -> Recipe:
    """A linear model on the task's features, with the settings of the preset for them."""
    plain = isinstance(task.features, Plain)
    name = "table" if plain else "scattering-linear"
    return replace(_quick_recipe(task, name, epsilon, seed), features=task.features)


class _Steps(Method):
    """DP-SGD by a recipe."""

    group = Group.GRADIENT

    def against(self, task: Task, payer: Payer) -> str | None:
        """Nothing, mostly."""
        return None

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """By the plan of the run."""
        assert epsilon is not None
        return self.recipe(task, epsilon, 0).plan(task.size).guarantee

    def train(self, task: Task, how: Training) -> None:
        """All steps, or those that are left."""
        assert how.epsilon is not None
        recipe = self.recipe(task, how.epsilon, how.seed)
        train(
            recipe, task.data, resume=how.resume, evaluations=0, **how.payer.of_records(),
            **how.common,
        )  # fmt: skip

    @abstractmethod
    def recipe(self, task: Task, epsilon: float, seed: int) -> Recipe:
        """How."""


@final
class LinearSteps(_Steps):
    """A linear model on the task's features."""

    name, about = "dp-sgd", "noise on every step of a linear model"

    def recipe(self, task: Task, epsilon: float, seed: int) -> Recipe:
        """The preset's."""
        return _linear_recipe(task, epsilon, seed)


@final
class Convolutional(_Steps):
    """A small convolutional network on pixels."""

    name, about = "dp-sgd-cnn", "noise on every step of a small CNN on pixels"

    def against(self, task: Task, payer: Payer) -> str | None:
        """For images that are large enough for it."""
        if not task.pictures:
            return "it is for images"
        if min(input_shape(task.data.shape)[1:]) < 16:
            return "its convolutions need images of 16x16 pixels or more"
        return None

    def recipe(self, task: Task, epsilon: float, seed: int) -> Recipe:
        """The preset's, with fewer epochs."""
        return _quick_recipe(task, "cnn", epsilon, seed).changed(epochs=_CNN_EPOCHS)


@final
class WithoutPrivacy(Method):
    """The twin of ``dp-sgd``: the same model of the same rows. For the curator alone."""

    name, group, about = "plain", Group.NONE, "no noise: what could be had without privacy"
    goes_on: ClassVar[bool] = False

    def against(self, task: Task, payer: Payer) -> str | None:
        """Always there."""
        return None

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """Nothing."""
        return Guarantee(math.inf, 0.0, task.neighbours, task.unit)

    def train(self, task: Task, how: Training) -> None:
        """A few epochs."""
        recipe = _linear_recipe(task, _ANY, how.seed)
        enough = math.ceil(_PLAIN_STEPS / math.ceil(task.size / _BATCH))
        epochs = max(_PLAIN_EPOCHS, min(enough, 100))
        schedule = plain_schedule(recipe, epochs=epochs, batch_size=_BATCH)
        train_plain(recipe, task.data, schedule=schedule, evaluations=0, **how.common)
