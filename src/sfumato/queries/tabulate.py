"""A measure in every cell of a table whose cells are public: the plan behind most questions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import Coins
from sfumato.queries.axes import Axis
from sfumato.queries.base import Cell, Plan, Query, check_price
from sfumato.queries.facts import Facts
from sfumato.queries.limits import MOST_CELLS, check_size
from sfumato.queries.measures import Measure
from sfumato.queries.noise import Noise, calibrate

__all__ = ["Tabulation", "exact_counts", "plan_tabulation"]


@final
@dataclass(frozen=True, kw_only=True)
class Tabulation(Plan):
    """One value with an interval in every cell.

    Formal guarantee: (epsilon, delta)-DP for the table's unit and relation. The exact cells are
    whole numbers which one unit moves, all cells of a part together, by at most the part's L1 (L2)
    bound, since at most R of its rows are in the bounded table; see :mod:`~sfumato.queries.noise`
    for the noise. Every cell is released, empty or not, so which cells are empty stays hidden.
    """

    measure: Measure
    axes: tuple[Axis, ...]
    noise: Noise
    confidence: float

    def exact(self, table: ir.Table) -> ir.Table:
        """One row a cell that is not empty (or one row in all, without axes)."""
        return cell_aggregate(table, self.axes, self.facts, self.measure.aggregates)

    def release(self, rows: Sequence[dict[str, Any]], coins: Coins) -> tuple[Cell, ...]:
        """Noise on every cell, in the order of the axes' labels."""
        exact = exact_counts(rows, self.axes, [part.name for part in self.noise.parts])
        noisy, errors = self.noise.add(exact, coins), self.noise.half_widths(self.confidence)
        labels = itertools.product(*(axis.labels for axis in self.axes))
        return tuple(
            Cell(keys, *self.measure.finish({name: int(v[i]) for name, v in noisy.items()}, errors))
            for i, keys in enumerate(labels)
        )


def plan_tabulation(
    query: Query, facts: Facts, measure: Measure, axes: tuple[Axis, ...] = (), grouped: bool = False
) -> Tabulation:
    """Prices a measure over the cells of some axes."""
    check_price(query)
    cells = math.prod(len(axis.labels) for axis in axes)
    check_size("cells of the table", cells, MOST_CELLS, "use fewer keys, or fewer columns")
    parts = measure.parts(facts, cells, grouped)
    noise = calibrate(parts, facts, cells, query.epsilon, query.delta)
    names = tuple(axis.name for axis in axes)
    return Tabulation(
        event=noise.event,
        guarantee=Guarantee(query.epsilon, query.delta, facts.neighbours, facts.unit),
        key_names=names,
        unit_of_value=measure.counted(facts),
        group_columns=names if grouped else (),
        note=measure.note(facts, parts),
        facts=facts,
        measure=measure,
        axes=axes,
        noise=noise,
        confidence=query.confidence,
    )


def cell_aggregate(
    table: ir.Table, axes: Sequence[Axis], facts: Facts, aggregates: Any
) -> ir.Table:
    """The aggregates of the rows of each cell; cells without rows do not appear."""
    if not axes:
        return table.aggregate(**aggregates(table, facts))
    places = {f"sfumato_axis_{i}": axis.place(table, facts) for i, axis in enumerate(axes)}
    placed = table.mutate(**places)
    inside = placed.filter([placed[name].notnull() for name in places])
    return inside.group_by(list(places)).aggregate(**aggregates(inside, facts))


def exact_counts(
    rows: Sequence[dict[str, Any]], axes: Sequence[Axis], names: Sequence[str]
) -> dict[str, NDArray[np.int64]]:
    """What an aggregate gave, as one array a part over all cells; 0 where it gave nothing."""
    shape = tuple(len(axis.labels) for axis in axes)
    exact = {name: np.zeros(math.prod(shape), dtype=np.int64) for name in names}
    for row in rows:
        place = [axis.position(row[f"sfumato_axis_{i}"]) for i, axis in enumerate(axes)]
        if None in place:
            continue
        index = int(np.ravel_multi_index(tuple(place), shape)) if shape else 0  # type: ignore[arg-type]
        for name in names:
            exact[name][index] += int(row[name] or 0)
    return exact
