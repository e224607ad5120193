"""The networks that federations under attack train.

Members make a federation's model by its name, so each has one:

    >>> sorted(NETWORKS)
    ['leaky-cnn', 'relu-cnn', 'smooth-cnn']
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from sfumato.core import validation

__all__ = ["NETWORKS", "SMOOTH", "named_network", "smooth_cnn"]

SMOOTH = "sfumato.cli.federate_attack_networks:smooth_cnn"
NETWORKS = {
    "leaky-cnn": "sfumato.attacks.gradients.networks:leaky_cnn",
    "relu-cnn": "sfumato.attacks.gradients.networks:relu_cnn",
    "smooth-cnn": SMOOTH,
}


def named_network(name: str) -> str:
    """The name that a federation's file has: one of these, or one that the package knows."""
    return NETWORKS.get(name, name)


def smooth_cnn(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """A small network that learns well and hides no slopes behind kinks or maxima.

    Two 5x5 convolutions with leaky ReLUs and averages of four pixels each, two linear layers.
    """
    if len(shape) != 3 or min(shape[1:]) < 4:
        validation.fail("shape", "that of images of 4x4 pixels or more, channels first", shape)
    body = nn.Sequential(
        _Centred(),
        nn.Conv2d(shape[0], 8, 5, padding=2), nn.LeakyReLU(0.2), nn.AvgPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2), nn.LeakyReLU(0.2), nn.AvgPool2d(2), nn.Flatten(),
    )  # fmt: skip
    with torch.no_grad():
        size = body(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*body, nn.Linear(size, 32), nn.LeakyReLU(0.2), nn.Linear(32, classes))


@final
class _Centred(nn.Module):
    """From [0, 1] to [-1, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        """Of each pixel."""
        return 2 * images - 1
