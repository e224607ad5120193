"""From events to a guarantee: the front door of accounting.

    >>> from sfumato.core.events import LaplaceEvent, EpsilonDeltaEvent, compose, dp_sgd
    >>> training = dp_sgd(noise_multiplier=4, sample_rate=0.01, steps=10_000)
    >>> account(training, delta=1e-5)
    Guarantee: epsilon 0.947, delta 1e-05, add or remove one record
    >>> account(training, delta=1e-5, neighbours="replace-one")
    Guarantee: epsilon 1.994, delta 1e-05, replace one record
    >>> account(compose(training, LaplaceEvent(10.0), EpsilonDeltaEvent(0.2, 1e-7)), delta=1e-5)
    Guarantee: epsilon 1.168, delta 1e-05, add or remove one record

An accountant is a pure function; nothing here knows of a ledger or spends anything.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sfumato.accounting.atoms import flatten, pure_total
from sfumato.accounting.moments import moments_epsilon
from sfumato.accounting.opaque import basic_epsilon, strong_epsilon
from sfumato.accounting.pld import SMALLEST_DELTA, loss_distribution
from sfumato.accounting.rdp import rdp_vector
from sfumato.accounting.support import UnsupportedError
from sfumato.core import validation
from sfumato.core.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    ParallelEvent,
    RdpCurveEvent,
)
from sfumato.core.gaussian_profile import composed_multiplier, gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours

__all__ = [
    "Accountant",
    "account",
    "account_many",
    "refuse_data_dependent",
    "resolve_relation",
]


class Accountant(StrEnum):
    """Which theorem turns events into a guarantee, best first."""

    PLD = "pld"
    """Privacy loss distributions: numerically exact. The default."""
    RDP = "rdp"
    """Rényi DP: close, additive, and what a ledger can filter adaptively."""
    MOMENTS = "moments"
    """Abadi et al.'s original: whole orders up to 32."""
    STRONG = "strong"
    """Optimal composition of (epsilon, delta) statements."""
    BASIC = "basic"
    """The sum of epsilons and deltas."""


def account(
    event: Event | Sequence[Event],
    delta: float,
    *,
    neighbours: Neighbours | str | None = None,
    accountant: Accountant | str = Accountant.PLD,
    curator: bool = False,
) -> Guarantee:
    """What the released events promise together.

    Args:
        event: one event, or several that were released from the same data.
        delta: at which delta to state epsilon; 0 for releases that are all pure.
        neighbours: the relation; by default the one the events were declared for.
        accountant: which theorem. PLD falls back to RDP where a release is known by its RDP alone,
            and the guarantee's note says so.
        curator: accept data-dependent events; the result must then stay with the curator.

    Returns:
        A guarantee that holds. It may be larger than the truth by a little, never smaller.

    Raises:
        ValueError: where the events have no guarantee under that relation, or a parameter is bad.
    """
    return account_many(
        event, [delta], neighbours=neighbours, accountant=accountant, curator=curator
    )[0]


def account_many(
    event: Event | Sequence[Event],
    deltas: Sequence[float],
    *,
    neighbours: Neighbours | str | None = None,
    accountant: Accountant | str = Accountant.PLD,
    curator: bool = False,
) -> list[Guarantee]:
    """As :func:`account`, at several deltas for the price of about one."""
    whole = as_event(event)
    deltas = [validation.delta("delta", delta) for delta in deltas]
    relation = resolve_relation(whole, neighbours)
    chosen = validation.choice("accountant", accountant, Accountant)
    if not curator:
        refuse_data_dependent(whole)
    solve = _solver(whole, relation, chosen)
    return [_guarantee(solve(delta), delta, whole, relation) for delta in deltas]


def as_event(event: object) -> Event:
    """One event for one or several."""
    if isinstance(event, Event):
        return event
    if isinstance(event, str) or not isinstance(event, Sequence):
        validation.fail("event", "an event or a list of events", event)
    return ComposedEvent(tuple(event))  # pyright: ignore[reportUnknownArgumentType]


def resolve_relation(event: Event, neighbours: Neighbours | str | None) -> Neighbours:
    """The relation asked for, or the event's own."""
    return event.relation if neighbours is None else Neighbours.parse(neighbours)


@dataclass(frozen=True)
class _Answer:
    epsilon: float
    accountant: str
    note: str = ""


_Solver = Callable[[float], _Answer]
"""From a delta to an answer."""


def _guarantee(answer: _Answer, delta: float, event: Event, relation: Neighbours) -> Guarantee:
    return Guarantee(
        answer.epsilon, delta, relation, event.unit_name, answer.accountant, answer.note
    )


def _solver(event: Event, relation: Neighbours, chosen: Accountant) -> _Solver:
    atoms = flatten(event, relation)
    pure = pure_total(atoms)
    within = _SOLVERS[chosen](event, relation)
    return lambda delta: _at_zero(pure) if delta == 0 else within(delta)


def _rdp_solver(event: Event, relation: Neighbours) -> _Solver:
    vector = rdp_vector(event, relation)
    return lambda delta: _Answer(vector.epsilon(delta), "rdp")


def _direct(
    function: Callable[[Event, float, Neighbours], float], name: str
) -> Callable[[Event, Neighbours], _Solver]:
    return lambda event, relation: lambda delta: _Answer(function(event, delta, relation), name)


def _pld_solver(event: Event, relation: Neighbours) -> _Solver:
    """PLD where it can be had, the closed form for Gaussians alone, RDP with a reason otherwise."""
    atoms = flatten(event, relation)
    pure = pure_total(atoms)
    cap = math.inf if pure is None else pure
    if atoms and all(isinstance(atom, GaussianEvent) for atom, _ in atoms):
        noise = composed_multiplier(
            (a.noise_multiplier, n) for a, n in atoms if isinstance(a, GaussianEvent)
        )
        return lambda delta: _Answer(gaussian_epsilon(noise, delta), "pld")
    try:
        losses = loss_distribution(event, relation)
    except UnsupportedError as reason:
        fallback = _fallback(event, relation, str(reason))
        if pure is None:
            return fallback
        return lambda delta: min(fallback(delta), _at_zero(pure), key=lambda found: found.epsilon)
    resolved = max(SMALLEST_DELTA, 100 * losses.rounding)
    rough = _fallback(event, relation, f"PLD does not resolve delta below {resolved:.1g}")

    def within(delta: float) -> _Answer:
        fine = min(cap, losses.epsilon(delta)) if delta >= SMALLEST_DELTA else cap
        answers = [_Answer(fine, "pld")]
        if delta < resolved:
            with contextlib.suppress(UnsupportedError):
                answers.append(rough(delta))
        if math.isinf(fine):  # the releases' own deltas may use up the target exactly
            answers.append(_Answer(basic_epsilon(event, delta, relation), "basic"))
        return min(answers, key=lambda answer: answer.epsilon)

    return within


def _fallback(event: Event, relation: Neighbours, reason: str) -> _Solver:
    note = f"accounted by RDP: {reason}"
    return lambda delta: _Answer(rdp_vector(event, relation).epsilon(delta), "rdp", note)


def _at_zero(pure: float | None) -> _Answer:
    if pure is None:
        raise ValueError(
            "delta must be strictly between 0 and 1 for releases that are not pure (Gaussian noise "
            "and the like), got 0"
        )
    return _Answer(pure, "basic")


def refuse_data_dependent(event: Event) -> None:
    """Raises ``ValueError`` if a part of ``event`` was read off the data."""
    if isinstance(event, RdpCurveEvent) and event.data_dependent:
        raise ValueError(
            "a data-dependent RDP curve is itself private, and so is any epsilon computed from it: "
            "release it sanitised, or pass curator=True and keep the result with the curator"
        )
    parts = event.events if isinstance(event, ComposedEvent | ParallelEvent) else ()
    inner: Event | None = getattr(event, "event", None)
    for part in parts if inner is None else (inner,):
        refuse_data_dependent(part)


_SOLVERS: dict[Accountant, Callable[[Event, Neighbours], _Solver]] = {
    Accountant.PLD: _pld_solver,
    Accountant.RDP: _rdp_solver,
    Accountant.MOMENTS: _direct(moments_epsilon, "moments"),
    Accountant.STRONG: _direct(strong_epsilon, "strong"),
    Accountant.BASIC: _direct(basic_epsilon, "basic"),
}
