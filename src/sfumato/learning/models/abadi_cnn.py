"""The first network that was trained privately on CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from sfumato.learning.models.parts import image, out_size, widths_of

__all__ = ["abadi_cnn"]


def abadi_cnn(
    shape: tuple[int, ...],
    classes: int,
    width: int = 64,
    hidden: int | Sequence[int] = (384, 384),
) -> nn.Sequential:
    """Two 5x5 convolutions with ReLU and 2x2 maxima, two hidden layers, output.

    Abadi et al., "Deep learning with differential privacy", arXiv:1607.00133, section 5.3: trained
    on 24x24 crops, its convolutions taken from a network for CIFAR-100.

    Args:
        shape: (channels, height, width), at least 4x4.
        classes: outputs.
        width: channels of both convolutions.
        hidden: units of each hidden layer.
    """
    channels, _, _ = image("abadi-cnn", shape, 4)
    (width,) = widths_of("width", width)
    body = [
        nn.Conv2d(channels, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    ]  # fmt: skip
    size = out_size(nn.Sequential(*body), shape)
    for units in widths_of("hidden", hidden):
        body += [nn.Linear(size, units), nn.ReLU()]
        size = units
    return nn.Sequential(*body, nn.Linear(size, classes))
