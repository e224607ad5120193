"""Terms: what a dataset's budget promises, and the caps inside it. Fixed once written."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.ledger.budget import Budget
from sfumato.ledger.entries import canonical
from sfumato.ledger.gate import Gate, choose_orders

__all__ = ["Cap", "Terms", "checked_name", "moment"]


def checked_name(argument: str, value: object) -> str:
    """A name for a dataset, an analyst or a key: printable, at most 200 characters."""
    name = validation.name(argument, value)
    if len(name) > 200 or not name.isprintable():
        validation.fail(argument, "printable and at most 200 characters long", value)
    return name


def moment(argument: str, value: datetime) -> str:
    """A time as text that sorts as time does: UTC, microseconds. A time without a zone is UTC."""
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        validation.fail(argument, "a datetime", value)
    zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat(timespec="microseconds")


def _gate_payload(gate: Gate) -> dict[str, Any]:
    return {"limits": list(gate.limits), "opaque_limit": gate.slack}


def _gate(data: Mapping[str, Any], orders: tuple[float, ...]) -> Gate:
    """As it was written, so that no later change of arithmetic moves a limit."""
    limits = tuple(data["limits"])
    return Gate(limits[0], orders, limits, data["opaque_limit"])


@dataclass(frozen=True)
class Terms:
    """A dataset's budget, its unit and relation, and the gate that keeps them.

    Attributes:
        closed: only analysts with a cap of their own may spend.
    """

    dataset: str
    budget: Budget
    unit: str
    neighbours: Neighbours
    description: str
    closed: bool
    gate: Gate

    @classmethod
    def make(
        cls,
        dataset: str,
        budget: Budget,
        unit: str,
        neighbours: str,
        description: str,
        closed: bool,
    ) -> Terms:
        """New terms, with a grid chosen for the budget."""
        if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
            validation.fail("budget", "a Budget, as in Budget(3.0, 1e-6)", budget)
        return cls(
            checked_name("name", dataset),
            budget,
            checked_name("unit", unit),
            Neighbours.parse(neighbours),
            str(description),
            bool(closed),
            Gate.of(budget, choose_orders(budget)),
        )

    @property
    def guarantee(self) -> Guarantee:
        """What all releases together promise."""
        return Guarantee(
            self.budget.epsilon, self.budget.delta, self.neighbours, self.unit, "ledger"
        )

    def to_payload(self) -> dict[str, Any]:
        """What the first entry holds."""
        return {
            "budget": self.budget.to_dict(),
            "unit": self.unit,
            "neighbours": self.neighbours.value,
            "description": self.description,
            "closed": self.closed,
            "orders": list(self.gate.orders),
        } | _gate_payload(self.gate)

    @property
    def text(self) -> str:
        """The payload as stored."""
        return canonical(self.to_payload())

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def parse(dataset: str, text: str) -> Terms:
        """The inverse of :attr:`text`."""
        return Terms.from_payload(dataset, json.loads(text))

    @classmethod
    def from_payload(cls, dataset: str, data: Mapping[str, Any]) -> Terms:
        """The inverse of :meth:`to_payload`."""
        return cls(
            dataset,
            Budget.from_dict(data["budget"]),
            data["unit"],
            Neighbours.parse(data["neighbours"]),
            data["description"],
            data["closed"],
            _gate(data, tuple(data["orders"])),
        )


@dataclass(frozen=True)
class Cap:
    """A smaller budget inside a dataset's: for an analyst, for a period, or for both.

    It counts what is reserved after it was made, by its analyst (or by everyone, if None), from
    ``starts`` until before ``ends``, whenever that runs: see :mod:`~sfumato.ledger.caps`. A grant
    stands until another replaces it.
    """

    number: int
    budget: Budget
    gate: Gate
    analyst: str | None = None
    starts: str | None = None
    ends: str | None = None
    label: str = ""
    standing: bool = False

    def covers(self, analyst: str, at: str) -> bool:
        """Whether a request by ``analyst`` at this time counts."""
        return (
            (self.analyst is None or self.analyst == analyst)
            and (self.starts is None or self.starts <= at)
            and (self.ends is None or at < self.ends)
        )

    def describe(self) -> str:
        """Which cap this is, in words."""
        who = "everyone" if self.analyst is None else repr(self.analyst)
        words = [f"the cap of {who}"]
        if self.starts is not None:
            words.append(f"from {_short(self.starts)}")
        if self.ends is not None:
            words.append(f"until {_short(self.ends)}")
        return " ".join(words) + (f" ({self.label})" if self.label else "")

    def to_payload(self) -> dict[str, Any]:
        """What a cap's entry holds."""
        return {
            "budget": self.budget.to_dict(),
            "analyst": self.analyst,
            "starts": self.starts,
            "ends": self.ends,
            "label": self.label,
            "standing": self.standing,
        } | _gate_payload(self.gate)

    @classmethod
    def from_payload(cls, number: int, data: Mapping[str, Any], orders: tuple[float, ...]) -> Cap:
        """The inverse of :meth:`to_payload`."""
        return cls(
            number,
            Budget.from_dict(data["budget"]),
            _gate(data, orders),
            data["analyst"],
            data["starts"],
            data["ends"],
            data["label"],
            data["standing"],
        )


def _short(moment: str) -> str:
    return moment.replace("T00:00:00.000000+00:00", "").replace(".000000+00:00", "Z")
