"""From runs to a table, and from a table to advice.

Ranks are among runs that make the same kind of promise: the unit and the relation that were asked
for. Private labels, and ways that are defined for another relation, are shown beside them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.methods import Group
from sfumato.learning.comparing.registry import all_methods
from sfumato.learning.comparing.store import Result

__all__ = ["Row", "advice_of", "margin", "rows_of"]


@final
@dataclass(frozen=True)
class Row:
    """Runs of one method at one epsilon.

    Attributes:
        method: its name.
        group: where its noise goes.
        epsilon: as asked for; None without privacy.
        guarantee: of one run, as its record states it (the largest, if they differ).
        mean: of the accuracies; None where there are no test rows.
        spread: their standard deviation; None for a single run.
        runs: how many.
        seconds: that one took, on average.
    """

    method: str
    group: Group
    epsilon: float | None
    guarantee: Guarantee
    mean: float | None
    spread: float | None
    runs: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``target`` is the epsilon asked for, ``epsilon`` the one on record."""
        return self.guarantee.to_dict() | {
            "method": self.method, "group": self.group.value, "target": self.epsilon,
            "accuracy": self.mean, "spread": self.spread, "runs": self.runs,
            "seconds": self.seconds,
        }  # fmt: skip


def rows_of(results: Iterable[Result]) -> tuple[Row, ...]:
    """In the order of the methods, by epsilon."""
    places = {method.name: place for place, method in enumerate(all_methods())}
    cells: dict[tuple[int, float], list[Result]] = {}
    for result in results:
        price = math.inf if result.cell.epsilon is None else result.cell.epsilon
        cells.setdefault((places[result.cell.method], price), []).append(result)
    return tuple(_row(cells[key]) for key in sorted(cells))


def _row(results: Sequence[Result]) -> Row:
    cell = results[0].cell
    group = next(method.group for method in all_methods() if method.name == cell.method)
    found = [result.accuracy for result in results if result.accuracy is not None]
    return Row(
        cell.method, group, cell.epsilon,
        max((result.guarantee for result in results), key=lambda one: one.epsilon),
        statistics.fmean(found) if found else None,
        statistics.stdev(found) if len(found) > 1 else None,
        len(results), statistics.fmean(result.seconds for result in results),
    )  # fmt: skip


def is_ranked(row: Row, neighbours: Neighbours) -> bool:
    """Whether it makes the promise that was asked for, and its accuracy is known."""
    private = row.group not in (Group.LABELS, Group.NONE)
    return private and row.guarantee.neighbours is neighbours and row.mean is not None


def margin(first: Row, second: Row, tested: int | None) -> float:
    """Below this, the difference of two means may be chance.

    Two standard errors of the difference: by the spread of the runs where both have several,
    otherwise by what so many test rows leave open (the rows are the same, so that this is more than
    enough); infinite where neither is known.
    """
    errors = [_error(row, tested) for row in (first, second)]
    return 2 * math.hypot(*errors)


def _error(row: Row, tested: int | None) -> float:
    assert row.mean is not None
    of_rows = math.inf if not tested else math.sqrt(row.mean * (1 - row.mean) / tested)
    if row.spread is None:
        return of_rows
    return row.spread / math.sqrt(row.runs)


def advice_of(rows: Sequence[Row], neighbours: Neighbours, tested: int | None) -> list[str]:
    """A sentence for each epsilon, and one about what it costs to have none.

    Args:
        rows: of the table.
        neighbours: the relation that was asked for.
        tested: how many test rows there are, where that is public.
    """
    ranked = [row for row in rows if is_ranked(row, neighbours)]
    plain = next((row for row in rows if row.group is Group.NONE and row.mean is not None), None)
    prices = sorted({row.epsilon for row in ranked if row.epsilon is not None})
    return [_sentence(price, ranked, plain, tested) for price in prices]


def _sentence(
    price: float, ranked: Sequence[Row], plain: Row | None, tested: int | None
) -> str:  # fmt: skip
    here = [row for row in ranked if row.epsilon == price]
    here.sort(key=lambda row: -_mean(row))
    best, others = here[0], here[1:]
    said = f"At epsilon {price:g}: {best.method}, {100 * _mean(best):.1f} %{_cost(best, plain)}."
    if not others:
        return f"{said} No other method makes the same promise."
    close = [row for row in others if _mean(best) - _mean(row) <= margin(best, row, tested)]
    if close:
        names = ", ".join(row.method for row in close)
        return f"{said} Too close to tell from {names}: the difference may be chance."
    ahead = _percent(_mean(best) - _mean(others[0]))
    return f"{said} {ahead} points ahead of {others[0].method}."


def _cost(best: Row, plain: Row | None) -> str:
    """What privacy costs in accuracy."""
    if plain is None:
        return ""
    lost = _mean(plain) - _mean(best)
    return (
        f" ({_percent(lost)} points below no privacy)" if lost > 0 else " (no privacy: no better)"
    )


def _mean(row: Row) -> float:
    assert row.mean is not None
    return row.mean


def _percent(difference: float) -> str:
    return f"{100 * difference:.1f}"
