"""Means over squares of pixels: fewer inputs for noise to go onto. Public.

>>> MeanPool(7).out_shape((1, 28, 28))
(1, 4, 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.features.base import FeatureMap, image_shape

__all__ = ["MeanPool"]


@final
@dataclass(frozen=True)
class MeanPool(FeatureMap):
    """Each square of ``side`` times ``side`` pixels as its mean; nothing is fitted.

    What is left over at the right and at the bottom is dropped.

    Attributes:
        side: of a square, in pixels.
    """

    kind: ClassVar[str] = "mean-pool"
    side: int = 2

    def __post_init__(self) -> None:
        validation.count("side", self.side)

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The means."""
        self.out_shape(shape)
        return _Means(self.side)

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """As many squares as fit.

        Raises:
            ValueError: if inputs are no images, or smaller than a square.
        """
        channels, height, width = image_shape(shape, "mean-pool")
        if min(height, width) < self.side:
            validation.fail("side", f"at most {min(height, width)} for such images", self.side)
        return channels, height // self.side, width // self.side

    def event(self, neighbours: Neighbours, unit: str) -> None:
        """Nothing is released."""

    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Nothing to fit."""

    @property
    def provenance(self) -> str:
        """That nothing but the pixels is used."""
        return f"none: means over squares of {self.side} x {self.side} pixels"


class _Means(nn.Module):
    """One pixel of each square after the other, so that an image's means are its own to the bit."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height // side, width // side)."""
        side = self.side
        height, width = images.shape[2] // side * side, images.shape[3] // side * side
        places = [(row, column) for row in range(side) for column in range(side)]
        row, column = places[0]
        total = images[:, :, row:height:side, column:width:side]
        for row, column in places[1:]:
            total = total + images[:, :, row:height:side, column:width:side]
        return total / side**2
