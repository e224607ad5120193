"""Linkage: an "anonymised" table beside a register with names, and the names are back.

What the attacker sees: a table of people with the names taken out and everyday facts left in (a
state, an area, years of schooling), and a public register that has the same facts with names. A row
whose facts occur once in the table and once in the register has found its owner, and with her
everything else the row says.

    >>> table = {"town": ["Pisa", "Pisa", "Lucca"], "age": [70, 41, 41], "income": [12, 31, 25]}
    >>> register = {"name": ["Anna", "Bruno", "Carla", "Dino"],
    ...             "town": ["Pisa", "Pisa", "Lucca", "Lucca"], "age": [70, 41, 41, 30]}
    >>> link(table, register, ["town", "age"]).names.tolist()
    ['Anna', 'Bruno', 'Carla']
    >>> for row in uniqueness(table, ["town", "age"]):
    ...     print(row)
    town: 1 of 3 people unique (33.3%), smallest group 1
    age: 1 of 3 people unique (33.3%), smallest group 1
    town, age: 3 of 3 people unique (100.0%), smallest group 1

A table of private counts over the same facts leaves nothing to link: a cell that says 1 may hold
nobody. Whether a person is in the data can be guessed right at most e^eps / (1 + e^eps) of the time
(:func:`~sfumato.attacks.differencing.best_accuracy`), and :func:`guess_presence` on counts with
geometric noise reaches just that.

Results of an attack say who is in the data: they are for the curator, never for publication.

References: Sweeney, "Simple demographics often identify people uniquely", Carnegie Mellon data
privacy working paper 3 (2000), and "k-anonymity: a model for protecting privacy" (2002); Ghosh,
Roughgarden and Sundararajan, arXiv:0811.2841 (geometric noise).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.differencing import Columns
from sfumato.core import validation

__all__ = [
    "Linkage",
    "Matches",
    "Uniqueness",
    "attack",
    "group_sizes",
    "guess_presence",
    "link",
    "uniqueness",
]

Codes = NDArray[np.int64]

SMALL_GROUP = 5
"""Groups below this size are called small, after a common rule for releasing tables."""


@dataclass(frozen=True)
class Uniqueness:
    """How many people a few facts single out. For the curator only.

    Attributes:
        attributes: the facts.
        people: how many people the table has.
        unique: how many of them share their facts with no one (k = 1).
        in_small_groups: how many share them with at most three others (k below 5).
        smallest_group: k: the table is k-anonymous in these facts.
    """

    attributes: tuple[str, ...]
    people: int
    unique: int
    in_small_groups: int
    smallest_group: int

    @property
    def share(self) -> float:
        """Of the people, how many are unique."""
        return self.unique / self.people

    def __str__(self) -> str:
        return (
            f"{', '.join(self.attributes)}: {self.unique:,} of {self.people:,} people unique "
            f"({self.share:.1%}), smallest group {self.smallest_group:,}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        fields = asdict(self) | {"attributes": list(self.attributes), "share": self.share}
        return {"channel": "curator"} | fields


def group_sizes(table: Columns, attributes: Sequence[str]) -> Codes:
    """For each row, how many rows share its ``attributes``; 1 says that it is unique."""
    (codes,) = _codes(attributes, table)
    return np.bincount(codes)[codes]


def uniqueness(
    table: Columns, attributes: Sequence[str], largest: int | None = None
) -> list[Uniqueness]:
    """How many people each subset of ``attributes`` singles out, small subsets first.

    Args:
        table: one row a person.
        attributes: the facts an attacker might know (quasi-identifiers).
        largest: the largest subset to look at; all of them unless told.
    """
    names = _names(attributes)
    most = len(names) if largest is None else validation.count("largest", largest)
    return [_uniqueness(table, subset) for subset in _subsets(names, min(most, len(names)))]


def _subsets(names: Sequence[str], most: int) -> Iterator[tuple[str, ...]]:
    for size in range(1, most + 1):
        yield from itertools.combinations(names, size)


def _uniqueness(table: Columns, attributes: Sequence[str]) -> Uniqueness:
    sizes = group_sizes(table, attributes)
    return Uniqueness(
        attributes=tuple(attributes),
        people=len(sizes),
        unique=int((sizes == 1).sum()),
        in_small_groups=int((sizes < SMALL_GROUP).sum()),
        smallest_group=int(sizes.min()),
    )


@dataclass(frozen=True, eq=False)
class Matches:
    """Rows with the names the attacker puts to them. For the curator only.

    Attributes:
        rows: the places of the rows in the anonymised table.
        names: the name put to each.
    """

    rows: Codes
    names: NDArray[Any]

    def __len__(self) -> int:
        return len(self.rows)


def link(
    anonymised: Columns, register: Columns, attributes: Sequence[str], name: str = "name"
) -> Matches:
    """The rows whose facts occur once in the table and once in the register, with their names.

    If the register is complete and both agree on the facts, every one of these names is right.
    Otherwise some are not, which only the curator can see.

    Args:
        anonymised: the released table, without names.
        register: a public table with names.
        attributes: the facts that both have.
        name: the register's column of names.
    """
    in_table, in_register = _codes(attributes, anonymised, register)
    most = int(max(in_table.max(), in_register.max())) + 1
    table_counts = np.bincount(in_table, minlength=most)
    register_counts = np.bincount(in_register, minlength=most)
    owner = np.full(most, -1)
    owner[in_register] = np.arange(len(in_register))
    both = (table_counts == 1) & (register_counts == 1)
    rows = np.flatnonzero(both[in_table])
    return Matches(rows, np.asarray(register[name])[owner[in_table[rows]]])


@dataclass(frozen=True)
class Linkage:
    """How many rows got their names back. For the curator only.

    Attributes:
        attributes: the facts used.
        people: the rows of the anonymised table.
        matched: the rows that were given a name.
        correct: the rows that were given the right one.
    """

    attributes: tuple[str, ...]
    people: int
    matched: int
    correct: int

    @property
    def share(self) -> float:
        """Of all people in the table, how many were rightly named."""
        return self.correct / self.people

    def __str__(self) -> str:
        return (
            f"{', '.join(self.attributes)}: {self.matched:,} of {self.people:,} people named, "
            f"{self.correct:,} rightly ({self.share:.1%} re-identified)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        fields = asdict(self) | {"attributes": list(self.attributes), "share": self.share}
        return {"channel": "curator"} | fields


def attack(
    anonymised: Columns,
    register: Columns,
    attributes: Sequence[str],
    truth: ArrayLike,
    name: str = "name",
) -> list[Linkage]:
    """Links with the first attribute, the first two, and so on, and counts who was found.

    Args:
        anonymised: the released table, without names.
        register: a public table with names.
        attributes: the facts that both have, in the order in which the attacker learns them.
        truth: the right name for each row of the table, which only the curator knows.
        name: the register's column of names.
    """
    names, right = _names(attributes), np.asarray(truth)
    found: list[Linkage] = []
    for size in range(1, len(names) + 1):
        matches = link(anonymised, register, names[:size], name)
        correct = int((matches.names == right[matches.rows]).sum())
        found.append(Linkage(tuple(names[:size]), len(right), len(matches), correct))
    return found


def guess_presence(counts: ArrayLike) -> NDArray[np.bool_]:
    """For people alone in their cells: is each in the data? Yes where the cell says 1 or more.

    What the attacker sees: the count, exact or noisy, of the cell that only this person of the
    register falls into. The exact count is the answer. With geometric noise of epsilon the guess is
    right with probability e^eps / (1 + e^eps), both for those present and for those absent.
    """
    return np.asarray(counts, dtype=np.float64) > 0.5


def _names(attributes: Sequence[str]) -> list[str]:
    names = list(attributes)
    if not names or len(set(names)) != len(names):
        validation.fail("attributes", "one or more different columns", names)
    return names


def _codes(attributes: Sequence[str], *tables: Columns) -> list[Codes]:
    """One number for each row of each table, equal where all ``attributes`` are equal."""
    combined: Codes | None = None
    for attribute in _names(attributes):
        columns = [_column(table, attribute) for table in tables]
        codes = _factorise(np.concatenate(columns))
        mixed = codes if combined is None else combined * (int(codes.max(initial=0)) + 1) + codes
        combined = np.unique(mixed, return_inverse=True)[1]
    assert combined is not None
    if combined.size == 0:
        raise ValueError("tables must have at least one row, got none")
    edges = np.cumsum([len(_column(table, attributes[0])) for table in tables])[:-1]
    return np.split(combined, edges)


def _column(table: Columns, attribute: str) -> NDArray[Any]:
    try:
        return np.asarray(table[attribute])
    except KeyError:
        raise ValueError(f"attributes must be columns of every table, got {attribute!r}") from None


def _factorise(values: NDArray[Any]) -> Codes:
    """Numbers from 0 for the distinct values; everything missing is one value."""
    if values.dtype.kind != "O":
        return np.unique(values, return_inverse=True)[1]
    seen: dict[Any, int] = {}
    plain = (None if value != value else value for value in values.tolist())
    return np.array([seen.setdefault(value, len(seen)) for value in plain], dtype=np.int64)
