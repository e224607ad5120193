"""A run's model as a module: features, scaled rows, what they tell. Public, as its weights are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato.core.records import Record
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.rows import RowScaling
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.runs.folder import RunFolder

__all__ = ["LinearNumbers", "LinearScores", "read_linear"]


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


class LinearNumbers(nn.Module):
    """Numbers within declared bounds from features, each row scaled as it was for learning.

    Args:
        scaling: of the rows.
        bounds: of the numbers.
    """

    def __init__(self, scaling: RowScaling, bounds: tuple[float, float]) -> None:
        super().__init__()
        self.linear, self.bounds = LinearScores(scaling, 1), bounds

    def forward(self, inputs: Tensor) -> Tensor:
        """(n,) numbers in the labels' own units, never outside their bounds."""
        low, high = self.bounds
        between = self.linear(inputs)[:, 0].double().clamp(-1.0, 1.0)
        return torch.clamp(low / 2 + high / 2 + between * (high - low) / 2, low, high)


def read_linear(folder: RunFolder) -> tuple[ErmRecipe, nn.Module]:
    """How it was learnt, and the model: from inputs in [0, 1], channels first, to what it tells.

    That is (n, classes) scores, or (n,) numbers in the labels' own units.
    """
    record = Record.from_dict(folder.record())
    recipe = ErmRecipe.from_dict(record.parameters["recipe"])
    facts = record.facts["data"]
    features = recipe.features.build(input_shape(tuple(facts["shape"])))
    scaling = RowScaling.from_dict(record.parameters["plan"]["scaling"])
    if recipe.of_numbers:
        low, high = facts["target_bounds"]
        told: nn.Module = LinearNumbers(scaling, (low, high))
    else:
        told = LinearScores(scaling, len(facts["classes"]))
    model = nn.Sequential(features, told)
    model.load_state_dict(folder.model())
    return recipe, model.eval()
