"""Composites: events made of events."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sfumato.core import validation
from sfumato.core.events.base import Event
from sfumato.core.events.leaves import GaussianEvent, Leaf, NotPrivateEvent
from sfumato.core.neighbours import Neighbours


def _event(value: object) -> Event:
    if not isinstance(value, Event):
        validation.fail("event", "an event", value)
    return value


def _common_relation(events: Iterable[Event]) -> Neighbours:
    relations = {event.relation for event in events}
    if Neighbours.REPLACE_ONE in relations:
        return Neighbours.REPLACE_ONE
    return Neighbours.ZERO_OUT if Neighbours.ZERO_OUT in relations else Neighbours.ADD_REMOVE


def _require_leaf(value: object) -> None:
    if not isinstance(value, Leaf):
        found = value.kind if isinstance(value, Event) else value
        validation.fail("event", "a single release (sample, then repeat or compose)", found)
    if isinstance(value, NotPrivateEvent):
        raise ValueError(
            "a release that promises nothing promises nothing from a sample: leave out the sampling"
        )


def _common_unit(events: Iterable[Event]) -> str:
    units = sorted({event.unit_name for event in events})
    if len(units) > 1:
        raise ValueError(
            f"events for different units do not compose ({', '.join(units)}): convert with "
            "GroupedEvent where one unit is a bounded group of the other, or keep two accounts"
        )
    return units[0] if units else "record"


@dataclass(frozen=True)
class ComposedEvent(Event):
    """Several releases from the same data, each free to depend on those before it."""

    kind: ClassVar[str] = "composed"
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        self._store(events=tuple(_event(event) for event in self.events))
        _common_unit(self.events)

    @property
    def relation(self) -> Neighbours:
        """The relation that all parts convert to."""
        return _common_relation(self.events)

    @property
    def unit_name(self) -> str:
        """The one unit of all parts."""
        return _common_unit(self.events)


@dataclass(frozen=True)
class _Wrapper(Event, ABC):
    """An event made of one other."""

    event: Event

    @property
    def relation(self) -> Neighbours:
        """The relation of the event inside."""
        return self.event.relation

    @property
    def unit_name(self) -> str:
        """The unit of the event inside."""
        return self.event.unit_name


@dataclass(frozen=True)
class RepeatedEvent(_Wrapper):
    """The same release ``count`` times."""

    kind: ClassVar[str] = "repeated"
    count: int

    def __post_init__(self) -> None:
        _event(self.event)
        self._store(count=validation.count("count", self.count))


@dataclass(frozen=True)
class PoissonSampledEvent(_Wrapper):
    """A release from a sample that each record enters by its own coin, of ``sample_rate``."""

    kind: ClassVar[str] = "poisson-sampled"
    sample_rate: float

    def __post_init__(self) -> None:
        self._store(sample_rate=validation.sample_rate("sample_rate", self.sample_rate))
        _require_leaf(self.event)
        if self.event.relation is Neighbours.REPLACE_ONE:
            raise ValueError(
                "a Poisson-sampled release must state its noise relative to one record's whole "
                "contribution (add-remove or zero-out), got replace-one: declare it so, then "
                "account it under replace-one"
            )


@dataclass(frozen=True)
class CutSampledEvent(_Wrapper):
    """A release from a Poisson sample; if that is too large, from a uniformly random part of it.

    For any largest size and any table. Give every record a uniform priority; what is kept are the
    smallest ones among the records drawn. A record that comes is drawn with probability
    ``sample_rate``, and then enters, and may push one other out: samples with it and without it are
    up to two steps of add/remove apart, not one. All other coins are as before, so for fixed ones
    this is the pair of a Poisson-sampled release at twice the distance, and that is what is
    accounted; k records of one unit move it by twice k. For replace-one likewise: both samples are
    within that distance of the one without the record.

    No zero-out guarantee follows from it: a blank record takes a place as any other does.
    """

    kind: ClassVar[str] = "cut-sampled"
    sample_rate: float

    def __post_init__(self) -> None:
        self._store(sample_rate=validation.sample_rate("sample_rate", self.sample_rate))
        _require_leaf(self.event)
        if self.event.relation is not Neighbours.ADD_REMOVE:
            raise ValueError(
                "a cut sample's release must state its noise for add-remove, got "
                f"{self.event.relation.value}: declare it so"
            )


@dataclass(frozen=True)
class FixedSizeSampledEvent(_Wrapper):
    """A release from ``sample_size`` records drawn without replacement from ``population`` of them.

    The sizes are public, so it has no add/remove guarantee. A record that is not sampled leaves its
    place to another, so noise is always taken at the distance of a replaced record.
    """

    kind: ClassVar[str] = "fixed-size-sampled"
    sample_size: int
    population: int

    def __post_init__(self) -> None:
        self._store(
            sample_size=validation.count("sample_size", self.sample_size),
            population=validation.count("population", self.population),
        )
        if self.sample_size > self.population:
            validation.fail(
                "sample_size", f"at most the population ({self.population})", self.sample_size
            )
        _require_leaf(self.event)

    @property
    def relation(self) -> Neighbours:
        """Replace-one, the relation of the theorem, unless the release is declared zero-out."""
        inner = self.event.relation
        return inner if inner is Neighbours.ZERO_OUT else Neighbours.REPLACE_ONE


@dataclass(frozen=True)
class ParallelEvent(Event):
    """Releases from parts of the data that no unit can be in more than ``groups_per_unit`` of.

    Sound only where the parts are unit-disjoint by construction, with public keys: a partition
    chosen by looking at the data is not free. Under add/remove the costliest ``groups_per_unit``
    parts count; under replace-one a unit leaves some parts and enters others, so twice as many do.
    """

    kind: ClassVar[str] = "parallel"
    events: tuple[Event, ...]
    groups_per_unit: int = 1

    def __post_init__(self) -> None:
        self._store(
            events=tuple(_event(event) for event in self.events),
            groups_per_unit=validation.count("groups_per_unit", self.groups_per_unit),
        )
        if not self.events:
            validation.fail("events", "at least one event", self.events)
        _common_unit(self.events)

    @property
    def relation(self) -> Neighbours:
        """The relation that all parts convert to."""
        return _common_relation(self.events)

    @property
    def unit_name(self) -> str:
        """The one unit of all parts."""
        return _common_unit(self.events)


@dataclass(frozen=True)
class GroupedEvent(_Wrapper):
    """The same release, accounted for a larger ``unit`` that holds at most ``size`` of the old one.

    Records to people: ``GroupedEvent(event, size=rows_per_person, unit="person")``.
    """

    kind: ClassVar[str] = "grouped"
    size: int
    unit: str

    def __post_init__(self) -> None:
        _event(self.event)
        self._store(size=validation.count("size", self.size))
        validation.name("unit", self.unit)

    @property
    def unit_name(self) -> str:
        """The larger unit."""
        return self.unit


def promises_nothing(event: Event) -> bool:
    """Whether a part of ``event`` was released without protection, and so all of it.

    >>> promises_nothing(compose(GaussianEvent(1.0), repeat(NotPrivateEvent(), 3)))
    True
    """
    if isinstance(event, ComposedEvent | ParallelEvent):
        return any(promises_nothing(part) for part in event.events)
    if isinstance(event, _Wrapper):
        return promises_nothing(event.event)
    return isinstance(event, NotPrivateEvent)


def compose(*events: Event) -> Event:
    """Several releases as one event."""
    return events[0] if len(events) == 1 else ComposedEvent(events)


def repeat(event: Event, count: int) -> Event:
    """The same release ``count`` times as one event."""
    count = validation.count("count", count)
    return event if count == 1 else RepeatedEvent(event, count)


def dp_sgd(noise_multiplier: float, sample_rate: float, steps: int, unit: str = "record") -> Event:
    """DP-SGD as Abadi et al. wrote it: Poisson lots, clipping per example, Gaussian noise.

    arXiv:1607.00133, algorithm 1.

    Args:
        noise_multiplier: standard deviation of the noise on the sum, over the clip norm.
        sample_rate: probability with which each record enters a lot (expected lot size over N).
        steps: number of lots, empty ones included.
        unit: what is clipped.
    """
    noise = GaussianEvent(noise_multiplier, unit=unit)
    rate = validation.sample_rate("sample_rate", sample_rate)
    step = noise if rate == 1 else PoissonSampledEvent(noise, rate)
    return repeat(step, validation.count("steps", steps))
