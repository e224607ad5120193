"""What is public about a protected table: everything a price may depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import ibis.expr.datatypes as dt

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.queries.limits import MOST_KEYS, listed
from sfumato.queries.total import column_named

__all__ = ["Facts", "check_keys"]


@dataclass(frozen=True)
class Facts:
    """The schema, the unit of privacy and its bounds; declared, never measured.

    Attributes:
        columns: names and types, in order.
        unit: whose presence is hidden, in words ("patient").
        unit_column: the column that tells whose a row is; None if every row is a unit of its own.
        rows: most rows of one unit that count.
        groups: most groups that one unit's rows may enter in a group-by; never more than ``rows``.
        neighbours: the relation.
        domains: categories declared public, by column.
        engine: where the table lives.
    """

    columns: Mapping[str, dt.DataType]
    unit: str
    unit_column: str | None
    rows: int
    groups: int
    neighbours: Neighbours
    domains: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    engine: str = "duckdb"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", min(self.groups, self.rows))

    def column(self, name: str) -> str:
        """The column called so, or an error that lists the columns."""
        return column_named(tuple(self.columns), name)

    def type_of(self, name: str) -> dt.DataType:
        """The type of a column."""
        return self.columns[self.column(name)]

    def require_number(self, name: str) -> str:
        """The column called so, if it holds numbers, or text that the engine can read as some.

        Raises:
            ValueError: for a column of another type, which is public.
        """
        kind = self.type_of(name)
        text = kind.is_string() and self.engine in ("duckdb", "pyspark")
        if not (kind.is_numeric() or kind.is_boolean() or text):
            raise ValueError(f"column {name!r} must be numeric, got {kind}")
        return self.column(name)

    def sensitivity(self, l1: int, l2: float, dimension: int, norm: Norm) -> Sensitivity:
        """What one unit may move, given what it moves when it is added or removed (or blanked out).

        ``l1`` and ``l2`` bound the norms of the vector of all that one unit contributes. Adding or
        removing the unit moves the released vector by exactly that; replacing it by at most twice.
        Under zero-out they bound what blanking moves (:mod:`~sfumato.queries.measures`).
        """
        bound = float(l1) if norm is Norm.L1 else l2
        step = Sensitivity(bound, norm, Neighbours.ADD_REMOVE, self.unit, dimension)
        return step.under(self.neighbours)

    def keys_of(self, column: str, keys: Sequence[Any] | None) -> tuple[Any, ...]:
        """The public categories of a column: given, declared, or known by its type.

        Raises:
            ValueError: if there are none, or one does not fit the column's type.
        """
        name = self.column(column)
        kind = self.columns[name]
        if kind.is_floating() or kind.is_decimal():
            raise ValueError(
                f"column {name!r} holds numbers with fractions ({kind}): give a histogram's bin "
                "edges (--edges), or group by a column of categories"
            )
        found = keys if keys is not None else self.domains.get(name)
        if found is None and kind.is_boolean():
            found = (False, True)
        if found is None:
            raise ValueError(
                f"the categories of {name!r} must be public: declare them with keys=[...] (--keys) "
                "or for the table with domains={...} (--domain), or let a group-by find them: "
                "private_keys=True with a delta (--private-keys --delta)"
            )
        return check_keys(name, kind, found)


def check_keys(name: str, kind: dt.DataType, found: Any) -> tuple[Any, ...]:
    """Categories that are distinct and of the column's type."""
    if isinstance(found, str) or not isinstance(found, Iterable):
        validation.fail(f"keys of {name!r}", "a list of categories", found)
    remedy = "ask for coarser ones, or for private keys"
    keys = listed(f"keys of {name!r}", found, MOST_KEYS, remedy)
    if not keys:
        validation.fail(f"keys of {name!r}", "a list of at least one category", keys)
    for key in keys:
        if not _fits(kind, key):
            validation.fail(f"keys of {name!r}", f"of the column's type, {kind}", key)
    if len(set(keys)) != len(keys):
        validation.fail(f"keys of {name!r}", "distinct", list(keys))
    return keys


def _fits(kind: dt.DataType, key: Any) -> bool:
    if kind.is_boolean():
        return isinstance(key, bool)
    if kind.is_integer():
        ends: Any = kind.bounds  # pyright: ignore[reportAttributeAccessIssue]
        whole = isinstance(key, int) and not isinstance(key, bool)
        return whole and ends.lower <= key <= ends.upper
    if kind.is_string():
        return isinstance(key, str) and not any("\ud800" <= sign <= "\udfff" for sign in key)
    if kind.is_timestamp():
        # An engine that converts a date, or a zone, on the way may fail on a row.
        zone = getattr(kind, "timezone", None)
        return isinstance(key, datetime) and (key.tzinfo is None) == (zone is None)
    return kind.is_date() and isinstance(key, date) and not isinstance(key, datetime)
