"""What a question is: a frozen configuration whose price is known before any row is read.

A :class:`Query` becomes a :class:`Plan` given public facts alone. The plan knows its event and its
noise; it says which exact aggregate it needs (:meth:`Plan.exact`, an Ibis expression over the
bounded table) and turns the aggregate into released cells (:meth:`Plan.release`). Nothing else
reads the data.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import Coins
from sfumato.ledger.budget import MOST_EPSILON
from sfumato.queries.facts import Facts
from sfumato.queries.filters import Where, describe_filter

__all__ = ["PRICE", "Cell", "Plan", "Query", "check_price"]

_SURE = 1e-9
PRICE = ("epsilon", "delta", "where", "confidence")
"""What every question takes by name."""


@dataclass(frozen=True)
class Cell:
    """One released value: its keys, and an interval that holds the exact one with the confidence.

    ``low`` and ``high`` are None where an interval has no meaning (a chosen category).
    """

    keys: tuple[Any, ...]
    value: Any
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """A question priced for one table.

    Attributes:
        facts: what it was priced for.
        event: what the release amounts to, for the ledger.
        guarantee: what it costs, as asked for.
        key_names: the columns that tell cells apart.
        unit_of_value: what is counted or measured ("rows", "patients", a column).
        group_columns: the columns by which contributions to groups are bounded, or none.
        note: what a reader must know of the interval.
    """

    facts: Facts
    event: Event
    guarantee: Guarantee
    key_names: tuple[str, ...]
    unit_of_value: str
    group_columns: tuple[str, ...]
    note: str

    @abstractmethod
    def exact(self, table: ir.Table) -> ir.Table:
        """The aggregate to read, over a bounded and filtered table; fails on no row."""

    @abstractmethod
    def release(self, rows: Sequence[dict[str, Any]], coins: Coins) -> tuple[Cell, ...]:
        """The released cells, with fresh noise. ``rows`` is what ``exact`` gave."""


@dataclass(frozen=True, kw_only=True)
class Query(ABC):
    """A question.

    Attributes:
        epsilon: what it may cost.
        delta: with Gaussian noise, or private keys, the probability beyond; 0 for pure DP.
        where: which rows it is about.
        confidence: of the intervals.
    """

    epsilon: float
    delta: float = 0.0
    where: Where = None
    confidence: float = 0.95

    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """The question's price and noise for a table of which these facts are public.

        Raises:
            ValueError: for parameters that make no sense, or that do not fit the table.
        """

    def about(self, where: Where) -> Self:
        """The same question about other rows."""
        return replace(self, where=where)

    def describe(self) -> str:
        """The question in a few words, for a ledger's history: "mean of age by city"."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()
        columns = ", ".join(getattr(self, "columns", ()))
        named = columns or getattr(self, "over", "") or getattr(self, "column", "")
        return f"{words} of {named}" if named else words

    def to_dict(self) -> dict[str, Any]:
        """The question, JSON-ready: public, and part of the ledger's record."""
        given = [f.name for f in fields(self) if f.init]  # the others follow from these
        own = {name: _plain(getattr(self, name)) for name in given if name != "where"}
        said = "where" in given and self.where is not None
        filtered = {"where": describe_filter(self.where)} if said else {}
        return {"query": type(self).__name__} | own | filtered


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def check_price(query: Query) -> None:
    """Validates what all questions share."""
    if validation.positive("epsilon", query.epsilon) > MOST_EPSILON:
        validation.fail("epsilon", f"at most {MOST_EPSILON:g}, the largest budget's", query.epsilon)
    validation.delta("delta", query.delta)
    # Beyond these, a part's share of it would round to 0 or 1 when the answer is there and paid.
    if not _SURE <= validation.open_probability("confidence", query.confidence) <= 1 - _SURE:
        validation.fail("confidence", f"between {_SURE:g} and 1 - {_SURE:g}", query.confidence)
