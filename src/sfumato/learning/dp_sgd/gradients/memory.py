"""Memory for what is large and short-lived, kept from one physical batch to the next.

On a CPU a fresh allocation of tens of megabytes costs more than the arithmetic that fills it: the
operating system hands out every page anew. So each parameter's written gradients go into a buffer
that is kept, and grows to the largest batch seen.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["Scratch", "in_place"]


def in_place(tensor: Tensor) -> bool:
    """Whether to work by index in place: on a CPU, unless a graph is being traced."""
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor)


class Scratch:
    """Buffers by name. A buffer's contents are valid until its name is asked for again."""

    def __init__(self) -> None:
        self._buffers: dict[Hashable, Tensor] = {}

    def take(self, name: Hashable, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialised tensor of ``shape``, with the dtype and device of ``like``."""
        if not in_place(like):
            return like.new_empty(tuple(shape))
        key = (name, like.dtype)
        needed = math.prod(shape)
        held = self._buffers.get(key)
        if held is None or held.numel() < needed:
            held = self._buffers[key] = torch.empty(needed, dtype=like.dtype)
        return held[:needed].view(tuple(shape))

    def clear(self) -> None:
        """Lets go of all buffers."""
        self._buffers.clear()
