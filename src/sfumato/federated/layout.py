"""A model's trainable parameters as one vector, and back: what participants exchange.

    >>> from torch import nn
    >>> layout = Layout.of(nn.Linear(2, 3))
    >>> layout.size, layout.names
    (9, ('weight', 'bias'))

Only trainable parameters travel. Buffers stay where they are; a model whose buffers change while it
trains (batch normalisation) would carry data past every clip, and is refused by :meth:`Layout.of`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.dp_sgd.recording import trainable

__all__ = ["Layout", "Vector"]

Vector = NDArray[np.float32]
"""All parameters, one after the other."""


@final
@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameters, in the order in which they stand in a vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        """That of a model.

        Raises:
            ValueError: if nothing is trainable, or running statistics would be.
        """
        moving = [name for name, buffer in model.named_buffers() if buffer.is_floating_point()]
        if moving:
            wanted = "a model without running statistics, which are never clipped (use GroupNorm)"
            validation.fail("model", wanted, moving[0])
        found = trainable(model)
        if not found:
            validation.fail("model", "one with trainable parameters", type(model).__name__)
        return cls(tuple(found), tuple(tuple(p.shape) for p in found.values()))

    @property
    def size(self) -> int:
        """d, the length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def digest(self) -> str:
        """A short name of the layout: two models that differ in it cannot be trained together."""
        return hashlib.sha256(repr((self.names, self.shapes)).encode()).hexdigest()[:16]

    def flat(self, tensors: Mapping[str, Tensor]) -> Vector:
        """The tensors as one vector."""
        parts = [tensors[name].detach().to("cpu", torch.float32).flatten() for name in self.names]
        return torch.cat(parts).numpy()

    def read(self, model: nn.Module) -> Vector:
        """The model's parameters."""
        return self.flat(trainable(model))

    @torch.no_grad()
    def write(self, model: nn.Module, vector: Vector) -> None:
        """Gives the model these parameters."""
        held, at = trainable(model), 0
        source = torch.from_numpy(np.array(vector, dtype=np.float32))
        for name, shape in zip(self.names, self.shapes, strict=True):
            count = math.prod(shape)
            held[name].copy_(source[at : at + count].view(shape))
            at += count
