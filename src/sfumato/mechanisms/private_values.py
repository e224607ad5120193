"""Private values as numbers, totally: whatever a row holds, no error and no branch tells.

An error that depends on the data is a release of the data. So each function here is defined for
every input: what is not a usable number becomes a ``default`` that was declared in public. Whether
a sensitivity holds is decided after this mapping.

    >>> as_ratio(0.75, 0.0), as_ratio(float("nan"), 0.0), as_ratio("seven", 2.0)
    ((3, 4), (0, 1), (2, 1))
    >>> as_bounded([3, None, 1e9, float("inf")], 0.0, 24.0, default=0.0).tolist()
    [3.0, 0.0, 24.0, 0.0]
    >>> as_codes([0, 2, 7, "x", 1.5], 3, default=1).tolist()
    [0, 2, 1, 1, 1]
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.odd_values import are_all, is_a, read_each, read_one

__all__ = ["as_bounded", "as_cells", "as_codes", "as_floats", "as_ratio"]

_LONGEST = 1000  # decimal places of a Decimal, before or after the point
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def as_ratio(value: object, default: float) -> tuple[int, int]:
    """``value`` exactly, as a numerator and a denominator; ``default`` if it is no finite number.

    Integers of any size, floats, fractions and decimals are read without rounding. But a decimal
    whose digits would fill the memory is clamped: one of more than 1001 places before the point to
    10^1001, which brings no two of them further apart, and one below 10^-1000 is 0.
    """
    return read_one(_ratio, value, float(default).as_integer_ratio())


def _ratio(value: object) -> tuple[int, int]:
    """The ratio; fails on NaN, infinities, text, None, and anything else that is no number."""
    plain = _plain(value)
    if is_a(plain, Decimal) and plain.is_finite():
        plain = _held(plain)
    numerator, denominator = map(int, plain.as_integer_ratio())
    if not denominator:
        raise ZeroDivisionError
    return numerator, denominator


def _held(value: Decimal) -> Decimal | int:
    if not value or value.adjusted() < -_LONGEST:
        return 0
    if value.adjusted() > _LONGEST:
        return 10 ** (_LONGEST + 1) * (-1 if value.is_signed() else 1)
    return value


def as_cells(values: ArrayLike) -> NDArray[Any]:
    """``values`` as an array whose cells do not influence each other.

    NumPy reads [1, "x"] as two texts and [2^60 + 1, nan] as two floats, so that one bad row would
    change the others: a sequence that is not all of one plain kind stays a sequence of objects.
    """
    if isinstance(values, np.ndarray) or hasattr(values, "__array__"):
        return np.asarray(values)
    try:
        cells = np.asarray(values, dtype=object)
    except Exception:  # arrays among the cells that NumPy can not stack: no numbers, each of them
        if not isinstance(values, list | tuple):
            raise
        cells = np.full(len(values), None, dtype=object)  # pyright: ignore[reportUnknownArgumentType]
        for place, cell in enumerate(values):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            cells[place] = cell
    flat: list[Any] = cells.ravel().tolist()
    if are_all(flat, float):
        return cells.astype(np.float64)
    if are_all(flat, int) and all(_SMALLEST <= cell <= _LARGEST for cell in flat):
        return cells.astype(np.int64)
    return cells


def as_bounded(
    values: ArrayLike, lower: float, upper: float, default: float
) -> NDArray[np.float64]:
    """``values`` as floats in [``lower``, ``upper``]; ``default`` for what is not finite."""
    floats = as_floats(values)
    return np.clip(np.where(np.isfinite(floats), floats, default), lower, upper)


def as_codes(values: ArrayLike, categories: int, default: int) -> NDArray[np.int64]:
    """``values`` as whole numbers in 0 .. ``categories`` - 1; ``default`` for everything else."""
    floats = as_floats(values)
    # NaN compares as false. Codes below 2^53 are exact as floats.
    with np.errstate(invalid="ignore"):  # a signalling NaN warns in floor
        inside = (floats >= 0) & (floats < categories) & (floats == np.floor(floats))
    return np.where(inside, floats, default).astype(np.int64)


def as_floats(values: ArrayLike) -> NDArray[np.float64]:
    """An array of any real type at once; anything else one element at a time."""
    if hasattr(values, "__array__"):  # an array, a data frame's column, a tensor, a NumPy scalar
        cells: NDArray[Any] = np.asarray(values)
        if cells.dtype.kind in "biuf":
            # A long double may become an infinity, and a signalling NaN a quiet one.
            with np.errstate(over="ignore", invalid="ignore"):
                return cells.astype(np.float64)
        flat = read_each(_as_float, cells.ravel().tolist(), math.nan)
        return np.array(flat, dtype=np.float64).reshape(cells.shape)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return np.array(read_each(_as_float, values, math.nan), dtype=np.float64)
    return np.array(read_one(_as_float, values, math.nan), dtype=np.float64)


def _as_float(value: object) -> float:
    """``value`` as a float, NaN or a failure if it has none. Text is none, even if it reads so."""
    plain = _plain(value)
    return float(plain) if is_a(plain, numbers.Real, Decimal) else math.nan


def _plain(value: object) -> Any:
    """A NumPy scalar, also as an array without axes, as Python's own number."""
    cell = cast(Any, value)
    scalar = is_a(value, np.generic) or (type(value) is np.ndarray and cell.ndim == 0)
    return cell.item() if scalar else cell
