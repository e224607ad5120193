"""The clipped sum of a lot, physical batch by physical batch: what noise is added to.

Guarantee: with clip norms C_l for groups l of parameters, one unit more or less moves the part of
the sum that belongs to group l by at most C_l, whatever the unit's data: its contribution is
``factor * gradient`` with ``factor * norm <= C_l``, computed from that unit alone; one whose norm
is not finite contributes exactly 0. Splitting a lot into physical batches changes only the order
of the additions.

Rounding is bounded for any units in lots of any size: sums are added up in blocks and in float64,
and what that may move is a part of eta (:mod:`~sfumato.learning.dp_sgd.gradients.summing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.clipping import ROUNDING, Adaptive, Clipping
from sfumato.learning.dp_sgd.distributed.shards import add_up, local
from sfumato.learning.dp_sgd.gradients.pieces import exact_type
from sfumato.learning.dp_sgd.gradients.summing import ALLOWANCE
from sfumato.learning.dp_sgd.gradients.tape import Gradients
from sfumato.learning.dp_sgd.neighbouring import each_its_own, views_like

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
        shards: where parameters are held in parts; sums are then those of all ranks, in parts.

    Attributes:
        rounding: the allowance of each type among the parameters, for rounding in norms and sums.
        eta: the largest of them, which all are clipped with.
        watched: whether anyone wants to know losses and how many were clipped.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], clipping: Clipping, shards: Any = None
    ) -> None:
        self._shards = shards
        self.parameters = {name: local(p) for name, p in parameters.items()}
        self.clipping = clipping
        self.groups = clipping.groups(list(parameters))
        self._limits: tuple[tuple[float, ...], Tensor] | None = None
        self.watched = True
        self.start()
        types = {str(exact_type(p.dtype)).removeprefix("torch.") for p in self.parameters.values()}
        self.rounding = {name: ROUNDING[name] + ALLOWANCE[name] for name in sorted(types)}
        self.eta = max(self.rounding.values())

    @property
    def bounds(self) -> tuple[float, ...]:
        """The clip norm of each group."""
        return self.clipping.bounds(self.groups)

    def start(self) -> None:
        """An empty lot."""
        self._sums: dict[str, Tensor] | None = None
        self.count: Tensor | float = 0.0
        self.facts = LotFacts()

    @property
    def sums(self) -> dict[str, Tensor]:
        """Each parameter's sum so far, by name, in float64."""
        if self._sums is None:
            self._sums = self._zeros()
        return self._sums

    def _zeros(self) -> dict[str, Tensor]:
        places = {p.device for p in self.parameters.values()}
        if len(places) > 1 or next(iter(places)).type == "cpu":
            return {
                name: p.new_zeros(p.shape, dtype=torch.float64)
                for name, p in self.parameters.items()
            }
        (device,) = places  # on a GPU all in one piece: one kernel does for all
        size = sum(p.numel() for p in self.parameters.values())
        ordered = {name: self.parameters[name] for group in self.groups for name in group}
        views = views_like(torch.zeros(size, dtype=torch.float64, device=device), ordered)
        return {name: views[name] for name in self.parameters}

    def add(
        self,
        gradients: Gradients,
        losses: Tensor,
        scaled_by: float = 1.0,
        present: int | None = None,
    ) -> None:
        """Adds a physical batch.

        Args:
            gradients: of its units.
            losses: for the operator's eyes alone.
            scaled_by: a factor in the gradients that is to be taken out.
            present: how many of its units count; those after them have gradients of 0.
        """
        like = next(iter(self.parameters.values()))
        norms = group_norms(gradients, self.groups, like) / scaled_by
        scales = self.clipping.scales(norms, self.bounds, self.eta) / scaled_by
        if self._shards is None:
            found = clip_and_sum(gradients, self.groups, scales)
        else:
            found = {}
            add_up(self._shards, self.sums, gradients, self.groups, scales)
        self.merge(found, norms[:present], losses)

    def merge(
        self, sums: Mapping[str, Tensor], norms: Tensor, losses: Tensor, whole: bool = False
    ) -> None:
        """Adds a physical batch that was already clipped and summed.

        Args:
            sums: of the parameters that had a part in the loss.
            norms: (U, k).
            losses: for the operator's eyes alone.
            whole: whether the batch is the whole lot; then its sums may be kept as they are, and
                are changed later.
        """
        if whole and self._sums is None and sums.keys() == self.parameters.keys():
            self._sums = each_its_own(sums)
        else:
            for name, value in sums.items():
                self.sums[name] += value
        if isinstance(self.clipping, Adaptive):
            self.count = self.count + self.clipping.count(norms, self.bounds)
        self.facts.units += len(norms)
        if not self.watched:
            return
        limits = self._limits_like(norms)
        self.facts.loss = self.facts.loss + losses.nansum()
        self.facts.clipped = self.facts.clipped + (norms > limits).any(1).sum()

    def _limits_like(self, norms: Tensor) -> Tensor:
        """The clip norms as a tensor; made anew only when they change."""
        if self._limits is None or self._limits[0] != self.bounds:
            made = torch.tensor(self.bounds, dtype=norms.dtype, device=norms.device)
            self._limits = self.bounds, made
        return self._limits[1]
