"""Guarantees: group privacy, relations, rounding up, JSON."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core import Guarantee, Neighbours
from sfumato.core.guarantee import round_down, round_up
from sfumato.core.neighbours import require_conversion

ADD, REP, ZERO = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT


def test_three_people_together():
    three = Guarantee(1.0, 1e-5, ADD, "person").for_group(3)
    assert three.epsilon == 3
    assert three.delta == pytest.approx(1.1107e-4, rel=1e-4)
    assert three.unit == "group of 3 persons"
    assert Guarantee(1.0, 0.0, ADD).for_group(4, "household").unit == "household"


@given(st.floats(0, 50), st.floats(0, 1e-3), st.integers(1, 20))
def test_group_privacy_is_the_sum_of_a_geometric_series(epsilon, delta, size):
    found = Guarantee(epsilon, delta, ADD).for_group(size)
    series = delta * math.fsum(math.exp(min(i * epsilon, 700)) for i in range(size))
    assert found.epsilon == pytest.approx(size * epsilon)
    assert found.delta == pytest.approx(min(series, 1.0), rel=1e-9, abs=1e-300)
    assert found.delta < 1


def test_pure_stays_pure_and_one_stays_one():
    pure = Guarantee(0.5, 0.0, ADD)
    assert pure.for_group(10).delta == 0
    assert pure.for_group(1) == pure


def test_add_remove_is_two_steps_to_replace_one_and_there_is_no_way_back():
    found = Guarantee(1.0, 1e-6, ADD).under("replace-one")
    assert (found.epsilon, found.neighbours) == (2.0, REP)
    assert found.delta == pytest.approx(1e-6 * (1 + math.e))
    for source, target in ((REP, ADD), (REP, ZERO), (ZERO, ADD)):
        with pytest.raises(ValueError, match="says nothing about"):
            require_conversion(source, target)
    assert require_conversion(ADD, ZERO) == 1
    assert require_conversion(ZERO, REP) == 2
    assert all(require_conversion(r, r) == 1 for r in Neighbours)


@given(st.floats(1e-290, 1e290))
def test_rounding_up_is_never_below_and_at_most_one_unit_of_the_last_digit_above(value):
    shown = round_up(value)
    assert shown >= value * (1 - 1e-11)
    assert shown <= value * (1 + 1.0001e-3)


def test_how_it_reads():
    assert (
        str(Guarantee(0.94699, 1e-5, ADD)) == "epsilon 0.947, delta 1e-05, add or remove one record"
    )
    assert (
        str(Guarantee(1.99319, 0.0, REP, "person")) == "epsilon 1.994, delta 0, replace one person"
    )
    assert "infinite" in str(Guarantee(math.inf, 1e-5, ZERO))
    assert repr(Guarantee(1, 0, ADD, note="why")).endswith("(why)")
    assert (round_up(0.1 + 0.2), round_up(0.0), round_up(math.inf)) == (0.3, 0.0, math.inf)


@pytest.mark.parametrize("epsilon", [0.0, 1.5, math.inf])
def test_json_both_ways(epsilon):
    guarantee = Guarantee(epsilon, 1e-6, REP, "person", "pld", "a note")
    data = json.loads(json.dumps(guarantee.to_dict(), allow_nan=False))
    assert {"epsilon", "delta", "neighbours", "unit"} <= set(data)
    assert Guarantee.from_dict(data) == guarantee


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((-1, 0, ADD), "epsilon"),
        ((math.nan, 0, ADD), "epsilon"),
        (("1", 0, ADD), "epsilon"),
        ((1, 1, ADD), "delta"),
        ((1, -0.1, ADD), "delta"),
        ((1, math.nan, ADD), "delta"),
        ((1, 0, "cousins"), "neighbours"),
        ((1, 0, ADD, " "), "unit"),
    ],
)
def test_nonsense_is_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        Guarantee(*arguments)


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_bad_group_sizes(size):
    with pytest.raises(ValueError, match="size"):
        Guarantee(1, 0, ADD).for_group(size)


@given(st.floats(1e-9, 1e9))
def test_lower_bounds_are_never_shown_above_themselves(value):
    shown = round_down(value)
    assert shown <= value * (1 + 1e-11)
    assert shown == pytest.approx(value, rel=1.1e-3)


def test_what_is_just_below_a_round_number_stays_below():
    assert (round_down(2.99996), round_up(2.99991)) == (2.999, 3.0)
    assert str(round_down(0.0)) == "0.0"
    assert round_down(math.inf) == math.inf
