"""Generators: networks from codes of random numbers to square pictures.

A linear layer makes a coarse picture of many channels, a quarter as wide and high; two transposed
convolutions double its sides:

    code -> 2w x s/4 x s/4 -> w x s/2 x s/2 -> channels x s x s, within the bounds

Normalisation is by groups of channels of one picture: no picture depends on others of its batch.

    >>> network = make_network((3, 32, 32), code=10, width=8)
    >>> network(torch.zeros(2, 10)).shape
    torch.Size([2, 3, 32, 32])

Reference: Radford, Metz and Chintala, "Unsupervised representation learning with deep convolutional
generative adversarial networks", arXiv:1511.06434, for the shape; Wu and He, "Group normalization",
arXiv:1803.08494.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from sfumato.core import validation

__all__ = ["make_network"]

_GROUPS = 4


def make_network(
    shape: Sequence[int],
    *,
    code: int = 64,
    width: int = 32,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> nn.Module:
    """A generator with weights from torch's own coins.

    Args:
        shape: of a picture: channels, rows, columns. As many rows as columns, a multiple of 4.
        code: how many numbers a code has.
        width: channels before the last layer, a multiple of 4.
        bounds: the least and the greatest value of a pixel.
    """
    channels, side = _checked(shape)
    numbers = validation.count("code", code)
    if validation.count("width", width) % _GROUPS:
        validation.fail("width", f"a multiple of {_GROUPS}", width)
    low, high = validation.interval("bounds", *bounds)
    quarter = side // 4
    return nn.Sequential(
        nn.Linear(numbers, 2 * width * quarter**2),
        nn.Unflatten(1, (2 * width, quarter, quarter)),
        nn.GroupNorm(_GROUPS, 2 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
        nn.GroupNorm(_GROUPS, width),
        nn.ReLU(),
        nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1),
        _Within(low, high),
    )


def _checked(shape: Sequence[int]) -> tuple[int, int]:
    """Channels and side."""
    sizes = tuple(validation.count("shape", size) for size in shape)
    if len(sizes) != 3 or sizes[1] != sizes[2] or sizes[1] % 4:
        wanted = "(channels, side, side) with a side that is a multiple of 4"
        validation.fail("shape", f"{wanted}, unless you bring a network of your own", sizes)
    return sizes[0], sizes[1]


@final
class _Within(nn.Module):
    """From any number to one within the bounds."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, values: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * torch.sigmoid(values)
