"""Votes: how many teachers chose each class, for every query.

A teacher has one vote a query, whatever it answers: what is no class counts for a declared default
class. So one teacher more or less right moves one vote from one class to another, which changes the
counts by 2 in L1, sqrt 2 in L2, and the largest count by 1 at most.

    >>> votes_from_labels(np.array([[0, 2, 2], [1, 1, -7]]), classes=3).tolist()
    [[1, 0, 2], [1, 2, 0]]

Votes are the curator's: without noise nothing of them may leave.

Reference: Papernot, Abadi, Erlingsson, Goodfellow and Talwar, arXiv:1610.05755, section 2.1.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.ensembles import Ensemble

__all__ = [
    "AnsweringTeachers",
    "agreement",
    "checked_labels",
    "labels_from_scores",
    "plurality",
    "teacher_labels",
    "votes_from_labels",
    "votes_of",
]

_QUERIES = 2048  # answered at a time, to bound the memory of scores


class AnsweringTeachers(Protocol):
    """Teachers of any kind."""

    def __len__(self) -> int: ...

    def labels(self, queries: Any) -> NDArray[np.int64]:
        """Each teacher's class for each query: (queries, teachers)."""
        ...


def votes_of(
    teachers: Ensemble | AnsweringTeachers,
    queries: NDArray[Any] | Tensor,
    classes: int,
    default_class: int = 0,
) -> NDArray[np.int64]:
    """The teachers' votes on some queries: (queries, classes).

    Args:
        teachers: trained ones, or one's own.
        queries: inputs, one a row.
        classes: how many there are.
        default_class: whom an answer counts for that is none of them.
    """
    found = teacher_labels(teachers, queries, classes, default_class)
    return votes_from_labels(found, classes, default_class)


def teacher_labels(
    teachers: Ensemble | AnsweringTeachers,
    queries: NDArray[Any] | Tensor,
    classes: int,
    default_class: int = 0,
) -> NDArray[np.int64]:
    """Each teacher's class for each query: (queries, teachers). Arguments as :func:`votes_of`."""
    if not isinstance(teachers, Ensemble):
        return checked_labels(teachers.labels(queries), classes, default_class)
    found = [np.zeros((0, len(teachers)), dtype=np.int64)]
    for start in range(0, len(queries), _QUERIES):
        scores = teachers.logits(queries[start : start + _QUERIES])
        found.append(labels_from_scores(scores, classes, default_class).T)
    return np.concatenate(found)


def labels_from_scores(
    scores: NDArray[Any], classes: int, default_class: int = 0
) -> NDArray[np.int64]:
    """The class of the highest score, the lowest of equals; the default if a score is NaN.

    Args:
        scores: (..., classes).
        classes: how many there are.
        default_class: see :func:`votes_of`.

    >>> labels_from_scores(np.array([[0.2, 0.4, 0.4], [0.1, np.nan, 0.9]]), classes=3).tolist()
    [1, 0]
    """
    default = checked_default(default_class, classes)
    if scores.ndim < 1 or scores.shape[-1] != classes:
        validation.fail("scores", f"of {classes} classes in the last dimension", scores.shape)
    broken = np.isnan(scores).any(axis=-1)
    return np.where(broken, default, scores.argmax(axis=-1)).astype(np.int64)


def checked_labels(labels: NDArray[Any], classes: int, default_class: int = 0) -> NDArray[np.int64]:
    """Labels as whole numbers of classes; what is none of them becomes the default class.

    >>> checked_labels(np.array([2.0, 1.5, np.nan, 3, -1]), classes=3, default_class=1).tolist()
    [2, 1, 1, 1, 1]
    """
    default = checked_default(default_class, classes)
    given = np.asarray(labels)
    if given.dtype.kind not in "biuf":
        return np.full(given.shape, default, dtype=np.int64)
    known = (given >= 0) & (given < classes)
    whole = np.where(known, given, default).astype(np.int64)
    return np.where(whole == np.where(known, given, default), whole, default)


def votes_from_labels(
    labels: NDArray[Any], classes: int, default_class: int = 0
) -> NDArray[np.int64]:
    """How many teachers chose each class: (queries, classes), from (queries, teachers).

    Every row sums to the number of teachers.
    """
    known = checked_labels(labels, validation.count("classes", classes), default_class)
    if known.ndim != 2:
        validation.fail("labels", "a row for each query, a column for each teacher", known.shape)
    cells = np.arange(len(known))[:, None] * classes + known
    counts = np.bincount(cells.ravel(), minlength=len(known) * classes)
    return counts.reshape(len(known), classes).astype(np.int64)


def plurality(votes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class with the most votes, the lowest of equals. NOT PRIVATE: there is no noise."""
    return np.asarray(votes).argmax(axis=-1).astype(np.int64)


def agreement(votes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of teachers that chose the class with the most votes. Curator's."""
    counts = np.asarray(votes)
    return counts.max(axis=-1) / np.maximum(counts.sum(axis=-1), 1)


def checked_default(default_class: int, classes: int) -> int:
    """The default class, which must be one of the classes."""
    number = validation.at_least("default_class", default_class, 0)
    if number >= validation.count("classes", classes):
        validation.fail("default_class", f"below the number of classes, {classes}", default_class)
    return number
