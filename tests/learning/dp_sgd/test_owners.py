"""Owners: bounded contributions by construction, uniform choices, ids that never raise."""

import itertools
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.odd_objects import FAILURES, odd_object

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd.draws import below
from sfumato.learning.dp_sgd.owners import Owners, RowsAreUnits

ids_lists = st.lists(st.integers(0, 6), max_size=60) | st.lists(
    st.sampled_from(["a", "b", "cc", "", "nan"]), max_size=60
)


@given(ids_lists, st.integers(1, 9), st.booleans(), st.data())
def test_contributions_are_bounded_and_owners_keep_to_their_rows(ids, most, as_array, data):
    owners = Owners(np.array(ids) if as_array and ids else ids, most)
    assert (len(owners), owners.rows, owners.rows_per_unit) == (len(set(ids)), len(ids), most)
    positions = data.draw(st.lists(st.integers(0, len(owners) - 1)) if ids else st.just([]))
    rows, weights = owners.rows_of(np.array(positions, dtype=np.int64), SeededCoins(1))
    assert rows.shape == weights.shape == (len(positions), most)
    assert rows.dtype == np.int64
    assert weights.dtype == np.float64
    whose = {}
    for position, own_rows, own_weights in zip(positions, rows, weights, strict=True):
        (owner,) = {ids[r] for r in own_rows}
        assert whose.setdefault(position, owner) == owner
        used = own_rows[own_weights > 0]
        expected = min(most, ids.count(owner))
        assert len(used) == len(set(used.tolist())) == expected
        assert np.all(own_weights[own_weights > 0] == 1 / expected)
        assert set(own_rows[own_weights == 0]) <= {ids.index(owner)}  # padded by the first row
    assert len(set(whose.values())) == len(whose)  # two positions, two owners


def test_every_owner_is_somewhere():
    ids = ["b", "a", "c", "a"]
    rows, _ = Owners(ids, 1).rows_of(np.arange(3), SeededCoins(1))
    assert {ids[r] for r in rows.ravel()} == {"a", "b", "c"}


@pytest.mark.parametrize(("size", "most"), [(5, 2), (5, 3), (4, 1), (6, 5)])
def test_subsets_are_uniform(size, most):
    """Chi-squared with c - 1 degrees of freedom stays below c + 5 sqrt(2 c) in all but 1e-5."""
    owners = Owners([7] * size, most)
    draws = 20_000
    rows, _ = owners.rows_of(np.zeros(draws, dtype=np.int64), SeededCoins(11))
    counts = Counter(map(tuple, np.sort(rows, axis=1).tolist()))
    cells = list(itertools.combinations(range(size), most))
    assert set(counts) == set(cells)
    expected = draws / len(cells)
    statistic = sum((counts[c] - expected) ** 2 / expected for c in cells)
    assert statistic < len(cells) + 5 * np.sqrt(2 * len(cells))


def test_choices_are_fresh_each_time_and_come_from_the_coins():
    owners = Owners(np.zeros(10_000), 3)
    zero = np.zeros(1, dtype=np.int64)
    coins = SeededCoins(2)
    first, second = (owners.rows_of(zero, coins)[0] for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(owners.rows_of(zero, SeededCoins(2))[0], first)
    assert not np.array_equal(owners.rows_of(zero, SYSTEM)[0], owners.rows_of(zero, SYSTEM)[0])


class FixedWords:
    """Coins that say what they are told."""

    private = False

    def __init__(self, *words):
        self._words = list(words)

    def words(self, count):
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken, dtype=np.uint64)


def test_words_that_would_favour_small_numbers_are_drawn_again():
    # 2^64 = 1 mod 3: the last word is one too many.
    last = 2**64 - 1
    assert below(np.array([3]), FixedWords(last, 5)).tolist() == [2]
    assert below(np.array([3]), FixedWords(last - 1)).tolist() == [2]
    assert below(np.array([4, 1]), FixedWords(last, last)).tolist() == [3, 0]  # 2^64 = 0 mod 4


class Awkward:
    """Compares with nothing."""

    def __eq__(self, other):
        raise ZeroDivisionError

    __hash__ = None


class MissingLike:
    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("neither true nor false")


@pytest.mark.parametrize(
    ("ids", "owners"),
    [
        ([1, None, float("nan"), 1, np.nan], 1),
        (np.array([1.0, np.nan, 2.0, np.nan]), 2),
        (np.array([np.nan, np.nan]), 0),
        (np.array(["2020-01-01", "NaT", "NaT"], dtype="datetime64[D]"), 1),
        (np.ma.masked_array([1, 2, 3, 3], mask=[0, 1, 1, 0]), 2),
        (["a", None, "", "", 5, (1, 2)], 4),
        ([[1], [2, 3], {}, Awkward(), MissingLike(), np.arange(3), Decimal("sNaN")], 0),
        (np.array(["x", None, 3, float("nan")], dtype=object), 2),
        (torch.tensor([4, 4, 5]), 2),
        ([float("inf"), float("inf"), -(2**200), 2**200], 3),
        ([], 0),
        (range(4), 4),
    ],
)
def test_rows_without_an_id_are_never_used_and_none_raises(ids, owners):
    found = Owners(ids, 2)
    assert (len(found), found.rows) == (owners, len(ids))
    rows, weights = found.rows_of(np.arange(owners), SeededCoins(1))
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert len(np.unique(rows[weights > 0])) == (weights > 0).sum()


def test_columns_of_a_table_are_ids():
    pandas = pytest.importorskip("pandas")
    assert len(Owners(pandas.Series([1, None, 1, None]), 1)) == 1
    assert len(Owners(pandas.Series(["a", None, pandas.NA]), 1)) == 1
    assert len(Owners(pandas.array([1, None, 2], dtype="Int64"), 1)) == 2


@pytest.mark.parametrize("ids", ["abc", 5, np.zeros((2, 2)), np.array(3)])
def test_what_is_not_one_id_a_row_is_an_error(ids):
    with pytest.raises(ValueError, match="ids must be"):
        Owners(ids, 1)


def test_rows_per_unit_is_checked():
    with pytest.raises(ValueError, match="rows_per_unit"):
        Owners([1], 0)


@given(st.lists(st.integers(0, 99), max_size=20))
def test_rows_may_be_units_of_their_own(positions):
    units = RowsAreUnits(100)
    rows, weights = units.rows_of(np.array(positions, dtype=np.int64), SYSTEM)
    assert (len(units), units.rows, units.rows_per_unit) == (100, 100, 1)
    assert rows.dtype == np.int64
    assert rows.tolist() == [[p] for p in positions]
    assert weights.tolist() == [[1.0]] * len(positions)


@pytest.mark.parametrize("what", FAILURES)
def test_an_id_of_any_class_takes_no_other_with_it(what):
    owners = Owners(["ann", odd_object(what), "ann"], rows_per_unit=2)
    rows, _ = owners.rows_of(np.array([0]), SYSTEM)
    assert sorted(rows[0].tolist()) == [0, 2]
