"""The clipped sum of a lot, physical batch by physical batch: what noise is added to.

Guarantee: with clip norms C_l for groups l of parameters, one unit more or less moves the part of
the sum that belongs to group l by at most C_l, whatever the unit's data: its contribution is
``factor * gradient`` with ``factor * norm <= C_l``, computed from that unit alone; one whose norm
is not finite contributes exactly 0. Splitting a lot into physical batches changes only the order
of the additions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.clipping import ROUNDING, Adaptive, Clipping
from sfumato.learning.dp_sgd.gradients.pieces import exact_type
from sfumato.learning.dp_sgd.gradients.tape import Gradients

__all__ = ["ClippedSum", "LotFacts", "clip_and_sum", "group_norms"]


def group_norms(gradients: Gradients, groups: Sequence[Sequence[str]], like: Tensor) -> Tensor:
    """(U, k): each unit's norm in each group of parameters."""
    columns: list[Tensor] = []
    for group in groups:
        squares = [s for name in group if (s := gradients.squared_norms(name)) is not None]
        squares = squares or [like.new_zeros(gradients.units, dtype=exact_type(like.dtype))]
        columns.append(torch.stack(squares).sum(0).sqrt())
    return torch.stack(columns, 1)


def clip_and_sum(
    gradients: Gradients, groups: Sequence[Sequence[str]], scales: Tensor
) -> dict[str, Tensor]:
    """Each parameter's sum of scaled gradients; parameters without a part in the loss left out."""
    return {
        name: gradients.pieces[name].weighted_sum(scales[:, column])
        for column, group in enumerate(groups)
        for name in group
        if name in gradients.pieces
    }


@dataclass
class LotFacts:
    """What the operator may watch of a lot. Read from private data: never in a record.

    Attributes:
        units: how many units were in it.
        loss: the sum of their losses.
        clipped: how many were scaled down.
    """

    units: int = 0
    loss: Tensor | float = 0.0  # tensors stay on their device until someone looks
    clipped: Tensor | float = 0.0


class ClippedSum:
    """Accumulates one lot.

    Args:
        parameters: the trainable ones, by name.
        clipping: how contributions are bounded; replaced from lot to lot if it adapts.

    Attributes:
        rounding: the allowance for rounding of each type among the sums.
        eta: the largest of them, which all are clipped with.
    """

    def __init__(self, parameters: Mapping[str, Tensor], clipping: Clipping) -> None:
        self.parameters = dict(parameters)
        self.clipping = clipping
        self.groups = clipping.groups(list(parameters))
        self.start()
        types = {str(total.dtype).removeprefix("torch.") for total in self.sums.values()}
        self.rounding = {name: ROUNDING[name] for name in sorted(types)}
        self.eta = max(self.rounding.values())

    @property
    def bounds(self) -> tuple[float, ...]:
        """The clip norm of each group."""
        return self.clipping.bounds(self.groups)

    def start(self) -> None:
        """An empty lot."""
        self.sums = {
            name: p.new_zeros(p.shape, dtype=exact_type(p.dtype))
            for name, p in self.parameters.items()
        }
        self.count: Tensor | float = 0.0
        self.facts = LotFacts()

    def add(self, gradients: Gradients, losses: Tensor, scaled_by: float = 1.0) -> None:
        """Adds a physical batch.

        Args:
            gradients: of its units.
            losses: for the operator's eyes alone.
            scaled_by: a factor in the gradients that is to be taken out.
        """
        like = next(iter(self.parameters.values()))
        norms = group_norms(gradients, self.groups, like) / scaled_by
        scales = self.clipping.scales(norms, self.bounds, self.eta) / scaled_by
        self.merge(clip_and_sum(gradients, self.groups, scales), norms, losses)

    def merge(self, sums: Mapping[str, Tensor], norms: Tensor, losses: Tensor) -> None:
        """Adds a physical batch that was already clipped and summed."""
        for name, value in sums.items():
            self.sums[name] += value
        if isinstance(self.clipping, Adaptive):
            self.count = self.count + self.clipping.count(norms, self.bounds)
        limits = torch.tensor(self.bounds, dtype=norms.dtype, device=norms.device)
        self.facts.units += len(norms)
        self.facts.loss = self.facts.loss + losses.nansum()
        self.facts.clipped = self.facts.clipped + (norms > limits).any(1).sum()
