"""Private principal components: the directions in which rows vary most, by a Gaussian release.

>>> from sfumato.accounting import account
>>> account(PrivatePCA(60, noise_multiplier=7.0).event(Neighbours.ADD_REMOVE, "record"), 1e-5)
Guarantee: epsilon 0.5025, delta 1e-05, add or remove one record
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import GaussianEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.rounding import at_least_product, at_least_root, at_most_ratio
from sfumato.learning.features.base import FeatureMap, checked_shape
from sfumato.mechanisms.sampling import add_gaussian, grid_for

__all__ = ["PrivatePCA", "Projection", "noisy", "second_moments"]

_STEPS = 2.0**14  # a scaled entry is a multiple of 2^-14
_ROWS = 1024  # at a time


@final
@dataclass(frozen=True)
class PrivatePCA(FeatureMap):
    """Projects rows on the top eigenvectors of a noisy matrix of second moments.

    Each row x is scaled to norm 1 (a row of zeros or one that is not finite counts as zero), and

        A = sum over rows of x x^T,    B = A + Z,    basis = top ``components`` eigenvectors of B

    with Z symmetric, N(0, s^2) on the diagonal and N(0, s^2 / 2) off it, s = ``noise_multiplier``.
    (That is N(0, s^2) on each of the d^2 entries by itself, then (Z + Z^T) / 2.) A is not centred.
    Only B is released; the basis, and what it is used for, follow from it.

    Formal guarantees
        - Sensitivity in Frobenius norm. Add, remove or zero out x: |x x^T| = |x|^2 <= 1. Replace x
          by y: |x x^T - y y^T|^2 = |x|^4 + |y|^4 - 2 <x, y>^2 <= 2, attained by orthogonal rows.
        - The noise is a Gaussian release with multiplier s / sensitivity: the diagonal and
          sqrt(2) times the upper triangle are d (d + 1) / 2 numbers whose L2 norm is the matrix's
          Frobenius norm, each with noise N(0, s^2).
        - Rounding costs nothing. Scaled entries are cut to multiples of 2^-14 towards zero: k 2^-14
          with whole k and |k|^2 <= 2^28, exactly, as a whole number that a norm computed to 10^-9
          cannot push past it. Products and sums of such entries are exact in float64, in any order,
          up to 2^25 rows. Noise is added by the exact sampler of
          :func:`~sfumato.mechanisms.sampling.add_gaussian`, on a grid.

    Attributes:
        components: how many directions.
        noise_multiplier: s.

    Reference: Abadi et al., "Deep learning with differential privacy", arXiv:1607.00133, section 4;
    Dwork et al., "Analyze Gauss", STOC 2014, algorithm 1.
    """

    kind: ClassVar[str] = "pca"
    components: int = 60
    noise_multiplier: float = 16.0

    def __post_init__(self) -> None:
        components = validation.count("components", self.components)
        noise = validation.positive("noise_multiplier", self.noise_multiplier)
        grid_for(noise)  # the sampler checks its range, before there is a row
        object.__setattr__(self, "components", components)
        object.__setattr__(self, "noise_multiplier", noise)

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """A projection on nothing, until it is fitted."""
        self.out_shape(shape)
        return Projection(prod(shape), self.components)

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(components,)."""
        size = prod(checked_shape(shape))
        if self.components > size:
            validation.fail("components", f"at most the {size} numbers of a row", self.components)
        return (self.components,)

    def event(self, neighbours: Neighbours, unit: str) -> GaussianEvent:
        """A Gaussian release, for the whole matrix at once."""
        neighbours, multiplier = Neighbours.parse(neighbours), self.noise_multiplier
        if neighbours is Neighbours.REPLACE_ONE:
            multiplier = at_most_ratio(multiplier, at_least_root(2))
        return GaussianEvent(multiplier, neighbours, unit)

    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Fills ``basis`` from private rows."""
        if not isinstance(module, Projection):
            validation.fail("module", "what build(shape) returned", type(module).__name__)
        size = len(module.basis)
        if inputs.ndim < 2 or prod(inputs.shape[1:]) != size:
            validation.fail("inputs", f"rows of {size} numbers", tuple(inputs.shape[1:]))
        moments = second_moments(inputs.reshape(len(inputs), size))
        released = noisy(moments, self.noise_multiplier, coins)
        _, vectors = np.linalg.eigh(released)  # by growing eigenvalue
        top = np.ascontiguousarray(vectors[:, ::-1][:, : self.components])
        module.basis.copy_(torch.from_numpy(top))

    @property
    def provenance(self) -> str:
        """That it stands on private data, at a price."""
        return "none: the components are learned from the private rows, and charged"


class Projection(nn.Module):
    """(n, *shape) to (n, components): the rows as they are, not scaled, times ``basis``.

    ``basis`` (d, components) is zero until it is fitted or loaded.
    """

    def __init__(self, size: int, components: int) -> None:
        super().__init__()
        self.register_buffer("basis", torch.zeros(size, components, dtype=torch.float32))
        self.basis: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """Coordinates along the basis."""
        return inputs.flatten(1) @ self.basis


def second_moments(rows: Tensor) -> NDArray[np.float64]:
    """Sum of x x^T over rows (n, d) scaled to norm at most 1, exactly, in multiples of 2^-28."""
    size = rows.shape[1]
    total = torch.zeros(size, size, dtype=torch.float64, device=rows.device)
    with torch.no_grad():
        for part in rows.split(_ROWS):
            unit = _scaled(part)
            total += unit.T @ unit
    return total.cpu().numpy()


def _scaled(rows: Tensor) -> Tensor:
    """Norm at most 1, in multiples of 2^-14; zero where a norm is zero or not finite."""
    wide = rows.to(torch.float32).to(torch.float64)  # so that no square underflows
    norms = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    usable = norms.isfinite() & (norms > 0)
    quotients = (wide / norms).masked_fill(~usable, 0.0)
    return (quotients * _STEPS).trunc() / _STEPS


def noisy(
    moments: NDArray[np.float64], noise_multiplier: float, coins: Coins
) -> NDArray[np.float64]:
    """A symmetric matrix plus N(0, s^2) on its diagonal and N(0, s^2 / 2) off it, mirrored."""
    size, above = len(moments), at_least_product(noise_multiplier, at_least_root(2) / 2)
    upper = np.triu_indices(size, 1)
    out = np.zeros_like(moments)
    out[upper] = add_gaussian(moments[upper], above, grid_for(above), coins)
    out += out.T
    grid = grid_for(noise_multiplier)
    np.fill_diagonal(out, add_gaussian(np.diagonal(moments), noise_multiplier, grid, coins))
    return out
