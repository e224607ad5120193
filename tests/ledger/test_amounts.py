"""Whole units: exact sums, safe rounding, saturation that no arithmetic undoes."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.ledger import amounts
from sfumato.ledger.amounts import SATURATED, Vector


def test_thirty_tenths_are_exactly_three():
    assert 30 * amounts.epsilon_up(0.1) == amounts.epsilon_down(3.0)
    assert sum([0.1] * 30) != 3.0  # what floats would say


@given(st.floats(0, 1e6))
def test_charges_are_rounded_up_and_allowances_down(value):
    exact = Fraction(repr(value)) * 10**12
    assert amounts.epsilon_down(value) <= exact <= amounts.epsilon_up(value)
    assert amounts.epsilon_up(value) - amounts.epsilon_down(value) <= 1


@given(st.floats(0, 1, exclude_max=True))
def test_so_are_deltas(value):
    exact = Fraction(repr(value)) * 10**18
    assert amounts.delta_down(value) <= exact <= amounts.delta_up(value)


@given(st.floats(5e-324, 1e6))
def test_a_computed_rdp_is_raised_by_more_than_its_rounding(value):
    charged = amounts.rdp_up(value)
    assert charged > Fraction(value) * 10**12 * (1 + Fraction(1, 10**13))
    assert charged <= Fraction(value) * 10**12 * (1 + Fraction(2, 10**12)) + 2
    assert amounts.rdp_down(value) < Fraction(value) * 10**12 < charged


def test_a_subnormal_charge_is_still_a_charge():
    assert amounts.rdp_up(5e-324) >= 1
    assert amounts.epsilon_up(5e-324) == 1
    assert amounts.delta_up(5e-324) == 1


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e300, -1.0])
def test_what_is_no_amount_never_fits(value):
    assert amounts.rdp_up(value) == SATURATED


def test_two_saturated_amounts_fit_in_a_signed_64_bit_integer():
    assert 2 * SATURATED < 2**63


def test_saturation_is_for_good():
    full, some = Vector((SATURATED, 5), 0), Vector((3, 5), 7)
    assert full.plus(some).orders[0] == SATURATED
    assert full.plus(some).minus(some) == full
    assert Vector.from_list(some.to_list()) == some
