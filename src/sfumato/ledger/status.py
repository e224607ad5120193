"""What a ledger tells: status and preview, as plain records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee, round_up
from sfumato.core.html import facts_table
from sfumato.ledger.budget import Budget
from sfumato.ledger.tables import DatasetTable
from sfumato.ledger.terms import Terms

__all__ = ["OpenReservation", "Preview", "PreviewedEvent", "ScopeStatus", "Status", "shown_down"]

READING = "an odometer reading; the guarantee is the cap"
DECLARED = "if all of it had been declared in advance"


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _shown(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{round_up(value):.10g}"


@dataclass(frozen=True)
class ScopeStatus:
    """One limit: the dataset's own, or a cap's.

    Attributes:
        name: which limit, in words.
        budget: what it allows.
        reading: what has been spent converts to.
        left: the largest epsilon of a pure release that would pass it.
        opaque_left: what is left of its delta for opaque releases.
        analyst: whose cap; None for everyone's and for the dataset itself.
        active: whether it applies now.
        reserved_before: for a period's cap, reservations from before it that had no end when it
            began. They may run in it and are not counted in it.
    """

    name: str
    budget: Budget
    reading: float
    left: float
    opaque_left: float
    analyst: str | None = None
    active: bool = True
    reserved_before: tuple[int, ...] = ()

    @property
    def before(self) -> str:
        """What :attr:`reserved_before` means, in words."""
        numbers = ", ".join(map(str, self.reserved_before))
        return f"entries {numbers} were reserved before it, may run in it, and are not counted"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name,
            "analyst": self.analyst,
            "active": self.active,
            "budget": self.budget.to_dict(),
            "reading": _number(self.reading),
            "left": self.left,
            "opaque_left": self.opaque_left,
            "reserved_before": list(self.reserved_before),
        }


@dataclass(frozen=True)
class OpenReservation:
    """A reservation without an end: still running, or cut off by a crash. Charged either way."""

    sequence: int
    at: str
    analyst: str
    label: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"entry": self.sequence, "at": self.at, "analyst": self.analyst, "label": self.label}


@dataclass(frozen=True)
class Status:
    """Where a dataset's budget stands.

    Attributes:
        terms: the cap, unit and relation: the guarantee.
        own: the dataset's own limit, with the odometer's reading: not a guarantee by itself.
        left: the largest epsilon of a pure release that would pass, for the analyst asked about;
            0 in a closed dataset for who has no cap there.
        caps: the caps, of the analyst asked about and everyone's, or all of them.
        open: reservations without an end.
        entries: how many entries the chain has; ``releases`` how many reservations.
        declared: what all charged events promise if they had been fixed in advance (by PLD or
            RDP, whichever is smaller); None if it was not asked for, nothing was charged, or no
            accountant could say.
        plans: what each declared plan promises by itself.
        tables: the dataset's tables, with the column that tells the units of each apart.
    """

    terms: Terms
    own: ScopeStatus
    left: float
    caps: tuple[ScopeStatus, ...] = ()
    open: tuple[OpenReservation, ...] = ()
    entries: int = 0
    releases: int = 0
    declared: Guarantee | None = None
    plans: tuple[dict[str, Any], ...] = ()
    analyst: str = ""
    tables: tuple[DatasetTable, ...] = ()

    @property
    def dataset(self) -> str:
        """Its name."""
        return self.terms.dataset

    @property
    def budget(self) -> Budget:
        """The dataset's cap."""
        return self.terms.budget

    @property
    def reading(self) -> float:
        """The odometer: what was spent so far converts to."""
        return self.own.reading

    @property
    def opaque_left(self) -> float:
        """What is left of delta for opaque releases."""
        return self.own.opaque_left

    @property
    def guarantee(self) -> Guarantee:
        """What all releases together promise: the cap."""
        return self.terms.guarantee

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; epsilon and delta are the cap's."""
        declared = self.declared.to_dict() | {"meaning": DECLARED} if self.declared else None
        return {
            "dataset": self.dataset,
            **self.guarantee.to_dict(),
            "opaque_delta": self.budget.opaque,
            "description": self.terms.description,
            "closed": self.terms.closed,
            "reading": _number(self.reading),
            "reading_meaning": READING,
            "left": self.left,
            "opaque_left": self.opaque_left,
            "analyst": self.analyst,
            "caps": [cap.to_dict() for cap in self.caps],
            "open": [reservation.to_dict() for reservation in self.open],
            "entries": self.entries,
            "releases": self.releases,
            "declared": declared,
            "plans": list(self.plans),
            "tables": [table.to_dict() for table in self.tables],
        }

    def __str__(self) -> str:
        lines = [f"  {name} {text}" for name, text in self._own_rows()]
        lines += [f"  {name}: {text}" for name, text in self._more_rows()]
        return "\n".join([f"{self.dataset}: {self.guarantee}", *lines])

    def _repr_html_(self) -> str:
        rows = [("guarantee", str(self.guarantee)), *self._own_rows(), *self._more_rows()]
        rows.append(("releases", f"{self.releases:,}"))
        return facts_table(f"Budget of {self.dataset}", rows)

    def _own_rows(self) -> list[tuple[str, str]]:
        return [
            ("reading", f"{_shown(self.reading)} ({READING})"),
            ("left", f"{shown_down(self.left)} for pure releases"),
        ]

    def _more_rows(self) -> list[tuple[str, str]]:
        rows = [(f"table {table.name}", table.describe()) for table in self.tables]
        rows += [
            (
                cap.name,
                f"cap {cap.budget.epsilon:g}, reading {_shown(cap.reading)}, "
                f"left {shown_down(cap.left)}",
            )
            for cap in self.caps
            if cap.active
        ]
        rows += [(cap.name, cap.before) for cap in self.caps if cap.active and cap.reserved_before]
        if self.declared is not None:
            rows.append((DECLARED, str(self.declared)))
        if self.open:
            rows.append(("open reservations", ", ".join(str(one.sequence) for one in self.open)))
        return rows


def shown_down(value: float, digits: int = 4) -> str:
    """So many significant digits, never above the value: what is shown as left is left."""
    text = f"{value:.{digits}g}"
    if float(text) > value:
        step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
        text = f"{float(text) - step:.{digits}g}"
    return text


@dataclass(frozen=True)
class PreviewedEvent:
    """What one event would do, after those before it that passed.

    Attributes:
        cost: by how much the dataset's reading would rise.
        passes: whether every limit lets it through.
        reading, left: afterwards (unchanged if it does not pass).
        reason: why it does not pass.
    """

    event: Event
    cost: float
    passes: bool
    reading: float
    left: float
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "event": self.event.to_dict(),
            "cost": _number(self.cost),
            "passes": self.passes,
            "reading": _number(self.reading),
            "left": self.left,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Preview:
    """What a list of events would cost. Nothing was spent.

    Attributes:
        events: each, in order; one that does not pass is left out of what follows.
        cost: by how much the reading would rise if all of them ran, whether or not they pass.
        reading: what it would then be.
        left: what would be left after those that pass.
        passes: whether all of them do.
    """

    terms: Terms
    events: tuple[PreviewedEvent, ...]
    cost: float
    reading: float
    left: float
    passes: bool

    def __str__(self) -> str:
        lines = [
            f"{one.event.kind}: reading {round_up(one.reading):g}, left {shown_down(one.left)}"
            if one.passes
            else f"{one.event.kind}: would not pass: {one.reason}"
            for one in self.events
        ]
        return "\n".join([f"{self.terms.dataset}, nothing spent:", *lines])

    def _repr_html_(self) -> str:
        rows = [
            (
                one.event.kind,
                _shown(one.cost),
                "yes" if one.passes else f"no: {one.reason}",
                _shown(one.reading),
                shown_down(one.left),
            )
            for one in self.events
        ]
        headings = ("event", "cost", "passes", "reading then", "left then")
        note = (
            f"Nothing was spent. All of it together costs {_shown(self.cost)} and "
            f"{'passes' if self.passes else 'does not pass'}."
        )
        return facts_table(
            f"What would it cost {self.terms.dataset}?", rows, headings=headings, note=note
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; epsilon and delta are the cap's."""
        return {
            "dataset": self.terms.dataset,
            **self.terms.guarantee.to_dict(),
            "passes": self.passes,
            "cost": _number(self.cost),
            "reading": _number(self.reading),
            "reading_meaning": READING,
            "left": self.left,
            "events": [event.to_dict() for event in self.events],
        }
