"""Small parameters in one pass: biases, scales and shifts of one clipping group, side by side.

A model has as many biases and normalisation scales as layers, each a few hundred numbers for each
unit. Norms and weighted sums of each by itself are a few launches each, which cost more than the
arithmetic. Written side by side as one (U, total) matrix they are one norm and one sum.

Exactly the same is computed: |g|^2 is the sum of the parts' squares, and the weighted sum of
joined gradients is the joined weighted sums. Units of weight 0 contribute exactly 0. Sums are
elementwise products added up in float64, never a matrix product, so no setting can shorten their
factors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.gradients.pieces import Direct, Piece, row_norms
from sfumato.learning.dp_sgd.gradients.summing import weigh
from sfumato.learning.dp_sgd.gradients.tape import Gradients

__all__ = ["LARGEST", "SideBySide", "apart", "together"]

LARGEST = 2**12
"""Numbers for each unit above which a parameter is not copied beside others."""


@final
@dataclass
class SideBySide(Piece):
    """Written gradients of several parameters.

    Attributes:
        shapes: each parameter's, by name.
        matrix: (U, total), the parameters one after the other.
    """

    shapes: Mapping[str, torch.Size]
    matrix: Tensor

    def squared_norms(self) -> Tensor:
        """Of all of them together."""
        return row_norms(self.matrix).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """(total,): one after the other."""
        return weigh(self.matrix, weights).sum(0, dtype=torch.float64)

    def written(self) -> Tensor:
        """As they are."""
        return self.matrix

    def split(self, total: Tensor) -> dict[str, Tensor]:
        """A vector (total,) as the parameters' own shapes."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = total.split(sizes)
        return {n: p.view(s) for (n, s), p in zip(self.shapes.items(), parts, strict=True)}


Groups = Sequence[Sequence[str]]


def together(gradients: Gradients, groups: Groups) -> tuple[Gradients, list[list[str]]]:
    """The same gradients with each group's small written ones side by side, and groups to match."""
    pieces = dict(gradients.pieces)
    regrouped: list[list[str]] = []
    for number, group in enumerate(groups):
        names = list(group)
        for dtype, small in _small(gradients, group).items():
            if len(small) < 2:
                continue
            joined = f"{len(small)} small parameters of group {number} in {dtype}"
            pieces[joined] = _side_by_side(small)
            for name in small:
                del pieces[name]
            names = [name for name in names if name not in small] + [joined]
        regrouped.append(names)
    return Gradients(gradients.units, pieces), regrouped


def apart(sums: Mapping[str, Tensor], gradients: Gradients) -> dict[str, Tensor]:
    """Sums by the parameters' own names again."""
    found: dict[str, Tensor] = {}
    for name, value in sums.items():
        piece = gradients.pieces[name]
        found |= piece.split(value) if isinstance(piece, SideBySide) else {name: value}
    return found


def _small(gradients: Gradients, group: Sequence[str]) -> dict[torch.dtype, dict[str, Tensor]]:
    found: dict[torch.dtype, dict[str, Tensor]] = {}
    for name in group:
        piece = gradients.pieces.get(name)
        if isinstance(piece, Direct) and math.prod(piece.gradients.shape[1:]) <= LARGEST:
            found.setdefault(piece.gradients.dtype, {})[name] = piece.gradients
    return found


def _side_by_side(gradients: Mapping[str, Tensor]) -> SideBySide:
    shapes = {name: g.shape[1:] for name, g in gradients.items()}
    flat = [g.reshape(len(g), math.prod(g.shape[1:])) for g in gradients.values()]
    return SideBySide(shapes, torch.cat(flat, 1))
