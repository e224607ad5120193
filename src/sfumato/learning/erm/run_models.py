"""A run's model as a module: features, scaled rows, scores. Public, as its weights are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato.core.records import Record
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.rows import RowScaling
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.runs.folder import RunFolder

__all__ = ["LinearScores", "read_linear"]


class LinearScores(nn.Module):
    """Scores of classes from features, each row scaled as it was for learning.

    Args:
        scaling: of the rows.
        classes: how many.
    """

    def __init__(self, scaling: RowScaling, classes: int) -> None:
        super().__init__()
        self.norm, self.intercept = scaling.norm, scaling.intercept
        self.register_buffer("lower", torch.tensor(scaling.lower, dtype=torch.float32))
        self.register_buffer("upper", torch.tensor(scaling.upper, dtype=torch.float32))
        self.weight = nn.Parameter(torch.zeros(scaling.width, classes), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, classes), in single precision."""
        lower, upper = self.get_buffer("lower"), self.get_buffer("upper")
        rows = inputs.flatten(1).nan_to_num(nan=0.0)
        rows = (torch.clamp(rows, lower, upper) - (lower + upper) / 2) / ((upper - lower) / 2)
        if self.intercept:
            rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        rows = rows / self.norm
        return rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0) @ self.weight


def read_linear(folder: RunFolder) -> tuple[ErmRecipe, nn.Module]:
    """How it was learnt, and the model: from inputs in [0, 1], channels first, to scores."""
    record = Record.from_dict(folder.record())
    recipe = ErmRecipe.from_dict(record.parameters["recipe"])
    facts = record.facts["data"]
    features = recipe.features.build(input_shape(tuple(facts["shape"])))
    scaling = RowScaling.from_dict(record.parameters["plan"]["scaling"])
    model = nn.Sequential(features, LinearScores(scaling, len(facts["classes"])))
    model.load_state_dict(folder.model())
    return recipe, model.eval()
