"""Many private models, each trained by one recipe on its own part of a pool of examples.

For attacks that learn from models which behave like their target: shadows of a private model are
private models. Models without privacy are trained faster with :mod:`sfumato.learning.ensembles`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.data import Dataset, Examples
from sfumato.learning.recipes.observing import Shown
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.recipes.training import train

__all__ = ["answers", "private_population"]


def private_population(
    recipe: Recipe,
    data: Dataset,
    subsets: NDArray[np.bool_],
    *,
    device: str = "cpu",
    progress: Callable[[int, int], object] | None = None,
) -> list[nn.Module]:
    """One model for each row of ``subsets``, trained on those of ``data.train`` that it marks.

    Each is private by itself, as the recipe says, for its own part of the examples; an example
    that is in several of them is promised less. They are an attacker's (or an auditor's) models:
    nothing here is charged, and none of them is for release.

    Args:
        recipe: how each is trained; its declared size is half of the pool.
        data: the pool is its training set.
        subsets: (models, examples) booleans.
        device: such as "cuda".
        progress: told how many models are done, of how many.
    """
    inputs, labels = data.train
    if subsets.ndim != 2 or subsets.shape[1] != len(labels):
        validation.fail("subsets", f"of {len(labels)} columns, one an example", subsets.shape)
    trained: list[nn.Module] = []
    for number, chosen in enumerate(subsets):
        own = Examples(inputs[chosen], labels[chosen])
        part = replace(data, train=own, owners=None, public_size=len(labels) // 2)
        result = train(recipe, part, device=device, evaluations=0, observer=Shown(False))
        trained.append(result.model.eval())
        if progress is not None:
            progress(number + 1, len(subsets))
    return trained


def answers(models: Sequence[nn.Module], inputs: Tensor, batch: int = 1000) -> NDArray[Any]:
    """The logits of all models for prepared inputs: (models, n, classes)."""
    found: list[NDArray[Any]] = []
    with torch.no_grad():
        for model in models:
            device = next(model.parameters()).device
            parts = [model(part.to(device)).float().cpu() for part in inputs.split(batch)]
            found.append(torch.cat(parts).numpy())
    return np.stack(found)
