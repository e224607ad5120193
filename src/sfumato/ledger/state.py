"""The state of a dataset: a fold over its entries, the same whether cached or recomputed.

:meth:`State.advance` is the only place where an entry changes a total. A request advances the few
totals it was given from the database; verification advances all of them from the first entry on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sfumato.ledger.amounts import Vector
from sfumato.ledger.entries import GENESIS
from sfumato.ledger.gate import Gate
from sfumato.ledger.terms import Cap, Terms

__all__ = ["Held", "Scope", "State"]


@dataclass
class Held:
    """A cap and what was charged to it."""

    cap: Cap
    spent: Vector


@dataclass(frozen=True)
class Scope:
    """One limit that a request must pass."""

    name: str
    gate: Gate
    spent: Vector


@dataclass
class State:
    """Totals after ``sequence`` entries.

    Attributes:
        caps: those loaded, by the number of their entry.
        plans: how many events were drawn of each plan loaded.
        cap_changes: caps to write back: "new", "changed" or "removed".
        plan_changes: the same for plans.
    """

    terms: Terms
    spent: Vector
    sequence: int = 0
    head: str = GENESIS
    caps: dict[int, Held] = field(default_factory=dict[int, Held])
    plans: dict[int, int] = field(default_factory=dict[int, int])
    cap_count: int = 0
    cap_changes: dict[int, str] = field(default_factory=dict[int, str])
    plan_changes: dict[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def start(cls, terms: Terms) -> State:
        """Before the first entry."""
        return cls(terms, Vector.zero(len(terms.gate.limits)))

    def scopes(self, analyst: str, at: str) -> list[Scope]:
        """The dataset's own limit, then those of the caps that a request falls under."""
        own = [Scope("the dataset", self.terms.gate, self.spent)]
        return own + [
            Scope(held.cap.describe(), held.cap.gate, held.spent)
            for held in self.covering(analyst, at)
        ]

    def covering(self, analyst: str, at: str) -> list[Held]:
        """The caps that a request by ``analyst`` at this time falls under."""
        return [held for _, held in sorted(self.caps.items()) if held.cap.covers(analyst, at)]

    def is_closed_to(self, analyst: str, at: str) -> bool:
        """Whether the dataset is closed and ``analyst`` has no cap of their own at this time."""
        own = (held.cap.analyst is not None for held in self.covering(analyst, at))
        return self.terms.closed and not any(own)

    def advance(self, sequence: int, kind: str, payload: Mapping[str, Any], hashed: str) -> None:
        """Takes one entry into account."""
        if kind == "cap":
            self._add_cap(sequence, payload)
        elif kind in ("reserve", "plan"):
            self._charge(payload)
            if kind == "plan":
                self.plans[sequence], self.plan_changes[sequence] = 0, "new"
            elif payload["plan"] is not None:
                self._draw(payload["plan"])
        elif kind == "refund":
            self._give_back(payload)
        self.sequence, self.head = sequence, hashed

    def _charge(self, payload: Mapping[str, Any]) -> None:
        cost = Vector.from_list(payload["charge"])
        self.spent = self.spent.plus(cost)
        for number in payload["caps"]:
            self.caps[number].spent = self.caps[number].spent.plus(cost)
            self.cap_changes[number] = "changed"

    def _give_back(self, payload: Mapping[str, Any]) -> None:
        back = Vector.from_list(payload["back"])
        self.spent = self.spent.minus(back)
        for number in payload["caps"]:
            if number in self.caps:  # it may have been replaced since
                self.caps[number].spent = self.caps[number].spent.minus(back)
                self.cap_changes[number] = "changed"

    def _add_cap(self, number: int, payload: Mapping[str, Any]) -> None:
        cap = Cap.from_payload(number, payload, self.terms.gate.orders)
        spent = Vector.zero(len(self.terms.gate.limits))
        replaced = payload["replaces"]
        if replaced is not None:
            spent = self.caps.pop(replaced).spent
            self.cap_changes[replaced] = "removed"
            self.cap_count -= 1
        self.caps[number] = Held(cap, spent)
        self.cap_changes[number] = "new"
        self.cap_count += 1

    def _draw(self, plan: int) -> None:
        self.plans[plan] += 1
        self.plan_changes[plan] = "changed"
