"""Plans: releases fixed in advance, charged as one.

A filter must be ready for anything, and pays for it. Where the list of releases is fixed before the
first is run, their exact composition (PLD) is smaller: the plan is charged as one opaque (epsilon,
delta) release. Its events are then drawn in order at no further charge; each query may still depend
on earlier answers, only the kinds and amounts of noise are fixed. Nothing is refunded: an exact
composition does not come apart.

Other requests may come between a plan's events. A plan is an interactive (epsilon, delta)-DP
mechanism, which post-processes one randomised response with a leak (Lyu, arXiv:2207.09397), hence
counts in the gate's proof as one release, made when it was declared.

A cap that had not counted a plan when it was declared would promise too much if the plan were drawn
under it. So each cap that a draw falls under must have counted the plan, or have replaced one that
did, and must still hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.accounting.account import account
from sfumato.core.events import ComposedEvent, EpsilonDeltaEvent, Event, event_from_dict
from sfumato.core.guarantee import Guarantee
from sfumato.ledger import store
from sfumato.ledger.amounts import Vector
from sfumato.ledger.entries import Entry, canonical
from sfumato.ledger.errors import BudgetExceeded, LedgerError
from sfumato.ledger.spending import Request, accountable, admit, cost_of
from sfumato.ledger.state import Held, State
from sfumato.ledger.terms import Terms
from sfumato.ledger.transaction import Transaction

__all__ = ["Plan", "declare", "draw", "plan_event", "promise", "uncounted"]


@dataclass(frozen=True)
class Plan:
    """A declared list of releases.

    Attributes:
        dataset: which budget paid for it.
        number: its entry's number.
        events: in the order in which they are drawn.
        guarantee: what all of them promise together.
        analyst: who declared it, and may draw from it.
        label: for readers.
    """

    dataset: str
    number: int
    events: tuple[Event, ...]
    guarantee: Guarantee
    analyst: str = ""
    label: str = ""

    @classmethod
    def from_entry(cls, entry: Entry, terms: Terms) -> Plan:
        """The plan that an entry declared."""
        data = entry.data
        guarantee = Guarantee(
            data["epsilon"], data["delta"], terms.neighbours, terms.unit, data["accountant"]
        )
        events = tuple(event_from_dict(event) for event in data["events"])
        return cls(entry.dataset, entry.sequence, events, guarantee, data["analyst"], data["label"])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "dataset": self.dataset,
            "plan": self.number,
            "analyst": self.analyst,
            "label": self.label,
            **self.guarantee.to_dict(),
            "events": [event.to_dict() for event in self.events],
        }


def promise(events: Sequence[Event], delta: float, terms: Terms) -> Guarantee:
    """What the events promise together at ``delta``, under the dataset's relation.

    Raises:
        LedgerError: if they promise nothing at that delta.
    """
    if not events:
        raise LedgerError("a plan needs at least one event")
    for event in events:
        cost_of(event, terms)  # the unit, the relation, and nothing read off the data
    with accountable():
        found = account(ComposedEvent(tuple(events)), delta, neighbours=terms.neighbours)
    if math.isinf(found.epsilon):
        raise LedgerError(f"the plan has no guarantee at delta {delta:g}: give it a larger delta")
    return found


def plan_event(guarantee: Guarantee) -> Event:
    """The plan as the one opaque release it is charged as."""
    return EpsilonDeltaEvent(
        guarantee.epsilon, guarantee.delta, guarantee.neighbours, guarantee.unit
    )


def declare(
    transaction: Transaction,
    state: State,
    events: Sequence[Event],
    guarantee: Guarantee,
    analyst: str,
    key: str,
    label: str,
    at: str,
) -> Plan:
    """Charges the whole plan, unless it was declared with this key before.

    Raises:
        LedgerError: if another plan was declared with this key.
    """
    marked = store.entry_marked(transaction, state.terms.dataset, f"plan:{key}") if key else None
    if marked is not None:
        asked = canonical([[event.to_dict() for event in events], guarantee.delta, analyst])
        if canonical([marked.data[part] for part in ("events", "delta", "analyst")]) != asked:
            raise LedgerError(
                f"key {key!r} was used for another plan (entry {marked.sequence} of "
                f"{state.terms.dataset!r}): use a new key"
            )
        return Plan.from_entry(marked, state.terms)
    cost = cost_of(plan_event(guarantee), state.terms)
    caps, _ = admit(transaction, state, analyst, cost, at)
    payload: dict[str, Any] = {
        "at": at,
        "accountant": guarantee.accountant,
        "analyst": analyst,
        "caps": caps,
        "charge": cost.to_list(),
        "delta": guarantee.delta,
        "epsilon": guarantee.epsilon,
        "events": [event.to_dict() for event in events],
        "label": label,
    }
    if key:  # older plans have none, and their payload is hashed as it is
        payload["key"] = key
    entry = store.append(transaction, state, "plan", payload)
    return Plan.from_entry(entry, state.terms)


def draw(transaction: Transaction, state: State, request: Request, at: str) -> Vector:
    """Checks that the request is what its plan has next; it costs nothing more.

    Raises:
        LedgerError: if the plan has something else next, is used up, or is another analyst's.
        BudgetExceeded: if it falls under a cap that has not counted the plan.
    """
    assert request.plan is not None
    store.load_plan(transaction, state, request.plan)
    entry = store.entry_numbered(transaction, state.terms.dataset, request.plan)
    if entry is None or entry.kind != "plan":
        raise LedgerError(
            f"dataset {state.terms.dataset!r} has lost the entry of plan {request.plan}: verify "
            "it, and restore it from a backup"
        )
    plan, drawn = entry.data, state.plans[request.plan]
    if plan["analyst"] != request.analyst:
        raise LedgerError(
            f"plan {request.plan} was declared by {plan['analyst']!r}, not {request.analyst!r}: "
            "declare a plan of your own"
        )
    if drawn >= len(plan["events"]):
        raise LedgerError(
            f"all {drawn} events of plan {request.plan} were drawn: declare another, or spend "
            "without a plan"
        )
    planned, asked = canonical(plan["events"][drawn]), canonical(request.event.to_dict())
    if planned != asked:
        raise LedgerError(
            f"event {drawn + 1} of plan {request.plan} is {planned}, not {asked}: draw what was "
            "declared, in order, or spend without the plan"
        )
    _require_counted(transaction, state, request, plan["caps"], at)
    return store.nothing(state)


def uncounted(
    covering: Sequence[Held], counted: Sequence[int], replaced: Callable[[int], int | None]
) -> Held | None:
    """The first cap that neither counted a plan nor replaced one that did, or no longer holds.

    Args:
        covering: the caps that a draw falls under.
        counted: the numbers of those that counted the plan.
        replaced: the number of the cap that a cap replaced, if any.
    """
    for held in covering:
        number: int | None = held.cap.number
        while number is not None and number not in counted:
            number = replaced(number)
        if number is None or not held.cap.gate.fits(held.spent):
            return held
    return None


def _require_counted(
    transaction: Transaction, state: State, request: Request, counted: Sequence[int], at: str
) -> None:
    def replaced(number: int) -> int | None:
        entry = store.entry_numbered(transaction, state.terms.dataset, number)
        return None if entry is None else entry.data["replaces"]

    store.load_caps(transaction, state, request.analyst)
    held = uncounted(state.covering(request.analyst, at), counted, replaced)
    if held is not None:
        raise BudgetExceeded(
            f"plan {request.plan} cannot be drawn under {held.cap.describe()}, which has not "
            "counted it or is used up; nothing was spent: declare a plan now, or spend without one",
            state.terms.dataset,
            held.cap.describe(),
        )
