"""Noise for several whole numbers per cell, released together under one budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.core.events import Event, compose
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.sensitivity import Norm
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.queries.facts import Facts

__all__ = ["Noise", "Part", "calibrate"]


@dataclass(frozen=True)
class Part:
    """One whole number per cell, and how far one unit may move it.

    Attributes:
        name: of the aggregate's column.
        l1: most that adding or removing one unit moves it over all cells, in magnitude; under
            zero-out, most that blanking one does.
        l2: the Euclidean norm of the same.
        share: of the budget; the shares of all parts add up to 1.
    """

    name: str
    l1: int
    l2: float
    share: float = 1.0


@dataclass(frozen=True)
class Noise:
    """A mechanism for each part, calibrated so that all of them together keep the budget.

    Guarantee: the parts compose to (epsilon, delta)-DP for the table's unit and relation, because
    the shares add up to 1 and each part's mechanism is (share epsilon, share delta)-DP for all its
    cells together.
    """

    parts: tuple[Part, ...]
    mechanisms: tuple[DiscreteLaplace | DiscreteGaussian, ...]

    @property
    def event(self) -> Event:
        """All parts."""
        events = [mechanism.event for mechanism in self.mechanisms]
        return events[0] if len(events) == 1 else compose(*events)

    def add(
        self, exact: Mapping[str, NDArray[np.int64]], coins: Coins
    ) -> dict[str, NDArray[np.int64]]:
        """Every part's numbers with fresh noise."""
        return {
            part.name: mechanism.perturb(exact[part.name], coins=coins)
            for part, mechanism in zip(self.parts, self.mechanisms, strict=True)
        }

    def half_widths(self, confidence: float) -> dict[str, float]:
        """Within which every part's noise stays, all of them at once, in one cell."""
        each = 1 - (1 - confidence) / len(self.parts)
        return {
            part.name: mechanism.half_width(each)
            for part, mechanism in zip(self.parts, self.mechanisms, strict=True)
        }


def calibrate(
    parts: Sequence[Part], facts: Facts, cells: int, epsilon: float, delta: float
) -> Noise:
    """Discrete Laplace noise if ``delta`` is 0, discrete Gaussian otherwise."""
    assert math.isclose(sum(part.share for part in parts), 1.0)
    return Noise(
        tuple(parts), tuple(_mechanism(part, facts, cells, epsilon, delta) for part in parts)
    )


def _mechanism(
    part: Part, facts: Facts, cells: int, epsilon: float, delta: float
) -> DiscreteLaplace | DiscreteGaussian:
    norm = Norm.L2 if delta > 0 else Norm.L1
    bound = facts.sensitivity(part.l1, part.l2, cells, norm)
    # A unit with one row moves one cell only, unless it may move from one cell to another.
    one = facts.rows == 1 and facts.neighbours is not Neighbours.REPLACE_ONE
    if delta == 0:
        return DiscreteLaplace.calibrate(bound, epsilon=epsilon * part.share, one_coordinate=one)
    return DiscreteGaussian.calibrate(
        bound, epsilon=epsilon * part.share, delta=delta * part.share, one_coordinate=one
    )
