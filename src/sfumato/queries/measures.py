"""What is measured in each cell of a table: counts, sums, means, variances.

Each measure says which whole numbers it needs of a cell (its parts), what one unit can add to them,
and how noisy parts become a value with an interval. With R rows a unit at most:

=========  ==============================================================  =====================
measure    parts                                                           one unit adds at most
=========  ==============================================================  =====================
count      n, the number of rows                                           R
units      u, the number of units                                          1 in each of G cells
sum        s, the sum of values clamped to [lower, upper]                  R max(|lower|, |upper|)
mean       n, and s about the middle of the range: middle + s / n          R, R (upper - lower)/2
variance   n, s and the sum of squares q: q/n - (s/n)^2                    and R (upper - lower)^2/4
=========  ==============================================================  =====================

These bounds hold in L1 and in L2 for all cells of a table together, because a unit's rows fall into
some cells and add up. A row whose value is missing (NULL, NaN, infinite, not a number) takes the
declared default, or counts for nothing if there is none.

**Zero-out.** The neighbour holds blank rows in place of one unit's rows: as many or fewer, with
every cell missing; only the unit's own cell may stay. The bounds of the table above hold for it:

- A blank row is in no category, in no bin and in no group, and has no number. So without a default
  it adds to counts of rows and of units alone, and to those only where there are no cells and the
  filter lets it pass (``x IS NULL``). Both counts lie between 0 and the bound, before and after.
- With a default d it adds d to a sum. A row that added a value v, or nothing, then moves the sum by
  |v - d| or |d|: a row moves it by at most max(|lower|, |upper|, d - lower, upper - d), about the
  middle for a mean. That is the bound under zero-out. Squares lie between 0 and the bound either
  way. The noise grows with the default's distance from 0 (from the middle for a mean), at most
  twofold.

Where each row is a unit of its own, the same holds if only some of its cells are blanked: the row
stays in its cell, or leaves it, or is let in by the filter. Blanking some cells of a unit that has
several rows is no zero-out step, since other rows of it may then be kept: it is a replacement.

Intervals: with probability ``confidence`` every part lies within its half-width (union bound), and
the interval of the value is what then follows. Clamping a result to what is possible is free.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.queries.engine import Value
from sfumato.queries.facts import Facts
from sfumato.queries.fixed_point import Grid, declared_bounds
from sfumato.queries.noise import Part
from sfumato.queries.total import finite_number

__all__ = [
    "BoundedMean",
    "BoundedSum",
    "BoundedVariance",
    "Measure",
    "RowCount",
    "UnitCount",
]

Interval = tuple[Any, float, float]


class Measure(ABC):
    """What is measured in each cell."""

    @abstractmethod
    def parts(self, facts: Facts, cells: int, grouped: bool) -> tuple[Part, ...]:
        """The whole numbers needed, with what one unit adds; validates against the schema."""

    @abstractmethod
    def aggregates(self, table: ir.Table, facts: Facts) -> dict[str, Value]:
        """Each part as an aggregate of a cell's rows."""

    @abstractmethod
    def finish(self, parts: Mapping[str, int], errors: Mapping[str, float]) -> Interval:
        """Value, low and high from noisy parts and their half-widths."""

    @abstractmethod
    def counted(self, facts: Facts) -> str:
        """What the value is a number of."""

    def note(self, facts: Facts, parts: Sequence[Part]) -> str:
        """Why the interval is as wide as it is."""
        many = facts.unit_column is not None and facts.rows > 1
        return f"a {facts.unit} may hold {facts.rows}" if many else ""


@final
@dataclass(frozen=True)
class RowCount(Measure):
    """The number of rows."""

    def parts(self, facts: Facts, cells: int, grouped: bool) -> tuple[Part, ...]:
        """One unit holds at most R rows."""
        return (Part("n", facts.rows, float(facts.rows)),)

    def aggregates(self, table: ir.Table, facts: Facts) -> dict[str, Value]:
        """COUNT(*)."""
        return {"n": table.count()}

    def finish(self, parts: Mapping[str, int], errors: Mapping[str, float]) -> Interval:
        """The noisy count; unbiased, so it may be negative."""
        n = int(parts["n"])
        return n, max(n - errors["n"], 0.0), max(n + errors["n"], 0.0)

    def counted(self, facts: Facts) -> str:
        """Rows, or units where every row is one."""
        return "rows" if facts.unit_column else f"{facts.unit}s"


@final
@dataclass(frozen=True)
class UnitCount(Measure):
    """The number of distinct units (patients rather than visits)."""

    def parts(self, facts: Facts, cells: int, grouped: bool) -> tuple[Part, ...]:
        """One unit counts once in a cell, in at most as many cells as it may enter."""
        entered = min(facts.groups if grouped else facts.rows, cells)
        return (Part("n", entered, math.sqrt(entered)),)

    def aggregates(self, table: ir.Table, facts: Facts) -> dict[str, Value]:
        """COUNT(DISTINCT unit)."""
        if facts.unit_column is None:
            return {"n": table.count()}
        return {"n": table[facts.unit_column].nunique()}

    def finish(self, parts: Mapping[str, int], errors: Mapping[str, float]) -> Interval:
        """As for rows."""
        return RowCount().finish(parts, errors)

    def counted(self, facts: Facts) -> str:
        """Units."""
        return f"{facts.unit}s"

    def note(self, facts: Facts, parts: Sequence[Part]) -> str:
        """Units count once a cell, but may be in several."""
        cells = parts[0].l1
        return f"a {facts.unit} may be in {cells}" if cells > 1 else ""


@dataclass(frozen=True)
class _Bounded(Measure):
    """A measure of one column with declared bounds."""

    column: str
    lower: float
    upper: float
    default: float | None = None

    def __post_init__(self) -> None:
        lower, upper = declared_bounds(f"bounds of {self.column!r}", self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        if self.default is not None:
            default = validation.finite("default", self.default)
            if not lower <= default <= upper:
                validation.fail("default", f"from {lower:g} to {upper:g}", default)

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """How values become whole numbers."""

    def counted(self, facts: Facts) -> str:
        """The column."""
        return self.column

    def _reach(self, facts: Facts) -> int:
        """The most by which one row moves the sum; under zero-out from any value to the default."""
        grid = self.grid
        if self.default is None or facts.neighbours is not Neighbours.ZERO_OUT:
            return grid.reach
        blank = grid.whole(self.default)
        return max(grid.reach, blank - grid.least, grid.most - blank)

    def _number(self, table: ir.Table, facts: Facts) -> Value:
        number = finite_number(table[facts.column(self.column)], facts.engine)
        return number if self.default is None else number.fill_null(float(self.default))


@final
@dataclass(frozen=True)
class BoundedSum(_Bounded):
    """The sum of values clamped to [lower, upper]."""

    @property
    def grid(self) -> Grid:
        """About 0."""
        return Grid(self.lower, self.upper)

    def parts(self, facts: Facts, cells: int, grouped: bool) -> tuple[Part, ...]:
        """R rows of at most the larger bound each, or of what blanking one moves."""
        facts.require_number(self.column)
        reach = facts.rows * self._reach(facts)
        return (Part("s", reach, float(reach)),)

    def aggregates(self, table: ir.Table, facts: Facts) -> dict[str, Value]:
        """The sum of whole numbers."""
        return {"s": self.grid.encode(self._number(table, facts)).sum().fill_null(0)}

    def finish(self, parts: Mapping[str, int], errors: Mapping[str, float]) -> Interval:
        """In the column's own scale."""
        value, error = self.grid.value(int(parts["s"])), self.grid.value(errors["s"])
        return value, value - error, value + error


@final
@dataclass(frozen=True)
class BoundedMean(_Bounded):
    """The mean of values clamped to [lower, upper]: a noisy sum over a noisy count.

    The sum is taken about the middle of the range, so that a unit that comes or goes moves it by at
    most half the range a row, and an error in the count hardly matters where values spread evenly.
    """

    @property
    def grid(self) -> Grid:
        """About the middle."""
        return Grid.centred(self.lower, self.upper)

    def parts(self, facts: Facts, cells: int, grouped: bool) -> tuple[Part, ...]:
        """Half of the budget each for the count and the sum."""
        facts.require_number(self.column)
        reach = facts.rows * self._reach(facts)
        return (
            Part("n", facts.rows, float(facts.rows), 0.5),
            Part("s", reach, float(reach), 0.5),
        )

    def aggregates(self, table: ir.Table, facts: Facts) -> dict[str, Value]:
        """The number of values and the sum of what they are above the middle."""
        whole = self.grid.encode(self._number(table, facts))
        return {"n": whole.count(), "s": whole.sum().fill_null(0)}

    def finish(self, parts: Mapping[str, int], errors: Mapping[str, float]) -> Interval:
        """Middle + s / n, clamped; the whole range where the count is lost in the noise."""
        n, s, grid = int(parts["n"]), int(parts["s"]), self.grid
        ratio = _ratio(s, errors["s"], n, errors["n"])
        if ratio is None:
            return grid.centre if n <= 0 else self._place(s / n), self.lower, self.upper
        low, high = ratio
        return self._place(s / n), self._place(low), self._place(high)

    def _place(self, ratio: float) -> float:
        return min(max(self.grid.centre + self.grid.value(ratio), self.lower), self.upper)


@final
@dataclass(frozen=True)
class BoundedVariance(_Bounded):
    """The (population) variance of values clamped to [lower, upper]."""

    @property
    def grid(self) -> Grid:
        """About the middle."""
        return Grid.centred(self.lower, self.upper)

    def parts(self, facts: Facts, cells: int, grouped: bool) -> tuple[Part, ...]:
        """Half of the budget for the squares, a quarter each for count and sum."""
        facts.require_number(self.column)
        reach, squares = facts.rows * self._reach(facts), facts.rows * self.grid.square_reach
        return (
            Part("n", facts.rows, float(facts.rows), 0.25),
            Part("s", reach, float(reach), 0.25),
            Part("q", squares, float(squares), 0.5),
        )

    def aggregates(self, table: ir.Table, facts: Facts) -> dict[str, Value]:
        """Count, sum and sum of squares about the middle."""
        number = self._number(table, facts)
        whole, square = self.grid.encode(number), self.grid.encode_square(number)
        return {"n": whole.count(), "s": whole.sum().fill_null(0), "q": square.sum().fill_null(0)}

    def finish(self, parts: Mapping[str, int], errors: Mapping[str, float]) -> Interval:
        """q/n - (s/n)^2, clamped to what bounded values can have."""
        most = (self.upper - self.lower) ** 2 / 4
        n, grid = int(parts["n"]), self.grid
        if n <= 0:
            return 0.0, 0.0, most

        def clamp(value: float) -> float:
            return min(max(value, 0.0), most)

        value = clamp(grid.square_value(parts["q"] / n) - grid.value(parts["s"] / n) ** 2)
        mean = _ratio(int(parts["s"]), errors["s"], n, errors["n"])
        square = _ratio(int(parts["q"]), errors["q"], n, errors["n"])
        if mean is None or square is None:
            return value, 0.0, most
        ends = [grid.value(end) ** 2 for end in mean]
        least = 0.0 if mean[0] <= 0 <= mean[1] else min(ends)
        low = clamp(grid.square_value(square[0]) - max(ends))
        high = clamp(grid.square_value(square[1]) - least)
        return value, low, high


def _ratio(top: int, top_error: float, bottom: int, error: float) -> tuple[float, float] | None:
    """The range of s / n for s and n within their errors; None if n may be 0."""
    least, most = bottom - error, bottom + error
    if least < 1:
        return None
    low, high = top - top_error, top + top_error
    return low / (least if low < 0 else most), high / (most if high < 0 else least)
