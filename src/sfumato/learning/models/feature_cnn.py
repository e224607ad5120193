"""Small convolutional networks on maps of features, such as scattering coefficients."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from sfumato.core import validation
from sfumato.learning.models.parts import activation as activated
from sfumato.learning.models.parts import image, out_size, widths_of

__all__ = ["feature_cnn"]


def feature_cnn(
    shape: tuple[int, ...],
    classes: int,
    widths: int | Sequence[int] | None = None,
    hidden: int | None = None,
    stride: int | None = None,
    pool: int | None = None,
    activation: str = "tanh",
) -> nn.Sequential:
    """3x3 convolutions with padding, after Tramèr and Boneh, arXiv:2011.11660, appendix.

    By default the paper's network for the size of the maps: below 8 pixels a side (MNIST's 7x7)
    ``widths=(16, 32), hidden=32, stride=2, pool=1``; from 8 pixels on (CIFAR-10's 8x8)
    ``widths=(64, 64), hidden=0, stride=1, pool=2``. Each can be set by itself.

    Args:
        shape: (channels, height, width) of the features.
        classes: outputs.
        widths: channels of each convolution.
        hidden: units of a hidden layer before the output; 0 for none.
        stride: of the first convolution.
        pool: side of the maximum taken after every convolution but the last; 1 for none.
        activation: after each layer but the last.
    """
    channels, *sides = image("feature-cnn", shape, 1)
    small = min(sides) < 8
    chosen = widths_of("widths", ((16, 32) if small else (64, 64)) if widths is None else widths)
    units = validation.at_least("hidden", (32 if small else 0) if hidden is None else hidden, 0)
    step = validation.count("stride", (2 if small else 1) if stride is None else stride)
    side = validation.count("pool", (1 if small else 2) if pool is None else pool)
    left = -(-min(sides) // step) // side ** (len(chosen) - 1)
    if left < 1:
        validation.fail("pool", f"small enough for maps of {sides[0]}x{sides[1]}", pool)
    body: list[nn.Module] = []
    for place, width in enumerate(chosen):
        own = step if place == 0 else 1
        body += [nn.Conv2d(channels, width, 3, own, padding=1), activated(activation)]
        if side > 1 and place < len(chosen) - 1:
            body.append(nn.MaxPool2d(side))
        channels = width
    size = out_size(nn.Sequential(*body), shape)
    head: list[nn.Module] = [nn.Flatten()]
    if units:
        head += [nn.Linear(size, units), activated(activation)]
    return nn.Sequential(*body, *head, nn.Linear(units or size, classes))
