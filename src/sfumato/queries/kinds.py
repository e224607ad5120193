"""The questions one can ask, each a frozen configuration with a price.

    >>> Mean("age", lower=0, upper=120, epsilon=0.2).to_dict()["query"]
    'Mean'

Every question takes ``epsilon``, ``delta`` (Gaussian noise instead of Laplace's, or private keys),
``where`` and ``confidence`` by name. A method of the same name on a protected table asks it alone;
several together are asked with :meth:`~sfumato.queries.Protected.ask`, as one request with one
price.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

from sfumato.core import validation
from sfumato.queries.axes import Axis, Bins, categories
from sfumato.queries.base import PRICE, Plan, Query
from sfumato.queries.choices import plan_choice
from sfumato.queries.facts import Facts
from sfumato.queries.filters import Where
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
]


# --- one number, of the table or of every group -------------------------------------------------


@dataclass(frozen=True)
class _Groupable(Query):
    """A question that can be asked of every group as well."""

    @abstractmethod
    def plan_by(self, facts: Facts, axes: tuple[Axis, ...]) -> Plan:
        """The question's price and noise in every cell of some axes; of the table if none."""

    def plan(self, facts: Facts) -> Plan:
        """One cell: the table."""
        return self.plan_by(facts, ())


@dataclass(frozen=True)
class _Measured(_Groupable):
    """A question that a measure answers, by noise on whole numbers."""

    @property
    @abstractmethod
    def measure(self) -> Measure:
        """What is measured in each cell."""

    def plan_by(self, facts: Facts, axes: tuple[Axis, ...]) -> Plan:
        """The measure in every cell."""
        return plan_tabulation(self, facts, self.measure, axes, grouped=bool(axes))


@final
@dataclass(frozen=True)
class Count(_Measured):
    """How many rows."""

    @property
    def measure(self) -> Measure:
        """A unit adds at most R."""
        return RowCount()


@final
@dataclass(frozen=True)
class CountUnits(_Measured):
    """How many units: patients rather than visits."""

    @property
    def measure(self) -> Measure:
        """A unit adds at most 1; 1 in each of G groups."""
        return UnitCount()


@dataclass(frozen=True)
class _OfColumn(_Measured):
    """A measure of a column's values, clamped; attributes as of :class:`Sum`."""

    column: str
    lower: float
    upper: float
    default: float | None = None


@final
@dataclass(frozen=True)
class Sum(_OfColumn):
    """The sum of a column's values, clamped to declared bounds.

    Attributes:
        column: which.
        lower, upper: declared, never measured; values outside count as the nearer bound.
        default: what a missing value counts as; nothing unless declared. Under zero-out it costs
            noise, unless it is 0 (for a mean and a variance: the middle).
    """

    @property
    def measure(self) -> Measure:
        """A unit adds at most R max(|lower|, |upper|)."""
        return BoundedSum(self.column, self.lower, self.upper, self.default)


@final
@dataclass(frozen=True)
class Mean(_OfColumn):
    """The mean of a column's values, clamped to declared bounds; attributes as of :class:`Sum`."""

    @property
    def measure(self) -> Measure:
        """A noisy sum over a noisy count, half of the budget each."""
        return BoundedMean(self.column, self.lower, self.upper, self.default)


@final
@dataclass(frozen=True)
class Variance(_OfColumn):
    """The variance of a column's values, clamped; attributes as of :class:`Sum`."""

    @property
    def measure(self) -> Measure:
        """A noisy count, sum and sum of squares."""
        return BoundedVariance(self.column, self.lower, self.upper, self.default)


@dataclass(frozen=True)
class _OfOrder(_Groupable):
    """A value below which the share ``quantile`` of a column's values lies."""

    column: str
    quantile: float
    lower: float
    upper: float
    candidates: int = 1000
    interval: bool = True

    def plan_by(self, facts: Facts, axes: tuple[Axis, ...]) -> Plan:
        """Exponential mechanism for the value, sparse vector technique for the interval."""
        bounds = (self.lower, self.upper)
        return plan_quantile(
            self, facts, self.column, self.quantile, bounds, self.candidates, self.interval, axes
        )


@final
@dataclass(frozen=True)
class Quantile(_OfOrder):
    """A value below which the given share of a column's values lies.

    Attributes:
        column: which.
        quantile: the share, between 0 and 1.
        lower, upper: declared bounds; the answer is one of the candidates between them.
        candidates: into how many parts the range is divided.
        interval: whether half of epsilon is spent on an interval.
    """


@final
@dataclass(frozen=True)
class Median(_OfOrder):
    """The middle value: the quantile at a half; attributes as of :class:`Quantile`."""

    quantile: float = field(default=0.5, init=False, repr=False)


# --- tables -------------------------------------------------------------------------------------


@final
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
            axes: tuple[Axis, ...] = (Bins(facts.require_number(self.column), self.edges),)
        else:
            axes = categories([self.column], self.keys, facts)
        return plan_tabulation(self, facts, RowCount(), axes)


@final
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


@final
@dataclass(frozen=True)
class GroupBy(Query):
    """A question asked of every group, at the price of the whole.

    Its ``epsilon``, ``delta``, ``where`` and ``confidence`` are those of the question inside.

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

    epsilon: float = field(init=False, repr=False)
    delta: float = field(init=False, repr=False)
    where: Where = field(init=False, repr=False)
    confidence: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.of, Query):
            validation.fail("of", "a question such as Count(epsilon=0.1)", self.of)
        for name in PRICE:
            object.__setattr__(self, name, getattr(self.of, name))

    def about(self, where: Where) -> Self:
        """The question inside about other rows."""
        return replace(self, of=self.of.about(where))

    def describe(self) -> str:
        """The question inside, and by what."""
        return f"{self.of.describe()} by {', '.join(self.columns)}"

    def plan(self, facts: Facts) -> Plan:
        """Public keys: every group is released. Private keys: those with enough units."""
        if not isinstance(self.of, _Groupable):
            kind = type(self.of).__name__
            raise ValueError(
                f"a group-by asks for a count, sum, mean, variance or quantile, not {kind}"
            )
        if not self.private_keys:
            return self.of.plan_by(facts, categories(list(self.columns), self.keys, facts))
        if not isinstance(self.of, _Measured):
            raise ValueError("a quantile by group needs public keys: give keys=")
        return plan_private_groups(self.of, facts, self.of.measure, self.columns, self.key_share)


# --- choices ------------------------------------------------------------------------------------


@final
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


@final
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
