"""The axes of a table: which cell a row falls into, by public categories or public bins."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import ibis
import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.queries.engine import Value, either
from sfumato.queries.facts import Facts
from sfumato.queries.limits import MOST_BINS, listed
from sfumato.queries.total import finite_number

__all__ = ["Axis", "Bins", "Categories", "categories"]


class Axis(ABC):
    """One axis: its labels, and where on it a row lies."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The column it is about."""

    @property
    @abstractmethod
    def labels(self) -> tuple[Any, ...]:
        """What its positions are called, in order."""

    @abstractmethod
    def place(self, table: ir.Table, facts: Facts) -> Value:
        """A value that tells the position; NULL for a row that lies outside."""

    @abstractmethod
    def position(self, value: Any) -> int | None:
        """The position that ``place`` told."""


@dataclass(frozen=True)
class Categories(Axis):
    """The rows with each of some public values of a column; others are left out."""

    column: str
    keys: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The column."""
        return self.column

    @property
    def labels(self) -> tuple[Any, ...]:
        """The categories."""
        return self.keys

    def place(self, table: ir.Table, facts: Facts) -> Value:
        """The value itself, where it is one of the categories; of a moment, which one.

        Values that are equal in the engine are equal here (:mod:`sfumato.queries.cells`). Moments
        would come back in the session's time zone, where some have no date.
        """
        cell = table[facts.column(self.column)]
        if not cell.type().is_timestamp():
            keys = [_in_64_bits(key) for key in self.keys]
            return either(cell.isin(keys), cell, ibis.null(cell.type()))
        cases = [(cell == ibis.literal(key), number) for number, key in enumerate(self.keys)]
        return ibis.cases(*cases, else_=ibis.null("int64")).cast("int64")

    def position(self, value: Any) -> int | None:
        """By lookup."""
        return value if isinstance(self.keys[0], datetime) else self._positions.get(value)

    @cached_property
    def _positions(self) -> dict[Any, int]:
        return {key: position for position, key in enumerate(self.keys)}


@dataclass(frozen=True)
class Bins(Axis):
    """The numbers in [e0, e1), [e1, e2), ..., [e(k-1), ek]; others are left out."""

    column: str
    edges: Sequence[float]

    def __post_init__(self) -> None:
        given: Any = self.edges
        if isinstance(given, str) or not isinstance(given, Iterable):
            validation.fail("edges", "a list of numbers", given)
        remedy = "use fewer, or ask for parts of the range"
        given = listed("edges", given, MOST_BINS + 1, remedy)
        edges = tuple(validation.finite("edges", edge) for edge in given)
        if len(edges) < 2 or any(b <= a for a, b in itertools.pairwise(edges)):
            validation.fail("edges", "two or more increasing numbers", list(edges))
        object.__setattr__(self, "edges", edges)

    @property
    def name(self) -> str:
        """The column."""
        return self.column

    @property
    def labels(self) -> tuple[Any, ...]:
        """The bins as text."""
        pairs = list(itertools.pairwise(self.edges))
        last = len(pairs) - 1
        return tuple(
            f"{_shown(low)} to {'' if i == last else '<'}{_shown(high)}"
            for i, (low, high) in enumerate(pairs)
        )

    def place(self, table: ir.Table, facts: Facts) -> Value:
        """The bin's number, by halving: a tree of comparisons as deep as the bins' logarithm."""
        number = finite_number(table[facts.column(self.column)], facts.engine)
        inside = (number >= self.edges[0]) & (number <= self.edges[-1])
        return either(inside, self._search(number, 0, len(self.edges) - 2), ibis.null("int64"))

    def _search(self, number: Value, first: int, last: int) -> Value:
        if first == last:
            return ibis.literal(first, type="int64")
        middle = (first + last + 1) // 2
        lower, upper = self._search(number, first, middle - 1), self._search(number, middle, last)
        return either(number < self.edges[middle], lower, upper)

    def position(self, value: Any) -> int | None:
        """The bin's number itself."""
        return None if value is None else int(value)


def _in_64_bits(key: Any) -> Any:
    """A whole number beyond those with a sign, which Ibis does not take for one by itself."""
    beyond = isinstance(key, int) and key >= 2**63
    return ibis.literal(key, type="uint64") if beyond else key


def _shown(edge: float) -> str:
    """As short as tells it apart from every other number."""
    return f"{edge:g}" if float(f"{edge:g}") == edge else repr(edge)


def categories(
    columns: Sequence[str], keys: Any, facts: Facts, argument: str = "keys"
) -> tuple[Categories, ...]:
    """Axes of public categories: ``keys`` is a list (one column) or a dictionary by column."""
    if len(set(map(facts.column, columns))) != len(columns):
        validation.fail("columns", "different from each other", list(columns))
    given = keys if isinstance(keys, dict) else {}
    if keys is not None and not isinstance(keys, dict):
        if len(columns) != 1:
            validation.fail(argument, "a dictionary of lists by column", keys)
        given = {columns[0]: keys}
    unknown = [name for name in given if name not in columns]
    if unknown:
        validation.fail(argument, f"for the columns {', '.join(columns)}", unknown[0])
    return tuple(
        Categories(facts.column(name), facts.keys_of(name, given.get(name))) for name in columns
    )
