"""Ratios rounded to the safe side, in exact arithmetic, and roots that are verified."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.rounding import (
    at_least_product,
    at_least_ratio,
    at_most_ratio,
    least,
    least_epsilon,
)

positive = st.floats(1e-100, 1e100)


@given(positive, positive)
def test_ratios_bracket_the_truth_with_neighbouring_floats(a, b):
    truth = Fraction(a) / Fraction(b)
    above, below = at_least_ratio(a, b), at_most_ratio(a, b)
    assert Fraction(below) <= truth <= Fraction(above)
    assert above in (below, math.nextafter(below, math.inf))
    product = at_least_product(a, b)
    assert Fraction(math.nextafter(product, 0)) < Fraction(a) * Fraction(b) <= Fraction(product)
    assert at_most_ratio(product, b) >= a


def test_out_of_range_is_an_error():
    for operation in (at_least_ratio, at_most_ratio):
        with pytest.raises(ValueError, match="infinite ratio"):
            operation(1e300, 1e-300)
    with pytest.raises(ValueError, match="infinite ratio"):
        at_least_product(1e300, 1e300)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_a_root_is_never_short_and_hardly_over(truth, guess):
    root = least(lambda x: truth / x - 1, guess)
    assert truth / root - 1 <= 0
    assert root == pytest.approx(truth, rel=1e-14)


def test_a_jump_is_crossed():
    assert least(lambda x: 1.0 if x < 3 else -1.0, 0.01) == pytest.approx(3, rel=1e-14)


def test_least_epsilon_at_the_ends():
    assert least_epsilon(lambda e: -5.0 - e, 0.0) == math.inf
    assert least_epsilon(lambda e: -5.0 - e, 0.5) == 0.0
    assert least_epsilon(lambda e: -e, math.exp(-7)) == pytest.approx(7)


@pytest.mark.parametrize("guess", [math.inf, 0.0, 1.0])
def test_a_search_without_an_end_is_refused(guess):
    with pytest.raises(ValueError, match="within the range of floating point"):
        least(lambda x: 1.0, guess)
    with pytest.raises(ValueError, match="within the range of floating point"):
        least(lambda x: -1.0, guess)
