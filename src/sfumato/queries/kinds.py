"""The questions one can ask, each a frozen configuration with a price.

    >>> Mean("age", lower=0, upper=120, epsilon=0.2).to_dict()["query"]
    'Mean'

Every question takes ``epsilon``, ``delta`` (Gaussian noise instead of Laplace's, or private keys),
``where`` and ``confidence`` by name. A method of the same name on a protected table asks it alone;
several together are asked with :meth:`~sfumato.queries.Protected.ask`, as one request with one
price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.core import validation
from sfumato.queries.axes import Axis, Bins, categories
from sfumato.queries.base import Plan, Query
from sfumato.queries.choices import plan_choice
from sfumato.queries.facts import Facts
from sfumato.queries.measures import (
    BoundedMean,
    BoundedSum,
    BoundedVariance,
    Measure,
    RowCount,
    UnitCount,
)
from sfumato.queries.private_keys import plan_private_groups
from sfumato.queries.quantiles import plan_quantile
from sfumato.queries.tabulate import plan_tabulation

__all__ = [
    "ArgMax",
    "Count",
    "CountUnits",
    "Crosstab",
    "GroupBy",
    "Histogram",
    "Mean",
    "Median",
    "MostCommon",
    "Quantile",
    "Sum",
    "Variance",
    "query_from_dict",
]


@dataclass(frozen=True)
class Count(Query):
    """How many rows."""

    def plan(self, facts: Facts) -> Plan:
        """One number; a unit adds at most R to it."""
        return plan_tabulation(self, facts, self.measure)

    @property
    def measure(self) -> Measure:
        """What a group-by measures in each group."""
        return RowCount()


@dataclass(frozen=True)
class CountUnits(Query):
    """How many units: patients rather than visits."""

    def plan(self, facts: Facts) -> Plan:
        """One number; a unit adds at most 1 to it."""
        return plan_tabulation(self, facts, self.measure)

    @property
    def measure(self) -> Measure:
        """What a group-by measures in each group."""
        return UnitCount()


@dataclass(frozen=True)
class Sum(Query):
    """The sum of a column's values, clamped to declared bounds.

    Attributes:
        column: which.
        lower, upper: declared, never measured; values outside count as the nearer bound.
        default: what a missing value counts as; nothing unless declared.
    """

    column: str
    lower: float
    upper: float
    default: float | None = None

    def plan(self, facts: Facts) -> Plan:
        """One number; a unit adds at most R max(|lower|, |upper|) to it."""
        return plan_tabulation(self, facts, self.measure)

    @property
    def measure(self) -> Measure:
        """What a group-by measures in each group."""
        return BoundedSum(self.column, self.lower, self.upper, self.default)


@dataclass(frozen=True)
class Mean(Query):
    """The mean of a column's values, clamped to declared bounds; attributes as of :class:`Sum`."""

    column: str
    lower: float
    upper: float
    default: float | None = None

    def plan(self, facts: Facts) -> Plan:
        """A noisy sum over a noisy count, half of the budget each."""
        return plan_tabulation(self, facts, self.measure)

    @property
    def measure(self) -> Measure:
        """What a group-by measures in each group."""
        return BoundedMean(self.column, self.lower, self.upper, self.default)


@dataclass(frozen=True)
class Variance(Query):
    """The variance of a column's values, clamped; attributes as of :class:`Sum`."""

    column: str
    lower: float
    upper: float
    default: float | None = None

    def plan(self, facts: Facts) -> Plan:
        """A noisy count, sum and sum of squares."""
        return plan_tabulation(self, facts, self.measure)

    @property
    def measure(self) -> Measure:
        """What a group-by measures in each group."""
        return BoundedVariance(self.column, self.lower, self.upper, self.default)


@dataclass(frozen=True)
class Quantile(Query):
    """A value below which the given share of a column's values lies.

    Attributes:
        column: which.
        quantile: the share, between 0 and 1.
        lower, upper: declared bounds; the answer is one of the candidates between them.
        candidates: into how many parts the range is divided.
        interval: whether half of epsilon is spent on an interval.
    """

    column: str
    quantile: float
    lower: float
    upper: float
    candidates: int = 1000
    interval: bool = True

    def plan(self, facts: Facts) -> Plan:
        """Exponential mechanism for the value, sparse vector technique for the interval."""
        return self.plan_by(facts, ())

    def plan_by(self, facts: Facts, axes: tuple[Axis, ...]) -> Plan:
        """The same in every cell of some axes."""
        bounds = (self.lower, self.upper)
        return plan_quantile(
            self, facts, self.column, self.quantile, bounds, self.candidates, self.interval, axes
        )


@dataclass(frozen=True)
class Median(Query):
    """The middle value; attributes as of :class:`Quantile`."""

    column: str
    lower: float
    upper: float
    candidates: int = 1000
    interval: bool = True

    def plan(self, facts: Facts) -> Plan:
        """The quantile at a half."""
        return self.plan_by(facts, ())

    def plan_by(self, facts: Facts, axes: tuple[Axis, ...]) -> Plan:
        """The same in every cell of some axes."""
        bounds = (self.lower, self.upper)
        return plan_quantile(
            self, facts, self.column, 0.5, bounds, self.candidates, self.interval, axes
        )


@dataclass(frozen=True)
class Histogram(Query):
    """How many rows in each public bin of numbers, or with each public category.

    Attributes:
        column: which.
        edges: the bins' edges, for numbers.
        keys: the categories, unless they are declared for the table or the column is yes or no.
    """

    column: str
    edges: Sequence[float] | None = None
    keys: Sequence[Any] | None = None

    def plan(self, facts: Facts) -> Plan:
        """A unit adds at most R to all bins together."""
        if self.edges is not None and self.keys is not None:
            raise ValueError("give edges (for numbers) or keys (for categories), not both")
        if self.edges is not None:
            name = facts.column(self.column)
            _ = BoundedSum(name, 0, 1).parts(facts, 1, False)  # checks that it holds numbers
            edges = self.edges if isinstance(self.edges, int | float) else tuple(self.edges)
            axes: tuple[Axis, ...] = (Bins(name, edges),)  # type: ignore[arg-type]
        else:
            axes = categories([self.column], self.keys, facts)
        return plan_tabulation(self, facts, RowCount(), axes)


@dataclass(frozen=True)
class Crosstab(Query):
    """How many rows with each combination of two or more columns' categories.

    Attributes:
        columns: which.
        keys: categories by column, where they are not declared for the table.
    """

    columns: Sequence[str]
    keys: Mapping[str, Sequence[Any]] | None = None

    def plan(self, facts: Facts) -> Plan:
        """A unit adds at most R to all cells together."""
        if isinstance(self.columns, str) or len(self.columns) < 2:
            raise ValueError(f"crosstab needs two or more columns, got {self.columns!r}")
        return plan_tabulation(self, facts, RowCount(), categories(self.columns, self.keys, facts))


@dataclass(frozen=True)
class GroupBy(Query):
    """A question asked of every group, at the price of the whole.

    Its ``epsilon``, ``delta`` and ``where`` are those of the question inside, which is built by
    :meth:`~sfumato.queries.Protected.group_by`.

    Attributes:
        columns: what to group by.
        of: the question: a count, sum, mean, variance or quantile.
        keys: the public groups: categories by column, or declared for the table.
        private_keys: select the groups by a threshold instead, at ``delta`` and half of epsilon.
        key_share: which share of epsilon selects private keys.
    """

    columns: Sequence[str]
    of: Query
    keys: Any = None
    private_keys: bool = False
    key_share: float = 0.5

    def plan(self, facts: Facts) -> Plan:
        """Public keys: every group is released. Private keys: those with enough units."""
        measure = getattr(self.of, "measure", None)
        for name in ("epsilon", "delta", "where", "confidence"):
            if getattr(self.of, name, None) is not getattr(self, name) and (
                getattr(self.of, name, None) != getattr(self, name)
            ):
                raise ValueError(
                    f"the {name} of a group-by must be that of its question: build it with "
                    "table.group_by(...).query(...)"
                )
        if self.private_keys:
            if measure is None:
                raise ValueError("a quantile by group needs public keys: give keys=")
            return plan_private_groups(self, facts, measure, self.columns, self.key_share)
        axes = categories(list(self.columns), self.keys, facts)
        if measure is not None:
            return plan_tabulation(self, facts, measure, axes, grouped=True)
        plan_by = getattr(self.of, "plan_by", None)
        if plan_by is None:
            kind = type(self.of).__name__
            raise ValueError(
                f"a group-by asks for a count, sum, mean, variance or quantile, not {kind}"
            )
        return plan_by(facts, axes)


@dataclass(frozen=True)
class MostCommon(Query):
    """The category with the most rows, without its count.

    Attributes:
        column: which.
        keys: the candidates, unless declared for the table.
        winners: how many, best first.
    """

    column: str
    keys: Sequence[Any] | None = None
    winners: int = 1

    def plan(self, facts: Facts) -> Plan:
        """Exponential mechanism on counts."""
        (axis,) = categories([self.column], self.keys, facts)
        return plan_choice(self, facts, axis, RowCount(), self.winners)


@dataclass(frozen=True)
class ArgMax(Query):
    """The category whose rows have the largest sum of a column, without the sum.

    Attributes:
        over: the column of candidates.
        column: what is summed, clamped to [``lower``, ``upper``].
        keys: the candidates, unless declared for the table.
        winners: how many, best first.
    """

    over: str
    column: str
    lower: float
    upper: float
    keys: Sequence[Any] | None = None
    winners: int = 1

    def plan(self, facts: Facts) -> Plan:
        """Exponential mechanism on sums."""
        (axis,) = categories([self.over], self.keys, facts)
        measure = BoundedSum(self.column, self.lower, self.upper)
        return plan_choice(self, facts, axis, measure, self.winners)


_KINDS: dict[str, type[Query]] = {
    kind.__name__.lower(): kind
    for kind in (
        ArgMax,
        Count,
        CountUnits,
        Crosstab,
        GroupBy,
        Histogram,
        Mean,
        Median,
        MostCommon,
        Quantile,
        Sum,
        Variance,
    )
}


_OF_GROUPS = ("keys", "private_keys", "key_share")


def query_from_dict(data: Mapping[str, Any]) -> Query:
    """A question from JSON, as :meth:`Query.to_dict` writes it; names like "most-common" do too.

    >>> query_from_dict({"query": "count", "epsilon": 0.1, "where": "age > 60"}).where
    'age > 60'
    >>> query_from_dict({"query": "count", "by": "ward", "epsilon": 0.1}).columns
    ['ward']
    """
    if "by" in data:
        by = data["by"]
        grouped = {name: data[name] for name in _OF_GROUPS if name in data}
        inner = {name: value for name, value in data.items() if name not in ("by", *grouped)}
        columns = [by] if isinstance(by, str) else list(by)
        shared = {name: inner[name] for name in ("where", "confidence") if name in inner}
        return query_from_dict(
            {"query": "groupby", "columns": columns, "of": inner} | grouped | shared
        )
    name = str(data.get("query", "")).replace("-", "").replace("_", "").lower()
    if name not in _KINDS:
        validation.fail("query", f"one of {', '.join(sorted(_KINDS))}", data.get("query"))
    kind = _KINDS[name]
    rest = {key: value for key, value in data.items() if key != "query"}
    if isinstance(rest.get("of"), Mapping):
        inner = query_from_dict(rest["of"])
        rest |= {"of": inner}
        rest = {"epsilon": inner.epsilon, "delta": inner.delta} | rest
    try:
        return kind(**rest)
    except TypeError as error:
        reason = str(error).split(") ", 1)[-1].removeprefix("__init__() ")
        raise ValueError(f"the question {kind.__name__} is not well formed: {reason}") from None
