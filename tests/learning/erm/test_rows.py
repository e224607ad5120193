"""Rows: declared ranges, length 1 at most, and never an error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.learning.erm.rows import RowScaling, as_cells

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


@pytest.mark.parametrize("bounds", [3.0, (0.0,), (1.0, 0.0), (0.0, np.inf), ([0, 0], [1, 1, 1])])
def test_bounds_that_cannot_be(bounds):
    with pytest.raises(ValueError, match="bounds"):
        RowScaling.declared(bounds, 2)
