"""Networks for private labels. Inputs are public, so batch normalisation costs nothing here.

    >>> import torch
    >>> make_network("mlp", (400,), 10, hidden=256)(torch.zeros(2, 400)).shape
    torch.Size([2, 10])
    >>> sum(p.numel() for p in make_network("resnet18", (3, 32, 32), 10).parameters())
    11173962

Besides these, every network of :mod:`sfumato.learning.models` by its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.models import make_model, model_names
from sfumato.learning.models.parts import flat, image
from sfumato.learning.pate.students.networks import small_cnn

__all__ = ["make_network", "network_names", "resnet18"]


def network_names() -> tuple[str, ...]:
    """The names that :func:`make_network` knows."""
    return tuple(sorted({*_NETWORKS, *model_names()}))


def make_network(name: str, shape: tuple[int, ...], classes: int, **options: Any) -> nn.Module:
    """A fresh network from inputs (n, *shape) to logits (n, classes).

    Raises:
        ValueError: for an unknown name or option, or a shape that the network is not for.
    """
    if name not in _NETWORKS:
        if name not in model_names():
            validation.fail("network", f"one of {', '.join(network_names())}", name)
        return make_model(name, shape, classes, **options)
    make = _NETWORKS[name]
    known = [p for p in inspect.signature(make).parameters if p not in ("shape", "classes")]
    for option in options:
        if option not in known:
            validation.fail(f"option of {name!r}", f"one of {', '.join(known) or 'none'}", option)
    return make(shape, classes, **options)


def _mlp(
    shape: tuple[int, ...],
    classes: int,
    hidden: int = 256,
    layers: int = 2,
    dropout: float = 0.2,
) -> nn.Sequential:
    """Hidden layers with batch normalisation and dropout."""
    width = validation.count("hidden", hidden)
    share = validation.delta("dropout", dropout)
    parts: list[nn.Module] = [nn.Flatten()]
    before = flat(shape)
    for _ in range(validation.count("layers", layers)):
        parts += [nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(share)]
        before = width
    return nn.Sequential(*parts, nn.Linear(before, classes))


def _cnn(shape: tuple[int, ...], classes: int, width: int = 16) -> nn.Sequential:
    """Four convolutions with batch normalisation."""
    return small_cnn(shape, classes, width)


def resnet18(shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Sequential:
    """ResNet-18 for small images: a 3x3 convolution with stride 1 first, and no pooling after it.

    He, Zhang, Ren and Sun, "Deep residual learning for image recognition", arXiv:1512.03385, with
    the first layer that is usual for 32x32: four stages of two blocks, ``width`` times 1, 2, 4 and
    8 channels, the last three with stride 2; the mean over places; a linear layer.

    Args:
        shape: (channels, height, width), at least 8x8.
        classes: outputs.
        width: channels of the first stage.
    """
    channels, _, _ = image("resnet18", shape, 8)
    before = validation.count("width", width)
    layers: list[nn.Module] = [_conv(channels, before, 3, 1), nn.BatchNorm2d(before), nn.ReLU()]
    for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
        layers += [_Block(before, factor * width, stride), _Block(factor * width, factor * width)]
        before = factor * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return nn.Sequential(*layers)


class _Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(before, after, 3, stride), nn.BatchNorm2d(after), nn.ReLU(),
            _conv(after, after, 3, 1), nn.BatchNorm2d(after),
        )  # fmt: skip
        same = stride == 1 and before == after
        own = nn.Sequential(_conv(before, after, 1, stride), nn.BatchNorm2d(after))
        self.shortcut = nn.Identity() if same else own

    def forward(self, x: Tensor) -> Tensor:
        """Their sum, rectified."""
        return F.relu(self.body(x) + self.shortcut(x))


def _conv(before: int, after: int, side: int, stride: int) -> nn.Conv2d:
    made = nn.Conv2d(before, after, side, stride, side // 2, bias=False)
    nn.init.kaiming_normal_(made.weight, mode="fan_out", nonlinearity="relu")
    return made


_NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": _mlp, "small-cnn": _cnn, "resnet18": resnet18,
}  # fmt: skip
