"""Feature maps: fixed functions of a record that stand before what is trained.

A map says what it is (a frozen record), builds its transformation as a module without trainable
parameters, and says what fitting it releases: nothing for public maps, a Gaussian release for
:class:`~sfumato.learning.features.pca.PrivatePCA`.

    >>> import torch
    >>> from sfumato.learning.features import ScatteringFeatures, transform
    >>> features = ScatteringFeatures()
    >>> module = features.build((1, 28, 28))
    >>> transform(module, torch.rand(2, 1, 28, 28)).shape, features.out_shape((1, 28, 28))
    (torch.Size([2, 81, 7, 7]), (81, 7, 7))
    >>> FeatureMap.from_dict(features.to_dict()) == features
    True

Because a map works on each row alone, training behind it keeps the sensitivity of the training; the
whole costs what :meth:`FeatureMap.event` and the training cost together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from sfumato.core import validation
from sfumato.core.kinds import ByKind

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato.core.events import Event
    from sfumato.core.neighbours import Neighbours
    from sfumato.core.randomness import Coins

__all__ = ["FeatureMap", "checked_shape", "image_shape"]


class FeatureMap(ByKind, ABC, family=True):
    """What a record is turned into before a model sees it. Subclasses are frozen dataclasses."""

    @abstractmethod
    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The transformation of inputs of one ``shape``, unfitted where it must be fitted.

        Args:
            shape: (channels, height, width) of images, (d,) of rows.

        Returns:
            A module without trainable parameters. Its ``forward`` takes float32 inputs
            (n, *shape) with values in [0, 1] and treats each row by itself.
        """

    @abstractmethod
    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one row's features."""

    @abstractmethod
    def event(self, neighbours: Neighbours, unit: str) -> Event | None:
        """What fitting releases about private data; None where the map is public."""

    @abstractmethod
    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Fills the buffers of a ``module`` that was built, from private rows, in place.

        A total function of the rows: NaN, infinities, rows of zeros or none at all lead neither to
        an error nor to a feature that is not finite. Does nothing where the map is public.
        """

    def fit_transform(
        self,
        module: nn.Module,
        inputs: Tensor,
        coins: Coins,
        progress: Callable[[int, int], object] | None = None,
    ) -> Tensor:
        """Fits the map on private rows and gives their features."""
        from sfumato.learning.features.applying import transform

        self.fit(module, inputs, coins)
        return transform(module, inputs, progress=progress)

    @property
    @abstractmethod
    def provenance(self) -> str:
        """One line for the public record: which public knowledge the map stands on."""


def checked_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a row: at least one whole number, each 1 or above."""
    if not shape:
        validation.fail("shape", "(channels, height, width) of images or (d,) of rows", shape)
    return tuple(validation.count("shape", n) for n in shape)


def image_shape(shape: tuple[int, ...], what: str) -> tuple[int, int, int]:
    """(channels, height, width), for ``what`` works on images only."""
    if len(shape) != 3:
        validation.fail("shape", f"(channels, height, width): {what} is for images", tuple(shape))
    channels, height, width = checked_shape(shape)
    return channels, height, width
