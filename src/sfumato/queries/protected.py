"""A table under protection: every question passes the ledger before a row is read.

    >>> import pandas as pd, tempfile
    >>> from sfumato.ledger import Budget
    >>> from sfumato.queries import protect
    >>> table = pd.DataFrame({"person": [1, 1, 2, 3], "age": [40, 41, 60, 75]})
    >>> ledger = f"sqlite:///{tempfile.mkdtemp()}/privacy.db"
    >>> people = protect(table, name="people", unit="person", max_rows_per_unit=2,
    ...                  budget=Budget(epsilon=1.0), ledger=ledger)
    >>> answer = people.where("age > 50").count(epsilon=0.25)
    >>> answer.remaining
    '0.75 of 1 left'

What happens, in this order:

1. The question is checked and priced from public facts, and run once on no rows at all, so that a
   mistake in it is an error now and costs nothing.
2. The ledger reserves the price, or refuses.
3. The bounded table is made, if it is not there yet, and the exact aggregate read from it.
4. Noise is added, the answer written to the ledger, and only then returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.core.events import Event, compose
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.ledger import Ledger, Preview, Status
from sfumato.queries import kinds
from sfumato.queries.answers import Answer
from sfumato.queries.base import Plan, Query
from sfumato.queries.bounding import bound_groups, bound_rows, secret_key
from sfumato.queries.engine import fetch
from sfumato.queries.facts import Facts
from sfumato.queries.filters import Expression, Where, named_filter, row_filter

__all__ = ["GroupedBy", "Protected"]


@dataclass
class _Bounded:
    """The bounded tables, made when first needed and shared by all views of a protected table."""

    source: ir.Table
    facts: Facts
    key: int = field(default_factory=secret_key, repr=False)
    _rows: ir.Table | None = None
    _groups: dict[tuple[str, ...], ir.Table] = field(default_factory=dict)

    def table(self, group_columns: tuple[str, ...]) -> ir.Table:
        """At most R rows a unit, and in at most G groups of these columns."""
        unit = self.facts.unit_column
        if unit is None:
            return self.source
        if self._rows is None:
            self._rows = bound_rows(self.source, unit, self.facts.rows, self.key)
        if not group_columns or self.facts.groups >= self.facts.rows:
            return self._rows
        if group_columns not in self._groups:
            self._groups[group_columns] = bound_groups(
                self._rows, unit, group_columns, self.facts.groups, self.key
            )
        return self._groups[group_columns]


class Protected:
    """A protected table, or a view of some of its rows; ``protect`` makes it."""

    def __init__(
        self,
        table: ir.Table,
        facts: Facts,
        ledger: Ledger,
        dataset: str,
        analyst: str = "",
        *,
        coins: Coins = SYSTEM,
        table_name: str = "",
        given: ir.Table | None = None,
    ) -> None:
        self.table_name = table_name  # in its dataset; empty if it is called as the dataset is
        self.facts, self.ledger, self.dataset, self.analyst = facts, ledger, dataset, analyst
        self._table, self._coins = table, coins
        self._given = table if given is None else given  # of which the caller's filters may speak
        self._bounded = _Bounded(table, facts)
        self._where: tuple[str | Expression, ...] = ()

    def __repr__(self) -> str:
        unit = self.facts.unit
        most = f", at most {self.facts.rows} rows each" if self.facts.unit_column else ""
        return f"Protected({self.dataset!r}, {self.facts.neighbours.describe(unit)}{most})"

    @property
    def columns(self) -> dict[str, str]:
        """Names and types: the public schema."""
        return {name: str(kind) for name, kind in self.facts.columns.items()}

    @property
    def status(self) -> Status:
        """Where the budget stands."""
        return self.ledger.status(self.dataset, self.analyst)

    def where(self, *conditions: Where) -> Protected:
        """A view of the rows for which all conditions hold: SQL text or Ibis expressions.

        Contributions are bounded before, on the whole table.

        Raises:
            ValueError: for what is no condition; None is none, though a question's ``where`` has it
                for "no filter".
        """
        if any(condition is None for condition in conditions):
            validation.fail("where", "conditions, or not called", None)
        named = named_filter(conditions, self._table, self._given)
        row_filter(named, self._table)  # a mistake is an error now
        view = Protected(
            self._table, self.facts, self.ledger, self.dataset, self.analyst, coins=self._coins,
            table_name=self.table_name, given=self._given,
        )  # fmt: skip
        view._bounded, view._where = self._bounded, (*self._where, *named)
        return view

    def group_by(
        self, *columns: str, keys: Any = None, private_keys: bool = False, key_share: float = 0.5
    ) -> GroupedBy:
        """Questions about every group: ``.group_by("city", keys=[...]).mean("age", ...)``.

        With ``private_keys=True`` the groups need not be known: those with enough units are named,
        at a ``delta`` and ``key_share`` of epsilon.
        """
        names = tuple(self.facts.column(column) for column in columns)
        if not names:
            validation.fail("columns", "at least one column", columns)
        return GroupedBy(self, names, keys, private_keys, key_share)

    # --- asking -------------------------------------------------------------------------------

    def ask(self, *queries: Query, key: str = "") -> list[Answer]:
        """Several questions as one request: one reservation, one price, all or nothing.

        Args:
            queries: the questions.
            key: an idempotency key: asked again with it, the stored answers come back, at no cost.

        Raises:
            ValueError: for bad questions, or if the budget refuses; nothing is spent then.
            SourceError: if the data source fails after the reservation, which stays charged.
        """
        asked = self._asked(queries)
        plans = self._plan(asked)
        spending = self.ledger.spend(
            self.dataset,
            _joint(plans),
            analyst=self.analyst,
            key=key,
            request=self._request(asked),
            label="; ".join(query.describe() for query in asked),
        )
        if spending.repeated:
            return [Answer.from_dict(item) for item in spending.answer]
        with spending:
            answers = [
                Answer.make(
                    query,
                    plan,
                    self._run(query, plan),
                    left=spending.left,
                    budget=spending.cap,
                    private=self._coins.private,
                )
                for query, plan in zip(asked, plans, strict=True)
            ]
            spending.commit([answer.to_dict() for answer in answers])
        return answers

    def preview(self, *queries: Query) -> Preview:
        """What the questions would cost, and whether they would pass; nothing is spent or read."""
        plans = self._plan(self._asked(queries))
        return self.ledger.preview(
            self.dataset, [plan.event for plan in plans], analyst=self.analyst
        )

    def _asked(self, queries: Sequence[Query]) -> list[Query]:
        """The questions, each about the rows of this view that it names itself."""
        if not queries:
            validation.fail("queries", "at least one question", queries)
        for query in queries:
            if not isinstance(query, Query):
                validation.fail("queries", "questions such as Count(epsilon=0.1)", query)
        return [self._in_view(query) for query in queries]

    def _in_view(self, query: Query) -> Query:
        where = (*self._where, *named_filter(query.where, self._table, self._given))
        return query.about(where) if where else query

    def _plan(self, asked: Sequence[Query]) -> list[Plan]:
        plans = [query.plan(self.facts) for query in asked]
        nothing = self._table.limit(0)
        for query, plan in zip(asked, plans, strict=True):
            fetch(plan.exact(self._filtered(nothing, query)), "checking the question on no rows")
        return plans

    def _request(self, asked: Sequence[Query]) -> dict[str, Any]:
        """What the ledger records: the questions, and how contributions are bounded for them."""
        named = {"table": self.table_name} if self.table_name else {}
        return named | {
            "questions": [query.to_dict() for query in asked],
            "unit": self.facts.unit_column,
            "max_rows_per_unit": self.facts.rows,
            "max_groups_per_unit": self.facts.groups,
        }

    def _run(self, query: Query, plan: Plan) -> Any:
        table = self._bounded.table(plan.group_columns)
        rows = fetch(plan.exact(self._filtered(table, query)), "answering")
        return plan.release(rows, self._coins)

    def _filtered(self, table: ir.Table, query: Query) -> ir.Table:
        if query.where is None:
            return table
        return table.filter(row_filter(query.where, table, self._table))

    def _one(self, query: Query, key: str) -> Answer:
        return self.ask(query, key=key)[0]

    # --- the questions ------------------------------------------------------------------------

    def count(self, *, key: str = "", **price: Any) -> Answer:
        """How many rows. ``price``: epsilon, and optionally delta, confidence."""
        return self._one(kinds.Count(**price), key)

    def count_units(self, *, key: str = "", **price: Any) -> Answer:
        """How many units."""
        return self._one(kinds.CountUnits(**price), key)

    def sum(self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any) -> Answer:
        """The sum of a column, each value clamped to [lower, upper]."""
        return self._one(kinds.Sum(column, lower, upper, **rest), key)

    def mean(
        self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any
    ) -> Answer:
        """The mean of a column, each value clamped to [lower, upper]."""
        return self._one(kinds.Mean(column, lower, upper, **rest), key)

    def variance(
        self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any
    ) -> Answer:
        """The variance of a column, each value clamped to [lower, upper]."""
        return self._one(kinds.Variance(column, lower, upper, **rest), key)

    def quantile(
        self,
        column: str,
        quantile: float,
        lower: float,
        upper: float,
        *,
        key: str = "",
        **rest: Any,
    ) -> Answer:
        """A quantile of a column."""
        return self._one(kinds.Quantile(column, quantile, lower, upper, **rest), key)

    def median(
        self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any
    ) -> Answer:
        """The median of a column."""
        return self._one(kinds.Median(column, lower, upper, **rest), key)

    def histogram(
        self,
        column: str,
        edges: Sequence[float] | None = None,
        *,
        keys: Sequence[Any] | None = None,
        key: str = "",
        **price: Any,
    ) -> Answer:
        """How many rows in each bin, or with each category."""
        return self._one(kinds.Histogram(column, edges, keys, **price), key)

    def crosstab(
        self,
        *columns: str,
        keys: Mapping[str, Sequence[Any]] | None = None,
        key: str = "",
        **price: Any,
    ) -> Answer:
        """How many rows with each combination of categories."""
        return self._one(kinds.Crosstab(columns, keys, **price), key)

    def most_common(
        self,
        column: str,
        *,
        keys: Sequence[Any] | None = None,
        winners: int = 1,
        key: str = "",
        **price: Any,
    ) -> Answer:
        """The most common category."""
        return self._one(kinds.MostCommon(column, keys, winners, **price), key)

    def arg_max(
        self,
        over: str,
        column: str,
        lower: float,
        upper: float,
        *,
        keys: Sequence[Any] | None = None,
        winners: int = 1,
        key: str = "",
        **price: Any,
    ) -> Answer:
        """The category with the largest sum of a column."""
        return self._one(kinds.ArgMax(over, column, lower, upper, keys, winners, **price), key)


def _joint(plans: Sequence[Plan]) -> Event:
    return plans[0].event if len(plans) == 1 else compose(*(plan.event for plan in plans))


@dataclass(frozen=True)
class GroupedBy:
    """Questions about every group; made by :meth:`Protected.group_by`."""

    table: Protected
    columns: tuple[str, ...]
    keys: Any = None
    private_keys: bool = False
    key_share: float = 0.5

    def query(self, of: Query) -> kinds.GroupBy:
        """The question for each group as one question, for :meth:`Protected.ask`."""
        return kinds.GroupBy(self.columns, of, self.keys, self.private_keys, self.key_share)

    def _ask(self, make: Callable[..., Query], *arguments: Any, key: str, rest: Any) -> Answer:
        return self.table.ask(self.query(make(*arguments, **rest)), key=key)[0]

    def count(self, *, key: str = "", **price: Any) -> Answer:
        """How many rows in each group."""
        return self._ask(kinds.Count, key=key, rest=price)

    def count_units(self, *, key: str = "", **price: Any) -> Answer:
        """How many units in each group."""
        return self._ask(kinds.CountUnits, key=key, rest=price)

    def sum(self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any) -> Answer:
        """The sum of a column in each group."""
        return self._ask(kinds.Sum, column, lower, upper, key=key, rest=rest)

    def mean(
        self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any
    ) -> Answer:
        """The mean of a column in each group."""
        return self._ask(kinds.Mean, column, lower, upper, key=key, rest=rest)

    def variance(
        self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any
    ) -> Answer:
        """The variance of a column in each group."""
        return self._ask(kinds.Variance, column, lower, upper, key=key, rest=rest)

    def quantile(
        self,
        column: str,
        quantile: float,
        lower: float,
        upper: float,
        *,
        key: str = "",
        **rest: Any,
    ) -> Answer:
        """A quantile of a column in each group."""
        return self._ask(kinds.Quantile, column, quantile, lower, upper, key=key, rest=rest)

    def median(
        self, column: str, lower: float, upper: float, *, key: str = "", **rest: Any
    ) -> Answer:
        """The median of a column in each group."""
        return self._ask(kinds.Median, column, lower, upper, key=key, rest=rest)
