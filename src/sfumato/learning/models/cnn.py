"""Small convolutional networks for private training from scratch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from sfumato.core import validation
from sfumato.learning.models.parts import activation as activated
from sfumato.learning.models.parts import image, out_size

__all__ = ["cnn"]

_LARGE_ENOUGH = 16  # pixels from which the first convolution may be 8x8 with stride 2


def cnn(
    shape: tuple[int, ...],
    classes: int,
    style: str = "auto",
    hidden: int | None = None,
    activation: str = "tanh",
) -> nn.Sequential:
    """The networks of Papernot et al., "Tempered sigmoid activations", arXiv:2007.14191.

    "two" (one channel, by default) has two convolutions: 16 of 8x8 with stride 2 and padding 2, 32
    of 4x4 with stride 2, each with a 2x2 maximum at stride 1, and 32 hidden units; 26,010 weights
    for 28x28. Below 16 pixels a side the first convolution is 3x3 with stride 1.

    "six" (several channels, by default) has 32, 32, pool, 64, 64, pool, 128, 128, pool, all 3x3
    with padding, and 128 hidden units; 550,570 weights for 32x32x3.

    Args:
        shape: (channels, height, width), at least 8x8; the hidden layer's input grows with it.
        classes: outputs.
        style: "two", "six", or "auto" by the number of channels.
        hidden: hidden units; 32 or 128 by default.
        activation: after each layer but the last.
    """
    image("cnn", shape, 8)
    if style not in ("auto", "two", "six"):
        validation.fail("style", "'auto', 'two' or 'six'", style)
    two = style == "two" or (style == "auto" and shape[0] == 1)
    body = _two(shape, activation) if two else _six(shape, activation)
    units = validation.count("hidden", (32 if two else 128) if hidden is None else hidden)
    size = out_size(nn.Sequential(*body), shape)
    return nn.Sequential(
        *body, nn.Flatten(), nn.Linear(size, units), activated(activation),
        nn.Linear(units, classes),
    )  # fmt: skip


def _two(shape: Sequence[int], activation: str) -> list[nn.Module]:
    channels, *sides = shape
    large = min(sides) >= _LARGE_ENOUGH
    first = nn.Conv2d(channels, 16, 8, 2, 2) if large else nn.Conv2d(channels, 16, 3, 1, 1)
    second = nn.Conv2d(16, 32, 4, 2)
    return [
        first, activated(activation), nn.MaxPool2d(2, 1),
        second, activated(activation), nn.MaxPool2d(2, 1),
    ]  # fmt: skip


def _six(shape: Sequence[int], activation: str) -> list[nn.Module]:
    body: list[nn.Module] = []
    before = shape[0]
    for width in (32, 64, 128):
        for _ in range(2):
            body += [nn.Conv2d(before, width, 3, padding=1), activated(activation)]
            before = width
        body.append(nn.MaxPool2d(2))
    return body
