"""A run's student, read back from its record and its weights. Public, as both are."""

from __future__ import annotations

import torch
from torch import nn

from sfumato.core.records import Record
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.students.learners import first_coins
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.runs.folder import RunFolder

__all__ = ["first_student", "read_student"]


def read_student(folder: RunFolder) -> tuple[PateRecipe, nn.Module]:
    """How it was taught, and the student: from inputs in [0, 1], channels first, to logits."""
    record = Record.from_dict(folder.record())
    recipe = PateRecipe.from_dict(record.parameters["recipe"])
    model = recipe.student.network(input_shape(tuple(record.facts["data"]["shape"])))
    model.load_state_dict(folder.model())
    return recipe, model.eval()


def first_student(recipe: PateRecipe, shape: tuple[int, ...]) -> nn.Module:
    """The student's network with the weights that its training began with: of a public seed.

    Args:
        recipe: of the run.
        shape: of one input, as the data set has it.
    """
    with torch.random.fork_rng():
        first_coins(recipe.seed)
        return recipe.student.network(input_shape(shape)).eval()
