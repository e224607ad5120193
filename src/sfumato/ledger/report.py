"""Status and preview, computed from a state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfumato.accounting.account import Accountant, account
from sfumato.core.events import (
    ComposedEvent,
    EpsilonDeltaEvent,
    Event,
    RepeatedEvent,
    event_from_dict,
)
from sfumato.core.guarantee import Guarantee
from sfumato.ledger import amounts
from sfumato.ledger.amounts import Vector
from sfumato.ledger.budget import Budget
from sfumato.ledger.entries import Entry
from sfumato.ledger.errors import BudgetExceeded
from sfumato.ledger.gate import Gate
from sfumato.ledger.spending import cost_of, refuse_if_closed, refuse_unless_it_fits
from sfumato.ledger.state import Held, Scope, State
from sfumato.ledger.status import OpenReservation, Preview, PreviewedEvent, ScopeStatus, Status
from sfumato.ledger.tables import tables_of
from sfumato.ledger.terms import Cap, Terms

__all__ = ["Reading", "charged_events", "preview", "readings", "status"]

_ENDS = ("commit", "failed")


@dataclass(frozen=True)
class Reading:
    """The odometer after one entry that moved it."""

    sequence: int
    at: str
    analyst: str
    kind: str
    label: str
    reading: float


def readings(terms: Terms, entries: Iterable[Entry]) -> list[Reading]:
    """The odometer after every reservation, plan and refund."""
    state, found, whose = State.start(terms), list[Reading](), dict[int, tuple[str, str]]()
    for entry in entries:
        data = entry.data
        state.advance(entry.sequence, entry.kind, data, entry.hash)
        if entry.kind in ("reserve", "plan"):
            whose[entry.sequence] = data["analyst"], data["label"]
        elif entry.kind == "refund":
            whose[entry.sequence] = whose[data["reserve"]]
        else:
            continue
        analyst, label = whose[entry.sequence]
        reading = terms.gate.reading(state.spent)
        found.append(Reading(entry.sequence, data["at"], analyst, entry.kind, label, reading))
    return found


def preview(state: State, events: Sequence[Event], analyst: str, at: str) -> Preview:
    """Each event in order, and all of them together."""
    scopes = state.scopes(analyst, at)
    whole, found = Vector.zero(len(state.terms.gate.limits)), list[PreviewedEvent]()
    for event in events:
        cost = cost_of(event, state.terms)
        whole = whole.plus(cost)
        one, scopes = _preview_one(state, scopes, event, cost, analyst, at)
        found.append(one)
    own = state.terms.gate
    return Preview(
        state.terms,
        tuple(found),
        _rise(own, state.spent, whole),
        own.reading(state.spent.plus(whole)),
        _left(state, scopes, analyst, at),
        all(one.passes for one in found),
    )


def _left(state: State, scopes: list[Scope], analyst: str, at: str) -> float:
    """The largest epsilon of a pure release by ``analyst`` that passes every limit."""
    if state.is_closed_to(analyst, at):
        return 0.0
    return min(scope.gate.left(scope.spent) for scope in scopes)


def _preview_one(
    state: State, scopes: list[Scope], event: Event, cost: Vector, analyst: str, at: str
) -> tuple[PreviewedEvent, list[Scope]]:
    terms = state.terms
    rise = _rise(terms.gate, scopes[0].spent, cost)
    reason = ""
    try:
        refuse_if_closed(state, analyst, at)
        refuse_unless_it_fits(terms.dataset, scopes, cost)
        scopes = [Scope(s.name, s.gate, s.spent.plus(cost)) for s in scopes]
    except BudgetExceeded as refusal:
        reason = str(refusal)
    left = _left(state, scopes, analyst, at)
    reading = terms.gate.reading(scopes[0].spent)
    return PreviewedEvent(event, rise, not reason, reading, left, reason), scopes


def _rise(gate: Gate, spent: Vector, cost: Vector) -> float:
    after = gate.reading_units(spent.plus(cost))
    if after >= amounts.SATURATED:
        return amounts.as_epsilon(amounts.SATURATED)
    return amounts.as_epsilon(after - gate.reading_units(spent))


def status(state: State, entries: Iterable[Entry], analyst: str, at: str, declared: bool) -> Status:
    """Where the budget stands."""
    entries = list(entries)
    scopes = state.scopes(analyst, at)
    return Status(
        state.terms,
        _scope_status("the dataset", state.terms.budget, state.terms.gate, state.spent),
        _left(state, scopes, analyst, at),
        tuple(_cap_status(held, at, entries) for _, held in sorted(state.caps.items())),
        tuple(_open(entries)),
        state.sequence,
        sum(entry.kind == "reserve" for entry in entries),
        _declared(state.terms, entries) if declared else None,
        tuple(_plans(state.terms, entries)),
        analyst,
        tuple(tables_of(entries).values()),
    )


def _cap_status(held: Held, at: str, entries: Sequence[Entry]) -> ScopeStatus:
    cap = held.cap
    active = (cap.starts is None or cap.starts <= at) and (cap.ends is None or at < cap.ends)
    found = _scope_status(cap.describe(), cap.budget, cap.gate, held.spent)
    before = tuple(_reserved_before(cap, at, entries)) if not cap.standing else ()
    return replace(found, analyst=cap.analyst, active=active, reserved_before=before)


def _reserved_before(cap: Cap, at: str, entries: Sequence[Entry]) -> Iterable[int]:
    """Reservations from before a period, not ended when it began, which it does not count."""
    made = entries[cap.number - 1].at
    begins = made if cap.starts is None else max(made, cap.starts)
    if at < begins:
        return
    ended = {entry.data["reserve"]: entry.at for entry in entries if entry.kind in _ENDS}
    for entry in entries:
        if entry.kind != "reserve" or cap.analyst not in (None, (data := entry.data)["analyst"]):
            continue
        counted = cap.covers(data["analyst"], data["at"]) and entry.sequence > cap.number
        if not counted and data["at"] <= begins <= ended.get(entry.sequence, at):
            yield entry.sequence


def _scope_status(name: str, budget: Budget, gate: Gate, spent: Vector) -> ScopeStatus:
    opaque_left = amounts.as_delta(max(0, gate.slack - spent.slack))
    return ScopeStatus(name, budget, gate.reading(spent), gate.left(spent), opaque_left)


def _open(entries: Sequence[Entry]) -> list[OpenReservation]:
    ended = {entry.data["reserve"] for entry in entries if entry.kind in _ENDS}
    return [
        OpenReservation(entry.sequence, data["at"], data["analyst"], data["label"])
        for entry in entries
        if entry.kind == "reserve" and entry.sequence not in ended
        for data in [entry.data]
    ]


def charged_events(entries: Iterable[Entry]) -> list[Event]:
    """What was charged, as events: plans as the events they declare, refunds taken off."""
    found: dict[int, Event] = {}
    for entry in entries:
        data = entry.data
        if entry.kind == "reserve" and data["plan"] is None:
            found[entry.sequence] = event_from_dict(data["event"])
        elif entry.kind == "plan":
            found[entry.sequence] = _composed(data["events"])
        elif entry.kind == "refund":
            event = found.pop(data["reserve"])
            if data["steps"] and isinstance(event, RepeatedEvent):
                found[data["reserve"]] = RepeatedEvent(event.event, data["steps"])
    return list(found.values())


def _composed(events: Iterable[dict[str, Any]]) -> Event:
    return ComposedEvent(tuple(event_from_dict(event) for event in events))


def _declared(terms: Terms, entries: Iterable[Entry]) -> Guarantee | None:
    """By PLD or RDP, whichever is smaller: for many exponential mechanisms it is RDP."""
    events = charged_events(entries)
    if not events:
        return None
    found = [_accounted(terms, events, name) for name in (Accountant.PLD, Accountant.RDP)]
    return min((one for one in found if one), key=lambda one: one.epsilon, default=None)


def _accounted(terms: Terms, events: list[Event], accountant: Accountant) -> Guarantee | None:
    """None where the accountant fails: a status is about the budget, which does not need it."""
    delta, relation = terms.budget.delta, terms.neighbours
    try:
        return account(events, delta, neighbours=relation, accountant=accountant)
    except Exception:
        return None


def _plans(terms: Terms, entries: Iterable[Entry]) -> Iterable[dict[str, Any]]:
    for entry in entries:
        if entry.kind == "plan":
            data = entry.data
            promise = EpsilonDeltaEvent(data["epsilon"], data["delta"])
            guarantee = Guarantee(
                promise.epsilon, promise.delta, terms.neighbours, terms.unit, "pld"
            )
            yield {"plan": entry.sequence, "label": data["label"]} | guarantee.to_dict()
