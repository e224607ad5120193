"""Two random views of every image, for contrastive learning: cropped, mirrored, recoloured.

All images of a batch are changed at once by two linear maps, one of places and one of colours, so
that a GPU needs a few operations for thousands of images and never waits for the host. Each image
has coins of its own, from torch's generator.

Reference: Chen, Kornblith, Norouzi and Hinton, "A simple framework for contrastive learning of
visual representations", arXiv:2002.05709, appendix A. Two things differ: the changes of colour come
in one order rather than a random one, with one clipping to [0, 1] at the end; and hues are turned
in the plane across the greys (YIQ) rather than around the cone of HSV. No blur, as there for
CIFAR-10.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["cropped", "recoloured", "viewed"]

_AREA = (0.2, 1.0)  # of a crop, as a share of the image
_RATIO = (3 / 4, 4 / 3)  # of its sides
_STRENGTH = 0.4  # of brightness, contrast and saturation: factors between 1 - s and 1 + s
_HUE = 0.1  # of a full turn, either way
_RECOLOURED, _GREY = 0.8, 0.2  # how often
_LUMA = (0.299, 0.587, 0.114)
_YIQ = (_LUMA, (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))


def viewed(images: Tensor, mirrored: bool = True) -> Tensor:
    """One view of each image in [0, 1], of the same shape and range.

    Args:
        images: (n, channels, height, width); hues and greys are for three channels alone.
        mirrored: whether a mirror image shows the same thing; of digits and letters it does not.
    """
    return recoloured(cropped(images, mirrored))


def cropped(
    images: Tensor,
    mirrored: bool = True,
    *,
    side: int | None = None,
    area: tuple[float, float] = _AREA,
) -> Tensor:
    """A rectangle of each image, stretched to its size, mirrored by a coin.

    Its area is uniform between a fifth and all of the image's, the ratio of its sides log-uniform
    between 3/4 and 4/3 (no side is longer than the image's), its place uniform.

    Args:
        images: (n, channels, height, width).
        mirrored: whether to toss that coin.
        side: of the views, if it is another than the images'.
        area: least and most, as a share of the image's.
    """
    n, device = len(images), images.device
    share, ratio, right, down, coin = torch.rand(5, n, device=device)
    share = area[0] + (area[1] - area[0]) * share
    low, high = math.log(_RATIO[0]), math.log(_RATIO[1])
    root = torch.exp(0.5 * (low + (high - low) * ratio))
    wide, tall = (share.sqrt() * root).clamp(max=1), (share.sqrt() / root).clamp(max=1)
    matrix = torch.zeros(n, 2, 3, device=device)
    matrix[:, 0, 0] = torch.where(coin < 0.5, -wide, wide) if mirrored else wide
    matrix[:, 1, 1] = tall
    matrix[:, 0, 2], matrix[:, 1, 2] = (1 - wide) * (2 * right - 1), (1 - tall) * (2 * down - 1)
    size = list(images.shape) if side is None else [n, images.shape[1], side, side]
    grid = F.affine_grid(matrix, size, align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def recoloured(images: Tensor) -> Tensor:
    """Brighter or darker, with more or less contrast, saturation and hue turned, or grey.

    Four images in five are recoloured, and one in five, of three channels, becomes grey.
    """
    n, channels, device = len(images), images.shape[1], images.device
    draws = torch.rand(6, n, 1, 1, device=device)
    changes = draws[4] < _RECOLOURED
    factors = torch.where(changes, 1 + _STRENGTH * (2 * draws[:3] - 1), 1.0)
    bright, contrast, saturation = factors
    mean = _lightness(images).mean(dim=(1, 2), keepdim=True)
    flat = images.flatten(2)
    if channels == 3:
        angle = torch.where(changes, 2 * math.pi * _HUE * (2 * draws[3] - 1), 0.0)
        saturation = torch.where(draws[5] < _GREY, 0.0, saturation)
        flat = _chroma(angle, saturation) @ flat
    # Chroma leaves the mean lightness as it is, so contrast may come after it.
    changed = bright * (contrast * flat + (1 - contrast) * mean)
    return changed.clamp(0, 1).view_as(images)


def _lightness(images: Tensor) -> Tensor:
    """(n, height, width)."""
    if images.shape[1] != 3:
        return images.mean(dim=1)
    red, green, blue = images.unbind(dim=1)
    return _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue


def _chroma(angle: Tensor, saturation: Tensor) -> Tensor:
    """(n, 3, 3): what turns and stretches colours, and leaves their lightness as it is.

    In the basis of lightness and two colour differences this is diag(1, s R(angle)). With the
    columns b of the inverse basis and the rows a of the basis it is the sum of four constant
    matrices with numbers of each image before them, so nothing is copied to the device.
    """
    keep, plain, turned = _parts(angle.device, angle.dtype)
    return keep + saturation * (angle.cos() * plain + angle.sin() * turned)


_KNOWN: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor, Tensor]] = {}


def _parts(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Constant matrices, brought to a device once."""
    if (device, dtype) not in _KNOWN:
        basis = torch.tensor(_YIQ, dtype=torch.float64)
        back = torch.linalg.inv(basis)
        quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
        made = (
            back[:, :1] @ basis[:1],
            back[:, 1:] @ basis[1:],
            back[:, 1:] @ quarter @ basis[1:],
        )
        _KNOWN[device, dtype] = tuple(m.to(device, dtype) for m in made)  # pyright: ignore
    return _KNOWN[device, dtype]
