"""Lots: which units take part in a step, and what the step then costs.

One object makes both the sampler and the event, so that they cannot disagree.

==============  ==================================  ==============================  ============
lots            sampler                             one step, noise multiplier z    neighbours
==============  ==================================  ==============================  ============
Poisson         every unit by its own coin          Gaussian, amplified by q        all
Poisson, cut    the same, at most ``max_size``      see :class:`PoissonLots`        all
fixed size      L units without replacement         Gaussian at 2C, amplified       public sizes
shuffled        a permutation each epoch, cut       none: one Gaussian each epoch   public sizes
==============  ==================================  ==============================  ============

``population`` is the declared, public number of units N. The true number is private under
add/remove; it enters neither the rate L/N nor the normaliser L, and no error depends on it.
Amplification holds against those who do not see which units a lot holds.

    >>> lots = PoissonLots(size=600, population=60_000)
    >>> lots.sample_rate, lots.expected_size, lots.steps_for(epochs=60)
    (0.01, 600.0, 6000)
    >>> from sfumato.core.events import dp_sgd
    >>> lots.events([(1.711, 6000)], "add-remove") == dp_sgd(1.711, 0.01, 6000)
    True

References: Abadi et al., arXiv:1607.00133, algorithm 1 (Poisson); Balle, Barthe and Gaboardi,
arXiv:1807.01647, theorems 8 and 9 (amplification); Chua et al., arXiv:2403.17673 (why shuffled
lots must not be accounted as Poisson ones).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, final

import numpy as np

from sfumato.core import validation
from sfumato.core.events import (
    CutSampledEvent,
    EpsilonDeltaEvent,
    Event,
    FixedSizeSampledEvent,
    GaussianEvent,
    GroupedEvent,
    PoissonSampledEvent,
    compose,
    repeat,
)
from sfumato.core.kinds import ByKind
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.dp_sgd.draws import (
    Positions,
    arrangement,
    bernoulli,
    permutation,
    subset,
)
from sfumato.learning.dp_sgd.schedules import Noise, by_epoch

__all__ = ["FixedSizeLots", "Lots", "PoissonLots", "ShuffledLots"]

_PUBLIC_SIZE = frozenset({Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE})


class Lots(ByKind, ABC, family=True):
    """How lots are drawn. Subclasses are frozen dataclasses named by ``kind`` in JSON."""

    relations: ClassVar[frozenset[Neighbours]]
    """The relations under which such lots have a guarantee."""

    whole_epochs: ClassVar[bool] = False
    """Whether lots of one epoch depend on each other."""

    in_order: ClassVar[bool] = False
    """Whether a unit's place in the table decides which lots it is in."""

    size: Any  # whole where lots have exactly that size
    population: int
    max_size: int | None = None

    def _store(self, **values: object) -> None:
        values["population"] = validation.count("population", self.population)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.size > self.population:
            validation.fail("size", f"at most the population ({self.population})", self.size)

    # --- public facts ---------------------------------------------------------------------------

    @property
    def expected_size(self) -> float:
        """What a lot's noisy sum is divided by: the declared size, never the realised one."""
        return float(self.size)

    @property
    def steps_per_epoch(self) -> int:
        """How many lots it takes to see about every unit once, rounded up."""
        return math.ceil(Fraction(self.population) / Fraction(self.size))

    @property
    @abstractmethod
    def sample_rate(self) -> float:
        """The rate at which amplification by sampling is claimed; 1 where there is none."""

    def steps_for(self, epochs: float) -> int:
        """The steps that ``epochs`` passes over the data take: the nearest number, at least 1."""
        passes = Fraction(validation.positive("epochs", epochs))
        exact = Fraction(self.population) / Fraction(self.size)
        return max(1, round(passes * (self.steps_per_epoch if self.whole_epochs else exact)))

    def resume_point(self, step: int) -> int:
        """The step at which a run cut off before ``step`` may go on, with fresh coins.

        Not within an epoch of shuffled lots: another permutation would show units twice.
        """
        length = self.steps_per_epoch if self.whole_epochs else self.cycle
        return -(-validation.at_least("step", step, 0) // length) * length

    @property
    def cycle(self) -> int:
        """How many steps make a turn, in which a unit takes part at most once as accounted."""
        return 1

    def participation(self, steps: int) -> tuple[int, int]:
        """How often one unit takes part in ``steps`` at most, and how many steps later again.

        Raises:
            ValueError: where there is no such bound, which correlated noise needs.
        """
        raise ValueError(
            f"lots must bound how often one unit takes part for noise that is correlated, got "
            f"{self.kind} lots: use StreamedLots, or CyclicPoissonLots with BandedNoise"
        )

    def sampler(self, available: int, coins: Coins = SYSTEM, first: int = 0) -> Iterator[Positions]:
        """Endless lots: the positions of each lot's units among ``available`` of them.

        In a secret, uniformly random order, afresh for each lot, which sums in floating point need
        (:mod:`~sfumato.learning.dp_sgd.gradients.summing`); where lots keep the table's order, in
        that.

        Args:
            available: the true number of units; of Poisson lots private, else the population.
            coins: where the bits come from.
            first: the step of the first lot, a :meth:`resume_point`.
        """
        known = validation.at_least("available", available, 0)
        if Neighbours.ADD_REMOVE not in self.relations and known != self.population:
            raise ValueError(
                f"available must be the declared population {self.population}, which is public for "
                f"{self.kind} lots, got {available!r}: declare the number of units that there are"
            )
        drawn = itertools.islice(self._draw(known, coins), self._place(first), None)
        return drawn if self.in_order else (lot[arrangement(len(lot), coins)] for lot in drawn)

    def _place(self, first: int) -> int:
        """How many lots a sampler leaves out to begin with the one of step ``first``."""
        return 0

    @abstractmethod
    def _draw(self, available: int, coins: Coins) -> Iterator[Positions]:
        """The lots of :meth:`sampler`, in the table's order."""

    # --- what it costs --------------------------------------------------------------------------

    @abstractmethod
    def mechanism(self, noise: Noise, neighbours: Neighbours, unit: str, first: int = 0) -> Event:
        """What the steps release, but for :meth:`overflow`.

        Arguments as for :meth:`events`.
        """

    def overflow(self, steps: int, neighbours: Neighbours) -> float:
        """Eta: the total variation, on any data set, from the sampler that is accounted.

        ``steps`` Pr[Bin(N, q) > max_size], rounded up, where the table holds at most N units
        (:meth:`check_table`). Under add/remove 0: the cut is a part of what is accounted there.
        """
        if neighbours is Neighbours.ADD_REMOVE:
            return 0.0
        if self.max_size is None or self.max_size >= self.population:
            return 0.0
        from scipy.stats import binom  # loaded here: it takes long to import

        one = float(binom.sf(self.max_size, self.population, self.sample_rate))
        return min(1.0, steps * (one * (1 + 1e-9) + 1e-300))

    def check(self, neighbours: Neighbours, records_per_unit: int = 1) -> None:
        """Raises ``ValueError`` if such lots have no guarantee of this kind."""
        if neighbours not in self.relations:
            allowed = " or ".join(repr(r.value) for r in Neighbours if r in self.relations)
            raise ValueError(
                f"neighbours must be {allowed} for {self.kind} lots, whose sizes are public, got "
                f"{neighbours.value!r}: state the guarantee so, or use PoissonLots"
            )
        if records_per_unit > self._most_records(neighbours):
            raise ValueError(
                f"records_per_unit must be 1 for {self.kind} lots under {neighbours.value}, got "
                f"{records_per_unit}: sample and clip whole units, or use PoissonLots under "
                "add-remove or zero-out"
            )

    def check_table(self, available: int, neighbours: Neighbours) -> None:
        """Raises ``ValueError`` if the guarantee is not for tables of ``available`` units."""
        if self.max_size is None or neighbours is Neighbours.ADD_REMOVE:
            return  # where the size is private, nothing may depend on it
        if available > self.population:
            raise ValueError(
                f"population (public_size) must be at least the {available} units of the table for "
                f"lots with a max_size under {neighbours.value}, got {self.population}: the chance "
                "that a lot is cut is computed for it; declare at least how many there are"
            )

    @abstractmethod
    def _most_records(self, neighbours: Neighbours) -> float:
        """How many records one unit may hold for its guarantee to be accounted."""

    def events(
        self,
        noise: Noise,
        neighbours: Neighbours | str,
        unit: str = "record",
        *,
        first: int = 0,
        records_per_unit: int = 1,
        group_unit: str | None = None,
        delta: float | None = None,
        largest_epsilon: float | None = None,
    ) -> Event:
        """What the steps release, as one event to account under ``neighbours``.

        A sampler within total variation eta of the accounted one, on either of two neighbours,
        turns (epsilon, delta) into (epsilon, delta + (1 + e^epsilon) eta). That extra is composed
        as an opaque event with epsilon 0, computed at ``largest_epsilon``: the event is valid for
        statements up to it. It is divided by 1 - delta because composition weighs it so.

        Args:
            noise: (noise multiplier, steps), relative to one unit's whole contribution.
            neighbours: the relation of the statement.
            unit: what is sampled and clipped.
            first: the number of steps taken before these.
            records_per_unit: how many of ``unit`` one ``group_unit`` holds at most.
            group_unit: the larger unit of the statement, if any.
            delta: the statement's; needed where lots may overflow.
            largest_epsilon: the largest epsilon of the statement; needed likewise.
        """
        relation = Neighbours.parse(neighbours)
        self.check(relation, records_per_unit)
        event = self.mechanism(noise, relation, unit, first)
        if group_unit is not None:
            event = GroupedEvent(event, records_per_unit, group_unit)
        steps = sum(count for _, count in noise)
        eta = self.overflow(steps, relation)
        if eta == 0:
            return event
        extra = self._extra_delta(eta, delta, largest_epsilon)
        # For the larger unit at once: the argument holds for any two data sets.
        return compose(event, EpsilonDeltaEvent(0.0, extra, relation, group_unit or unit))

    def _extra_delta(self, eta: float, delta: float | None, epsilon: float | None) -> float:
        delta = validation.open_probability("delta", delta)
        epsilon = validation.non_negative("largest_epsilon", epsilon)
        extra = eta * (1 + math.exp(min(epsilon, 700.0))) * (1 + 1e-12) / (1 - delta)
        if extra >= delta:
            raise ValueError(
                f"max_size must be larger, got {self.max_size!r}: cutting larger lots would cost "
                f"delta {extra:.3g} at epsilon {epsilon:.4g}, of {delta:.3g} in all"
            )
        return extra


@final
@dataclass(frozen=True)
class PoissonLots(Lots):
    """Every unit enters every lot by its own coin, with probability q = L/N.

    Guarantee: the sampled Gaussian mechanism's, for all three relations. One unit present in D and
    not in D' leaves the other coins as they are, so a lot of D is a lot of D' or that lot with the
    unit, with probability at most q: exactly floor(q 2^64) / 2^64. Empty lots are lots.

    With ``max_size`` B, of more units than that a uniformly random part of B is kept, by coins. A
    unit that is drawn may then push another one out, whoever it is:

    * Zero-out and replace-one, for tables of at most N units: the size is public there, and a
      larger table is refused (:meth:`check_table`). Lots do not depend on the data. One is cut with
      probability at most Pr[Bin(N, q) > B], so that all lots together are within total variation
      eta = T Pr[Bin(N, q) > B] of uncut ones. That costs (1 + e^epsilon) eta of delta. Nothing,
      where B is N: no lot is ever cut.
    * Add/remove, for tables of any size, which is private: :class:`CutSampledEvent`, the sampled
      Gaussian at twice the distance, as if the noise were half. Fix everybody's coins and
      priorities but the coin of the unit that comes. With probability 1 - q the two lots are the
      same; with q one holds one unit more and perhaps one less, a sum at most 2C away. This pair,
      N(a) and (1-q) N(a) + q N(a + v), is the image of the one for |v| = 2C (shrink it, and add
      noise), and mixtures over the fixed coins cost no more than the worst of them. The price is
      due even if no lot is ever cut, since the table might be larger than N. State zero-out for
      lots with a ``max_size``.

    Attributes:
        size: the expected lot size L.
        population: the declared number of units N.
        max_size: B, the most units a lot may hold; None for no limit.
    """

    kind: ClassVar[str] = "poisson"
    relations: ClassVar[frozenset[Neighbours]] = frozenset(Neighbours)
    size: float
    population: int
    max_size: int | None = None

    def __post_init__(self) -> None:
        self._store(size=validation.positive("size", self.size))
        if self.max_size is not None:
            most = validation.at_least("max_size", self.max_size, math.ceil(self.size))
            self._store(max_size=most)

    @property
    def sample_rate(self) -> float:
        """L/N: not one over a number of batches, which would round."""
        return self.size / self.population

    def _draw(self, available: int, coins: Coins) -> Iterator[Positions]:
        threshold = math.floor(Fraction(self.sample_rate) * 2**64)
        while True:
            lot = bernoulli(available, threshold, coins)
            if self.max_size is not None and len(lot) > self.max_size:
                lot = lot[subset(len(lot), self.max_size, coins)]
            yield lot

    def mechanism(self, noise: Noise, neighbours: Neighbours, unit: str, first: int = 0) -> Event:
        """The sampled Gaussian mechanism, noise relative to one unit's whole contribution."""
        whole = Neighbours.ZERO_OUT if neighbours is Neighbours.ZERO_OUT else Neighbours.ADD_REMOVE
        rate = self.sample_rate
        cut = self.max_size is not None and neighbours is Neighbours.ADD_REMOVE

        def step(z: float) -> Event:
            gaussian = GaussianEvent(z, whole, unit)
            if cut:
                return CutSampledEvent(gaussian, rate)
            return gaussian if rate == 1 else PoissonSampledEvent(gaussian, rate)

        return _in_order((step(z), count) for z, count in noise)

    def _most_records(self, neighbours: Neighbours) -> float:
        return 1 if neighbours is Neighbours.REPLACE_ONE and self.sample_rate < 1 else math.inf


@final
@dataclass(frozen=True)
class FixedSizeLots(Lots):
    """Exactly ``size`` units without replacement, uniformly, afresh at every step.

    Guarantee: for zero-out and replace-one neighbours. A unit that is not drawn leaves its place to
    another, so two lots of neighbours differ by a replaced unit, whose contribution moves from one
    ball of radius C into any point of it: by up to 2C. The event states the noise relative to one
    unit's whole contribution and accountants take it at that double distance, before amplification
    by L/N.

    Attributes:
        size: the number of units in a lot L.
        population: the number of units N, which is public; a sampler needs exactly so many.
    """

    kind: ClassVar[str] = "fixed-size"
    relations: ClassVar[frozenset[Neighbours]] = _PUBLIC_SIZE
    size: int
    population: int

    def __post_init__(self) -> None:
        self._store(size=validation.count("size", self.size))

    @property
    def sample_rate(self) -> float:
        """L/N."""
        return self.size / self.population

    def _draw(self, available: int, coins: Coins) -> Iterator[Positions]:
        while True:
            yield subset(self.population, self.size, coins)

    def mechanism(self, noise: Noise, neighbours: Neighbours, unit: str, first: int = 0) -> Event:
        """A Gaussian on a sample without replacement, declared zero-out: see the class."""

        def step(z: float) -> Event:
            gaussian = GaussianEvent(z, Neighbours.ZERO_OUT, unit)
            return FixedSizeSampledEvent(gaussian, self.size, self.population)

        return _in_order((step(z), count) for z, count in noise)

    def _most_records(self, neighbours: Neighbours) -> float:
        return 1


@final
@dataclass(frozen=True)
class ShuffledLots(Lots):
    """Each epoch a fresh uniform permutation, cut into consecutive lots; the last may be smaller.

    Guarantee: one Gaussian release without amplification for every epoch that was started, for
    zero-out and replace-one neighbours. Fix the permutations, which do not depend on the data. In
    an epoch exactly one lot holds the changed unit; every other step is the same function of what
    was released before, on both data sets. So the epoch is one Gaussian release of sensitivity C
    (zero-out) or 2C (replace-one) between steps that reveal nothing more, with the smallest noise
    multiplier of the epoch at worst. Epochs compose; and a mixture over permutations of pairs that
    satisfy a bound satisfies it too (joint convexity). A unit of k records has contributions
    c_1 + c_2 + ... of at most kC in an epoch, and the sum of their squares is at most (kC)^2.

    Accounting such lots as Poisson ones understates epsilon several times over.

    Attributes:
        size: the number of units in a lot L.
        population: the number of units N, which is public; a sampler needs exactly so many.
    """

    kind: ClassVar[str] = "shuffled"
    relations: ClassVar[frozenset[Neighbours]] = _PUBLIC_SIZE
    whole_epochs: ClassVar[bool] = True
    size: int
    population: int

    def __post_init__(self) -> None:
        self._store(size=validation.count("size", self.size))

    @property
    def sample_rate(self) -> float:
        """1: shuffling is not amplification."""
        return 1.0

    def participation(self, steps: int) -> tuple[int, int]:
        """Once in one epoch. In several, at places of which nothing is known: see the base."""
        return (1, steps) if steps <= self.steps_per_epoch else super().participation(steps)

    def _draw(self, available: int, coins: Coins) -> Iterator[Positions]:
        while True:
            order = permutation(self.population, coins)
            for start in range(0, self.population, self.size):
                yield np.sort(order[start : start + self.size])

    def mechanism(self, noise: Noise, neighbours: Neighbours, unit: str, first: int = 0) -> Event:
        """One Gaussian each epoch, with the smallest multiplier of its steps."""
        return _in_order(
            (GaussianEvent(z, Neighbours.ZERO_OUT, unit), epochs)
            for z, epochs in by_epoch(noise, self.steps_per_epoch, first)
        )

    def _most_records(self, neighbours: Neighbours) -> float:
        return math.inf


def _in_order(parts: Iterable[tuple[Event, int]]) -> Event:
    return compose(*(repeat(event, count) for event, count in parts))
