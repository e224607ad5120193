"""Public features of public inputs: wavelets, then principal components.

Privacy is about labels alone, so whatever is computed from inputs costs nothing: here the
scattering transform of each image and the main directions in which the training inputs differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.features import ScatteringFeatures, transform

__all__ = ["Projection", "check_components", "coefficients", "public_features"]

_ROWS = 10_000  # that the directions are found by
_FLOOR = 1 / 150  # of the largest variance: what is added before dividing by the spread

_Told = Callable[[int, int], object]


@final
class Projection(nn.Module):
    """(x - mean) V, each coordinate divided by the root of its variance and a floor.

    Args:
        size: how many numbers come in.
        components: how many come out.
    """

    mean: Tensor
    basis: Tensor

    def __init__(self, size: int, components: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("basis", torch.zeros(size, components))

    @torch.no_grad()
    def fit(self, rows: Tensor, seed: int) -> None:
        """Takes the main directions of ``rows``, which are public."""
        components = self.basis.shape[1]
        self.mean.copy_(rows.mean(dim=0))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            _, spread, basis = torch.svd_lowrank(rows - self.mean, q=components, niter=3)
        variance = spread**2 / len(rows)
        self.basis.copy_(basis / (variance + _FLOOR * variance[0]).clamp(min=1e-30).sqrt())

    def forward(self, rows: Tensor) -> Tensor:
        """(n, components)."""
        return (rows.flatten(1) - self.mean) @ self.basis


def coefficients(shape: tuple[int, ...]) -> int:
    """How many there are of an image of this shape, before any directions are chosen."""
    return math.prod(ScatteringFeatures().out_shape(shape))


def check_components(shape: tuple[int, ...], components: int, rows: int) -> None:
    """Raises unless there are so many directions.

    Raises:
        ValueError: for more than coefficients or inputs, or a shape without wavelets.
    """
    most = min(coefficients(shape), rows)
    if components > most:
        validation.fail("components", f"at most {most}, as inputs and coefficients", components)


def public_features(
    shape: tuple[int, ...],
    components: int,
    inputs: Tensor | None = None,
    seed: int = 0,
    told: _Told = lambda done, total: None,
) -> nn.Module:
    """Wavelets and principal components as one module, fitted to public inputs.

    Args:
        shape: (channels, height, width), height and width multiples of 4.
        components: how many numbers come out; see :func:`check_components`.
        inputs: public, (n, *shape); None leaves the directions to be loaded.
        seed: of the directions' computation.
        told: how far it is.
    """
    module = ScatteringFeatures().build(shape)
    projection = Projection(coefficients(shape), components)
    if inputs is not None:
        every = -(-len(inputs) // _ROWS)
        projection.fit(transform(module, inputs[::every], progress=told).flatten(1), seed)
    return nn.Sequential(module, projection).eval()
