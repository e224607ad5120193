"""Votes: one for each teacher, whatever it answers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from sfumato.learning.ensembles import Ensemble
from sfumato.learning.pate.teachers import (
    agreement,
    labels_from_scores,
    plurality,
    teacher_labels,
    votes_from_labels,
    votes_of,
)
from sfumato.learning.pate.teachers.voting import checked_labels

SHAPES = st.tuples(st.integers(0, 8), st.integers(1, 7))


@given(arrays.arrays(np.int64, SHAPES, elements=st.integers(-3, 6)), st.integers(0, 3))
def test_counts_are_counted(labels, default):
    votes = votes_from_labels(labels, 4, default)
    assert votes.dtype == np.int64
    for row, counts in zip(labels, votes, strict=True):
        answers = [one if 0 <= one < 4 else default for one in row]
        assert counts.tolist() == [answers.count(c) for c in range(4)]


@given(arrays.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 9)),
                     elements=st.integers(-1, 4)), st.data())  # fmt: skip
def test_one_teacher_moves_one_vote(labels, data):
    other = labels.copy()
    teacher = data.draw(st.integers(0, labels.shape[1] - 1))
    other[:, teacher] = data.draw(arrays.arrays(np.int64, len(labels), elements=st.integers(-9, 9)))
    before, after = votes_from_labels(labels, 4), votes_from_labels(other, 4)
    assert abs(before - after).sum(axis=1).max() <= 2
    assert ((before - after) ** 2).sum(axis=1).max() <= 2
    assert abs(before.max(axis=1) - after.max(axis=1)).max() <= 1


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 9), st.just(3))))
def test_scores(scores):
    found = labels_from_scores(scores, 3, default_class=2)
    for row, label in zip(scores.tolist(), found, strict=True):
        expected = 2 if any(x != x for x in row) else row.index(max(row))
        assert label == expected, "ties go to the lowest class"


def test_labels_that_are_none():
    given_labels = np.array([[0, 1.0, 2.5, np.inf], [-np.inf, np.nan, 1e300, -0.0]])
    assert checked_labels(given_labels, 3, 1).tolist() == [[0, 1, 1, 1], [1, 1, 1, 0]]
    assert checked_labels(np.array(["0", "x"]), 3, 1).tolist() == [1, 1]
    assert checked_labels(np.array([True, False]), 2).tolist() == [1, 0]
    assert checked_labels(np.array([2**64 - 1], np.uint64), 3, 2).tolist() == [2]


def test_plurality_and_agreement():
    votes = np.array([[2, 5, 3], [5, 5, 0], [0, 0, 10]])
    assert plurality(votes).tolist() == [1, 0, 2]
    assert agreement(votes).tolist() == [0.5, 0.5, 1.0]


def test_an_ensembles_votes(monkeypatch):
    """Three linear teachers, the last one spoilt; queries are answered in blocks."""
    monkeypatch.setattr("sfumato.learning.pate.teachers.voting._QUERIES", 2)
    weight = torch.stack([torch.eye(3), torch.eye(3).roll(1, 0), torch.full((3, 3), torch.nan)])
    teachers = Ensemble(
        lambda: nn.Linear(3, 3, bias=False), {"weight": weight}, np.zeros((3, 0), bool)
    )
    queries = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1]]
    labels = teacher_labels(teachers, queries, 3, default_class=2)
    assert labels.tolist() == [[0, 1, 2], [1, 2, 2], [2, 0, 2], [0, 1, 2], [1, 2, 2]]
    assert votes_of(teachers, queries, 3, 2)[:3].tolist() == [[1, 1, 1], [0, 1, 2], [1, 0, 2]]
    assert votes_of(teachers, queries[:0], 3).shape == (0, 3)


def test_mistakes():
    with pytest.raises(ValueError, match="below the number of classes, 3"):
        votes_from_labels(np.zeros((1, 1)), 3, default_class=3)
    with pytest.raises(ValueError, match="a column for each teacher"):
        votes_from_labels(np.zeros(3), 3)
    with pytest.raises(ValueError, match="of 3 classes"):
        labels_from_scores(np.zeros((2, 4)), 3)
