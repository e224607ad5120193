"""A run's own teachers, read back from its folder: for the curator alone.

    teachers = read_run_teachers("runs/pate", load_dataset("mnist"))
    teachers.parts.rows_of(3)        # what the fourth of them learnt from
    teachers.ensemble.module(3)      # what it learnt

Teachers have no privacy at all: whoever has one may find out whom it learnt from, and nothing here
may be published.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.data import Dataset
from sfumato.learning.ensembles import Ensemble
from sfumato.learning.ensembles.stacking import untrained
from sfumato.learning.features import transform
from sfumato.learning.pate.dealing import dealt
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.teachers import (
    Parts,
    kept_salt,
    load_teachers,
    recipe_names,
    teacher_recipe,
)
from sfumato.learning.pate.teachers.training import first_weights
from sfumato.learning.recipes.inputs import input_shape, inputs_of
from sfumato.learning.runs.folder import RunFolder

__all__ = ["RunTeachers", "read_run_teachers"]


@final
@dataclass(frozen=True, eq=False)
class RunTeachers:
    """The teachers of one run, and who learnt from what. Private.

    Attributes:
        ensemble: the teachers.
        parts: which of them has which row of the training set.
        recipe: of the run.
        bounds: of the data set's values.
    """

    ensemble: Ensemble
    parts: Parts
    recipe: PateRecipe
    bounds: tuple[float, float]

    def beginning(self, number: int) -> torch.nn.Module:
        """One of them as its training began: of a public seed."""
        model = untrained(self.ensemble.make)
        first = first_weights(self.ensemble.make, self.recipe.seed, number)
        model.load_state_dict({name: weight[0] for name, weight in first.items()})
        return model.eval()

    def features(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """What a teacher's own model is fed with, from inputs as their data set holds them."""
        prepare = self.ensemble.prepare
        assert isinstance(prepare, torch.nn.Module)
        return transform(prepare, inputs_of(inputs, self.bounds)).numpy()


def read_run_teachers(path: str | Path, data: Dataset) -> RunTeachers:
    """The teachers in the curator's part of a run's folder.

    Args:
        path: of the run's folder.
        data: what they were trained on.

    Raises:
        ValueError: if there is no PATE run, its teachers were somebody's own, or they are not
            finished.
    """
    folder = RunFolder(path)
    asked = folder.request().get("pate")
    if asked is None:
        validation.fail("run", "a folder of sfumato train pate, with teachers in it", str(path))
    recipe = PateRecipe.from_dict(asked)
    if recipe.kind not in recipe_names():
        raise ValueError(
            f"the teachers of {path} must have been trained in the run, but they are the curator's "
            "own: their models are not in its folder"
        )
    kind = teacher_recipe(recipe.kind, input_shape(data.shape), len(data.classes))
    ensemble = load_teachers(folder.curator / "teachers", kind, recipe.teachers)
    parts = dealt(data, recipe.teachers, kept_salt(folder.curator / "salt"))
    return RunTeachers(ensemble, parts, recipe, data.bounds)
