"""Random numbers of random images, on the device of their coins."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["between", "normal", "uniform"]


def uniform(shape: tuple[int, ...], coins: torch.Generator) -> Tensor:
    """Between 0 and 1."""
    return torch.rand(shape, generator=coins, device=coins.device)


def between(low: float, high: float, shape: tuple[int, ...], coins: torch.Generator) -> Tensor:
    """Uniform between two numbers."""
    return low + (high - low) * uniform(shape, coins)


def normal(shape: tuple[int, ...], coins: torch.Generator) -> Tensor:
    """Standard normal."""
    return torch.randn(shape, generator=coins, device=coins.device)
