"""Models of a recipe: as they begin, and as a finished run's folder holds them."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.functions import names_function
from sfumato.core.guarantee import Guarantee
from sfumato.core.html import facts_table
from sfumato.core.json_files import as_written
from sfumato.core.records import Record
from sfumato.learning.models import make_model
from sfumato.learning.recipes.inputs import input_shape, inputs_of
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.runs.folder import RunFolder

if TYPE_CHECKING:
    from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
    from sfumato.learning.erm.recipe import ErmRecipe
    from sfumato.learning.functional.recipe import FunctionalRecipe
    from sfumato.learning.label_dp.number_recipe import NumberRecipe
    from sfumato.learning.label_dp.recipe import LabelRecipe
    from sfumato.learning.pate.recipe import PateRecipe

    _OfLabels = LabelRecipe | NumberRecipe
    _OfMethods = PateRecipe | _OfLabels | ErmRecipe | FunctionalRecipe | AdaptiveLaplaceRecipe

__all__ = ["ERM", "LABEL_DP", "PATE", "Run", "described", "initial_model", "load_run"]

PATE = "pate"
"""The method of runs whose model is a student of many teachers."""

LABEL_DP = "label-dp"
"""The method of runs in which labels alone are private."""

ERM = "erm"
"""The method of runs that are one private fit of a linear model."""

FUNCTIONAL = "functional"
"""The method of runs by noisy expansions of the loss."""

ADAPTIVE_LAPLACE = "adaptive-laplace"
"""The method of runs in which every record is told once, with noise."""

AUTOENCODER = "autoencoder"
"""The method of runs whose model tells codes and reconstructions."""

FEDERATED = "federated"
"""The method of runs of several participants, which the room above this one makes."""

_READERS = {
    PATE: ("pate.run_students", "read_student"),
    LABEL_DP: ("label_dp.run_models", "read_label_model"),
    ERM: ("erm.run_models", "read_linear"),
    FUNCTIONAL: ("functional.run_models", "read_functional"),
    ADAPTIVE_LAPLACE: ("adaptive_laplace.run_models", "read_adaptive_laplace"),
}
"""What reads recipe and model of a method's runs; of DP-SGD's this module does."""


@dataclass(frozen=True)
class Run:
    """A finished run, read back.

    Attributes:
        record: the run's record; public if the run was private.
        recipe: how it was trained, or in a run of PATE how its student was taught.
        model: from inputs in [0, 1], channels first, to logits, or to numbers where labels are
            such; features included; in eval mode.
        classes: their names; none where labels are numbers.
        folder: where it is.
    """

    record: Record
    recipe: Recipe | _OfMethods
    model: nn.Module
    classes: tuple[str, ...]
    folder: RunFolder

    @property
    def claim(self) -> Guarantee | None:
        """What the run promises to those it was trained on, as attacks test it; None for nothing.

        Nothing for a run without privacy, and for one in which labels alone are private: whose
        inputs it was trained on is no secret there.
        """
        guarantee = self.record.guarantee
        about_members = self.record.method != LABEL_DP and math.isfinite(guarantee.epsilon)
        return guarantee if about_members else None

    def _repr_html_(self) -> str:
        accuracy = self.record.facts.get("accuracy")
        rows: list[tuple[str, object]] = [
            ("guarantee", str(self.record.guarantee)),
            self._how(),
            self._told(),
            ("hyper-parameters", self.recipe.origin),
            ("folder", str(self.folder.path)),
        ]
        if accuracy is not None:
            tested = " (public test set)" if self.record.facts.get("test_set") == "public" else ""
            rows.insert(1, ("accuracy", f"{accuracy:.2%}{tested}"))
        return facts_table(f"Run: {described(self.record)}", rows, stamp=self.record.warning)

    def _told(self) -> tuple[str, object]:
        bounds = self.record.facts["data"].get("target_bounds")
        if bounds is None:
            return "classes", ", ".join(self.classes)
        return "numbers", f"between {bounds[0]:g} and {bounds[1]:g}"

    def _how(self) -> tuple[str, object]:
        if isinstance(self.recipe, Recipe):
            return "features", self.recipe.features.kind
        if self.record.method == LABEL_DP:
            return "private", "labels alone"
        if self.record.method == ERM:
            return "way", cast("ErmRecipe", self.recipe).way
        if self.record.method == FUNCTIONAL:
            return "noise on", "quadratic expansions of the loss"
        if self.record.method == ADAPTIVE_LAPLACE:
            return "told", "every record once, with noise"
        taught = cast("PateRecipe", self.recipe)
        return "taught by", f"{taught.teachers} teachers ({taught.kind})"

    @torch.no_grad()
    def scores(self, inputs: NDArray, batch: int = 1024) -> NDArray[np.float64]:
        """The model's probabilities for inputs as their data set holds them: (n, classes).

        Raises:
            ValueError: if the model tells numbers.
        """
        if not self.classes:
            raise ValueError("scores are of classes, and this run tells numbers: use predict")
        parts = [part.softmax(1).double() for part in self._outputs(inputs, batch)]
        return torch.cat(parts).numpy()

    @torch.no_grad()
    def predict(self, inputs: NDArray, batch: int = 1024) -> NDArray[Any]:
        """For inputs as their data set holds them: the number of each one's class, or its number.

        A number is in the labels' own units, within their declared bounds.
        """
        parts = list(self._outputs(inputs, batch))
        return torch.cat([p.argmax(1) for p in parts] if self.classes else parts).numpy()

    def _outputs(self, inputs: NDArray, batch: int) -> Iterator[Tensor]:
        bounds = self.record.facts["data"]["bounds"]
        rows = inputs_of(np.asarray(inputs), (bounds[0], bounds[1]))
        return (self.model(part) for part in rows.split(batch))


def described(record: Record) -> str:
    """A run's data and model, in words."""
    data, recipe = record.facts.get("data", {}), record.parameters.get("recipe", {})
    known = (data.get("name"), recipe.get("model"))
    return ", ".join(str(name) for name in known if name) or record.method


def initial_model(recipe: Recipe, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The recipe's model with its initial weights, which follow from the seed and are public.

    Args:
        recipe: whose ``seed`` is set; its ``start`` replaces what it holds.
        shape: of one row's features.
        classes: how many.
    """
    assert recipe.seed is not None
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        try:
            model = make_model(recipe.model, shape, classes, **recipe.model_options)
        except ValueError as error:
            raise ValueError(
                f"{error} (inputs of the model are features {recipe.features.kind!r} of shape "
                f"{shape}; with features none they are the data's own)"
            ) from None
    if recipe.start is not None:
        recipe.start.put_into(model)
    return model


def load_run(path: str | Path, *, run_code: bool = False) -> Run:
    """The run in a folder, from its record and its weights; nothing is unpickled.

    Args:
        path: of the folder.
        run_code: whether a model that is a function of somebody's module may be imported, which
            runs that module. Say so only of folders that you trust.

    Raises:
        ValueError: if there is no finished run, or its model is code and ``run_code`` is not set.
    """
    folder = RunFolder(path)
    with as_written(folder.record_file):
        record = Record.from_dict(folder.record())
    if record.method == AUTOENCODER:
        raise ValueError(
            f"the run in {folder.path} is an auto-encoder, which tells codes and not classes: read "
            "it with sfumato.learning.autoencoder.read_autoencoder"
        )
    if record.method == FEDERATED:
        raise ValueError(
            f"the run in {folder.path} was trained together and says nothing of its data: read its "
            "model with sfumato.federated.federated_model, and attack it inside its protocol with "
            "sfumato federate attack"
        )
    if record.method in _READERS:
        return _of_method(record, folder)
    with as_written(folder.record_file):
        recipe = Recipe.from_dict(record.parameters["recipe"])
    if names_function(recipe.model) and not run_code:
        raise ValueError(
            f"the model of {folder.path} is the function {recipe.model!r}, and importing it runs "
            "its code: pass run_code=True if you trust it"
        )
    with as_written(folder.record_file):
        facts = record.facts["data"]
        shape, classes = input_shape(tuple(facts["shape"])), tuple(facts["classes"])
        features, inside = recipe.features.build(shape), recipe.features.out_shape(shape)
        _check_told(facts, classes)
    own = names_function(recipe.model)
    with contextlib.nullcontext() if own else as_written(folder.record_file):
        head = make_model(recipe.model, inside, len(classes), **recipe.model_options)
    model = nn.Sequential(features, head)
    with as_written(folder.model_file):
        model.load_state_dict(folder.model())
    return Run(record, recipe, model.eval(), classes, folder)


def _check_told(facts: Mapping[str, Any], classes: tuple[Any, ...]) -> None:
    """What is used later of what a record says of its data.

    Raises:
        Exception: of any kind, if it is not of the kind that is written.
    """
    if not all(isinstance(name, str) for name in classes):
        raise TypeError("classes that are no names")
    lower, upper = facts["bounds"]
    validation.interval("bounds", lower, upper)
    if facts.get("rows") is not None:
        validation.count("rows", facts["rows"])


def _of_method(record: Record, folder: RunFolder) -> Run:
    """A run of a method with a room of its own."""
    module, name = _READERS[record.method]
    read = getattr(importlib.import_module(f"sfumato.learning.{module}"), name)
    with as_written(folder.record_file):
        recipe, model = read(folder)
        return Run(record, recipe, model, tuple(record.facts["data"]["classes"]), folder)
