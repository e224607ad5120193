"""Canaries: rows of the auditor's own, each in the training set by the toss of a fair coin.

What an attacker can tell about them afterwards is a lower bound on what training gives away; see
:mod:`sfumato.audit`. Three kinds:

=============  ===================================================================================
gradient       white-box. A canary's gradient is one coordinate of an extra vector of parameters
               that nothing else touches, as long as the clip norm allows: the strongest there is.
               It takes the way of every row through sampling, clipping, noise and optimizer, but
               does not disturb the model. Its score is how far its parameter was pushed. "Out" is
               what the relation says: absent, without a gradient, or with the opposite one; then
               canaries take the places of rows, so that there are as many as before.
mislabelled    black-box. Rows of the data with a wrong label; the score is minus the loss. Each row
               is one by a coin of its own.
natural        black-box. Rows of the data as they are, likewise; the score is minus the loss.
=============  ===================================================================================

Formal guarantees
- *Gradients*: which are in depends on coins alone. Under add/remove they are rows of their own,
  beside those of the data. Where the number of rows is public they take the places of rows that are
  drawn without looking at any. So what training promises to every record holds with canaries as
  without.
- *Rows of the data* (add/remove only): each row is a canary by a coin of its own, with the public
  probability count / N, N the declared number of rows; a canary is in by a fair coin of its own,
  and gets a wrong label by a third. So a row becomes nothing, itself, or itself with another label,
  whatever other rows there are: a row that comes changes nobody else's part. Fix the coins of all
  others; the rows trained on then differ by one row at most, and what training promises between
  such tables holds for the mixture over coins (joint quasi-convexity of hockey-stick and Renyi
  divergences). How many canaries there are is as private as the number of rows, and no error
  depends on it. (A fixed number of places would not do: a row that comes may take another's, and up
  to three rows change.)
- An audit sees which rows are canaries first, and then guesses fair coins that nothing else
  depends on: its theorem holds for each set of canaries, however many they are.
- The coins, scores of rows of the data and their number are the curator's.

References: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run",
arXiv:2305.08846, section 6 (Dirac canaries); Nasr et al., arXiv:2302.07956.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins, fair_coins
from sfumato.learning.dp_sgd.draws import bernoulli

__all__ = ["Canaries", "CanaryKind", "CanaryScores", "Planted", "WithCanaries", "canary_losses"]

_PUSH = 1000.0  # the loss of a gradient canary, in clip norms: far above what clipping leaves


class CanaryKind(StrEnum):
    """See the module."""

    GRADIENT = "gradient"
    MISLABELLED = "mislabelled"
    NATURAL = "natural"


@final
@dataclass(frozen=True)
class Canaries:
    """How many, of which kind.

    Attributes:
        count: about half of them will be in. Of rows of the data, so many are expected where as
            many rows are there as were declared.
        kind: see the module.
    """

    count: int
    kind: CanaryKind = CanaryKind.GRADIENT

    def __post_init__(self) -> None:
        validation.at_least("canaries", self.count, 2)
        object.__setattr__(self, "kind", validation.choice("kind", self.kind, CanaryKind))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Canaries:
        """The inverse of :meth:`to_dict`."""
        return cls(**data)


@final
@dataclass(frozen=True, eq=False)
class CanaryScores:
    """What an audit needs to know of a run, for the curator.

    Attributes:
        kind: of the canaries.
        included: which were in.
        scores: higher where that seems more likely.
    """

    kind: CanaryKind
    included: NDArray[np.bool_]
    scores: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "kind": self.kind.value,
            "included": self.included.tolist(),
            "scores": self.scores.tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CanaryScores:
        """The inverse of :meth:`to_dict`."""
        kind = CanaryKind(data["kind"])
        return cls(kind, np.array(data["included"], bool), np.array(data["scores"], float))


@final
class Planted:
    """The canaries of one run.

    Args:
        canaries: how many, of which kind.
        included: the coins.
        rows: which rows of the data they are, or take the place of.
        shifts: by how many classes their labels are off.
        neighbours: what "out" means.
    """

    def __init__(
        self,
        canaries: Canaries,
        included: NDArray[np.bool_],
        rows: NDArray[np.int64],
        shifts: NDArray[np.int64],
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
    ) -> None:
        self.canaries, self.included, self.rows, self.shifts = canaries, included, rows, shifts
        self.neighbours = neighbours

    @classmethod
    def draw(
        cls,
        canaries: Canaries,
        total: int,
        classes: int,
        coins: Coins,
        included: NDArray[np.bool_] | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
        population: int | None = None,
    ) -> Planted:
        """Tosses the coins, and picks some of ``total`` rows if they are needed; reads none.

        Args:
            canaries: how many, of which kind.
            total: how many rows there are; private under add/remove.
            classes: of labels.
            coins: where all of this comes from.
            included: which gradients are in, where an audit tosses the coins.
            neighbours: what "out" means.
            population: the declared number of rows. Without it nothing public says which share of
                the rows ``count`` is, and every other row is a canary.

        Raises:
            ValueError: if there are fewer rows than canaries, as far as that is public.
        """
        if canaries.kind is not CanaryKind.GRADIENT:
            if neighbours is not Neighbours.ADD_REMOVE:
                raise ValueError(
                    "canaries that are rows are added or removed, which says nothing about "
                    f"{neighbours.value}: plant gradients, or train for add-remove"
                )
            if included is not None:
                raise ValueError(
                    "included must be left out for canaries that are rows: which rows they are "
                    "and which of them are in is tossed for each row by itself"
                )
            return cls._rows_by_coins(canaries, total, classes, coins, population)
        count = canaries.count
        bits = fair_coins(count, coins) if included is None else np.asarray(included, bool)
        if bits.shape != (count,):
            validation.fail("included", f"{count} booleans", bits.shape)
        nothing = np.zeros(0, np.int64)
        if neighbours is Neighbours.ADD_REMOVE:
            return cls(canaries, bits, nothing, nothing)
        if count > total:  # which is public here
            raise ValueError("canaries must be fewer than the rows to train on: plant fewer")
        rows = np.argsort(coins.words(total), kind="stable")[:count].astype(np.int64)
        return cls(canaries, bits, rows, np.zeros(count, np.int64), neighbours)

    @classmethod
    def _rows_by_coins(
        cls, canaries: Canaries, total: int, classes: int, coins: Coins, population: int | None
    ) -> Planted:
        """Each row by coins of its own: see the module."""
        if population is not None and canaries.count > population:
            raise ValueError(
                f"canaries must be at most the declared number of rows, {population}, got "
                f"{canaries.count}: plant fewer"
            )
        share = Fraction(1, 2) if population is None else Fraction(canaries.count, population)
        rows = bernoulli(total, math.floor(share * 2**64), coins)
        shifts = np.zeros(len(rows), np.int64)
        if canaries.kind is CanaryKind.MISLABELLED:
            shifts += (coins.words(total)[rows] % np.uint64(classes - 1)).astype(np.int64) + 1
        return cls(canaries, fair_coins(max(total, 1), coins)[rows], rows, shifts)

    # --- rows -----------------------------------------------------------------------------------

    @property
    def is_gradient(self) -> bool:
        """Whether canaries are gradients, not rows of the data."""
        return self.canaries.kind is CanaryKind.GRADIENT

    @property
    def _dropped(self) -> NDArray[np.int64]:
        """Rows of the data that are not trained on: canaries that are out, or replaced rows."""
        return self.rows if self.is_gradient else self.rows[~self.included]

    def kept(self, total: int) -> NDArray[np.int64] | slice:
        """The rows of the data that are trained on; a slice of all of them copies nothing."""
        if not len(self._dropped):
            return slice(None)
        stays = np.ones(total, bool)
        stays[self._dropped] = False
        return np.flatnonzero(stays)

    def total(self, rows: int) -> int:
        """How many rows are trained on, of so many of the data."""
        return rows - len(self._dropped) + (len(self._pushes()) if self.is_gradient else 0)

    def relabelled(self, labels: Tensor, classes: int) -> Tensor:
        """All labels, with those of the canaries."""
        changed = labels.clone()
        shifts = torch.as_tensor(self.shifts, device=labels.device)
        changed[self.rows] = (labels[self.rows] + shifts) % classes
        return changed

    def extended(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows with marks, -1 for those of the data, and a row for each gradient."""
        marks = torch.as_tensor(self._pushes(), device=inputs.device)
        blank = inputs.new_zeros(len(marks), *inputs.shape[1:])
        none = torch.full((len(inputs),), -1, dtype=torch.int64, device=inputs.device)
        return (
            torch.cat([inputs, blank]),
            torch.cat([labels, labels.new_zeros(len(marks))]),
            torch.cat([none, marks]),
        )

    def _pushes(self) -> NDArray[np.int64]:
        """Marks of the gradients: three times the canary's number, and 2, 1 or 0 for up to down."""
        if self.neighbours is Neighbours.ADD_REMOVE:
            return 3 * np.flatnonzero(self.included) + 2
        out = 1 if self.neighbours is Neighbours.ZERO_OUT else 0
        return 3 * np.arange(self.canaries.count) + np.where(self.included, 2, out)

    # --- JSON, for the curator ------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "canaries": self.canaries.to_dict(),
            "included": self.included.tolist(),
            "rows": self.rows.tolist(),
            "shifts": self.shifts.tolist(),
            "neighbours": self.neighbours.value,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Planted:
        """The inverse of :meth:`to_dict`."""
        return cls(
            Canaries.from_dict(data["canaries"]),
            np.array(data["included"], bool),
            np.array(data["rows"], np.int64),
            np.array(data["shifts"], np.int64),
            Neighbours.parse(data["neighbours"]),
        )


class WithCanaries(nn.Module):
    """A model and a parameter for each gradient canary.

    Args:
        inner: the model.
        count: of canaries.
        clip: the clip norm.
    """

    def __init__(self, inner: nn.Module, count: int, clip: float) -> None:
        super().__init__()
        self.inner, self.push = inner, _PUSH * clip
        self.canaries = nn.Parameter(torch.zeros(count, 1))

    def forward(self, inputs: Tensor, marks: Tensor | None = None) -> Any:
        """The model alone; with marks its output, and each canary's own loss.

        The gradient of that loss is one long coordinate.
        """
        if marks is None:
            return self.inner(inputs)
        known = marks.clamp(min=0)
        own = F.embedding(known // 3, self.canaries).squeeze(1)
        return self.inner(inputs), self.push * (known % 3 - 1) * own

    @property
    def scores(self) -> NDArray[np.float64]:
        """How far each canary's parameter went down."""
        return -self.canaries.detach().cpu().double().squeeze(1).numpy()


def canary_losses(model: nn.Module, inputs: Tensor, labels: Tensor, marks: Tensor) -> Tensor:
    """The canary's own loss where there is one, the model's everywhere else."""
    logits, own = model(inputs, marks)
    return torch.where(marks >= 0, own, F.cross_entropy(logits, labels, reduction="none"))
