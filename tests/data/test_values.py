"""Private values: every one becomes something, alone, and without a word."""

import math
import warnings
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.odd_objects import FAILURES, odd_object

from sfumato.data.values import category, identities, matched, number, numbers_of, positions


class Awkward:
    shape = ()

    def __str__(self):
        raise RuntimeError("no text")

    def __float__(self):
        raise RuntimeError("no number")


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.complex_numbers(),
    st.decimals(),
    st.sampled_from([10**400, 10**5000, Awkward(), np.float32(3), np.array([1.0]), "3.0", "0"]),
)


@given(st.lists(ANYTHING, max_size=6))
def test_each_value_becomes_what_it_would_alone(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = numbers_of(values)
        found = matched(values, ("a", 0, 3), -1)
        places = positions(values, ("a", "b"), 1)
        for at, value in enumerate(values):
            alone = number(value)
            assert numbers[at] == alone or (math.isnan(numbers[at]) and math.isnan(alone))
            assert found[at] == matched([value], ("a", 0, 3), -1)[0]
            assert places[at] == positions([value], ("a", "b"), 1)[0]
            assert places[at] in (0, 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1e3", 1000), (b" 7 ", 7), (Decimal("2.5"), 2.5), (np.bool_(True), 1), ("-inf", -math.inf)],
)
def test_numbers(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize("value", ["", "1,5", "1_0", 10**400, 1j, [1], Awkward(), np.array([1.0])])
def test_what_is_no_number(value):
    assert math.isnan(number(value))


@pytest.mark.parametrize("value", [3, 3.0, "3", " 3.0", b"3", np.float32(3), np.int8(3)])
def test_a_whole_number_is_one_category_however_it_is_written(value):
    assert category(value) == "3"


def test_categories_that_look_alike_stay_apart():
    assert len({category(value) for value in ("3", "03", "3.1", "3.", "v3.0", True, None)}) == 7


@pytest.mark.parametrize("kind", [list, np.array, lambda v: np.array(v, object)])
def test_a_label_is_a_name_or_a_place(kind):
    assert positions(kind([0, 1, 2, -1]), ("cat", "dog"), 1).tolist() == [0, 1, 1, 1]
    assert positions(kind(["dog", "cat", "0", "cow"]), ("cat", "dog"), 0).tolist() == [1, 0, 0, 0]
    assert positions(kind([1.0, 0.5, math.nan]), ("cat", "dog"), 0).tolist() == [1, 0, 0]


@pytest.mark.parametrize("what", FAILURES)
def test_objects_of_any_class_change_no_other_value(what):
    odd = [odd_object(what), "a", 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numbers_of(odd).tolist()[2] == 3
        assert matched(odd, ("a", 3), -1).tolist()[1:] == [0, 1]
        assert positions(odd, ("b", "a"), 0).tolist()[1:] == [1, 0]
        assert identities(odd).tolist()[1:] == ["a", "3"]


def test_yes_and_no_are_also_1_and_0():
    assert matched(["1", "0", True, "False", "2"], (True, False), -1).tolist() == [0, 1, 0, 1, -1]
    assert matched(["1", True], (True, "1"), -1).tolist() == [1, 0]
