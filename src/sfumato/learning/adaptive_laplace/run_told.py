"""What a finished run told of its records, beside the records: the noise itself. The curator's.

A run of this method keeps what it told (``told.safetensors``). Whoever holds the records subtracts
them, and has thousands of draws of the noise: of each input that was told, over its declared scale,
a number with the density e^-|z| / 2; of each label whether it was kept. So one run shows whether
its noise was as large as declared, which one release of a sum never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.data import Dataset
from sfumato.learning.adaptive_laplace.budget import Parts
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.recipes.inputs import input_shape, inputs_of, labels_of
from sfumato.learning.runs.folder import RunFolder

__all__ = ["ToldNoise", "has_told", "read_told_noise"]

_TOLD = "told.safetensors"


@final
@dataclass(frozen=True, eq=False)
class ToldNoise:
    """The noise of a run. Private: what was told is public, what it was told of is not.

    Attributes:
        parts: the three epsilons that are claimed.
        classes: how many.
        inputs: the noise on each input that was told, over its declared scale.
        labels: the same of one-hot vectors; None if labels were told by randomised response.
        kept: how many labels were told as they are, of how many.
    """

    parts: Parts
    classes: int
    inputs: NDArray[np.float64]
    labels: NDArray[np.float64] | None
    kept: tuple[int, int]


def has_told(folder: RunFolder) -> bool:
    """Whether what was told is still there."""
    return (folder.curator / _TOLD).exists()


def read_told_noise(folder: RunFolder, data: Dataset) -> ToldNoise:
    """The noise of the run in ``folder``.

    Args:
        folder: of a finished run that has its curator's part.
        data: its records, in the order of then. Others in their place make noise seem larger,
            never smaller.

    Raises:
        ValueError: if they have another number or shape.
    """
    record = folder.record()
    recipe = AdaptiveLaplaceRecipe.from_dict(record["parameters"]["recipe"])
    stored, known = folder.read_curator_tensors(_TOLD), record["facts"]["data"]
    if stored is None:
        raise ValueError(
            f"the run in {folder.path} must have its curator's folder: what was told of records is "
            "there, and was not found"
        )
    told: dict[str, NDArray[Any]] = {name: value.numpy() for name, value in stored.items()}
    of_run = len(told["inputs"]), tuple(known["shape"]), tuple(known["classes"])
    given = len(data.train.labels), tuple(data.shape), tuple(data.classes)
    if of_run != given:
        raise ValueError(
            f"data must be what the run in {folder.path} was trained on, row by row: {of_run[0]} "
            f"rows of shape {of_run[1]}, got {given[0]} of shape {given[1]}, or other classes. "
            "Name it with --data"
        )
    rows = _rows(recipe, data)
    shown = np.isfinite(told["scales"])
    inputs = (told["inputs"].astype(np.float64) - rows)[:, shown] / told["scales"][shown]
    classes = len(data.classes)
    labels = labels_of(data.train.labels, classes).numpy()
    kept = int((told["likelihood"].argmax(axis=1) == labels).sum()), len(labels)
    vectors = None
    if recipe.labels == "one-hot":
        scale = 2 / recipe.parts(classes).labels
        vectors = (told["unbiased"] - np.eye(classes)[labels]).ravel() / scale
    return ToldNoise(recipe.parts(classes), classes, inputs.ravel(), vectors, kept)


def _rows(recipe: AdaptiveLaplaceRecipe, data: Dataset) -> NDArray[np.float64]:
    """Inputs as they were told: means over squares, if so."""
    inputs = inputs_of(data.train.inputs, data.bounds)
    inputs = recipe.pooling.build(input_shape(data.shape))(inputs)
    return inputs.flatten(1).numpy().astype(np.float64)
