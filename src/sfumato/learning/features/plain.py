"""Inputs as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.features.base import FeatureMap, checked_shape

__all__ = ["Plain"]


@final
@dataclass(frozen=True)
class Plain(FeatureMap):
    """The identity: pixels, or columns, as they are. Public."""

    kind: ClassVar[str] = "none"

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The identity."""
        checked_shape(shape)
        return nn.Identity()

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """``shape``."""
        return checked_shape(shape)

    def event(self, neighbours: Neighbours, unit: str) -> None:
        """Nothing is released."""

    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Nothing to fit."""

    @property
    def provenance(self) -> str:
        """That nothing is used."""
        return "none: the inputs as they are"
