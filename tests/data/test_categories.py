"""Categories of pandas: what a cell reads as does not depend on the rows beside it."""

import datetime
import enum
import math
import uuid
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sfumato.data.categories import texts_of_categories
from sfumato.data.own_tables import columns_of


class Colour(enum.Enum):
    RED = 1


UTC = pd.Timestamp("2020-01-01 00:00", tz="UTC")
VALUES = (
    *(0, 1, 2, 1.0, 2.5, -0.0, 0.0, True, False, math.inf, math.nan, None, 2**53 + 1, 2**70, -7),
    *(1e300, np.float32(0.1), 0.1, np.int8(1), np.bool_(True), Decimal("1.0"), Decimal("2.50")),
    *(Fraction(5, 2), 1 + 0j, 1j, "1", "1.0", "a", np.str_("a"), b"a", "", "\ud800"),
    *(UTC, UTC.tz_convert("Europe/Rome"), UTC.to_pydatetime(), UTC.tz_localize(None)),
    *(datetime.datetime(2020, 1, 1), datetime.datetime(1, 1, 1), datetime.date(2020, 1, 1)),
    *(np.datetime64("2020-01-01"), pd.NaT, pd.NA, datetime.timedelta(1), pd.Timedelta("1D")),
    *(datetime.time(12), pd.Period("2020-01", "M"), pd.Interval(0, 1), pd.Interval(0.0, 1.0)),
    *(pd.Interval(0, 2.5), pd.Interval(-math.inf, 0, "left"), uuid.UUID(int=7), Colour.RED),
    *((1, 2), (1.0, 2.0), frozenset((1,)), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
)


def texts(values, dtype):
    try:
        held = pd.Series(values, dtype=dtype).astype("category")
    except (TypeError, ValueError, OverflowError, UnicodeError):  # pandas', not ours
        return None
    return texts_of_categories(held)


@given(
    st.lists(st.sampled_from(VALUES), min_size=2, max_size=6),
    st.sampled_from([object, None]),
    st.data(),
)
@example([1, 2, 2.5], None, None)
@example([True, 1], object, None)
@example([UTC.tz_convert("Europe/Rome"), UTC, "a"], object, None)
def test_one_row_changes_no_other_rows_text(values, dtype, data):
    gone = range(len(values)) if data is None else [data.draw(st.integers(0, len(values) - 1))]
    every = texts(values, dtype)
    for i in gone:
        others = texts(values[:i] + values[i + 1 :], dtype)
        if every is not None and others is not None:
            assert every[:i] + every[i + 1 :] == others


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (3, "3"),
            (3.0, "3"),
            (True, "1"),
            (2.5, "2.5"),
            (-0.0, "0"),
            (2**53 - 1, f"{2**53 - 1}"),
        ),
        *((2**53, None), (1e300, None), (math.inf, "inf"), ("3.0", "3.0"), ((1, 2), None)),
        *((UTC.tz_convert("Europe/Rome"), "2020-01-01 00:00:00+00:00"), (Colour.RED, "Colour.RED")),
        *((datetime.date(2020, 1, 1), "2020-01-01"), (b"a", "b'a'"), (pd.Interval(0, 1), "(0, 1]")),
    ],
)
def test_texts(value, text):
    assert texts([value, "beside"], object) == [text, "beside"]


def test_intervals_and_periods_of_a_column():
    few = pd.Series(pd.arrays.IntervalArray.from_tuples([(0, 1), (1, 2)]))
    more = pd.Series(pd.arrays.IntervalArray.from_tuples([(0, 1), (1, 2), (2, 2.5)]))
    assert texts_of_categories(few) == texts_of_categories(more)[:2] == ["(0, 1]", "(1, 2]"]
    assert texts_of_categories(pd.Series(pd.period_range("2020", periods=1, freq="Y"))) == ["2020"]
    assert texts_of_categories(pd.cut([1, 3, 9], [0, 2, np.inf])) == [
        "(0, 2]",
        "(2, inf]",
        "(2, inf]",
    ]


@pytest.mark.parametrize("values", [[1], np.array([1]), pd.Series([1.0]), pd.Series(["a"])])
def test_other_columns_are_not_its_business(values):
    assert texts_of_categories(values) is None


def test_columns_to_train_on_are_read_so():
    few, more = pd.Categorical([True, False]), pd.Categorical([1, 0, 2.5])
    assert columns_of({"x": few}, ["x"])["x"] == columns_of({"x": more}, ["x"])["x"][:2]
