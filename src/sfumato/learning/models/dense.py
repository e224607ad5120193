"""Linear models and multilayer perceptrons, on flattened inputs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from sfumato.learning.models.parts import activation as activated
from sfumato.learning.models.parts import flat, widths_of

__all__ = ["linear", "mlp"]


def linear(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """One linear layer: softmax regression. On scattering features hard to beat.

    It starts from zero: the loss is convex, and random weights are only noise to be unlearned.
    """
    layer = nn.Linear(flat(shape), classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(
    shape: tuple[int, ...],
    classes: int,
    hidden: int | Sequence[int] = 1000,
    activation: str = "relu",
) -> nn.Sequential:
    """Hidden layers of the given widths.

    On 60 private principal components, with 1000 hidden units, the network for MNIST of Abadi et
    al., arXiv:1607.00133, section 5.2.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    size = flat(shape)
    for width in widths_of("hidden", hidden):
        layers += [nn.Linear(size, width), activated(activation)]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, classes))
