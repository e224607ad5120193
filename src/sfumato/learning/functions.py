"""Functions that models call and private training knows by name.

A function of torch's is seen by private training as it is called; so is one that follows torch's
protocol for overriding functions, as those here do. What is known of them as a whole need not be
worked out from their parts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function

__all__ = ["FLOOR", "standardised", "standardised_conv2d"]

FLOOR = 1e-4
"""The least sum of squares that standardised weights are divided by."""


def standardised_conv2d(
    input: Tensor, weight: Tensor, gain: Tensor, bias: Tensor | None, stride: int, padding: int
) -> Tensor:
    """A convolution with standardised weights.

    Args:
        input: (rows, channels, height, width).
        weight: (out channels, channels, kernel height, kernel width).
        gain: (out channels,).
        bias: (out channels,), or None.
        stride: in both directions.
        padding: on all sides.
    """
    tensors = (input, weight, gain, bias)
    if has_torch_function(tensors):
        return handle_torch_function(
            standardised_conv2d, tensors, input, weight, gain, bias, stride, padding
        )
    return F.conv2d(input, standardised(weight, gain), bias, stride, padding)


def standardised(weight: Tensor, gain: Tensor) -> Tensor:
    """K."""
    variance, mean = torch.var_mean(weight, (1, 2, 3), correction=0, keepdim=True)
    fan_in = weight[0].numel()
    scale = (variance * fan_in).clamp(min=FLOOR).rsqrt() * gain.view(-1, 1, 1, 1)
    return (weight - mean) * scale
