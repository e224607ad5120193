"""Linear layers whose weights are normalised, started from one batch of data.

    y = g (x . v / |v|) + b

for each output. The first batch sets g = 1 / s and b = -m / s, where m and s are the mean and the
standard deviation of x . v / |v| over the batch, so that every output starts with mean 0 and
variance 1. Where g is not trained, only the direction of v and b are.

Reference: Salimans and Kingma, "Weight normalization: a simple reparameterization to accelerate
training of deep neural networks", arXiv:1602.07868, sections 2 and 3.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["WeightNormLinear", "start_from"]

_LEAST = 1e-6  # below any length or deviation that is divided by


@final
class WeightNormLinear(nn.Module):
    """A linear layer with normalised weights.

    Args:
        inputs: how many.
        outputs: how many.
        trained_scale: whether g is trained, or stays as the first batch sets it.
    """

    def __init__(self, inputs: int, outputs: int, trained_scale: bool = False) -> None:
        super().__init__()
        self.direction = nn.Parameter(0.1 * torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.scale = nn.Parameter(torch.ones(outputs), requires_grad=trained_scale)

    def weight(self) -> Tensor:
        """Rows of length g."""
        lengths = self.direction.norm(dim=1).clamp_min(_LEAST)
        return self.direction * (self.scale / lengths).unsqueeze(1)

    def forward(self, rows: Tensor) -> Tensor:
        """(n, inputs) to (n, outputs)."""
        return F.linear(rows, self.weight(), self.bias)

    @torch.no_grad()
    def start(self, rows: Tensor) -> None:
        """Sets g and b from a first batch."""
        self.scale.fill_(1.0)
        plain = F.linear(rows, self.weight())
        self.scale.copy_(1 / plain.std(0, unbiased=False).clamp_min(_LEAST))
        self.bias.copy_(-plain.mean(0) * self.scale)


@torch.no_grad()
def start_from(layers: nn.Sequential, rows: Tensor) -> None:
    """Starts every layer with normalised weights in turn, from what reaches it."""
    for layer in layers:
        if isinstance(layer, WeightNormLinear):
            layer.start(rows)
        rows = layer(rows)
