"""Candidates: nobody on both sides, whatever type their numbers come in."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.attacks import candidates as module
from sfumato.attacks.candidates import Candidates, Overlap, digests, shared_rows

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 0.1, math.nan, -math.nan, math.inf])


def sides(members=6, others=4):
    """Different examples of two features, labels that number them."""
    rows = np.arange(2.0 * (members + others)).reshape(-1, 2)
    labels = np.arange(members + others)
    return (rows[:members], labels[:members]), (rows[members:], labels[members:])


# Putting them together.


def test_members_come_first_with_their_labels():
    inside, outside = sides()
    both = Candidates.of(inside, outside)
    assert len(both) == 10
    assert np.array_equal(both.inputs, np.concatenate([inside[0], outside[0]]))
    assert both.labels.tolist() == list(range(10))
    assert both.members.tolist() == [True] * 6 + [False] * 4
    assert (both.labels.dtype, both.members.dtype) == (np.int64, np.bool_)


@pytest.mark.parametrize(
    ("members", "others", "message"),
    [
        ((np.zeros((3, 2)), [0] * 3), (np.ones((2, 3)), [0] * 2), r"others .* shape \(2,\)"),
        ((np.zeros((3, 2)), [0] * 3), (np.ones((2, 2, 1)), [0] * 2), r"others .* shape \(2,\)"),
        # Five inputs and five labels in all, but of the wrong examples.
        ((np.zeros((3, 2)), [0] * 2), (np.ones((2, 2)), [0] * 3), r"members .* got \(3, 2\)"),
        ((np.zeros((3, 2)), [0] * 3), (np.ones((2, 2)), [0] * 3), r"others .* got \(2, 3\)"),
        ((np.zeros((3, 2)), [0, 1, -1]), (np.ones((2, 2)), [0] * 2), "from 0 up$"),
        ((np.zeros((3, 2)), [0, 1, 0.7]), (np.ones((2, 2)), [0] * 2), "whole and from 0 up$"),
        ((np.zeros((3, 2)), [[0], [1], [1]]), (np.ones((2, 2)), [0] * 2), "list of class numbers"),
        ((np.zeros((3, 2)), ["a", "b", "a"]), (np.ones((2, 2)), [0] * 2), "list of class numbers"),
        (([["x"], ["y"]], [0, 0]), ([["z"]], [0]), "members must be an array of numbers"),
        ((np.array([["x"], [1.0]], object), [0, 0]), ([[2]], [0]), "code text as numbers first"),
        ((1.0, [0]), ([[2]], [0]), "members must be an array of numbers"),
    ],
)
def test_what_does_not_fit_is_refused(members, others, message):
    with pytest.raises(ValueError, match=message):
        Candidates.of(members, others)


def test_marks_of_ones_and_zeros_are_marks_and_no_places():
    """Indexed by 1, 0, 1 instead, the member of place 1 would be taken twice."""
    rows = np.array([[1.0], [2.0], [3.0]])
    both = Candidates(rows, [0, 1, 2], [1, 0, 1])
    assert both.members.tolist() == [True, False, True]
    assert both.only(both.members).labels.tolist() == [0, 2]
    with pytest.raises(Overlap):
        Candidates(np.array([[1.0], [1.0], [3.0]]), [0, 1, 2], [1, 0, 1])
    for marks in ([0, 1, 2], [0.5, 1, 0], [[1], [0], [1]], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="members must be True or False"):
            Candidates(rows, [0, 1, 2], marks)
    with pytest.raises(ValueError, match=r"as many inputs as labels and marks, got \(3, 3, 2\)"):
        Candidates(rows, [0, 1, 2], [1, 0])


def test_tables_and_tensors_are_inputs():
    table = pd.DataFrame({"age": [40, 50], "smokes": [True, False], "weight": [70.5, 80.0]})
    assert np.asarray(table).dtype == object
    both = Candidates.of((table, [0, 1]), (torch.zeros(1, 3), torch.tensor([1])))
    assert both.inputs.tolist() == [[40, 1, 70.5], [50, 0, 80], [0, 0, 0]]
    with pytest.raises(Overlap, match="1 of 2 non-members are members"):
        Candidates.of((table, [0, 1]), (np.array([[50, 0, 80], [1, 1, 1]]), [0, 0]))


# Nobody on both sides.


def test_an_example_on_both_sides_is_refused_with_how_many():
    inside, (rows, labels) = sides()
    mixed = rows.copy()
    mixed[1], mixed[3] = inside[0][2], inside[0][2]
    with pytest.raises(Overlap, match=r"2 of 4 non-members are members, too: .* drop"):
        Candidates.of(inside, (mixed, labels))
    fresh = ~shared_rows(mixed, inside[0])
    assert fresh.tolist() == [True, False, True, False]
    assert len(Candidates.of(inside, (mixed[fresh], labels[fresh]))) == 8


def test_the_same_input_with_another_label_is_the_same_example():
    with pytest.raises(Overlap):
        Candidates.of(([[1.0, 2.0]], [0]), ([[1.0, 2.0]], [1]))


def test_twice_on_one_side_is_no_overlap():
    both = Candidates.of(([[1.0], [1.0], [2.0]], [0, 0, 1]), ([[3.0], [3.0]], [1, 1]))
    assert len(both) == 5
    assert len(both.only(np.array([0, 0, 3]))) == 3


TYPES = [np.float16, np.float32, np.float64, np.longdouble, np.uint8, np.int64, np.uint64, ">f4"]


@pytest.mark.parametrize(("one", "other"), list(itertools.product(TYPES, TYPES)))
def test_equal_numbers_of_different_types_are_equal(one, other):
    inside = np.array([[0, 1, 200], [3, 4, 5]], dtype=one)
    outside = np.array([[9, 9, 9], [0, 1, 200], [3, 4, 6]], dtype=other)
    assert shared_rows(outside, inside).tolist() == [False, True, False]
    with pytest.raises(Overlap, match="1 of 3"):
        Candidates.of((inside, [0, 0]), (outside, [0, 0, 0]))
    outside[1, 2] = 201
    assert len(Candidates.of((inside, [0, 0]), (outside, [0, 0, 0]))) == 5


@pytest.mark.parametrize("coarse", [np.float16, np.float32])
def test_what_is_left_of_a_number_in_a_coarser_type_is_that_number(coarse):
    """0.1 is not 0.1 in another type, and yet it is the same patient."""
    fine = np.array([[0.1, 1e6], [0.2, 3.0]])
    with np.errstate(over="ignore"):
        saved = fine.astype(coarse)
    for inside, outside in ((fine, saved[:1]), (saved, fine[:1])):
        with pytest.raises(Overlap, match="1 of 1"):
            Candidates.of((inside, [0, 0]), (outside, [0]))
    apart = Candidates.of((fine[:1], [0]), (saved[1:], [0]))
    assert apart.inputs.dtype == np.float64
    # Of one type nothing is rounded: these are two people.
    assert not shared_rows(fine[:1], fine[:1] + 1e-12).any()


def test_a_large_number_in_floating_point():
    with pytest.raises(Overlap):
        Candidates.of(([[16_777_217]], [0]), (np.array([[16_777_217]], np.float32), [0]))


def test_rows_without_any_number_are_refused():
    """All of them would be the same example, and attacks on them would find nothing."""
    members, others = np.full((3, 2), math.nan), np.eye(2)
    with pytest.raises(ValueError, match=r"inputs must be examples .*NaN alone in 3 rows"):
        Candidates.of((members, [0, 0, 0]), (others, [0, 1]))
    Candidates.of((others, [0, 1]), ([[math.nan, 1.0]], [0]))  # a missing feature is none


def test_zeros_of_either_sign_and_every_nan_are_the_same():
    odd = np.array([0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000], np.uint64).view(np.float64)
    assert np.isnan(odd).all()
    inside = np.array([[0.0, math.nan], [1.0, math.nan]])
    outside = np.array([[-0.0, odd[0]], [-0.0, odd[1]], [math.nan, 0.0], [-1.0, math.nan]])
    assert shared_rows(outside, inside).tolist() == [True, True, False, False]
    with pytest.raises(Overlap, match="2 of 4"):
        Candidates.of((inside, [0, 0]), (outside, [0] * 4))


@given(arrays(np.float64, (5, 2), elements=NUMBERS), arrays(np.float64, (4, 2), elements=NUMBERS))
def test_shared_rows_are_those_that_numpy_calls_equal(rows, among):
    found = shared_rows(rows, among)
    for row, shared in zip(rows, found, strict=True):
        assert shared == any(np.array_equal(row, other, equal_nan=True) for other in among)
    assert shared_rows(rows, rows).all()


def test_fingerprints_do_not_depend_on_memory_or_on_how_many_there_are(monkeypatch):
    rows = np.random.default_rng(1).normal(0, 1, (10, 3, 2))
    expected = digests(rows)
    assert len(set(expected)) == 10
    assert digests(np.asfortranarray(rows)) == expected
    assert digests(rows[::-1])[::-1] == expected
    assert digests(rows.astype(">f8")) == expected
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    assert digests(rows) == expected
    assert digests(rows[:0]) == []
    with pytest.raises(ValueError, match="rows must be an array of numbers"):
        digests(np.array(["a", "b"]))


@pytest.mark.skipif(np.longdouble(0).itemsize != 16, reason="no gaps between its bytes here")
def test_bytes_that_no_number_uses_do_not_matter():
    """Numbers of 80 bits are kept in 16 bytes, of which six may hold anything."""
    rows = np.array([[0.5, 2.0]], dtype=np.longdouble)
    other = rows.copy()
    other.view(np.uint8).reshape(2, 16)[:, 10:] = 7
    assert np.array_equal(other, rows)
    assert shared_rows(other, rows).all()


def test_fingerprints_leave_the_rows_as_they_are():
    rows = np.array([[-0.0, math.nan]])
    rows.setflags(write=False)
    digests(rows)
    assert np.signbit(rows[0, 0])


def test_rows_may_be_single_numbers():
    assert shared_rows(np.array([1.0, 2.0]), np.array([2, 3])).tolist() == [False, True]
    with pytest.raises(Overlap):
        Candidates.of(([1.0, 2.0], [0, 0]), ([2.0], [0]))


# Some of them.


@pytest.mark.parametrize(("each", "size"), [(1, 1), (3, 3), (4, 4), (100, 4)])
def test_balanced_takes_as_many_of_each(each, size):
    both = Candidates.of(*sides())
    some = both.balanced(each, generator=np.random.default_rng(1))
    assert some.members.tolist() == [True] * size + [False] * size
    assert len(set(some.labels.tolist())) == 2 * size
    assert np.array_equal(some.inputs, both.inputs[some.labels])  # labels number the examples
    again = both.balanced(each, generator=np.random.default_rng(1))
    assert np.array_equal(again.inputs, some.inputs)


def test_balanced_picks_everyone_as_often_as_anyone():
    both, random = Candidates.of(*sides()), np.random.default_rng(1)
    picked = np.zeros(10)
    for _ in range(3000):
        picked[both.balanced(2, generator=random).labels] += 1
    shares = picked / 3000
    # 2 of 6 members and 2 of 4 others; four standard errors.
    assert np.abs(shares[:6] - 1 / 3).max() < 4 * math.sqrt(2 / 9 / 3000)
    assert np.abs(shares[6:] - 1 / 2).max() < 4 * math.sqrt(1 / 4 / 3000)


def test_balanced_needs_both_kinds():
    both = Candidates.of(*sides())
    for kind, counts in (
        (both.members, "6 members and 0 others"),
        (~both.members, "0 members and 4"),
    ):
        with pytest.raises(ValueError, match=counts):
            both.only(kind).balanced(3, generator=np.random.default_rng(1))
    with pytest.raises(ValueError, match="each must be"):
        both.balanced(0, generator=np.random.default_rng(1))


def test_only_takes_places_or_marks():
    both = Candidates.of(*sides())
    assert both.only(np.array([8, 1])).labels.tolist() == [8, 1]
    assert both.only(np.array([8, 1])).members.tolist() == [False, True]
    assert both.only(both.labels % 5 == 0).labels.tolist() == [0, 5]
    assert len(both.only(np.zeros(10, bool))) == 0
