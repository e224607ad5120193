"""Private rows made harmless: every possible row becomes a number or a vector within public bounds.

A sensitivity is only as good as its worst row. NaN, infinities, text where a number was expected,
an integer too large for a float, a vector of the wrong length: each is mapped here to a declared
default, silently, because an error that depends on the data is a release of the data.

Sums are compensated. A plain floating-point sum rounds at every addition, and the order of the rows
then moves it by far more than one row may (Casacuberta et al., arXiv:2207.10635); here a sum lies
within about one unit in its last place of the exact one, whatever the order.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Iterable
from enum import Enum
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.sensitivity import Norm

__all__ = [
    "LARGEST_BOUND",
    "NULL",
    "Null",
    "Vector",
    "as_number",
    "as_vector",
    "bounds",
    "clamp",
    "clip",
    "holds",
    "norm_of",
    "present",
    "take",
    "total",
    "width",
]

Vector = NDArray[np.float64]

LARGEST_BOUND: Final = 1e290
"""Declared bounds stay within this, so that no table that fits in a machine overflows a sum."""

_BELOW_ONE: Final = 1 - 2.0**-40
"""Clipping aims this far below its bound, so that rounding can not push a norm above it."""


class Null(Enum):
    """The type of :data:`NULL`."""

    NULL = "null"

    def __repr__(self) -> str:
        return "NULL"


NULL: Final = Null.NULL
"""A unit blanked out under the zero-out relation: it contributes nothing, not even to a count.

Not a value that a table may hold under another relation. A missing value (None, NaN) is a bad row,
and bad rows become declared defaults, which *do* contribute: were they to vanish, replacing one by
a value in [10, 20] would move a sum by 20 instead of 10.
"""


def present(data: Iterable[Any]) -> list[Any]:
    """The rows that were not blanked out."""
    return [row for row in data if row is not NULL]


def holds(predicate: Callable[[Any], object] | None, row: Any) -> bool:
    """Whether ``row`` satisfies ``predicate``, which fails as False (no predicate: always True)."""
    if predicate is None:
        return True
    try:
        return bool(predicate(row))
    except Exception:
        return False


def as_number(row: Any) -> float:
    """``row`` as a float: infinite beyond the range of floats, NaN where it is no real number."""
    if not isinstance(row, (numbers.Real, np.bool_)):
        return math.nan
    try:
        return _float(row)
    except Exception:
        return math.nan


def _float(row: Any) -> float:
    try:
        return float(row)
    except OverflowError:
        return math.inf if row > 0 else -math.inf


def take(rows: Any, count: int) -> list[Any]:
    """The first ``count`` members of a row that is a group; none of one that is not."""
    try:
        return list(itertools.islice(iter(rows), count))
    except Exception:
        return []


def clamp(rows: Iterable[Any], lower: float, upper: float, default: float) -> Vector:
    """Each row as a number in [lower, upper]; ``default`` for those that are no number."""
    if type(rows) is np.ndarray and rows.ndim == 1 and rows.dtype.kind in "fiub":
        with np.errstate(over="ignore", invalid="ignore"):  # long doubles, signalling NaN
            values = rows.astype(np.float64)
    else:
        values = np.fromiter((as_number(row) for row in rows), dtype=np.float64)
    return np.where(np.isnan(values), default, np.clip(values, lower, upper))


def as_vector(row: Any, dimension: int) -> Vector | None:
    """``row`` as a finite vector, or None where it is not one of that ``dimension``."""
    try:
        vector = _vector(row)
    except Exception:
        return None
    return vector if vector.shape == (dimension,) and np.isfinite(vector).all() else None


def _vector(row: Any) -> Vector:
    """``row`` as floats without a warning; NaN for an entry that is no real number."""
    if hasattr(row, "__array__"):
        cells: NDArray[Any] = np.asarray(row)
        if cells.dtype.kind in "fiub":
            with np.errstate(over="ignore", invalid="ignore"):
                return cells.astype(np.float64)
        row = cells.tolist()
    if not isinstance(row, list | tuple | range):
        return np.empty(0)
    entries: list[Any] = list(row)  # pyright: ignore[reportUnknownArgumentType]
    if not set(map(type, entries)) <= {float, int}:
        entries = [as_number(entry) for entry in entries]
    return np.array(entries, dtype=np.float64)


def width(lower: float, upper: float) -> float:
    """The least float that is not below ``upper - lower``."""
    rounded = upper - lower
    short = Fraction(rounded) < Fraction(upper) - Fraction(lower)
    return math.nextafter(rounded, math.inf) if short else rounded


def norm_of(vector: Vector, norm: Norm) -> float:
    """The norm of a vector."""
    sizes = np.abs(vector)
    if norm is Norm.L1:
        with np.errstate(over="ignore"):  # infinite beyond the range of floats, without a warning
            return float(sizes.sum())
    if norm is Norm.L2:
        largest = float(sizes.max(initial=0.0))
        if largest == 0 or math.isinf(largest):
            return largest
        return largest * math.sqrt(float(np.square(sizes / largest).sum()))
    return float(sizes.max(initial=0.0))


def clip(vector: Vector, norm: Norm, bound: float) -> Vector:
    """``vector`` scaled down where its norm exceeds ``bound``; never above it, rounding included.

    The margin for rounding costs 1e-12 of the bound. Entries near the largest float do not
    overflow: the vector is first divided by its largest entry.
    """
    largest = float(np.abs(vector).max(initial=0.0))
    if largest == 0:
        return vector
    direction = vector / largest
    size = norm_of(direction, norm)
    allowed = bound * _BELOW_ONE
    return vector if largest * size <= allowed else direction * (allowed / size)


def total(vectors: Iterable[Vector], dimension: int) -> Vector:
    """The sum of vectors, with what each addition loses kept and added back at the end.

    Reference: Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen"
    (1974), algorithm IV.
    """
    running, lost = np.zeros(dimension), np.zeros(dimension)
    for vector in vectors:
        new = running + vector
        larger = np.abs(running) >= np.abs(vector)
        lost += np.where(larger, (running - new) + vector, (vector - new) + running)
        running = new
    return running + lost


def bounds(lower: object, upper: object) -> tuple[float, float]:
    """Declared bounds of a value, the lower below the upper, both within 1e290."""
    low, high = validation.interval("bounds", lower, upper)
    if max(abs(low), abs(high)) > LARGEST_BOUND:
        validation.fail("bounds", f"within {LARGEST_BOUND:g} so that sums stay finite", (low, high))
    return low, high
