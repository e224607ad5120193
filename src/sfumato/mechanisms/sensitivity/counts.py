"""Counts and histograms: how many rows, rounded or not, and how many of each kind.

Each function is a frozen dataclass. Its fields are public; the data is the argument of the call::

    >>> rated_bad = Count(lambda rating: rating == "bad")
    >>> int(rated_bad(["bad", "good", None, "bad"])), rated_bad.sensitivity("add-remove").bound
    (2, 1.0)

The sensitivities hold for *every* table, the empty one and rows of any type included.

Reference: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014), sec. 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.sensitivity import values
from sfumato.mechanisms.sensitivity.declared import scalar_sensitivity
from sfumato.mechanisms.sensitivity.values import Vector

__all__ = ["Count", "Histogram", "RoundedCount"]

Predicate = Callable[[Any], object]


@dataclass(frozen=True)
class Count:
    """How many rows there are, or how many satisfy a predicate.

    One row present or absent moves the count by at most 1. Replacing a row leaves a total count as
    it is, and moves a predicate count by at most 1. A predicate is a pure function of one row; one
    that fails on a row is false there.

    Attributes:
        predicate: which rows to count; None for all.

    Example:
        >>> adults = Count(lambda row: row["age"] >= 18)
        >>> int(adults([{"age": 40}, {"age": 3}, {"age": None}, {}]))
        1
        >>> Count().sensitivity("replace-one").bound, adults.sensitivity("replace-one").bound
        (0.0, 1.0)
    """

    predicate: Predicate | None = None

    def __call__(self, data: Iterable[Any], /) -> np.float64:
        """The count."""
        with np.errstate(all="ignore"):  # a row's division by zero must not warn
            return np.float64(sum(values.holds(self.predicate, r) for r in values.present(data)))

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """1; under replace-one 0 for a total count."""
        replaced = 0.0 if self.predicate is None else 1.0
        return scalar_sensitivity(
            neighbours, norm, add_remove=1.0, replace_one=replaced, zero_out=1.0
        )


@dataclass(frozen=True)
class RoundedCount:
    """A count rounded up to a multiple of m, which looks safer and needs m times the noise.

    A count that moves by 1 crosses at most one multiple of m, so its rounded value moves by 0 or m:
    tables of 10 and 11 rows give 10 and 15.

    Attributes:
        multiple: m.
        predicate: which rows to count; None for all.

    Example:
        >>> in_fives = RoundedCount(5)
        >>> int(in_fives(range(10))), int(in_fives(range(11))), in_fives.sensitivity().bound
        (10, 15, 5.0)
    """

    multiple: int = 5
    predicate: Predicate | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "multiple", validation.count("multiple", self.multiple))

    def __call__(self, data: Iterable[Any], /) -> np.float64:
        """The count, rounded up."""
        exact = int(Count(self.predicate)(data))
        return np.float64(self.multiple * -(-exact // self.multiple))

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """m; under replace-one 0 for a total count."""
        counted = Count(self.predicate).sensitivity(neighbours, norm)
        return replace(counted, bound=self.multiple * counted.bound)


@dataclass(frozen=True)
class Histogram:
    """How many rows fall into each of the declared categories.

    A row is in at most one bin. Present or absent it moves one bin by 1: L1 = L2 = Linf = 1.
    Replaced, it leaves one bin and enters another: L1 = 2, L2 = sqrt(2), Linf = 1. (With a single
    bin there is no other: 1 where unknown rows are ignored, else 0.)

    Attributes:
        categories: the bins' keys, public and distinct; never read off the data.
        default: the bin of a row that is in none; None says that such rows are ignored.

    Example:
        >>> ratings = Histogram(("bad", "normal", "good"), default="normal")
        >>> ratings(["bad", "good", "good", float("nan"), []]).tolist()
        [1.0, 2.0, 2.0]
        >>> ratings.sensitivity("add-remove", "l1").bound
        1.0
    """

    categories: tuple[Hashable, ...]
    default: Hashable | None = None

    def __post_init__(self) -> None:
        keys = tuple(self.categories)
        if not keys or len(set(keys)) < len(keys) or any(_is_nan(key) for key in keys):
            validation.fail("categories", "one or more distinct keys, none of them NaN", keys)
        if self.default is not None and self.default not in keys:
            validation.fail("default", f"one of the categories {keys!r} or None", self.default)
        object.__setattr__(self, "categories", keys)

    def __call__(self, data: Iterable[Any], /) -> Vector:
        """The counts, in the order of the categories."""
        places = {key: place for place, key in enumerate(self.categories)}
        fallback = None if self.default is None else places[self.default]
        counts = np.zeros(len(places))
        for row in values.present(data):
            place = _lookup(places, row, fallback)
            if place is not None:
                counts[place] += 1
        return counts

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """1; under replace-one 2 in L1 and sqrt(2) in L2."""
        relation = Neighbours.parse(neighbours)
        target = validation.choice("norm", norm or Norm.L1, Norm)
        moved = np.ones(self._bins_moved(relation))
        bound = values.norm_of(moved, target)
        return Sensitivity(bound, target, relation, dimension=len(self.categories))

    def _bins_moved(self, relation: Neighbours) -> int:
        """How many bins one step may move by 1."""
        if relation is not Neighbours.REPLACE_ONE:
            return 1
        return 2 if len(self.categories) > 1 else int(self.default is None)


def _is_nan(key: Hashable) -> bool:
    return math.isnan(values.as_number(key)) and key != key


def _lookup(places: dict[Hashable, int], row: Any, fallback: int | None) -> int | None:
    try:
        return places.get(row, fallback)
    except Exception:  # a row that can not be hashed or compared is in no category
        return fallback
