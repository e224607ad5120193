"""Networks to try attacks on gradients with: small ones, on which they are at their best.

What a gradient gives away depends on the network it is of: one with smooth activations, few strides
and more weights than pixels gives away nearly everything.
"""

from __future__ import annotations

import torch
from torch import nn

from sfumato.core import validation

__all__ = ["leaky_cnn", "relu_cnn"]


def leaky_cnn(shape: tuple[int, ...], classes: int, width: int = 12) -> nn.Sequential:
    """The first network that was inverted: three 5x5 convolutions with sigmoids, one linear layer.

    Weights are uniform in [-0.5, 0.5], without which sigmoids have hardly a slope (Zhu, Liu and
    Han, arXiv:1906.08935). For 32x32x3: 15,826 weights.

    Args:
        shape: (channels, height, width) of an image.
        classes: of the answer.
        width: channels of a convolution.
    """
    channels = _checked(shape)
    body = nn.Sequential(
        nn.Conv2d(channels, width, 5, stride=2, padding=2), nn.Sigmoid(),
        nn.Conv2d(width, width, 5, stride=2, padding=2), nn.Sigmoid(),
        nn.Conv2d(width, width, 5, padding=2), nn.Sigmoid(), nn.Flatten(),
    )  # fmt: skip
    made = nn.Sequential(*body, nn.Linear(_inputs(body, shape), classes))
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return made


def relu_cnn(shape: tuple[int, ...], classes: int, width: int = 32) -> nn.Sequential:
    """A convolutional network as people use it: ReLUs, two maxima, one linear layer.

    Four 3x3 convolutions of ``width``, twice and four times as many channels; for 32x32x3 and a
    width of 32 141,706 weights. Initialised as torch does.
    """
    channels = _checked(shape)
    w = validation.count("width", width)
    body = nn.Sequential(
        nn.Conv2d(channels, w, 3, padding=1), nn.ReLU(),
        nn.Conv2d(w, 2 * w, 3, padding=1), nn.ReLU(),
        nn.Conv2d(2 * w, 2 * w, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, ceil_mode=True),
        nn.Conv2d(2 * w, 4 * w, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, ceil_mode=True),
        nn.Flatten(),
    )  # fmt: skip
    return nn.Sequential(*body, nn.Linear(_inputs(body, shape), classes))


def _checked(shape: tuple[int, ...]) -> int:
    if len(shape) != 3 or min(shape[1:]) < 4:
        validation.fail("shape", "that of images of 4x4 pixels or more, channels first", shape)
    return shape[0]


def _inputs(body: nn.Module, shape: tuple[int, ...]) -> int:
    """Of the last layer."""
    with torch.no_grad():
        return body(torch.zeros(1, *shape)).shape[1]
