"""How far predicted numbers are from the labels of test rows.

    >>> found = NumberErrors.of(np.array([1.0, 3.0]), np.array([1.0, 4.0]), (0.0, 10.0))
    >>> round(found.root_mean_squared, 3), round(found.of_the_middle, 3)
    (0.707, 2.915)

All of it is read from the test rows: public if these are, and otherwise the curator's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from sfumato.learning.erm.cells import as_cells

__all__ = ["NumberErrors"]


@final
@dataclass(frozen=True)
class NumberErrors:
    """Errors on test rows, in the labels' own units.

    Attributes:
        root_mean_squared: the root of the mean squared error.
        r_squared: 1 less the squared error over that of the labels' own mean; None where all labels
            are the same, and it has no meaning.
        of_the_middle: the same root if one always said the middle of the declared bounds, which
            takes no data at all: a model above it has learnt nothing.
        mean_absolute: the mean of the errors' sizes.
    """

    root_mean_squared: float
    r_squared: float | None
    of_the_middle: float
    mean_absolute: float

    @classmethod
    def of(cls, predicted: NDArray[Any], labels: NDArray[Any], bounds: tuple[float, float]) -> Self:
        """Of one row or more; labels count as they do for learning, within their bounds.

        Defined on all labels: squares are taken in halves of the declared range, where none can
        overflow.
        """
        low, high = bounds
        middle, half = low / 2 + high / 2, (high - low) / 2
        cells = as_cells(np.asarray(labels))
        inside = np.clip(np.where(np.isfinite(cells), cells, middle), low, high)
        truth, told = (inside - middle) / half, (np.asarray(predicted) - middle) / half
        error = float(np.mean((told - truth) ** 2))
        return cls(
            root_mean_squared=math.sqrt(error) * half,
            r_squared=_r_squared(error, truth),
            of_the_middle=math.sqrt(float(np.mean(truth**2))) * half,
            mean_absolute=float(np.mean(np.abs(told - truth))) * half,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, under names of its own: none of it is an accuracy."""
        return {
            "root_mean_squared_error": self.root_mean_squared,
            "r_squared": self.r_squared,
            "error_of_the_middle": self.of_the_middle,
            "mean_absolute_error": self.mean_absolute,
        }


def _r_squared(error: float, truth: NDArray[Any]) -> float | None:
    if np.ptp(truth) == 0:  # of equal numbers, the mean may be rounded, and the variance not be 0
        return None
    with np.errstate(all="ignore"):
        found = 1 - error / np.var(truth)
    return float(found) if np.isfinite(found) else None
