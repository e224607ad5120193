"""Dead leaves: shapes of all sizes that lie on each other, as things in photographs do.

Radii follow a power law, so that there are many small shapes and few large ones, and the picture
looks alike at every scale. Each shape is an ellipse, a rectangle or a triangle, turned at random,
and filled with a colour or with a texture of another random process.

References: Ruderman, "Origins of scaling in natural images", 1997; Lee, Mumford and Huang,
"Occlusion models for natural images", 2001; as images to learn from: Baradad et al.,
arXiv:2106.05963.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sfumato.learning.pretraining.draws import uniform
from sfumato.learning.pretraining.oriented import coloured, oriented_images

__all__ = ["dead_leaves"]

_LEAVES = 40
_LEAST, _MOST = 0.07, 0.7  # radii, as a share of the side
_KINDS = 3


def dead_leaves(count: int, side: int, coins: torch.Generator) -> Tensor:
    """So many colour images (count, 3, side, side) in [0, 1], where the coins are.

    Args:
        count: how many.
        side: in pixels: 8, 16, 32, ...
        coins: a generator; images are made on its device.
    """
    textures = oriented_images(2 * count, side, coins).chunk(2)
    palette = coloured(uniform((count, 3, _LEAVES, 1), coins) - 0.5, coins)
    places = (torch.arange(side, device=coins.device) + 0.5) / side
    rows, columns = torch.meshgrid(places, places, indexing="ij")
    images = textures[0].clone()
    for leaf in range(_LEAVES):
        inside = _shape(count, rows, columns, coins)
        colour = palette[:, :, leaf].view(count, 3, 1, 1)
        filled = _filled(colour, textures[leaf % 2], coins)
        images = torch.where(inside.unsqueeze(1), filled, images)
    return images


def _filled(colour: Tensor, texture: Tensor, coins: torch.Generator) -> Tensor:
    """A colour alone, or with a texture's differences on it."""
    n = len(colour)
    strength = (uniform((n, 1, 1, 1), coins) - 0.3).clamp(min=0)
    shift = int(torch.randint(0, texture.shape[-1], (), generator=coins, device=coins.device))
    moved = texture.roll(shift, -1)
    return (colour + strength * (moved - moved.mean((2, 3), keepdim=True))).clamp(0, 1)


def _shape(count: int, rows: Tensor, columns: Tensor, coins: torch.Generator) -> Tensor:
    """(count, side, side): where one shape of each image is."""
    draws = uniform((6, count, 1, 1), coins)
    # r^-3 between the bounds, by the inverse of its distribution function
    radius = (_LEAST**-2 + draws[0] * (_MOST**-2 - _LEAST**-2)) ** -0.5
    angle, ratio = 2 * math.pi * draws[1], 0.35 + 0.65 * draws[2]
    down, right = rows - draws[3] * 1.2 + 0.1, columns - draws[4] * 1.2 + 0.1
    along = (angle.cos() * right + angle.sin() * down) / radius
    across = (angle.cos() * down - angle.sin() * right) / (radius * ratio)
    kind = (draws[5] * _KINDS).long()
    ellipse = along.square() + across.square() < 1
    rectangle = (along.abs() < 0.9) & (across.abs() < 0.9)
    triangle = (across > -0.6) & (across + 1.8 * along.abs() < 1)
    return torch.where(kind == 0, ellipse, torch.where(kind == 1, rectangle, triangle))
