"""A run's model, read back from its record and its weights. Public, as both are."""

from __future__ import annotations

from torch import nn

from sfumato.core.records import Record
from sfumato.learning.adaptive_laplace.learning import untrained
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.runs.folder import RunFolder

__all__ = ["read_adaptive_laplace"]


def read_adaptive_laplace(folder: RunFolder) -> tuple[AdaptiveLaplaceRecipe, nn.Module]:
    """How it was learnt, and the model: from inputs in [0, 1], channels first, to scores."""
    record = Record.from_dict(folder.record())
    recipe = AdaptiveLaplaceRecipe.from_dict(record.parameters["recipe"])
    facts = record.facts["data"]
    model = untrained(recipe, input_shape(tuple(facts["shape"])), len(facts["classes"]))
    model.load_state_dict(folder.model())
    return recipe, model.eval()
