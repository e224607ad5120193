"""From an event tree to a flat multiset of atoms, for one neighbour relation.

Every accountant starts here, so that composition, repetition, groups and relations are decided
once. ``repeat(e, n)`` and n times ``e`` become the same multiset, hence the same guarantee under
every accountant: no accountant ever has to remember a count.

An atom is a leaf whose noise already covers the whole distance between neighbours (see
:meth:`Leaf.stretched`), or one of the three atoms below, whose privacy is not that of a leaf
further away.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import singledispatch

from sfumato.accounting.theorems import amplify
from sfumato.core.events import (
    ComposedEvent,
    CutSampledEvent,
    DiscreteLaplaceEvent,
    EpsilonDeltaEvent,
    Event,
    ExponentialEvent,
    FixedSizeSampledEvent,
    GaussianEvent,
    GroupedEvent,
    LaplaceEvent,
    Leaf,
    NotPrivateEvent,
    ParallelEvent,
    PoissonSampledEvent,
    RandomizedResponseEvent,
    RdpCurveEvent,
    RepeatedEvent,
)
from sfumato.core.neighbours import Neighbours, require_conversion

__all__ = [
    "Atom",
    "FixedSizeAtom",
    "Multiset",
    "ParallelAtom",
    "PoissonAtom",
    "flatten",
    "pure_epsilon",
    "pure_total",
]


@dataclass(frozen=True)
class PoissonAtom:
    """A Poisson-sampled leaf seen by a unit that holds ``records`` records.

    Attributes:
        leaf: the release from the sample; noise relative to one record's whole contribution.
        sample_rate: each record's own coin.
        records: how many records one unit holds; they are sampled independently.
        replace: the unit's records are changed, rather than added or removed.
    """

    leaf: Leaf
    sample_rate: float
    records: int
    replace: bool


@dataclass(frozen=True)
class FixedSizeAtom:
    """A leaf released from a sample without replacement; ``leaf`` covers a replaced record."""

    leaf: Leaf
    sample_size: int
    population: int

    @property
    def sample_rate(self) -> float:
        """The fraction of the records that is sampled."""
        return self.sample_size / self.population


@dataclass(frozen=True)
class ParallelAtom:
    """The worst of several alternatives, ``groups`` = G times.

    ``stays`` are the parts as one unit changes inside one of them. Under replace-one a unit may
    also leave one part and enter another: then two of ``moves`` change.

    *A unit of one record.* It is in at most G parts. Added or removed, it changes those; replaced,
    it stays in some, and the parts that it leaves and those that it enters make pairs: G in all.
    Parts have noise of their own, so what is told of the unit is a product of at most G pairs of
    laws, whatever their kinds. The pair whose curve is the largest of all at every epsilon, in each
    direction, dominates every one of them, and products of dominating pairs dominate (Zhu, Dong and
    Wang, arXiv:2106.08567, theorem 10). So G times the worst curve is a bound.

    *A unit of several records* is m steps away (2 for a replaced record) and may spread them:
    parts change by l_1, l_2, ... steps, each at most m, and at most m G in all. That m steps in
    each of G parts are the worst case is proved as follows.

    - In RDP, for parts of all kinds. At any order, each leaf's bound D(l) grows at least in
      proportion to l, so the D(l_i) <= (l_i / m) D(m) add up to at most G times the largest D(m).
      For Gaussians and zCDP it is l^2. For Laplace, ln(a e^((alpha-1) x) + b e^(-alpha x)) with a,
      b > 0 and a + b = 1 is convex in x and 0 at 0. For a pure epsilon x, D(x) / x is 1 less the
      integral of 1 / (1 + e^(s x)) over s from 1 to 2 alpha - 1, divided by alpha - 1. Sums, minima
      and maxima keep the property. An RDP curve has it for up to three steps; beyond, refused.
    - In curves, for Gaussians: squared distances add up to at most G m^2.
    - In curves, for G = 1 and equal parts of leaves: l_1 + l_2 steps dominate l_1 and l_2 steps in
      two of them. For opaque releases by definition, for bounded ranges because they add, for
      Laplace see below.
    - Elsewhere ``spread`` is set, and RDP alone is used.

    *Laplace*: distances x <= y in two parts are dominated by x + y in one. With z the loss of the
    first, 1 - delta(eps) of the pair is E[min(1, e^(eps - z), e^((eps - z - y)/2))], as that of
    the second alone is 1 - delta(u) = min(1, e^u, e^((u - y)/2)). Weighed by e^(-z/2), z has masses
    e^(-x/2) / 2 at -x and at x and density e^(-x/2) / 4 between. So 1 - delta(eps) is
    e^((eps - x - y)/2), the value of x + y in one, times

        g(eps) = k(eps - x) / 2 + k(eps + x) / 2 + (integral of k from eps - x to eps + x) / 4,

    k(v) = min(1, e^((y - |v|)/2)). For 0 <= eps <= x + y the first term is 1/2, as |eps - x| <= y.
    The rest falls in eps, with slope -k(eps - x) / 4 or less where eps + x > y, and is at least 1/2
    where eps + x <= y. At eps = x + y it is 1/2. So g >= 1, for negative eps by symmetry.
    """

    stays: frozenset[Multiset]
    moves: frozenset[Multiset]
    groups: int
    spread: bool = False


Atom = Leaf | PoissonAtom | FixedSizeAtom | ParallelAtom
Multiset = frozenset[tuple[Atom, int]]


def flatten(event: Event, neighbours: Neighbours) -> Multiset:
    """The atoms of ``event`` with their counts, for ``neighbours``.

    Raises:
        ValueError: where a part has no guarantee under that relation.
    """
    counts: Counter[Atom] = Counter()
    _walk(event, neighbours, 1, 1, counts)
    return frozenset(counts.items())


@singledispatch
def _walk(event: Event, target: Neighbours, size: int, count: int, counts: Counter[Atom]) -> None:
    """Adds ``count`` times ``event`` to ``counts``, for units that hold ``size`` of its own."""
    raise TypeError(f"no accounting is known for {type(event).__name__}")


@_walk.register
def _(event: Leaf, target: Neighbours, size: int, count: int, counts: Counter[Atom]) -> None:
    steps = size * require_conversion(event.relation, target)
    counts[event if steps == 1 else event.stretched(steps)] += count


@_walk.register
def _(
    event: NotPrivateEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    counts[event] += count  # nothing follows from it, under any relation


@_walk.register
def _(
    event: ComposedEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    for part in event.events:
        _walk(part, target, size, count, counts)


@_walk.register
def _(
    event: RepeatedEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    _walk(event.event, target, size, count * event.count, counts)


@_walk.register
def _(
    event: GroupedEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    _walk(event.event, target, size * event.size, count, counts)


@_walk.register
def _(
    event: PoissonSampledEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    require_conversion(event.relation, target)
    assert isinstance(event.event, Leaf)
    if event.sample_rate == 1:
        return _walk(event.event, target, size, count, counts)
    replace = target is Neighbours.REPLACE_ONE
    counts[PoissonAtom(event.event, event.sample_rate, size, replace)] += count
    return None


@_walk.register
def _(
    event: CutSampledEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    if target is Neighbours.ZERO_OUT:
        raise ValueError(
            "a Poisson sample that is cut to a largest size has no zero-out guarantee of its own "
            "(a blank record takes another's place): account it under add-remove, or make the "
            "plan with neighbours='zero-out'"
        )
    assert isinstance(event.event, Leaf)
    apart = event.event.stretched(2)
    replace = target is Neighbours.REPLACE_ONE
    if event.sample_rate == 1:
        counts[apart if size == 1 else apart.stretched(size)] += count
    else:
        counts[PoissonAtom(apart, event.sample_rate, size, replace)] += count


@_walk.register
def _(
    event: FixedSizeSampledEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    if target is Neighbours.ADD_REMOVE:
        raise ValueError(
            "sampling a fixed number of records has no add-remove guarantee (the sample rate "
            "depends on the private size): account it under replace-one or zero-out"
        )
    assert isinstance(event.event, Leaf)
    if size > 1:
        raise ValueError(
            f"sampling without replacement is accounted for single records only, got groups of "
            f"{size}: sample whole units instead"
        )
    if event.sample_size == event.population:
        return _walk(event.event, target, size, count, counts)
    # The theorem compares samples with the record, with its substitute, and without either. In the
    # last, another record takes its place: a replacement, under zero-out as well.
    require_conversion(event.event.relation, target)
    steps = require_conversion(event.event.relation, Neighbours.REPLACE_ONE)
    leaf = event.event.stretched(steps)
    counts[FixedSizeAtom(leaf, event.sample_size, event.population)] += count
    return None


@_walk.register
def _(
    event: ParallelEvent, target: Neighbours, size: int, count: int, counts: Counter[Atom]
) -> None:
    stays = frozenset(_group(part, target, size) for part in event.events)
    if size > 1 and any(isinstance(atom, PoissonAtom) for part in stays for atom, _ in part):
        raise ValueError(
            f"parallel composition of Poisson-sampled releases is not accounted for groups of "
            f"{size}: a unit's records may lie in several parts. Sample whole units instead"
        )
    moves: frozenset[Multiset] = frozenset()
    if target is Neighbours.REPLACE_ONE:
        if event.relation is not Neighbours.ADD_REMOVE:
            raise ValueError(
                "parallel composition under replace-one needs parts declared under add-remove: a "
                "replaced unit may leave one part and enter another, whose sizes then change"
            )
        moves = frozenset(_group(part, Neighbours.ADD_REMOVE, size) for part in event.events)
    steps = size * (2 if target is Neighbours.REPLACE_ONE else 1)
    if (
        size > 1
        and steps > 3
        and any(isinstance(a, RdpCurveEvent) for part in stays for a, _ in part)
    ):
        raise ValueError(
            "parallel composition of releases known by an RDP curve is accounted for units up to "
            f"three steps away, got {steps}: state the curve for whole units"
        )
    spread = size > 1 and not _worst_in_one_part(stays, event.groups_per_unit)
    counts[ParallelAtom(stays, moves, event.groups_per_unit, spread)] += count


def _worst_in_one_part(parts: frozenset[Multiset], groups: int) -> bool:
    """Whether curves are proved to be worst with all of a unit's records in as few parts as fit."""
    leaves = {type(atom) for part in parts for atom, _ in part}
    if leaves <= {GaussianEvent}:
        return True
    return groups == 1 and len(parts) == 1 and all(issubclass(kind, Leaf) for kind in leaves)


def _group(part: Event, target: Neighbours, size: int) -> Multiset:
    counts: Counter[Atom] = Counter()
    _walk(part, target, size, 1, counts)
    return frozenset(counts.items())


@singledispatch
def pure_epsilon(atom: Atom) -> float | None:
    """The epsilon of a release that is pure; None for one that needs a delta."""
    return None


@pure_epsilon.register
def _(atom: LaplaceEvent) -> float | None:
    return 1 / atom.noise_multiplier


@pure_epsilon.register
def _(atom: DiscreteLaplaceEvent) -> float | None:
    return atom.sensitivity / atom.scale


@pure_epsilon.register(ExponentialEvent)
@pure_epsilon.register(RandomizedResponseEvent)
def _(atom: ExponentialEvent | RandomizedResponseEvent) -> float | None:
    return atom.epsilon


@pure_epsilon.register
def _(atom: EpsilonDeltaEvent) -> float | None:
    return atom.epsilon if atom.delta == 0 else None


@pure_epsilon.register
def _(atom: NotPrivateEvent) -> float | None:
    return math.inf


@pure_epsilon.register
def _(atom: PoissonAtom) -> float | None:
    inside = pure_epsilon(atom.leaf)
    if inside is None or atom.replace or atom.records > 1:
        return None
    return amplify(inside, atom.sample_rate)


@pure_epsilon.register
def _(atom: FixedSizeAtom) -> float | None:
    inside = pure_epsilon(atom.leaf)
    return None if inside is None else amplify(inside, atom.sample_rate)


@pure_epsilon.register
def _(atom: ParallelAtom) -> float | None:
    stays = [pure_total(part) for part in atom.stays]
    moves = [pure_total(part) for part in atom.moves]
    known = [epsilon for epsilon in stays if epsilon is not None]
    known += [2 * epsilon for epsilon in moves if epsilon is not None]
    if len(known) < len(stays) + len(moves):
        return None
    return atom.groups * max(known)


def pure_total(atoms: Multiset) -> float | None:
    """The sum of epsilons if every release is pure, else None."""
    epsilons = [(pure_epsilon(atom), count) for atom, count in atoms]
    if any(epsilon is None for epsilon, _ in epsilons):
        return None
    return math.fsum(count * epsilon for epsilon, count in epsilons if epsilon is not None)
