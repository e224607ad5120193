"""What is known about photographs before any is seen: how colours vary, that sides are equal.

Both spare the learning much noise without looking at anything: a model that need not learn that a
horse may look to either side has half the weights to learn, and each weight gets the same noise.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Mirrored", "OpponentColours"]


class OpponentColours(nn.Module):
    """Red, green and blue (n, 3, height, width) to brightness and two differences of colours.

        (R + G + B) / 3,    1/2 + 2 (R - B),    1/2 + (2 G - R - B)

    These are the axes along which photographs vary almost independently (Ohta, Kanade and Sakai,
    "Color information for region segmentation", 1980). Differences are small, so they are drawn out
    by 4.

    >>> OpponentColours()(torch.full((1, 3, 1, 1), 0.25)).flatten().tolist()
    [0.25, 0.5, 0.5]
    """

    def __init__(self) -> None:
        super().__init__()
        axes = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [2.0, 0.0, -2.0], [-1.0, 2.0, -1.0]])
        self.register_buffer("axes", axes, persistent=False)
        self.register_buffer("middle", torch.tensor([0.0, 0.5, 0.5]), persistent=False)
        self.axes: Tensor
        self.middle: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """Pixel by pixel."""
        turned = torch.einsum("dc,nchw->ndhw", self.axes, images)
        return turned + self.middle.view(-1, 1, 1)


class Mirrored(nn.Module):
    """The mean of a transform of an image and of its mirror image, the left half of it.

    A mirror image has the same features, exactly. The right half is left out: for convolutions with
    filters in all orientations it holds what the left half does under other names, but for places
    that differ by less than a sample.

    Args:
        inner: (n, C, height, width) to (n, K, height', width').
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        """Twice the work, half the features; of an odd width the middle is kept."""
        both = self.inner(images) + self.inner(images.flip(-1))
        return both[..., : -(-both.shape[-1] // 2)] / 2
