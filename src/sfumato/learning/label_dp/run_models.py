"""A run's model, read back from its record and its weights. Public, as both are."""

from __future__ import annotations

import math

from torch import nn

from sfumato.core.records import Record
from sfumato.learning.label_dp.features import public_features
from sfumato.learning.label_dp.networks import make_network
from sfumato.learning.label_dp.number_models import NumberModel, number_network
from sfumato.learning.label_dp.number_recipe import NumberRecipe, read_recipe
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.runs.folder import RunFolder

__all__ = ["read_label_model"]


def read_label_model(folder: RunFolder) -> tuple[LabelRecipe | NumberRecipe, nn.Module]:
    """How it was trained, and the model: from inputs in [0, 1], channels first, to what it tells.

    That is (n, classes) logits, or (n,) numbers in the labels' own units.
    """
    record = Record.from_dict(folder.record())
    recipe = read_recipe(record.parameters["recipe"])
    facts = record.facts["data"]
    shape = size = input_shape(tuple(facts["shape"]))
    before: nn.Module = nn.Identity()
    if recipe.features == "wavelets":
        before, size = public_features(shape, recipe.components), (recipe.components,)
    if isinstance(recipe, NumberRecipe):
        low, high = facts["target_bounds"]
        told: nn.Module = NumberModel(math.prod(size), (low, high), number_network(recipe, size))
    else:
        told = make_network(recipe.network, size, len(facts["classes"]), **recipe.options)
    model = nn.Sequential(before, told)
    model.load_state_dict(folder.model())
    return recipe, model.eval()
