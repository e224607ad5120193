"""The public inputs of a run: in an order of their own, and as features. Made once.

Guarantee: of the data only the inputs and their number are read here, so none of it costs anything,
and all of it is the same whatever the labels are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core.randomness import Coins
from sfumato.data import Dataset
from sfumato.learning.features import transform
from sfumato.learning.label_dp.features import check_components, public_features
from sfumato.learning.label_dp.ordering import order_by_inputs
from sfumato.learning.label_dp.stepping import Told
from sfumato.learning.recipes.inputs import input_shape, inputs_of
from sfumato.learning.runs.folder import RunFolder

__all__ = ["PublicRows"]


class _Featured(Protocol):
    """What a recipe says of features."""

    @property
    def features(self) -> str: ...

    @property
    def components(self) -> int: ...

    @property
    def seed(self) -> int: ...


class PublicRows:
    """Inputs in an order of their own, and their features.

    Args:
        featured: the recipe.
        data: whose labels are not read.
        folder: of the run; what is there is not made again.
        device: where tensors go.
        coins: for the order of equal inputs.
        told: makes who is told how far something is.
    """

    def __init__(
        self,
        featured: _Featured,
        data: Dataset,
        folder: RunFolder,
        device: str,
        coins: Coins,
        told: Callable[[str], Told],
    ) -> None:
        self._featured, self.data, self.folder = featured, data, folder
        self.device, self.coins, self.told = device, coins, told
        self.shape = input_shape(data.shape)

    def check(self) -> None:
        """Says why not, before anything is read or written.

        Raises:
            ValueError: for features that cannot be.
        """
        if self._featured.features == "wavelets":
            check_components(self.shape, self._featured.components, len(self.data.train.inputs))

    @property
    def size(self) -> tuple[int, ...]:
        """The shape of one row of features."""
        return self.shape if self._featured.features == "none" else (self._featured.components,)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Which row is at each place, by the inputs; the labels follow when they are read."""
        stored = self.folder.read_curator_tensors("order")
        if stored is None:
            made = order_by_inputs(self.data.train.inputs, self.coins)
            self.folder.write_curator_tensors("order", {"order": torch.from_numpy(made)})
            return made
        found = stored["order"].numpy()
        if len(found) != len(self.data.train.inputs):
            raise ValueError(
                f"the run in {self.folder.path} began with {len(found):,} rows, and there are "
                f"{len(self.data.train.inputs):,} now: it holds those of another data set"
            )
        return found

    @cached_property
    def ordered(self) -> NDArray[Any]:
        """The inputs as they came, in that order."""
        return self.data.train.inputs[self.order]

    @cached_property
    def _inputs(self) -> Tensor:
        return inputs_of(self.ordered, self.data.bounds)

    @cached_property
    def features(self) -> nn.Module:
        """What stands before the networks: fitted once."""
        recipe = self._featured
        if recipe.features == "none":
            return nn.Identity()
        stored = self.folder.read_curator_tensors("features")
        inputs = self._inputs if stored is None else None
        made = public_features(
            self.shape, recipe.components, inputs, recipe.seed, self.told("features")
        )
        if stored is None:
            self.folder.write_curator_tensors("features", made.state_dict())
        else:
            made.load_state_dict(stored)
        return made

    @cached_property
    def rows(self) -> Tensor:
        """What networks take, of all training inputs, on the device."""
        if self._featured.features == "none":
            return self._inputs.to(self.device)
        module = self.features.to(self.device)
        return transform(module, self._inputs, progress=self.told("features")).to(self.device)
