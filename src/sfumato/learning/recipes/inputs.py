"""From a data set's arrays to what models take: float32 in [0, 1], channels first."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["input_shape", "inputs_of", "labels_of"]


def input_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(channels, height, width) of images, which data sets hold channels last; (d,) of rows.

    >>> input_shape((28, 28, 1)), input_shape((7,))
    ((1, 28, 28), (7,))
    """
    return (shape[2], shape[0], shape[1]) if len(shape) == 3 else tuple(shape)


def inputs_of(values: NDArray, bounds: tuple[float, float]) -> Tensor:
    """All examples as one tensor; a total function of each.

    Declared ``bounds`` become 0 and 1. What is outside is clipped, what is no number becomes 0.
    """
    lower, upper = bounds
    rows = torch.from_numpy(np.ascontiguousarray(values))
    if rows.ndim == 4:
        rows = rows.permute(0, 3, 1, 2).contiguous()
    scaled = (rows.to(torch.float32) - lower) / (upper - lower)
    return torch.nan_to_num_(scaled, nan=0.0).clamp_(0.0, 1.0)


def labels_of(values: NDArray, classes: int) -> Tensor:
    """The number of each example's class; what is none of them counts as the first class.

    >>> labels_of(np.array([1, 2, -1]), classes=2).tolist()
    [1, 0, 0]
    """
    found = torch.from_numpy(np.ascontiguousarray(values))
    known = (found >= 0) & (found < classes)
    return torch.where(known, found, torch.zeros_like(found)).to(torch.int64)
