"""Many private models, each trained by one recipe on its own part of a pool of examples.

For attacks that learn from models which behave like their target: shadows of a private model are
private models. Models without privacy are trained faster with :mod:`sfumato.learning.ensembles`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.data import Dataset, Examples
from sfumato.learning.durable import write_whole
from sfumato.learning.models import make_model
from sfumato.learning.recipes.inputs import input_shape
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
    folder: str | Path | None = None,
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
        folder: keeps every finished model here, for the owner alone. A call that was cut off goes
            on from there when it is made again with the same arguments; the model it was at is
            begun anew.
        progress: told how many models are done, of how many.

    Raises:
        ValueError: for subsets of another size, or a folder that holds other models.
    """
    inputs, labels = data.train
    if subsets.ndim != 2 or subsets.shape[1] != len(labels):
        validation.fail("subsets", f"of {len(labels)} columns, one an example", subsets.shape)
    size = len(labels) // 2
    fixed = _calibrated(recipe, size)
    kept = _Kept(None if folder is None else Path(folder), recipe, data, device)
    kept.claim(subsets)
    nobody = Examples(*(array[:0] for array in data.test))  # no model is tested here
    trained: list[nn.Module] = []
    for number, chosen in enumerate(subsets):
        model = kept.finished(number)
        if model is None:
            own = Examples(inputs[chosen], labels[chosen])
            part = replace(data, train=own, test=nobody, owners=None, public_size=size)
            result = train(fixed, part, device=device, evaluations=0, observer=Shown(False))
            model = result.model.eval()
            kept.finish(number, model)
        trained.append(model)
        if progress is not None:
            progress(number + 1, len(subsets))
    return trained


def _calibrated(recipe: Recipe, size: int) -> Recipe:
    """With noise and length stated, which are searched for once instead of once a model."""
    plan = recipe.plan(size)
    return replace(
        recipe, epsilon=None, epochs=None, steps=plan.steps, noise_multiplier=plan.noise_multiplier
    )


def answers(models: Sequence[nn.Module], inputs: Tensor, batch: int = 1000) -> NDArray[Any]:
    """The logits of all models for prepared inputs: (models, n, classes)."""
    found: list[NDArray[Any]] = []
    with torch.no_grad():
        for model in models:
            device = next(model.parameters()).device
            parts = [model(part.to(device)).float().cpu() for part in inputs.split(batch)]
            found.append(torch.cat(parts).numpy())
    return np.stack(found)


@final
class _Kept:
    """The folder of finished models; does nothing if there is none."""

    def __init__(self, folder: Path | None, recipe: Recipe, data: Dataset, device: str) -> None:
        self.folder, self.recipe, self.data, self.device = folder, recipe, data, device

    def claim(self, subsets: NDArray[np.bool_]) -> None:
        """Writes down what is trained here, or checks that it is the same."""
        if self.folder is None:
            return
        asked = {
            "recipe": self.recipe.to_dict(), "models": len(subsets), "examples": subsets.shape[1],
            "subsets": _digest(np.packbits(subsets)), "inputs": _digest(self.data.train.inputs),
            "labels": _digest(self.data.train.labels),
        }  # fmt: skip
        text = json.dumps(asked, indent=1)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / "population.json"
        if not path.exists():
            write_whole(path, text.encode())
        elif json.loads(path.read_text()) != json.loads(text):
            raise ValueError(
                f"folder must be new, or hold the same models, but {self.folder} holds others: "
                "give another folder"
            )

    def finished(self, number: int) -> nn.Module | None:
        """A model that was trained before."""
        path = self._path(number)
        if path is None or not path.exists():
            return None
        recipe, shape = self.recipe, input_shape(self.data.shape)
        head = make_model(
            recipe.model, recipe.features.out_shape(shape), len(self.data.classes),
            **recipe.model_options,
        )  # fmt: skip
        model = nn.Sequential(recipe.features.build(shape), head)
        model.load_state_dict(load_file(path))
        return model.to(self.device).eval()

    def finish(self, number: int, model: nn.Module) -> None:
        """Keeps it, as a whole or not at all."""
        path = self._path(number)
        if path is not None:
            state = model.state_dict().items()
            write_whole(path, save({name: value.cpu().contiguous() for name, value in state}))

    def _path(self, number: int) -> Path | None:
        return None if self.folder is None else self.folder / f"model-{number:03}.safetensors"


def _digest(array: NDArray[Any]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).hexdigest()
