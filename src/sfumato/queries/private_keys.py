"""Group-by with keys that are themselves private: a group shows only if enough units are in it.

A group that exists because of one person must not show. So for every group the number of *units* in
it gets discrete Laplace noise of scale G / epsilon_k (a unit is in at most G groups), and the group
is named only if the noisy number reaches a threshold T.

Formal guarantee of the selection: (epsilon_k, delta)-DP under add/remove. Let D' be D with one more
unit, and g the number of groups that are only in D': the new unit alone is in them. Counts of
groups in both differ by at most 1 in at most G - g of them, so that which of these pass has laws
P_c (on D') and Q (on D) that are epsilon_k-close. No new group passes with probability at least
1 - pi, pi = g Pr[1 + Y >= T] <= G Pr[Y >= T - 1] <= delta, by the choice of T, whatever the others
do. With P the law on D', for every set S of what may be named:

- P(S) <= P(S, no new group) + pi <= P_c(S) + pi <= e^epsilon_k Q(S) + delta, as on D no group is
  named that is not in D;
- Q(S) <= e^epsilon_k P_c(S), and P(S) >= P_c(S) (1 - pi), so that with Q(S) <= 1
  Q(S) - e^epsilon_k P(S) <= Q(S) - (1 - pi) Q(S) <= delta.

Groups in neither never show. What is then measured in the named groups is a release of its own over
keys that are public by now (a named group that is not in the data counts 0). Under zero-out a blank
row is in no group, so that blanking a unit is removing it.

Reference: Korolova, Kenthapadi, Mishra and Ntoulas, "Releasing search queries and clicks privately"
(WWW 2009); Wilson et al., "Differentially private SQL with bounded user contribution",
arXiv:1909.01917, section 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import ibis.expr.types as ir
import numpy as np

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent, compose
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.queries.base import Cell, Plan, Query, check_price
from sfumato.queries.facts import Facts
from sfumato.queries.measures import Measure, UnitCount
from sfumato.queries.noise import Noise, calibrate

__all__ = ["PrivateGroups", "plan_private_groups", "threshold"]

_MANY = 2**40


def threshold(scale: float, groups: int, delta: float) -> int:
    """The least T with ``groups`` Pr[Y >= T - 1] <= delta, Y discrete Laplace of ``scale``.

    Pr[Y >= t] = p^t / (1 + p) with p = e^(-1/scale), for t >= 1.

    >>> threshold(2.0, 1, 1e-6)  # epsilon 1/2, one group a unit
    28
    """
    p = math.exp(-1 / scale)
    t = scale * (math.log(groups / delta) - math.log1p(p))
    return 1 + max(1, math.ceil(t * (1 + 1e-12) + 1e-9))


@final
@dataclass(frozen=True, kw_only=True)
class PrivateGroups(Plan):
    """The groups that pass the threshold, each with its measure."""

    columns: tuple[str, ...]
    measure: Measure
    selection: DiscreteLaplace
    threshold: int
    noise: Noise
    confidence: float

    def exact(self, table: ir.Table) -> ir.Table:
        """Every group in the table; which of them exist stays inside."""
        present = table.filter([table[column].notnull() for column in self.columns])
        keys = {f"sfumato_axis_{i}": present[column] for i, column in enumerate(self.columns)}
        keyed = present.mutate(**keys)
        units = UnitCount().aggregates(keyed, self.facts)["n"]
        return keyed.group_by(list(keys)).aggregate(
            units=units, **self.measure.aggregates(keyed, self.facts)
        )

    def release(self, rows: Sequence[dict[str, Any]], coins: Coins) -> tuple[Cell, ...]:
        """In the order of the keys, because the engine's own order could tell something."""
        ordered = sorted(rows, key=lambda row: tuple(_sort_key(v) for v in self._keys(row)))
        units = np.array([int(row["units"]) for row in ordered], dtype=np.int64)
        noisy_units = self.selection.perturb(units, coins=coins)
        named = [
            row for row, n in zip(ordered, noisy_units, strict=True) if int(n) >= self.threshold
        ]
        exact = {
            part.name: np.array([int(row[part.name] or 0) for row in named], dtype=np.int64)
            for part in self.noise.parts
        }
        noisy, errors = self.noise.add(exact, coins), self.noise.half_widths(self.confidence)
        return tuple(
            Cell(
                self._keys(row),
                *self.measure.finish({name: int(v[i]) for name, v in noisy.items()}, errors),
            )
            for i, row in enumerate(named)
        )

    def _keys(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[f"sfumato_axis_{i}"] for i in range(len(self.columns)))


def _sort_key(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


def plan_private_groups(
    query: Query, facts: Facts, measure: Measure, columns: Sequence[str], key_share: float
) -> PrivateGroups:
    """Prices a group-by with private keys: ``key_share`` of epsilon and all of delta select them.

    The measure gets the rest of epsilon, with Laplace noise.
    """
    check_price(query)
    share = validation.open_probability("key_share", key_share)
    delta = validation.open_probability("delta (which private keys need)", query.delta)
    if facts.neighbours is Neighbours.REPLACE_ONE:
        raise ValueError(
            "private keys need add-remove or zero-out neighbours, got replace-one: declare the keys"
        )
    names = _key_columns(facts, columns)
    for_keys = query.epsilon * share
    step = Sensitivity(float(facts.groups), Norm.L1, Neighbours.ADD_REMOVE, facts.unit, _MANY)
    selection = DiscreteLaplace.calibrate(step, epsilon=for_keys)
    parts = measure.parts(facts, _MANY, True)
    noise = calibrate(parts, facts, _MANY, query.epsilon - for_keys, 0.0)
    keys = EpsilonDeltaEvent(for_keys, delta, Neighbours.ADD_REMOVE, facts.unit)
    return PrivateGroups(
        event=compose(keys, noise.event),
        guarantee=Guarantee(query.epsilon, delta, facts.neighbours, facts.unit),
        key_names=names,
        unit_of_value=measure.counted(facts),
        group_columns=names,
        note=measure.note(facts, parts),
        facts=facts,
        columns=names,
        measure=measure,
        selection=selection,
        threshold=threshold(selection.scale, facts.groups, delta),
        noise=noise,
        confidence=query.confidence,
    )


def _key_columns(facts: Facts, columns: Sequence[str]) -> tuple[str, ...]:
    """Different columns whose values can be keys."""
    names = tuple(facts.column(column) for column in columns)
    if len(set(names)) != len(names):
        validation.fail("columns", "different from each other", list(columns))
    for name in names:
        kind = facts.columns[name]
        if not (kind.is_string() or kind.is_integer() or kind.is_boolean() or kind.is_date()):
            raise ValueError(
                f"column {name!r} must hold text, whole numbers, dates or yes and no, got {kind}"
            )
    return names
