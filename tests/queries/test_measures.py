"""What one unit can move in each measure, for any bounds: by the whole numbers that are added up.

No table is read: what an engine makes of a number lies between ``least`` and ``most`` of its grid,
and is what ``whole`` gives.
"""

import dataclasses
import math

import ibis.expr.datatypes as dt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sfumato.accounting import account
from sfumato.core import Neighbours
from sfumato.ledger.budget import MOST_EPSILON
from sfumato.queries import Count
from sfumato.queries.facts import Facts
from sfumato.queries.fixed_point import Grid
from sfumato.queries.measures import (
    BoundedMean,
    BoundedSum,
    BoundedVariance,
    RowCount,
    UnitCount,
)
from sfumato.queries.noise import calibrate

COLUMNS = {"person": dt.int64, "x": dt.float64, "city": dt.string, "when": dt.date}
ends = st.floats(-1e6, 1e6, allow_subnormal=False)
bounds = st.tuples(ends, ends).map(sorted).filter(lambda pair: pair[1] - pair[0] > 1e-6)
RELATIONS = list(Neighbours)


def facts(rows=1, groups=1, neighbours=Neighbours.ADD_REMOVE):
    return Facts(COLUMNS, "person", "person", rows, groups, neighbours)


def between(pair, share):
    return min(max(pair[0] + share * (pair[1] - pair[0]), pair[0]), pair[1])


@given(bounds, st.floats(0, 1), st.booleans())
@example([-7.0, -1.0], 0.0, False)
@example([-7.0, 2.0], 0.0, False)
@example([1.0, 7.0], 1.0, True)
def test_no_number_is_beyond_the_reach_of_its_grid(pair, share, centred):
    """Also where both bounds are negative, and the lower one is the larger."""
    grid = Grid.centred(*pair) if centred else Grid(*pair)
    number = between(pair, share)
    whole = grid.whole(number)
    assert grid.least <= whole <= grid.most
    assert abs(whole) <= grid.reach <= max(abs(grid.least), abs(grid.most))
    assert grid.value(whole) == pytest.approx(number - grid.centre, abs=grid.step * (1 + 1e-9))
    assert grid.whole(pair[0] - 1e9) == grid.least
    assert grid.whole(pair[1] + 1e9) == grid.most
    furthest = max(abs(pair[0] - grid.centre), abs(pair[1] - grid.centre))
    assert grid.value(grid.reach) == pytest.approx(furthest, rel=1e-6)
    assert math.log2(grid.step) == round(math.log2(grid.step))
    assert math.floor(whole * whole * 2.0**-24 + 0.5) <= grid.square_reach
    assert grid.square_value(grid.square_reach) == pytest.approx(furthest**2, rel=1e-6)


@given(bounds, st.floats(0, 1), st.floats(0, 1) | st.none(), st.integers(1, 5))
@example([-7.0, -1.0], 0.0, None, 3)
@example([-7.0, -1.0], 1.0, 0.0, 3)
@pytest.mark.parametrize("kind", [BoundedSum, BoundedMean, BoundedVariance])
@pytest.mark.parametrize("relation", RELATIONS)
def test_rows_move_a_sum_by_no_more_than_is_declared(kind, relation, pair, share, default, rows):
    """One that comes or goes by its number; one that is blanked by its distance to the default."""
    known = None if default is None else between(pair, default)
    measure = kind("x", *pair, known)
    parts = {p.name: p for p in measure.parts(facts(rows, rows, relation), 1, False)}
    whole = measure.grid.whole(between(pair, share))
    assert rows * abs(whole) <= parts["s"].l1
    if relation is Neighbours.ZERO_OUT and known is not None:
        assert rows * abs(whole - measure.grid.whole(known)) <= parts["s"].l1
    if "q" in parts:
        assert rows * math.floor(whole * whole * 2.0**-24 + 0.5) <= parts["q"].l1
    if "n" in parts:
        assert parts["n"].l1 == rows
    assert all(part.l2 == part.l1 for part in parts.values())  # all may be in one cell


@pytest.mark.parametrize(("rows", "groups", "cells"), [(5, 2, 9), (5, 5, 3), (1, 1, 9), (3, 3, 3)])
def test_a_unit_counts_once_in_each_cell_it_may_enter(rows, groups, cells):
    known = facts(rows, groups)
    (grouped,) = UnitCount().parts(known, cells, True)
    assert grouped.l1 == min(groups, cells)
    assert grouped.l2 == pytest.approx(math.sqrt(min(groups, cells)))
    (split,) = UnitCount().parts(known, cells, False)
    assert split.l1 == min(rows, cells)
    (counted,) = RowCount().parts(known, cells, True)
    assert counted.l1 == counted.l2 == rows


@pytest.mark.parametrize("measure", [
    RowCount(), UnitCount(), BoundedSum("x", -7.0, -1.0), BoundedMean("x", -7.0, -1.0),
    BoundedVariance("x", -7.0, -1.0),
])  # fmt: skip
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_noise_of_all_parts_keeps_the_budget_and_uses_it(measure, relation, delta):
    known = facts(3, 3, relation)
    noise = calibrate(measure.parts(known, 4, True), known, 4, 0.5, delta)
    cost = account(noise.event, delta, neighbours=relation).epsilon
    least = 0.2 if delta else 0.4999  # Gaussians compose to less than the sum
    assert least <= cost <= 0.5 * (1 + 1e-5)
    twice = 2 if relation is Neighbours.REPLACE_ONE else 1
    for part, mechanism in zip(noise.parts, noise.mechanisms, strict=True):
        declared = part.l2 if delta else part.l1
        assert mechanism.sensitivity.bound == pytest.approx(twice * declared)


@pytest.mark.parametrize("kind", [BoundedSum, BoundedMean, BoundedVariance])
def test_only_numbers_are_added_up(kind):
    for column in ("when", "nowhere"):
        with pytest.raises(ValueError, match=column):
            kind(column, 0.0, 1.0).parts(facts(), 1, False)
    postgres = dataclasses.replace(facts(), engine="postgres")
    kind("city", 0.0, 1.0).parts(facts(), 1, False)  # text that may be a number
    with pytest.raises(ValueError, match="must be numeric"):
        kind("city", 0.0, 1.0).parts(postgres, 1, False)


@given(bounds, st.floats(-1e3, 1e3), st.floats(0.1, 50))
def test_what_is_released_lies_within_the_bounds(pair, s, n):
    measure = BoundedMean("x", *pair)
    parts = {"n": round(n), "s": int(s * measure.grid.reach)}
    found = measure.finish(parts, {"n": 2.0, "s": 3.0 * measure.grid.reach})
    value, low, high = found
    assert pair[0] <= low <= high <= pair[1]
    assert pair[0] <= value <= pair[1]


def test_a_unit_never_enters_more_groups_than_it_has_rows():
    assert facts(2, 7).groups == 2
    assert facts(7, 2).groups == 2


def test_the_largest_epsilon_may_be_asked_for_and_no_larger():
    plan = Count(epsilon=MOST_EPSILON).plan(facts())
    assert plan.guarantee.epsilon == MOST_EPSILON
    for bad in (MOST_EPSILON * 1.001, 0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="epsilon must be"):
            Count(epsilon=bad).plan(facts())
    for wrong in ({"delta": 1.0}, {"delta": -1e-9}, {"confidence": 1.0}, {"confidence": 0.0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            Count(epsilon=1.0, **wrong).plan(facts())
