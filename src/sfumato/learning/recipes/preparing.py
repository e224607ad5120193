"""Features of a run: built before, fitted after the charge, computed once."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.data import Dataset
from sfumato.learning.features import FeatureMap, Plain, transform
from sfumato.learning.recipes.inputs import inputs_of
from sfumato.learning.recipes.observing import Observer
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.runs.folder import RunFolder

__all__ = ["Prepared", "check_arrays", "check_sizes", "refuse_first_rows"]

_FITTED = "features.safetensors"


class Prepared:
    """A feature map's module, and the rows that went through it.

    Args:
        features: the map.
        shape: of one input, channels first.
        device: where rows and module are.
        folder: where a fitted map is kept, so that a resumed run need not release it again.
        observer: who is told how far it is.
        coins: of the noise of a private fit.
    """

    def __init__(
        self,
        features: FeatureMap,
        shape: tuple[int, ...],
        device: str,
        folder: RunFolder | None,
        observer: Observer,
        coins: Coins,
    ) -> None:
        self.features, self.device = features, device
        self.shape = features.out_shape(shape)
        self.module = features.build(shape).to(device)
        self._folder, self._observer, self._coins = folder, observer, coins
        self.restored = False

    def restore(self) -> None:
        """Takes up the map that the run's folder holds, if it was fitted before."""
        stored = None if self._folder is None else self._folder.read_curator_tensors(_FITTED)
        if stored is not None:
            self.module.load_state_dict(stored)
            self.restored = True

    def fitted(self, values: NDArray, bounds: tuple[float, float]) -> Tensor:
        """Fits the map on private rows if it must be, and gives their features."""
        inputs = inputs_of(values, bounds).to(self.device)
        if self.restored:
            return self._computed(inputs, "features to train on")
        if isinstance(self.features, Plain):
            return inputs
        told = self._telling("features to train on")
        made = self.features.fit_transform(self.module, inputs, self._coins, told)
        if self._folder is not None:
            self._folder.write_curator_tensors(_FITTED, self.module.state_dict())
        return made

    def applied(self, values: NDArray, bounds: tuple[float, float]) -> Tensor:
        """Features of other rows, by the map as it is."""
        return self._computed(inputs_of(values, bounds).to(self.device), "features to test on")

    def _computed(self, inputs: Tensor, what: str) -> Tensor:
        if isinstance(self.features, Plain):
            return inputs
        return transform(self.module, inputs, progress=self._telling(what))

    def _telling(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self._observer.preparing(what, done, total)


def check_sizes(recipe: Recipe, data: Dataset, public_size: int | None) -> int:
    """The declared number of units.

    Raises:
        ValueError: if nobody declared one, or the recipe is not for such data.
    """
    check_arrays(data)
    if len(data.classes) < 2:
        validation.fail("classes", "two or more", data.classes)
    if recipe.augment is not None and (len(data.shape) != 3 or min(data.shape[:2]) < 2):
        validation.fail("augment", "left out where inputs are no images", recipe.augment)
    if data.owners is not None and recipe.canaries is not None:
        raise ValueError("canaries are records of their own: plant none where rows have owners")
    costs = recipe.features.event(recipe.neighbours, recipe.unit) is not None
    if data.owners is not None and costs:
        raise ValueError(
            f"features {recipe.features.kind!r} are fitted on rows, of which an owner may have any "
            "number: use public features with owners, or none"
        )
    size = data.public_size if public_size is None else public_size
    if size is None:
        raise ValueError(
            "public_size must be declared, in the declaration (records = 5000) or by itself: how "
            "many records there are to train on, roughly, as one may say in public"
        )
    return validation.count("public_size", size)


def check_arrays(data: Dataset) -> None:
    """Raises unless the arrays have the declared layout: before the charge, and about no row."""
    for name, (inputs, labels) in (("train", data.train), ("test", data.test)):
        if tuple(inputs.shape[1:]) != tuple(data.shape):
            shapes = f"{tuple(data.shape)}, as declared, got {tuple(inputs.shape[1:])}"
            raise ValueError(f"inputs to {name} on must have the shape {shapes}")
        if labels.ndim != 1 or len(labels) != len(inputs):  # by how many is the data's secret
            raise ValueError(f"labels to {name} on must be as many as inputs, but are not")


def refuse_first_rows(recipe: Recipe, data: Dataset) -> None:
    """Raises for a charge of the first rows of a table under add/remove.

    Who leaves one of the first places makes room for the next: of the rows taken, two change.

    Raises:
        ValueError: with the remedy.
    """
    if data.rows is not None and recipe.neighbours is Neighbours.ADD_REMOVE:
        raise ValueError(
            "rows must be left out with a ledger, unless neighbours is zero-out or replace-one: "
            "adding or removing one record of the whole moves another into the first rows. Or keep "
            "those rows in a file of their own, with a budget of its own"
        )
