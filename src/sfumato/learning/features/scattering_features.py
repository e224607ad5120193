"""Scattering coefficients of each channel, normalised within each example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.features.base import FeatureMap, image_shape
from sfumato.learning.features.pictures import Mirrored, OpponentColours
from sfumato.learning.features.scattering import Scattering

__all__ = ["ScatteringFeatures"]


@final
@dataclass(frozen=True)
class ScatteringFeatures(FeatureMap):
    """The scattering transform of each channel, stacked, then group normalisation. Public.

    (C, height, width) becomes (C K, height / 2^J, width / 2^J) with K = 1 + L J + L^2 J (J - 1) / 2
    (81 by default). Group normalisation, without affine parameters, subtracts the mean and divides
    by the standard deviation of each of ``groups`` groups of channels *of one example*; no
    statistic of the data set is used, so nothing is released.

    Attributes:
        scales: J.
        orientations: L.
        groups: how many groups of channels are normalised; it must divide C K. None for none.
        opponent: of brightness and two differences of colours instead of red, green and blue.
        mirrored: of an image and its mirror image together, width / 2^(J+1) wide (rounded up):
            for photographs, of which the sides do not matter.

    Reference: Tramèr and Boneh, "Differentially private learning needs better features (or much
    more data)", arXiv:2011.11660, section 3 and appendix.
    """

    kind: ClassVar[str] = "scattering"
    scales: int = 2
    orientations: int = 8
    groups: int | None = 27
    opponent: bool = False
    mirrored: bool = False

    def __post_init__(self) -> None:
        for name in ("scales", "orientations"):
            object.__setattr__(self, name, validation.count(name, getattr(self, name)))
        if self.groups is not None:
            object.__setattr__(self, "groups", validation.count("groups", self.groups))

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """Scattering and normalisation."""
        self.out_shape(shape)
        _, height, width = image_shape(shape, "scattering")
        found: nn.Module = _Stacked(Scattering((height, width), self.scales, self.orientations))
        if self.opponent:
            found = nn.Sequential(OpponentColours(), found)
        if self.mirrored:
            found = Mirrored(found)
        return found if self.groups is None else nn.Sequential(found, _Normalised(self.groups))

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(C K, height / 2^J, width / 2^J)."""
        channels, height, width = image_shape(shape, "scattering")
        step = 2**self.scales
        if height % step or width % step:
            near = tuple(-(-n // step) * step for n in (height, width))
            raise ValueError(
                f"shape must have height and width that are multiples of 2^scales = {step}, got "
                f"{tuple(shape)}: pad or resize the images to {near[0]}x{near[1]}, or choose fewer "
                "scales"
            )
        if self.opponent and channels != 3:
            raise ValueError(
                f"opponent colours need images of 3 channels, got {tuple(shape)}: leave them out"
            )
        found = channels * self._each
        if self.groups is not None and found % self.groups:
            raise ValueError(
                f"groups must divide the {found} channels, got {self.groups!r}: choose a divisor, "
                "or None for no normalisation"
            )
        width //= step
        return found, height // step, -(-width // 2) if self.mirrored else width

    @property
    def _each(self) -> int:
        j, n = self.scales, self.orientations
        return 1 + n * j + n * n * j * (j - 1) // 2

    def event(self, neighbours: Neighbours, unit: str) -> None:
        """Nothing is released."""

    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Nothing to fit."""

    @property
    def provenance(self) -> str:
        """The wavelets."""
        colours = " of opponent colours" if self.opponent else ""
        mirrored = ", of mirror images too" if self.mirrored else ""
        return (
            f"scattering transform{colours}{mirrored}: {self.scales} scales of Morlet wavelets in "
            f"{self.orientations} orientations, fixed by formula; statistics of one example only"
        )


class _Stacked(nn.Module):
    """(n, C, height, width) to (n, C K, height', width'), each channel by itself."""

    def __init__(self, scattering: Scattering) -> None:
        super().__init__()
        self.scattering = scattering

    def forward(self, images: Tensor) -> Tensor:
        """K channels for each one."""
        return self.scattering(images).flatten(1, 2)


class _Normalised(nn.Module):
    """Group normalisation of each example by itself."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, features: Tensor) -> Tensor:
        """Mean 0 and variance 1 within each group of channels."""
        # torch.nn.functional's would refuse a single row of a single number for each group.
        return torch.group_norm(features, self.groups, eps=1e-5)
