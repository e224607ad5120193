"""Argument checks: uniform errors that name the argument and the value."""

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core import Neighbours, validation

NOT_NUMBERS = ["1", None, True, [1], 1j, math.nan, np.float64("nan")]


@pytest.mark.parametrize(
    "check",
    [
        validation.finite,
        validation.positive,
        validation.non_negative,
        validation.open_probability,
        validation.delta,
        validation.sample_rate,
        validation.count,
    ],
)
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused_by_name(check, value):
    with pytest.raises(ValueError, match=r"^epsilon must be .*, got "):
        check("epsilon", value)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (validation.finite, [-1, 0, 1e300, Fraction(1, 4)], [math.inf, -math.inf, 10**400]),
        (validation.positive, [1e-300, 1, np.float32(2)], [0, -1, math.inf]),
        (validation.non_negative, [0, 1], [-1e-9, math.inf]),
        (validation.open_probability, [1e-9, 0.5], [0, 1, -0.1, 1.1]),
        (validation.delta, [0, 0.5], [1, -1e-9, 2]),
        (validation.sample_rate, [1e-9, 1], [0, 1.0000001, -1]),
        (validation.count, [1, 5, 1e4, np.int64(3)], [0, -1, 1.5, math.inf]),
    ],
)
def test_what_is_accepted_and_what_is_not(check, good, bad):
    for value in good:
        assert check("x", value) == value
    for value in bad:
        with pytest.raises(ValueError, match="x must be"):
            check("x", value)


def test_large_whole_numbers_do_not_pass_through_a_float():
    assert validation.count("x", 2**60 + 1) == 2**60 + 1


def test_intervals_names_and_choices():
    assert validation.interval("bounds", 0, 1) == (0.0, 1.0)
    for low, high in ((1, 1), (2, 1), (0, math.inf), ("0", 1)):
        with pytest.raises(ValueError, match="bounds"):
            validation.interval("bounds", low, high)
    assert validation.name("unit", "person") == "person"
    for bad in ("", " ", " person", 3, None):
        with pytest.raises(ValueError, match="unit"):
            validation.name("unit", bad)
    assert Neighbours.parse("zero-out") is Neighbours.ZERO_OUT
    with pytest.raises(ValueError, match="'add-remove', 'replace-one' or 'zero-out', got 3"):
        Neighbours.parse(3)
