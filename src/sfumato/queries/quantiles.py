"""Quantiles: a candidate chosen by how evenly it splits the data, with an interval that holds.

The candidates are B + 1 points that divide [lower, upper] evenly. For the quantile q = p/d, with
``below`` and ``above`` the numbers of rows whose value lies below a candidate x, and not,

    u(x) = (d - p) below(x) - p above(x)

is 0 at the quantile and does not decrease in x. One row moves it by at most max(p, d - p), one unit
by R times that. All of it is in whole numbers.

*The value*: the exponential mechanism with score -|u(x)|, at half of epsilon (Smith, "Privacy-
preserving statistical estimation with optimal convergence rates", STOC 2011).

*The interval*: two runs of the sparse vector technique, at a quarter of epsilon each, up from
``lower`` and down from ``upper``. The run upwards stops at the first candidate whose u is, with
noise, above -T; the end of the interval is the candidate before. Let x* be the first candidate with
u > 0. If the run stops before it or at it, the end has u <= 0, so it is not above the quantile. It
fails to stop at x* only if the noise of that one comparison exceeds T, which has probability at
most half of 1 - confidence by the choice of T. Gaps in the data and ties do not matter.

A quantile of no rows is anything; the answer is then as random as it must be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import Event, ParallelEvent, compose
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.exponential import Exponential
from sfumato.mechanisms.sparse_vector import SparseVector
from sfumato.queries.axes import Axis
from sfumato.queries.base import Cell, Plan, Query, check_price
from sfumato.queries.facts import Facts
from sfumato.queries.fixed_point import bin_number, declared_bounds
from sfumato.queries.limits import MOST_CANDIDATES, MOST_TRIALS, check_size
from sfumato.queries.total import finite_number

__all__ = ["QuantilePlan", "plan_quantile"]

_FINEST = 10**6


@final
@dataclass(frozen=True, kw_only=True)
class QuantilePlan(Plan):
    """A quantile in every cell.

    Formal guarantee: epsilon-DP for the table's unit and relation: the mechanisms of one cell
    compose to epsilon / G, and a unit's rows lie in at most G cells.
    """

    column: str
    lower: float
    upper: float
    bins: int
    weights: tuple[int, int]
    axes: tuple[Axis, ...]
    choice: Exponential
    search: SparseVector | None

    def exact(self, table: ir.Table) -> ir.Table:
        """The number of rows in each bin between neighbouring candidates, in each cell."""
        number = finite_number(table[self.facts.column(self.column)], self.facts.engine)
        places = {
            f"sfumato_axis_{i}": axis.place(table, self.facts) for i, axis in enumerate(self.axes)
        }
        places["sfumato_bin"] = bin_number(number, self.lower, self.upper, self.bins)
        placed = table.mutate(**places)
        inside = placed.filter([placed[name].notnull() for name in places])
        return inside.group_by(list(places)).aggregate(n=inside.count())

    def release(self, rows: Sequence[dict[str, Any]], coins: Coins) -> tuple[Cell, ...]:
        """One quantile a cell, in the order of the axes' labels."""
        places = list(itertools.product(*(range(len(axis.labels)) for axis in self.axes)))
        counts = {place: np.zeros(self.bins, dtype=np.int64) for place in places}
        for row in rows:
            place = tuple(
                axis.position(row[f"sfumato_axis_{i}"]) for i, axis in enumerate(self.axes)
            )
            if place in counts:
                counts[place][int(row["sfumato_bin"])] += int(row["n"])  # type: ignore[index]
        return tuple(self._cell(place, counts[place], coins) for place in places)

    def _cell(self, place: tuple[int, ...], counts: NDArray[np.int64], coins: Coins) -> Cell:
        keys = tuple(axis.labels[i] for axis, i in zip(self.axes, place, strict=True))
        balance = self._balance(counts)
        chosen = self.choice.release([-abs(u) for u in balance], coins=coins).value
        if self.search is None:
            return Cell(keys, self._point(chosen))
        low = self._walk(balance, coins)
        high = self.bins - self._walk([-u for u in reversed(balance)], coins)
        ends = sorted((low, high, chosen))
        return Cell(keys, self._point(chosen), self._point(ends[0]), self._point(ends[-1]))

    def _balance(self, counts: NDArray[np.int64]) -> list[int]:
        """U at every candidate, exactly."""
        below = np.concatenate([[0], np.cumsum(counts)]).tolist()
        up, down = self.weights
        return [up * b - down * (below[-1] - b) for b in below]

    def _walk(self, balance: list[int], coins: Coins) -> int:
        """The candidate before the first whose balance is, about, above the threshold."""
        assert self.search is not None
        session = self.search.start(coins)
        for index, u in enumerate(balance):
            if session.ask(u):
                return max(index - 1, 0)
        return len(balance) - 1

    def _point(self, index: int) -> float:
        return self.lower + index * (self.upper - self.lower) / self.bins


def plan_quantile(
    query: Query,
    facts: Facts,
    column: str,
    quantile: float,
    bounds: tuple[float, float],
    candidates: int,
    interval: bool,
    axes: tuple[Axis, ...],
) -> QuantilePlan:
    """Prices a quantile; with ``interval`` half of epsilon goes to the interval."""
    check_price(query)
    _check_quantile(query, facts, column, axes)
    lower, upper = declared_bounds(f"bounds of {column!r}", *bounds)
    bins, weights = validation.at_least("candidates", candidates, 2), _weights(quantile)
    check_size("candidates", bins, MOST_CANDIDATES, "narrower bounds need fewer")
    trials = bins * math.prod(len(axis.labels) for axis in axes)
    check_size("candidates times groups", trials, MOST_TRIALS, "use fewer of either")
    step = Sensitivity(
        float(facts.rows * max(weights)), Norm.LINF, Neighbours.ADD_REMOVE, facts.unit
    ).under(facts.neighbours)
    cells = facts.groups if axes else 1
    each = query.epsilon / cells
    choice = Exponential(each / 2 if interval else each, step)
    search = _search(each / 4, step, query.confidence) if interval else None
    one: Event = choice.event if search is None else compose(choice.event, *[search.event] * 2)
    names = tuple(axis.name for axis in axes)
    return QuantilePlan(
        event=ParallelEvent((one,), cells) if axes else one,
        guarantee=Guarantee(query.epsilon, 0.0, facts.neighbours, facts.unit),
        key_names=names,
        unit_of_value=column,
        group_columns=names,
        note=f"one of {bins + 1} candidates",
        facts=facts,
        column=column,
        lower=lower,
        upper=upper,
        bins=bins,
        weights=weights,
        axes=axes,
        choice=choice,
        search=search,
    )


def _check_quantile(query: Query, facts: Facts, column: str, axes: tuple[Axis, ...]) -> None:
    facts.require_number(column)
    if query.delta > 0:
        validation.fail("delta", "0 for a quantile, which is chosen with pure DP", query.delta)
    if axes and facts.neighbours is Neighbours.REPLACE_ONE:
        raise ValueError("quantiles by group need add-remove or zero-out neighbours")


def _weights(quantile: float) -> tuple[int, int]:
    """What a row below a candidate, and one that is not, weighs: d - p and p for q = p/d."""
    share = Fraction(validation.open_probability("quantile", quantile)).limit_denominator(_FINEST)
    weights = (share.denominator - share.numerator, share.numerator)
    if min(weights) < 1:
        validation.fail("quantile", f"at least {1 / _FINEST:g} away from 0 and 1", quantile)
    return weights


def _search(epsilon: float, step: Sensitivity, confidence: float) -> SparseVector:
    """A search that passes the first true candidate with probability at most (1 - confidence) / 2.

    One comparison has the noise of the threshold and of the question, both discrete Laplace. Such
    noise is at most 1 above continuous Laplace noise of the same scale: Pr[|Y| >= t] is
    2 p^t / (1 + p) <= p^(t-1), p = e^(-1/scale).
    """
    trial = SparseVector(epsilon, step, threshold=0.0)
    levels = _sum_tail(trial.threshold_scale, trial.query_scale, (1 - confidence) / 2) + 2
    slack = math.ceil(levels * step.bound / trial.steps)
    return SparseVector(epsilon, step, threshold=-float(slack))


def _sum_tail(a: float, b: float, probability: float) -> float:
    """A t with Pr[X + Y > t] <= probability, for Laplace X and Y of scales a and b.

    The probability is (a^2 e^(-t/a) - b^2 e^(-t/b)) / 2(a^2 - b^2); for a = b, which this is not
    used close to, its limit.
    """
    small, large = sorted((a, b))
    large = max(large, small * 1.001)

    def tail(t: float) -> float:
        top = large**2 * math.exp(-t / large) - small**2 * math.exp(-t / small)
        return top / (2 * (large**2 - small**2))

    low, high = 0.0, large
    while tail(high) > probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > probability else (low, middle)
    return high
