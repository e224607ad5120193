"""Random changes of images, each by itself: small ones, and ones as large as its class survives.

Small: a shift. Large: turned, zoomed, slanted, shifted, then a rectangle painted over, as
DeVries and Taylor, "Improved regularization of convolutional neural networks with cutout",
arXiv:1708.04552. Mirror images only where asked for: those of digits and letters are others.

All coins come from torch's generator.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["erased", "flipped", "moved", "strong", "weak"]


def weak(images: Tensor, flips: bool = False) -> Tensor:
    """Shifted by up to 7 % of the size (2 pixels of 28)."""
    return moved(flipped(images) if flips else images, shift=0.0715)


def strong(images: Tensor, flips: bool = False, strength: float = 1.0) -> Tensor:
    """Turned by up to 30 degrees, zoomed by up to a quarter, slanted, shifted, partly erased."""
    changed = moved(
        flipped(images) if flips else images,
        turn=math.radians(30) * strength,
        zoom=0.25 * strength,
        slant=0.3 * strength,
        shift=0.107 * strength,
    )
    return erased(changed, 0.4 * strength)


def moved(
    images: Tensor, turn: float = 0.0, zoom: float = 0.0, slant: float = 0.0, shift: float = 0.0
) -> Tensor:
    """An affine change of each image, over a black border.

    Args:
        images: (n, channels, height, width).
        turn: radians at most, either way.
        zoom: sizes between 1 / (1 + zoom) and 1 + zoom, for each side by itself.
        slant: how far a line leans at most, as a tangent.
        shift: share of the size at most, either way.
    """
    n, device = len(images), images.device
    draws = 2 * torch.rand(6, n, device=device) - 1
    angle = turn * draws[0]
    wide, tall = ((1 + zoom) ** draws[i] for i in (1, 2))
    lean = slant * draws[3]
    cos, sin = angle.cos(), angle.sin()
    matrix = torch.empty(n, 2, 3, device=device)
    matrix[:, 0, 0], matrix[:, 0, 1] = cos * wide, (lean * cos - sin) * tall
    matrix[:, 1, 0], matrix[:, 1, 1] = sin * wide, (lean * sin + cos) * tall
    matrix[:, :, 2] = 2 * shift * draws[4:].T
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def flipped(images: Tensor) -> Tensor:
    """Mirrored left to right, or not, by a coin."""
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(3), images)


def erased(images: Tensor, share: float) -> Tensor:
    """A rectangle of each image in black, its sides up to ``share`` of the image's."""
    n, _, height, width = images.shape
    draws = torch.rand(4, n, 1, device=images.device)

    def within(size: int, length: Tensor, start: Tensor) -> Tensor:
        places = (torch.arange(size, device=images.device) + 0.5) / size
        first = start * (1 - length)
        return (places >= first) & (places < first + length)

    rows = within(height, share * draws[0], draws[1]).view(n, 1, height, 1)
    columns = within(width, share * draws[2], draws[3]).view(n, 1, 1, width)
    return images.masked_fill(rows & columns, 0.0)
