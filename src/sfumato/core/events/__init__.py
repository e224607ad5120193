"""Events: frozen records that say what was released, known before any data is read.

An event is a mechanism stripped to what privacy accounting needs. It holds no data and no noise, so
it may be written down, sent, stored in a ledger, and accounted later by any accountant.

Every leaf states the neighbour relation and the unit for which its sensitivity was declared; noise
is always relative to that sensitivity. A composite takes the relation that all its parts convert to
and refuses parts that speak of different units: label privacy is not record privacy.

    >>> training = dp_sgd(noise_multiplier=4, sample_rate=0.01, steps=10_000)
    >>> mixed = compose(LaplaceEvent(10.0), training)
    >>> event_from_dict(mixed.to_dict()) == mixed
    True
    >>> compose(LaplaceEvent(1.0, unit="person"), LaplaceEvent(1.0, unit="label"))
    Traceback (most recent call last):
    ...
    ValueError: events for different units do not compose (label, person): ...

A new kind of event is one class here and one function in each accountant that supports it.
"""

from sfumato.core.events.base import Event, event_from_dict
from sfumato.core.events.composites import (
    ComposedEvent,
    CutSampledEvent,
    FixedSizeSampledEvent,
    GroupedEvent,
    ParallelEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    compose,
    dp_sgd,
    promises_nothing,
    repeat,
)
from sfumato.core.events.leaves import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    EpsilonDeltaEvent,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    Leaf,
    NotPrivateEvent,
    RandomizedResponseEvent,
    RdpCurveEvent,
    ZcdpEvent,
)

__all__ = [
    "ComposedEvent",
    "CutSampledEvent",
    "DiscreteGaussianEvent",
    "DiscreteLaplaceEvent",
    "EpsilonDeltaEvent",
    "Event",
    "ExponentialEvent",
    "FixedSizeSampledEvent",
    "GaussianEvent",
    "GroupedEvent",
    "LaplaceEvent",
    "Leaf",
    "NotPrivateEvent",
    "ParallelEvent",
    "PoissonSampledEvent",
    "RandomizedResponseEvent",
    "RdpCurveEvent",
    "RepeatedEvent",
    "ZcdpEvent",
    "compose",
    "dp_sgd",
    "event_from_dict",
    "promises_nothing",
    "repeat",
]
