"""The first records of a data set: by position alone, and the same for every table."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.data import Dataset, Examples
from sfumato.data.first_rows import first_rows


def made(n, size=100):
    rows = np.arange(n, dtype=np.float32)[:, None]
    examples = Examples(rows, np.arange(n, dtype=np.int64) % 2)
    return Dataset(
        "made", examples, Examples(rows[:3], examples.labels[:3]), ("no", "yes"), (1,),
        (0.0, 100.0), "by hand", public_size=size,
    )  # fmt: skip


@given(st.integers(0, 100), st.integers(1, 100))
def test_the_first_are_taken_however_many_there_are(n, rows):
    data = made(n)
    found = first_rows(data, rows)
    assert found.train.inputs.tolist() == data.train.inputs[:rows].tolist()
    assert found.train.labels.tolist() == data.train.labels[:rows].tolist()
    assert (found.public_size, found.rows) == (rows, rows)
    assert found.test is data.test
    assert first_rows(found, rows).train.labels.tolist() == found.train.labels.tolist()


def test_none_takes_all():
    data = made(5)
    assert first_rows(data, None) is data
    assert data.rows is None


def test_an_undeclared_size_is_declared_by_the_number_of_rows():
    assert first_rows(made(5, size=None), 400).public_size == 400


@pytest.mark.parametrize("rows", [0, -1, 1.5, "3", True])
def test_bad_numbers(rows):
    with pytest.raises(ValueError, match="rows must be a whole number"):
        first_rows(made(5), rows)


def test_more_than_declared():
    with pytest.raises(ValueError, match=r"rows must be at most the declared size \(100\)"):
        first_rows(made(5), 101)


def test_rows_of_owners():
    with pytest.raises(ValueError, match="left out where rows have owners"):
        first_rows(replace(made(5), owners=np.arange(5)), 2)
