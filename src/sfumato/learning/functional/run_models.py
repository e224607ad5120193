"""A run's model, read back from its record and its weights. Public, as both are."""

from __future__ import annotations

from torch import nn

from sfumato.core.records import Record
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.runs.folder import RunFolder

__all__ = ["read_functional"]


def read_functional(folder: RunFolder) -> tuple[FunctionalRecipe, nn.Module]:
    """How it was trained, and the model: from inputs in [0, 1], channels first, to scores."""
    record = Record.from_dict(folder.record())
    recipe = FunctionalRecipe.from_dict(record.parameters["recipe"])
    facts = record.facts["data"]
    shape = input_shape(tuple(facts["shape"]))
    network = recipe.topology(recipe.features.out_shape(shape), len(facts["classes"])).module()
    model = nn.Sequential(recipe.features.build(shape), network)
    model.load_state_dict(folder.model())
    return recipe, model.eval()
