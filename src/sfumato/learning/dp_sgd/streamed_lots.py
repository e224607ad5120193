"""Lots for data that comes in an order: as it stands, or in turns.

==============  ==================================  ==============================  ============
lots            sampler                             accounted as                    neighbours
==============  ==================================  ==============================  ============
streamed        the order of the table, each epoch  one Gaussian each epoch         public sizes
cyclic Poisson  part t mod g of the table, by coin  ceil(T / g) sampled Gaussians   all
==============  ==================================  ==============================  ============

Both bound how often one unit takes part and how many steps lie between, which is what correlated
noise (:mod:`~sfumato.learning.dp_sgd.correlated`) needs to know of lots.

    >>> StreamedLots(size=100, population=1000).participation(steps=25)
    (3, 10)
    >>> lots = CyclicPoissonLots(size=100, population=10_000, groups=16)
    >>> lots.sample_rate, lots.participation(steps=100)
    (0.16, (7, 16))
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from sfumato.core import validation
from sfumato.core.events import Event, GaussianEvent, PoissonSampledEvent, compose, repeat
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.dp_sgd.draws import Positions, below, bernoulli
from sfumato.learning.dp_sgd.lots import Lots
from sfumato.learning.dp_sgd.schedules import Noise, by_epoch

__all__ = ["CyclicPoissonLots", "StreamedLots"]


@final
@dataclass(frozen=True)
class StreamedLots(Lots):
    """The table in its own order, cut into consecutive lots, the same each epoch.

    For data that cannot be sampled: it comes as a stream, once, or several times in one order.

    Guarantee: for zero-out and replace-one neighbours, of tables in which one unit is blanked or
    replaced *at its place*. The changed unit is in exactly one lot of each epoch, always the same
    one, so T steps hold it at most ceil(T / p) times, p steps apart, p the steps of an epoch. With
    independent noise an epoch is one Gaussian release of sensitivity C (zero-out) or 2C
    (replace-one) between steps that reveal nothing more, as for :class:`ShuffledLots`; with
    correlated noise all epochs together are one, of the strategy's sensitivity. There is no
    amplification: everybody may know who is in which lot.

    A run that was cut off goes on with the next lot, not with the next epoch: a unit whose lot was
    begun has taken part in that epoch, all others are still to come, at their own places.

    Attributes:
        size: the number of units in a lot L; an epoch's last lot may be smaller.
        population: the number of units N, which is public; a sampler needs exactly so many.
    """

    kind: ClassVar[str] = "streamed"
    relations: ClassVar[frozenset[Neighbours]] = frozenset(
        {Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE}
    )
    whole_epochs: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    size: int
    population: int

    def __post_init__(self) -> None:
        self._store(size=validation.count("size", self.size))

    @property
    def sample_rate(self) -> float:
        """1: there is no sampling."""
        return 1.0

    def resume_point(self, step: int) -> int:
        """The same step: see the class."""
        return validation.at_least("step", step, 0)

    def participation(self, steps: int) -> tuple[int, int]:
        """Once an epoch, an epoch apart."""
        return math.ceil(steps / self.steps_per_epoch), self.steps_per_epoch

    def _place(self, first: int) -> int:
        return first % self.steps_per_epoch

    def _draw(self, available: int, coins: Coins) -> Iterator[Positions]:
        while True:
            for start in range(0, self.population, self.size):
                yield np.arange(start, min(start + self.size, self.population), dtype=np.int64)

    def mechanism(self, noise: Noise, neighbours: Neighbours, unit: str, first: int = 0) -> Event:
        """One Gaussian each epoch, with the smallest multiplier of its steps."""
        return compose(
            *(
                repeat(GaussianEvent(z, Neighbours.ZERO_OUT, unit), epochs)
                for z, epochs in by_epoch(noise, self.steps_per_epoch, first)
            )
        )

    def _most_records(self, neighbours: Neighbours) -> float:
        return math.inf


@final
@dataclass(frozen=True)
class CyclicPoissonLots(Lots):
    """Every unit belongs to one of g parts; step t draws from part t mod g, by a coin a unit.

    For correlated noise with amplification by sampling: a unit takes part at most every g-th step.

    Guarantee: for all three relations, ceil(T / g) sampled Gaussian releases at the rate
    q = g L / N, noise relative to one participation. At the start every unit draws its part by a
    coin of its own, so that one unit more or less leaves the parts of all others as they are (a
    rule by place would move everyone behind it); fix these coins, which do not depend on the data.
    A unit of part a can enter steps a, a + g, ... only, at most ceil(T / g) of them. With noise of
    at most g bands (:class:`BandedNoise`, or independent noise), what it does at one of them shows
    in rows of C x + z that no other of them touches: each such block of rows is the sampled
    Gaussian mechanism, one column of C long, whose input is fixed before the block begins; blocks
    compose adaptively. A replaced unit keeps its place, hence its part.

    A run that was cut off goes on at the next multiple of g, with parts drawn anew: then each unit
    had every turn of the parts at most once, before and after, and the count holds.

    Attributes:
        size: the expected lot size L.
        population: the declared number of units N.
        groups: g, the number of parts: at least the number of bands.

    Reference: Choquette-Choo et al., "(Amplified) banded matrix factorization", arXiv:2306.08153,
    theorem 4.
    """

    kind: ClassVar[str] = "cyclic-poisson"
    relations: ClassVar[frozenset[Neighbours]] = frozenset(Neighbours)
    size: float
    population: int
    groups: int

    def __post_init__(self) -> None:
        size, groups = (
            validation.positive("size", self.size),
            validation.count("groups", self.groups),
        )
        self._store(size=size, groups=groups)
        if Fraction(size) * groups > self.population:
            raise ValueError(
                f"groups must be at most population / size = {self.population / size:.4g}, or a "
                f"part holds less than a lot, got {groups}: use fewer groups, or smaller lots"
            )

    @property
    def sample_rate(self) -> float:
        """G L / N: a part's units enter its lots with this probability."""
        return min(1.0, self.groups * self.size / self.population)

    @property
    def cycle(self) -> int:
        """g: a unit takes part at most once in so many steps."""
        return self.groups

    def participation(self, steps: int) -> tuple[int, int]:
        """At most once a turn of the parts."""
        return math.ceil(steps / self.groups), self.groups

    def _draw(self, available: int, coins: Coins) -> Iterator[Positions]:
        part = below(np.full(available, self.groups, dtype=np.int64), coins)
        members = [np.flatnonzero(part == g) for g in range(self.groups)]
        threshold = math.floor(Fraction(self.sample_rate) * 2**64)
        while True:
            for mine in members:
                yield mine[bernoulli(len(mine), threshold, coins)]

    def mechanism(self, noise: Noise, neighbours: Neighbours, unit: str, first: int = 0) -> Event:
        """A sampled Gaussian each turn of the parts, with the smallest multiplier of its steps."""
        whole = Neighbours.ZERO_OUT if neighbours is Neighbours.ZERO_OUT else Neighbours.ADD_REMOVE
        rate = self.sample_rate

        def turn(z: float) -> Event:
            gaussian = GaussianEvent(z, whole, unit)
            return gaussian if rate == 1 else PoissonSampledEvent(gaussian, rate)

        return compose(*(repeat(turn(z), n) for z, n in by_epoch(noise, self.groups, first)))

    def _most_records(self, neighbours: Neighbours) -> float:
        return 1  # records of one person may be in different parts, whose blocks of rows overlap
