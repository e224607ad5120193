"""Choices: the most common category, or the one with the largest sum, by the exponential mechanism.

One unit moves any candidate's count by at most R, its sum by at most R times the largest magnitude.
Counts, and sums of values that cannot be negative, move in one direction when a unit is added:
"monotone", which halves the cost. Several winners are drawn one after the other without
replacement, each at its share of epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.core.events import repeat
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.exponential import Exponential
from sfumato.queries.axes import Axis
from sfumato.queries.base import Cell, Plan, Query, check_price
from sfumato.queries.facts import Facts
from sfumato.queries.limits import MOST_TRIALS, check_size
from sfumato.queries.measures import BoundedSum, Measure, RowCount
from sfumato.queries.tabulate import cell_aggregate, exact_counts

__all__ = ["ChoicePlan", "plan_choice"]


@final
@dataclass(frozen=True, kw_only=True)
class ChoicePlan(Plan):
    """The winners, best first; no score is released with them.

    Formal guarantee: epsilon-DP by composition of as many choices, each of bounded range epsilon
    over their number, over candidates that are public.

    Attributes:
        measure: what makes a candidate's score.
        part: the name of the one whole number that it is.
        axis: the candidates.
        winners: how many.
        choice: the mechanism that draws each.
    """

    measure: Measure
    part: str
    axis: Axis
    winners: int
    choice: Exponential

    def exact(self, table: ir.Table) -> ir.Table:
        """The score of every candidate that has rows."""
        return cell_aggregate(table, (self.axis,), self.facts, self.measure.aggregates)

    def release(self, rows: Sequence[dict[str, Any]], coins: Coins) -> tuple[Cell, ...]:
        """Draws the winners."""
        scores = exact_counts(rows, (self.axis,), [self.part])[self.part].tolist()
        left = dict(zip(self.axis.labels, scores, strict=True))
        cells = []
        for rank in range(1, self.winners + 1):
            winner = self.choice.release(left, list(left), coins=coins).value
            del left[winner]
            cells.append(Cell((rank,), winner))
        return tuple(cells)


def plan_choice(
    query: Query, facts: Facts, axis: Axis, measure: Measure, winners: int
) -> ChoicePlan:
    """Prices a choice of ``winners`` among the labels of ``axis``, by a count or a sum."""
    check_price(query)
    if query.delta > 0:
        validation.fail("delta", "0 for a choice, which has pure DP", query.delta)
    if not isinstance(measure, RowCount | BoundedSum):
        validation.fail("measure", "a count or a sum", measure)
    winners = validation.count("winners", winners)
    if winners > len(axis.labels):
        validation.fail("winners", f"at most {len(axis.labels)} (the candidates)", winners)
    trials = winners * len(axis.labels)
    check_size("winners times keys", trials, MOST_TRIALS, "use fewer of either")
    (part,) = measure.parts(facts, len(axis.labels), False)
    step = Sensitivity(float(part.l1), Norm.LINF, Neighbours.ADD_REMOVE, facts.unit)
    choice = Exponential(
        query.epsilon / winners,
        step.under(facts.neighbours),
        monotone=facts.neighbours is not Neighbours.REPLACE_ONE and _one_direction(measure),
    )
    gap = choice.score_gap(len(axis.labels), query.confidence)
    shown = gap if isinstance(measure, RowCount) else measure.grid.value(gap)
    return ChoicePlan(
        event=choice.event if winners == 1 else repeat(choice.event, winners),
        guarantee=Guarantee(query.epsilon, 0.0, facts.neighbours, facts.unit),
        key_names=("rank",),
        unit_of_value=axis.name,
        group_columns=(),
        note=f"each within {shown:.4g} of the best left, {query.confidence:.0%}",
        facts=facts,
        measure=measure,
        part=part.name,
        axis=axis,
        winners=winners,
        choice=choice,
    )


def _one_direction(measure: Measure) -> bool:
    """Whether adding a unit can only raise scores, or only lower them."""
    if isinstance(measure, BoundedSum):
        return measure.grid.least >= 0 or measure.grid.most <= 0
    return True
