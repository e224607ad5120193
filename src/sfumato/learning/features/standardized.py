"""Scattering coefficients on one scale: public statistics first, private ones on top."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import GaussianEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.features.applying import transform
from sfumato.learning.features.base import FeatureMap, image_shape
from sfumato.learning.features.pink import pink_images
from sfumato.learning.features.scattering_features import ScatteringFeatures
from sfumato.mechanisms.sampling import add_gaussian, grid_for

__all__ = ["StandardizedScattering", "statistics_of"]

_PINK = 256  # made-up images
_STEPS = 2.0**20  # statistics are multiples of 2^-20
_SHRINK = 1 - 2.0**-40
_MEAN_BOUND, _SQUARE_BOUND = 1.5, 4.0
_LEAST_VARIANCE = 0.05
_ROWS = 1024


@final
@dataclass(frozen=True)
class StandardizedScattering(FeatureMap):
    """The scattering transform, each channel with mean 0 and variance 1 over the data.

    First every channel is standardised by its mean and variance over random fields with the
    spectrum of photographs (:mod:`~sfumato.learning.features.pink`): public, without any data.
    Then, if ``noise_multiplier`` is given, by its mean and variance over the private rows, from one
    Gaussian release. Without it nothing is released.

    What is released. Of one row, with a_c the mean over positions of channel c, s_c that of its
    square, and K channels:

        w = (clip(a / (1.5 sqrt K)), clip(s / (4 sqrt K)), 1) / sqrt(3),   clip(v) = v / max(1, |v|)

    The sum of w over all rows gets N(0, noise_multiplier^2) on every number. Means are quotients of
    noisy sums by the noisy count.

    Formal guarantees
        - Sensitivity. |w| <= 1, so adding, removing or zeroing out a row moves the sum by at most
          1: a Gaussian release of ``noise_multiplier``. (Replacing one moves it by at most 2, which
          accountants derive.) The bounds 1.5 and 4 are constants; nothing is measured for them.
        - Rounding costs nothing: w is cut to multiples of 2^-20 towards zero after it was shrunk by
          2^-40, so |w| <= 1 holds exactly, and sums of up to 2^32 rows are exact in float64. Noise
          is added by an exact sampler, on a grid.
        - A row whose features are not finite counts as 0 in each part but the count.

    Attributes:
        noise_multiplier: of the private statistics; None for public ones alone.
        scales, orientations, opponent, mirrored: of the transform.

    Reference: the private statistics follow Tramèr and Boneh, arXiv:2011.11660, appendix, whose
    code takes its bounds from the data; here they are fixed, and relative to public scales.
    """

    kind: ClassVar[str] = "standardized-scattering"
    noise_multiplier: float | None = 6.0
    scales: int = 2
    orientations: int = 8
    opponent: bool = False
    mirrored: bool = False

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            noise = validation.positive("noise_multiplier", self.noise_multiplier)
            grid_for(noise)
            object.__setattr__(self, "noise_multiplier", noise)
        object.__setattr__(self, "scales", self._scattering.scales)
        object.__setattr__(self, "orientations", self._scattering.orientations)

    @property
    def _scattering(self) -> ScatteringFeatures:
        return ScatteringFeatures(
            self.scales, self.orientations, None, self.opponent, self.mirrored
        )

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """Scattering with public scales; private ones are neutral until they are fitted."""
        channels, height, width = image_shape(shape, "scattering")
        scattering = self._scattering.build(shape)
        plain = replace(self._scattering, opponent=False, mirrored=False)
        grey = plain.build((1, height, width))
        fields = transform(grey, pink_images(_PINK, height, width))
        mean, deviation = fields.mean((0, 2, 3)), fields.var((0, 2, 3)).sqrt()
        public = Standardize(mean.repeat(channels), deviation.repeat(channels))
        count = channels * len(mean)
        private = Standardize(torch.zeros(count), torch.ones(count))
        return nn.Sequential(scattering, public, private)

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(C K, height / 2^J, width / 2^J)."""
        return self._scattering.out_shape(shape)

    def event(self, neighbours: Neighbours, unit: str) -> GaussianEvent | None:
        """A Gaussian release, for all statistics at once."""
        if self.noise_multiplier is None:
            return None
        relation = Neighbours.parse(neighbours)
        if relation is Neighbours.REPLACE_ONE:
            relation = Neighbours.ADD_REMOVE  # from which accountants derive it
        return GaussianEvent(self.noise_multiplier, relation, unit)

    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Fills the private scales."""
        if self.noise_multiplier is not None:
            self._fit(module, transform(module[:2], inputs), coins)  # type: ignore[index]

    def fit_transform(
        self,
        module: nn.Module,
        inputs: Tensor,
        coins: Coins,
        progress: Callable[[int, int], object] | None = None,
    ) -> Tensor:
        """Both, with the transform computed once."""
        if self.noise_multiplier is None:
            return transform(module, inputs, progress=progress)
        found = transform(module[:2], inputs, progress=progress)  # type: ignore[index]
        private = self._fit(module, found, coins)
        for part in found.split(_ROWS):
            part.copy_(private(part))
        return found

    def _fit(self, module: nn.Module, features: Tensor, coins: Coins) -> Standardize:
        assert self.noise_multiplier is not None
        sums = statistics_of(features)
        grid = grid_for(self.noise_multiplier)
        noisy = np.asarray(add_gaussian(sums, self.noise_multiplier, grid, coins))
        private = module[2]  # type: ignore[index]
        assert isinstance(private, Standardize)
        private.set(*_scales(noisy))
        return private

    @property
    def provenance(self) -> str:
        """The wavelets and the random fields."""
        more = "" if self.noise_multiplier is None else "; private means and variances, charged"
        fixed = self._scattering.provenance.removesuffix("; statistics of one example only")
        return f"{fixed}, on the scale of random fields with a 1/f spectrum{more}"


class Standardize(nn.Module):
    """(x - mean) / deviation, a number of each for every channel."""

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("deviation", deviation.float())
        self.mean: Tensor
        self.deviation: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """Channel by channel."""
        return (inputs - self.mean.view(-1, 1, 1)) / self.deviation.view(-1, 1, 1)

    def set(self, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> None:
        """Other scales, in place."""
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(deviation))


def statistics_of(features: Tensor) -> NDArray[np.float64]:
    """The sum of w over rows (n, K, height, width), exactly; w is as the class says."""
    total = np.zeros(2 * features.shape[1] + 1)
    for part in features.split(_ROWS):
        total += _contributions(part).sum(0).cpu().numpy()
    return total


def _contributions(features: Tensor) -> Tensor:
    """W of every row, in multiples of 2^-20, of norm at most 1."""
    wide = features.to(torch.float64)
    root = math.sqrt(features.shape[1])
    means = _clipped(wide.mean((2, 3)) / (_MEAN_BOUND * root))
    squares = _clipped(wide.square().mean((2, 3)) / (_SQUARE_BOUND * root))
    ones = torch.ones(len(wide), 1, dtype=torch.float64, device=wide.device)
    joined = torch.cat([means, squares, ones], 1) / math.sqrt(3)
    return (joined * (_SHRINK * _STEPS)).trunc() / _STEPS


def _clipped(rows: Tensor) -> Tensor:
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return (rows / norms.clamp(min=1.0)).masked_fill(~norms.isfinite(), 0.0)


def _scales(noisy: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and deviations from noisy sums; finite for any."""
    channels = len(noisy) // 2
    root, count = math.sqrt(channels), max(float(noisy[-1]), 1.0)
    mean = noisy[:channels] / count * (_MEAN_BOUND * root)
    square = noisy[channels : 2 * channels] / count * (_SQUARE_BOUND * root)
    variance = np.maximum(square - mean**2, _LEAST_VARIANCE)
    return mean, np.sqrt(variance)
