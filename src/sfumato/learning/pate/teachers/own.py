"""One's own teachers: functions, or answers that are in a file already.

Whoever brings teachers vouches for one thing: that one unit more or less changes one of them only
(:mod:`.assigning` makes such parts). Everything else is checked here.

A teacher's bad answer never raises, since an error that one teacher's rows can cause is a release
of them. Scores that are NaN, labels that are no class, answers of the wrong shape, and exceptions
count for a declared default class. How often that happened is the curator's to look at.

    >>> def right(queries):
    ...     return queries[:, 0]
    >>> def broken(queries):
    ...     raise RuntimeError
    >>> teachers = OwnTeachers([right, broken], classes=3, default_class=2)
    >>> teachers.labels(np.array([[0], [1]])).tolist()
    [[0, 2], [1, 2]]
    >>> teachers.bad_answers(np.array([[0], [1]])).tolist()
    [0, 2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.learning.pate.teachers.voting import checked_default, checked_labels

__all__ = ["OwnTeachers", "checked_votes", "read_labels", "read_votes", "teachers_in"]

_NO_CLASS = -1


@final
class OwnTeachers:
    """Teachers as functions from queries to labels (n,) or scores (n, classes).

    Args:
        teachers: the functions; each is called with all queries at once.
        classes: how many there are; public.
        default_class: whom a bad answer counts for.
    """

    def __init__(
        self, teachers: Sequence[Callable[[Any], Any]], classes: int, default_class: int = 0
    ) -> None:
        self._teachers = tuple(teachers)
        self.classes = validation.count("classes", classes)
        self.default_class = checked_default(default_class, classes)
        if not self._teachers:
            validation.fail("teachers", "one function or more", teachers)
        for teacher in self._teachers:
            if not callable(teacher):
                validation.fail("teachers", "functions of queries", type(teacher).__name__)

    def __len__(self) -> int:
        return len(self._teachers)

    def labels(self, queries: Any) -> NDArray[np.int64]:
        """Each teacher's class for each query: (queries, teachers)."""
        return checked_labels(self._answers(queries), self.classes, self.default_class)

    def bad_answers(self, queries: Any) -> NDArray[np.int64]:
        """How many of each teacher's answers count for the default class. Curator's."""
        return (self._answers(queries) == _NO_CLASS).sum(axis=0)

    def _answers(self, queries: Any) -> NDArray[np.int64]:
        each = [_answer(t, deepcopy(queries), self.classes) for t in self._teachers]  # its own
        return np.stack(each, axis=1)


def _answer(teacher: Callable[[Any], Any], queries: Any, classes: int) -> NDArray[np.int64]:
    """A teacher's classes, -1 for what is none."""
    nothing = np.full(len(queries), _NO_CLASS, dtype=np.int64)
    try:
        given = _array(teacher(queries))
    except Exception:  # its rows may be why: an error would tell of them
        return nothing
    if given.dtype.kind not in "biuf":
        return nothing
    if given.shape == (len(queries), classes):
        broken = np.isnan(given).any(axis=1)
        return np.where(broken, _NO_CLASS, given.argmax(axis=1)).astype(np.int64)
    return _classes_in(given, classes) if given.shape == (len(queries),) else nothing


def _classes_in(given: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Whole numbers of classes, -1 for what is none."""
    known = checked_labels(given, classes, default_class=0)
    return np.where(known == given, known, _NO_CLASS)


def _array(given: Any) -> NDArray[Any]:
    """What a teacher gave: a tensor on any device, an array, a list."""
    for method in ("detach", "cpu"):
        given = getattr(given, method)() if hasattr(given, method) else given
    if hasattr(given, "float") and str(getattr(given, "dtype", "")) == "torch.bfloat16":
        given = given.float()
    return np.asarray(given)


def read_labels(
    path: str | Path,
    classes: int,
    *,
    teachers: int | None = None,
    default_class: int = 0,
    header: bool = False,
) -> NDArray[np.int64]:
    """Each teacher's class for each query from a file: (queries, teachers).

    Args:
        path: of a ``.npy`` or ``.csv`` file with a row for each query and a column for each
            teacher.
        classes: how many there are.
        teachers: how many columns there must be, if that is known.
        default_class: whom a cell counts for that is empty or none of the classes.
        header: whether the first line of a ``.csv`` file names the columns.

    Raises:
        ValueError: if the file is no such table. What stands in a cell raises nothing.
    """
    validation.count("classes", classes)
    table = _table(Path(path), header)
    if teachers is not None and table.shape[1] != validation.count("teachers", teachers):
        validation.fail("file", f"one with {teachers} columns, one for each teacher", table.shape)
    return checked_labels(table, classes, default_class)


def teachers_in(path: str | Path, header: bool = False) -> int:
    """How many teachers a file of labels is of: its columns, which are public.

    Raises:
        ValueError: if the file is no such table.
    """
    return _table(Path(path), header).shape[1]


def read_votes(
    path: str | Path,
    teachers: int,
    *,
    classes: int | None = None,
    default_class: int = 0,
    header: bool = False,
) -> NDArray[np.int64]:
    """Counts of votes from a file: (queries, classes).

    Args:
        path: of a ``.npy`` or ``.csv`` file with a row for each query and a column for each class.
        teachers: how many there are.
        classes: how many columns there must be, if that is known.
        default_class: see :func:`checked_votes`.
        header: whether the first line of a ``.csv`` file names the columns.

    Raises:
        ValueError: if the file is no such table. What stands in a cell raises nothing.
    """
    table = _table(Path(path), header)
    if classes is not None and table.shape[1] != validation.count("classes", classes):
        validation.fail("file", f"one with {classes} columns, one for each class", table.shape)
    return checked_votes(table, teachers, default_class)


def checked_votes(votes: NDArray[Any], teachers: int, default_class: int = 0) -> NDArray[np.int64]:
    """Counts whose every row sums to the number of teachers: (queries, classes).

    A cell that is no whole number from 0 to the number of teachers counts as 0. Votes beyond that
    number are cut, class by class; votes that are missing count for the default class. So one
    teacher still moves one vote, and what stands in a cell raises nothing.

    >>> checked_votes(np.array([[1, 2, 0], [7, 1, 1], [3, 3, 3], [0, 1, 0]]), teachers=3).tolist()
    [[1, 2, 0], [1, 1, 1], [3, 0, 0], [2, 1, 0]]
    """
    teachers, table = validation.count("teachers", teachers), np.asarray(votes)
    if table.ndim != 2 or not table.shape[1] or table.dtype.kind not in "biuf":
        validation.fail("votes", "a table of numbers, a column for each class", table.shape)
    default = checked_default(default_class, table.shape[1])
    counts = np.maximum(_classes_in(table, teachers + 1), 0)  # whole numbers from 0 to teachers
    so_far = np.minimum(np.cumsum(counts, axis=1), teachers)
    counts = np.diff(so_far, axis=1, prepend=0)
    counts[:, default] += teachers - counts.sum(axis=1)
    return counts


def _table(path: Path, header: bool) -> NDArray[Any]:
    kind = path.suffix.lower()
    if kind not in (".npy", ".csv"):
        validation.fail("file", "one that ends in .npy or .csv", path.name)
    table = np.load(path, allow_pickle=False) if kind == ".npy" else _read_csv(path, header)
    if table.ndim != 2 or table.shape[1] == 0 or table.dtype.kind not in "biuf":
        shown = f"{table.dtype} of shape {table.shape}"
        validation.fail("file", "a table of numbers, one row for each query", shown)
    return table


def _read_csv(path: Path, header: bool) -> NDArray[np.float64]:
    """Numbers between commas; quotes around one are left out and hold nothing together.

    Each column is a teacher's: a quote in one cell must not reach the next. Lines end in line feeds
    alone, as in :mod:`sfumato.data.delimited`.
    """
    text = path.read_bytes().decode("utf-8-sig", "replace")
    lines = text.removesuffix("\n").split("\n")[1 if header else 0 :]
    rows = [line.rstrip("\r").split(",") for line in lines]
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        validation.fail("file", "a table whose rows have equally many cells", sorted(widths))
    return np.array([[_number(cell) for cell in row] for row in rows], dtype=np.float64)


def _number(cell: str) -> float:
    try:
        return float(cell.strip().strip('"'))
    except ValueError:
        return float("nan")
