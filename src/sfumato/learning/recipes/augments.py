"""Random changes of images, each row by itself, for augmentation multiplicity."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.core import validation

__all__ = ["AUGMENTS", "augment_by_name"]

_MARGIN = 4  # pixels, for images of 32; in proportion for others


def shift(images: Tensor) -> Tensor:
    """Moves each image by up to an eighth of its size, over a mirrored border.

    >>> shift(torch.ones(3, 1, 8, 8)).shape
    torch.Size([3, 1, 8, 8])
    """
    n, channels, height, width = images.shape
    margin = max(1, _MARGIN * min(height, width) // 32)
    padded = F.pad(images, [margin] * 4, mode="reflect")
    device = images.device
    top = torch.randint(0, 2 * margin + 1, (n, 1), device=device)
    left = torch.randint(0, 2 * margin + 1, (n, 1), device=device)
    rows = (top + torch.arange(height, device=device)).view(n, 1, height, 1)
    columns = (left + torch.arange(width, device=device)).view(n, 1, 1, width)
    taken = padded.gather(2, rows.expand(n, channels, height, padded.shape[3]))
    return taken.gather(3, columns.expand(n, channels, height, width))


def flip(images: Tensor) -> Tensor:
    """Mirrors each image left to right, or not, by a coin."""
    mirrored = torch.rand(len(images), device=images.device) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), images.flip(3), images)


def flip_and_shift(images: Tensor) -> Tensor:
    """Both, as De et al., arXiv:2204.13650, do."""
    return shift(flip(images))


AUGMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "shift": shift,
    "flip": flip,
    "flip-shift": flip_and_shift,
}


def augment_by_name(name: str) -> Callable[[Tensor], Tensor]:
    """The change called ``name``."""
    if name not in AUGMENTS:
        validation.fail("augment", f"one of {', '.join(AUGMENTS)}", name)
    return AUGMENTS[name]
