"""What the models share: activations, shapes, and the size of what a body gives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import nn

from sfumato.core import validation

__all__ = ["activation", "flat", "image", "out_size", "widths_of"]

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
}


def activation(name: str) -> nn.Module:
    """A fresh activation by name.

    Tanh often trains better than ReLU under clipping: bounded activations bound gradients
    (Papernot et al., arXiv:2007.14191).
    """
    if name not in _ACTIVATIONS:
        validation.fail("activation", f"one of {', '.join(_ACTIVATIONS)}", name)
    return _ACTIVATIONS[name]()


def flat(shape: Sequence[int]) -> int:
    """How many numbers one input has."""
    return prod(shape)


def image(model: str, shape: Sequence[int], least: int) -> tuple[int, int, int]:
    """(channels, height, width), at least ``least`` pixels high and wide."""
    if len(shape) != 3 or min(shape[1:]) < least:
        wanted = f"(channels, height, width) with at least {least}x{least} pixels for {model!r}"
        validation.fail("shape", wanted, tuple(shape))
    return shape[0], shape[1], shape[2]


def out_size(body: nn.Module, shape: Sequence[int]) -> int:
    """How many numbers ``body`` gives for one input."""
    with torch.no_grad():
        return body(torch.zeros(1, *shape)).numel()


def widths_of(name: str, value: object) -> tuple[int, ...]:
    """One width, or several."""
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not several:
        validation.fail(name, "one width or several", value)
    return tuple(validation.count(name, width) for width in several)
