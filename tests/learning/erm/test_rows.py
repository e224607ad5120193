"""Rows: declared ranges, length 1 at most, and never an error."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.odd_objects import FAILURES, odd_object

from sfumato.learning.erm.cells import Column, Table, as_cells, as_number, class_numbers, same
from sfumato.learning.erm.rows import RowScaling, declared_columns

ANYTHING = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=100)
@given(st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING), max_size=5), st.floats(0.01, 10))
def test_no_row_is_longer_than_one(rows, norm):
    scaling = RowScaling.declared((-2.0, [1.0, 3.0, 1e300]), 3, norm)
    made = scaling.rows(np.array(rows, dtype=float).reshape(-1, 3))
    assert made.shape == (len(rows), 4)
    assert (np.sqrt((made.astype(np.longdouble) ** 2).sum(axis=1)) <= 1).all()


def test_a_row_is_scaled_by_itself():
    scaling = RowScaling.declared((0.0, 10.0), 2, norm=3.0)
    rows = np.array([[0.0, 10.0], [5.0, 5.0], [np.nan, 5.0], [np.inf, 20.0]])
    made = scaling.rows(rows) / (1 - 2.0**-40)
    assert np.allclose(made * 3, [[-1, 1, 1], [0, 0, 1], [0, 0, 1], [0, 1, 1]], rtol=1e-11)
    for at in range(4):
        assert (scaling.rows(rows[at : at + 1]) == scaling.rows(rows)[at : at + 1]).all()


def test_by_default_every_row_has_length_one():
    made = RowScaling.declared((0.0, 1.0), 5).rows(np.random.default_rng(0).random((50, 5)))
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-11)


def test_weights_for_values_as_they_are():
    scaling = RowScaling.declared(([0, -5], [10, 5]), 2, norm=2.0)
    weights, rows = np.array([[1.0], [-2.0], [0.5]]), np.array([[2.0, 3.0], [9.0, -4.0]])
    slopes, constant = scaling.unscaled(weights)
    assert np.allclose(rows @ slopes + constant, scaling.rows(rows) @ weights, rtol=1e-9)
    assert (scaling.shortening(rows) > 0.999).all()


def test_cells_that_are_no_numbers():
    found = as_cells(np.array([[1, "2.5"], [None, {}], ["x", 10**400]], dtype=object))
    assert found[0].tolist() == [1.0, 2.5]
    assert np.isnan(found[1:]).all()


class Awkward(float):
    """A number that cannot be had, nor compared."""

    __hash__ = None

    def __float__(self):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        (True, 1.0), (np.False_, 0.0), (np.int8(3), 3.0), (np.float32(0.5), 0.5), (Decimal(2), 2.0),
        (Fraction(1, 2), 0.5), (" 2.5 ", 2.5), ("False", 0.0), (2 + 0j, 2.0),
        (1j, None), ("x", None), ("inf", None), (None, None), (np.inf, None), (pd.NA, None),
        (pd.NaT, None), ([1], None), (np.ones(1), None), ({}, None),
        (np.timedelta64(5, "ns"), None), (pd.Timedelta(5), None), (np.datetime64(5, "ns"), None),
        (10**400, None), (Awkward(), None), (object, None),
    ],
)  # fmt: skip
def test_every_cell_is_a_finite_number_or_none(cell, number):
    found = as_number(cell)
    assert np.isnan(found) if number is None else found == number
    for one in (Table.of([[cell, 7]]), Table.of([[7, 7], [cell, 7]])):
        assert one.read()[:, 1].tolist() == [7.0] * one.shape[0]
    assert class_numbers(Column.of([cell, 7]).read(), ("a", 7))[1] == 1


def test_labels_are_compared_one_by_one():
    known = ("no", 1, 2.5)
    given = [1, "no", "1", "2.50", 2.5, np.int64(1), pd.NA, Awkward(), np.ones(2), [1], [1, 2], "?"]
    expected = [1, 0, 1, 2, 2, 1, -1, -1, -1, 1, -1, -1]
    assert class_numbers(Column.of(given).read(), known, -1).tolist() == expected
    # Codes that are one number are not one class.
    assert class_numbers(Column.of(["1", "01", 1]).read(), ("01", "1")).tolist() == [1, 0, 0]
    large = np.array([2**53, 2**53 + 1])
    for labels in (large, large.astype(object)):
        assert class_numbers(labels, (2**53, 2**53 + 1)).tolist() == [0, 1]
    assert same(pd.NA, pd.NA) is False


def test_tables_of_every_kind_are_read_alike():
    lists = [[1, True, 0.5], [2, False, "?"], [3, None, 1.5]]
    expected = [[1, 1, 0.5], [2, 0, np.nan], [3, np.nan, 1.5]]
    frame = pd.DataFrame(lists, columns=list("abc"))
    kinds = [
        lists, tuple(map(tuple, lists)), np.array(lists, dtype=object), frame,
        frame.astype({"a": "Int64", "b": "boolean"}), [np.array(r, dtype=object) for r in lists],
        frame.astype({"a": "category"}), [frame.iloc[at] for at in range(3)],
    ]  # fmt: skip
    for kind in kinds:
        table = Table.of(kind)
        assert table.shape == (3, 3)
        assert np.array_equal(table.read(), expected, equal_nan=True)
        assert not np.asarray(table.outline()).any()
    # As NumPy makes them of one bad cell.
    for made in (np.array([[1, 0.5], [2, "x"]]), np.array([[1, 0.5], [2, 1j]])):
        assert np.array_equal(Table.of(made).read(), [[1, 0.5], [2, np.nan]], equal_nan=True)


def test_a_row_of_another_length_is_replaced_where_lengths_are_declared():
    rows = [[1, 2], [3], 4, None, "ab", [5, 6, 7], [8, 9]]
    found = Table.of(rows, 2).read()
    assert found[[0, -1]].tolist() == [[1, 2], [8, 9]]
    assert np.isnan(found[1:-1]).all()
    assert Table.of([], 2).shape == (0, 2)
    with pytest.raises(ValueError, match="rows of one length") as error:
        Table.of(rows)
    assert "8" not in str(error.value)


@pytest.mark.parametrize("values", [3, "text", {1, 2}, None, (x for x in "ab")])
def test_what_is_no_table(values):
    for kind in (Table, Column):
        with pytest.raises(TypeError, match="must be an array, a frame or a list"):
            kind.of(values)


@pytest.mark.parametrize(
    "bounds",
    [
        3.0, (0.0,), (1.0, 0.0), (0.0, np.inf), ([0, 0], [1, 1, 1]), (0.0, 5e-324), (0.0, 1e-320),
        (-1e308, 1e308),
    ],
)  # fmt: skip
def test_bounds_that_cannot_be(bounds):
    with pytest.raises(ValueError, match="bounds"):
        RowScaling.declared(bounds, 2)


@pytest.mark.parametrize("norm", [0, -1, 1e-320, 1e-200, 1e200, np.inf])
def test_norms_that_cannot_be(norm):
    with pytest.raises(ValueError, match="norm"):
        RowScaling.declared((0, 1), 2, norm)
    for fine in (1e-100, 1e100):
        assert np.isfinite(RowScaling.declared((0, 1e-99), 2, fine).rows([[0, 1], [1, 0]])).all()


@pytest.mark.parametrize(
    ("bounds", "columns"),
    [
        ((0, 1), None), (([0, 0, 0], [1, 1, 1]), 3), ((0, [1, 1]), 2), (([0], [1]), None),
        (3.0, None), (None, None), (object(), None), (([[0]], [[1, 2], [3]]), None),
    ],
)  # fmt: skip
def test_how_many_columns_bounds_are_for(bounds, columns):
    """What is no pair of bounds is for none: it is refused later, with the argument's name."""
    assert declared_columns(bounds) == columns


@pytest.mark.parametrize("what", FAILURES)
def test_a_cell_of_any_class_changes_no_other(what):
    odd = odd_object(what)
    assert Table.of([[1, "2"], [odd, 4], [3, 4]], columns=2).read()[[0, 2]].tolist() == [
        [1, 2],
        [3, 4],
    ]
    assert Table.of([[1, 2], odd, [3, 4]], columns=2).read()[[0, 2]].tolist() == [[1, 2], [3, 4]]
    assert class_numbers(Column.of([1, odd, 0]).read(), (0, 1))[[0, 2]].tolist() == [1, 0]
