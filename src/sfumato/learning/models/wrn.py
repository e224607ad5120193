"""Wide residual networks with group normalisation and weight standardisation.

De et al., "Unlocking high-accuracy differentially private image classification through scale",
arXiv:2204.13650: batch normalisation, which mixes examples, is replaced by group normalisation, and
convolutions use standardised weights. As in the authors' code, activations come before
normalisation, and the first block of a stage normalises and convolves its shortcut.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.functions import standardised_conv2d
from sfumato.learning.models.parts import image

__all__ = ["StandardizedConv", "wrn"]


def wrn(
    shape: tuple[int, ...], classes: int, depth: int = 16, width: int = 4, groups: int = 16
) -> nn.Sequential:
    """WRN-depth-width: three stages of (depth - 4) / 6 blocks, the last two with stride 2.

    Args:
        shape: (channels, height, width), at least 4x4.
        classes: outputs.
        depth: 6 k + 4 (10, 16, 22, 28, 40).
        width: k times 16, 32 and 64 channels.
        groups: of group normalisation; must divide 16.
    """
    channels, _, _ = image("wrn", shape, 4)
    if (validation.at_least("depth", depth, 10) - 4) % 6:
        validation.fail("depth", "6 k + 4, such as 10, 16, 22, 28 or 40", depth)
    width = validation.count("width", width)
    if 16 % validation.count("groups", groups):
        validation.fail("groups", "a divisor of 16", groups)
    layers: list[nn.Module] = [StandardizedConv(channels, 16, 3)]
    before = 16
    for stage, stride in ((16, 1), (32, 2), (64, 2)):
        after = stage * width
        for number in range((depth - 4) // 6):
            layers.append(_Block(before, after, stride if number == 0 else 1, groups, number == 0))
            before = after
    layers += [nn.ReLU(), nn.GroupNorm(groups, before), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(before, classes))


class StandardizedConv(nn.Module):
    """A convolution with weights (w - mean) gain / sqrt(fan-in variance), for each output channel.

    Qiao et al., "Micro-batch training with batch-channel normalization and weight standardization",
    arXiv:1903.10520; gain and scale as in Brock et al., arXiv:2101.08692.
    """

    def __init__(self, before: int, after: int, side: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.padding = stride, side // 2
        weight = torch.randn(after, before, side, side) * (before * side * side) ** -0.5
        self.weight = nn.Parameter(weight)
        self.gain = nn.Parameter(torch.ones(after))
        self.bias = nn.Parameter(torch.zeros(after))

    def forward(self, x: Tensor) -> Tensor:
        """The convolution."""
        return standardised_conv2d(x, self.weight, self.gain, self.bias, self.stride, self.padding)


class _Block(nn.Module):
    """Two normalised convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int, groups: int, first: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReLU(), nn.GroupNorm(groups, before), StandardizedConv(before, after, 3, stride),
            nn.ReLU(), nn.GroupNorm(groups, after), StandardizedConv(after, after, 3),
        )  # fmt: skip
        shortcut = [nn.ReLU(), nn.GroupNorm(groups, before)]
        own = nn.Sequential(*shortcut, StandardizedConv(before, after, 1, stride))
        self.shortcut = own if first else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Their sum."""
        return self.body(x) + self.shortcut(x)
