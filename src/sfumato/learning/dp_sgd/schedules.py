"""Noise schedules: how much noise each part of a run adds, relative to its noise multiplier.

A schedule is public and fixed before the run, hence costs nothing by itself: it moves budget from
one part of the training to another. It is piecewise constant, so that a run stays a short list of
(noise multiplier, number of steps), which every accountant composes exactly.

    >>> schedule = NoiseSchedule.linear(1.5, 0.5, phases=2)
    >>> schedule.multipliers(2.0, 10)
    [(2.5, 5), (1.5, 5)]
    >>> NoiseSchedule.constant().multipliers(2.0, 10)
    [(2.0, 10)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast, final

from sfumato.core import validation

__all__ = ["Noise", "NoiseSchedule", "by_epoch"]

Noise = Sequence[tuple[float, int]]
"""(noise multiplier, number of steps), in order. Noise is relative to one unit's clip norm."""


@final
@dataclass(frozen=True)
class NoiseSchedule:
    """Phases of a run, each with its share of the steps and its factor on the noise multiplier.

    Attributes:
        phases: (share of the steps, factor), in order. The shares sum to 1.
    """

    phases: tuple[tuple[float, float], ...] = ((1.0, 1.0),)

    def __post_init__(self) -> None:
        phases = tuple(
            (validation.positive("share", share), validation.positive("factor", factor))
            for share, factor in self.phases
        )
        if not math.isclose(math.fsum(share for share, _ in phases), 1.0, rel_tol=1e-9):
            validation.fail(
                "phases", "shares of the steps that sum to 1, each with its factor", self.phases
            )
        object.__setattr__(self, "phases", phases)

    @classmethod
    def constant(cls) -> NoiseSchedule:
        """The same noise at every step."""
        return cls()

    @classmethod
    def linear(cls, first: float, last: float, phases: int = 10) -> NoiseSchedule:
        """Factors on the straight line from ``first`` to ``last``, each at its phase's middle."""
        start, end = validation.positive("first", first), validation.positive("last", last)
        return cls._equal(lambda at: start + (end - start) * at, phases)

    @classmethod
    def geometric(cls, first: float, last: float, phases: int = 10) -> NoiseSchedule:
        """Factors that change by the same ratio from phase to phase, between ``first``, ``last``.

        The middles of the phases lie on the exponential curve from the one to the other.
        """
        start, end = validation.positive("first", first), validation.positive("last", last)
        return cls._equal(lambda at: start * (end / start) ** at, phases)

    @classmethod
    def _equal(cls, factor: Callable[[float], float], phases: int) -> NoiseSchedule:
        count = validation.count("phases", phases)
        return cls(tuple((1 / count, factor((i + 0.5) / count)) for i in range(count)))

    @property
    def is_constant(self) -> bool:
        """Whether every step has the same noise."""
        return len({factor for _, factor in self.phases}) == 1

    @property
    def least(self) -> float:
        """The smallest factor."""
        return min(factor for _, factor in self.phases)

    @property
    def greatest(self) -> float:
        """The largest factor."""
        return max(factor for _, factor in self.phases)

    def ends(self, steps: int) -> list[int]:
        """The step before which each phase ends, in a run of ``steps``."""
        reached, ends = Fraction(0), list[int]()
        for share, _ in self.phases:
            reached += Fraction(share)
            ends.append(min(steps, round(reached * steps)))
        ends[-1] = steps
        return ends

    def at(self, step: int, steps: int) -> float:
        """The factor at ``step`` (the first is 0) of a run of ``steps``."""
        if not 0 <= step < steps:
            validation.fail("step", f"from 0 to {steps - 1}", step)
        pairs = zip(self.ends(steps), self.phases, strict=True)
        return next(factor for end, (_, factor) in pairs if step < end)

    def multipliers(
        self, base: float, steps: int, first: int = 0, last: int | None = None
    ) -> list[tuple[float, int]]:
        """(noise multiplier, number of steps) in order, for a run of ``steps``.

        Args:
            base: the noise multiplier that factors multiply.
            steps: the whole run's.
            first: only from this step on ...
            last: ... until before this one.

        Returns:
            Counts that sum to ``last - first``; phases without a step are left out, and
            neighbouring ones with the same noise are one.
        """
        stop = steps if last is None else last
        if not 0 <= first <= stop <= steps:
            validation.fail("first and last", f"0 <= first <= last <= {steps}", (first, stop))
        parts, begin = list[tuple[float, int]](), 0
        for end, (_, factor) in zip(self.ends(steps), self.phases, strict=True):
            count = min(end, stop) - max(begin, first)
            begin = max(begin, end)
            if count <= 0:
                continue
            if parts and parts[-1][0] == base * factor:
                count += parts.pop()[1]
            parts.append((base * factor, count))
        return parts

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"phases": [list(phase) for phase in self.phases]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NoiseSchedule:
        """The inverse of :meth:`to_dict`."""
        phases = cast("Sequence[Sequence[float]]", data["phases"])
        return cls(tuple((phase[0], phase[1]) for phase in phases))


def by_epoch(noise: Noise, length: int, first: int = 0) -> list[tuple[float, int]]:
    """(smallest multiplier, epochs) over the epochs of ``length`` steps that ``noise`` touches.

    >>> by_epoch([(2.0, 15), (3.0, 15)], length=10)  # steps 10 to 19 have both
    [(2.0, 1), (2.0, 1), (3.0, 1)]
    """
    spans: list[tuple[float, int, int]] = []  # multiplier, first and last epoch
    step = first
    for z, count in noise:
        begin, end = step // length, (step + count - 1) // length
        step += count
        if spans and spans[-1][2] == begin:  # an epoch with two multipliers
            before, its_first, _ = spans.pop()
            if its_first < begin:
                spans.append((before, its_first, begin - 1))
            spans.append((min(before, z), begin, begin))
            begin += 1
        if begin <= end:
            spans.append((z, begin, end))
    return [(z, end - begin + 1) for z, begin, end in spans]
