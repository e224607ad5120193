"""Rows as numbers of norm 1 at most, by what was declared and never by what is there.

    >>> scaling = RowScaling(lower=(0.0, 0.0), upper=(100.0, 1.0), norm=2.0)
    >>> scaling.rows([[50, 0.5], [100, float("nan")]]).round(3).tolist()
    [[0.0, 0.0, 0.5], [0.5, 0.0, 0.5]]

Each column's declared range becomes -1 to 1, a 1 is put behind as one more column (the intercept,
which is regularised and noised like any weight), everything is divided by a declared ``norm``, and
a row that is still longer than 1 is shortened to 1 with its intercept: for a linear classifier that
changes how sure it is, and never which side the row is on. With an intercept and a norm of 1 every
row gets length 1.

A column that is mostly 0, such as one of many categories, is better declared from -1 to 1 than from
0 to 1: its zeros then stay zeros, and take none of the row's length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.learning.erm.cells import Table

__all__ = ["RowScaling", "checked_range", "declared_columns"]

_LEAST, _MOST = 1e-100, 1e100  # of half a range and of a norm: squares and quotients stay finite
_JUST_BELOW = 1 - 2.0**-40  # more than the rounding of a norm, so that no row is longer than 1


@final
@dataclass(frozen=True)
class RowScaling:
    """What is done to each row by itself; a total function of it.

    Attributes:
        lower, upper: the declared range of each column. What is outside is moved to its end, what
            is no finite number becomes its middle.
        norm: rows of this length, once columns are between -1 and 1, get length 1.
        intercept: whether a constant column is put behind.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    norm: float
    intercept: bool = True

    def __post_init__(self) -> None:
        if len(self.lower) != len(self.upper) or not self.lower:
            validation.fail("bounds", "a lower and an upper one for each column", self)
        for low, high in zip(self.lower, self.upper, strict=True):
            checked_range("bounds", low, high)
        if not _LEAST <= validation.positive("norm", self.norm) <= _MOST:
            validation.fail("norm", f"between {_LEAST:g} and {_MOST:g}", self.norm)

    @classmethod
    def declared(
        cls, bounds: Any, columns: int, norm: float = 1.0, intercept: bool = True
    ) -> RowScaling:
        """From ``(lower, upper)``, each a number for all columns or one for each.

        Raises:
            ValueError: if they are not, or not of so many columns.
        """
        try:
            low, high = (np.asarray(side, dtype=np.float64) for side in bounds)
            lower, upper = (np.broadcast_to(side, columns).tolist() for side in (low, high))
        except (TypeError, ValueError):
            validation.fail(
                "bounds", f"(lower, upper), numbers or lists of {columns} numbers", bounds
            )
        return cls(tuple(lower), tuple(upper), validation.positive("norm", norm), bool(intercept))

    @property
    def columns(self) -> int:
        """Of a row as it is given."""
        return len(self.lower)

    @property
    def width(self) -> int:
        """Of a row as it is learnt from."""
        return self.columns + self.intercept

    def rows(self, values: Any) -> NDArray[np.float64]:
        """(n, ``width``) rows of length 1 at most."""
        scaled, shortened = self._scaled(values)
        return scaled * shortened

    def shortening(self, values: Any) -> NDArray[np.float64]:
        """By how much each row is shortened: 1, or less for a long one."""
        return self._scaled(values)[1][:, 0]

    def _scaled(self, values: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = np.array(self.lower), np.array(self.upper)
        cells = Table.of(values, self.columns).read()
        middle, half = low / 2 + high / 2, (high - low) / 2
        inside = np.clip(np.where(np.isfinite(cells), cells, middle), low, high)
        made = np.ones((len(cells), self.width))
        made[:, : self.columns] = np.clip((inside - middle) / half, -1.0, 1.0)
        made /= self.norm
        lengths = np.linalg.norm(made, axis=1, keepdims=True)
        return made, _JUST_BELOW / np.maximum(lengths, 1.0)

    def unscaled(self, weights: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights for values as they are given, and the constant; right but for the shortening."""
        middle = (np.array(self.lower) / 2 + np.array(self.upper) / 2)[:, None]
        half = ((np.array(self.upper) - np.array(self.lower)) / 2)[:, None]
        slopes = weights[: self.columns] / (half * self.norm)
        constant = -(slopes * middle).sum(axis=0)
        return slopes, constant + (weights[-1] / self.norm if self.intercept else 0.0)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; a bound that all columns have is one number."""
        return {
            "columns": self.columns,
            "lower": _short(self.lower),
            "upper": _short(self.upper),
            "norm": self.norm,
            "intercept": self.intercept,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RowScaling:
        """The inverse of :meth:`to_dict`."""
        bounds = data["lower"], data["upper"]
        return cls.declared(bounds, data["columns"], data["norm"], data["intercept"])


def checked_range(name: str, low: Any, high: Any) -> tuple[float, float]:
    """A declared range that can be scaled to -1 to 1.

    Raises:
        ValueError: if it is none, or too narrow or too wide for floating point.
    """
    low, high = validation.interval(name, low, high)
    if math.isinf(2 * (high - low)) or (high - low) / 2 < _LEAST:
        validation.fail(name, "of a range that floating point can hold", (low, high))
    return low, high


def declared_columns(bounds: Any) -> int | None:
    """How many columns bounds are declared for; None if they are for all alike, or no bounds."""
    try:
        sizes = [np.shape(side)[0] for side in bounds if np.ndim(side) == 1]
    except (TypeError, ValueError):
        return None
    return max(sizes) if sizes and max(sizes) > 1 else None


def _short(values: tuple[float, ...]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else list(values)
