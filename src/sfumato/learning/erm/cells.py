"""Tables and labels cell by cell, so that no cell changes another or leads to an error.

    >>> Table.of([[1, "?"], [True, None]]).read().tolist()
    [[1.0, nan], [1.0, nan]]
    >>> class_numbers(Column.of([0, 1, "?", [2]]).read(), (0, 1, 2)).tolist()
    [0, 1, 0, 2]

NumPy reads [1, "?"] as two texts, so that one bad cell would change all the others. Here every cell
is read by itself, as :mod:`sfumato.core.odd_values` says: numbers as numbers, texts of a number as
that number (readers of files turn a whole column into texts because of one cell), anything else as
NaN, which stands for a default.

A table's shape is known before its cells are read, so that a fit can be charged in between.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from sfumato.core.odd_values import is_a, read_each, read_one

__all__ = ["Column", "Table", "as_cells", "as_number", "as_objects", "class_numbers", "same"]

_NUMERIC = "fiub"
_TRUTHS = {"True": 1.0, "False": 0.0}
_LISTS = (list, tuple)


# --- one cell -------------------------------------------------------------------------------------


def as_number(cell: Any) -> float:
    """A finite float, or NaN for what is none; a total function."""
    return read_one(_number, cell, math.nan)


def _number(cell: Any) -> float:
    """The same; may fail, which means that it is none."""
    if is_a(cell, complex, np.complexfloating):
        cell = cell.real if cell.imag == 0 else math.nan
    elif is_a(cell, str):
        cell = _TRUTHS.get(str.strip(cell), cell)
    elif is_a(cell, np.timedelta64) or not is_a(cell, bytes, Real, Decimal, np.bool_):
        return math.nan
    found = float(cell)
    return found if math.isfinite(found) else math.nan


def same(left: Any, right: Any) -> bool:
    """Whether two labels are equal, as they are or as numbers; what cannot be compared is not."""
    return read_one(lambda label: _same(label, right), left, False)


def _same(left: Any, right: Any) -> bool:
    left, right = _plain(left), _plain(right)
    if _equal(left, right):
        return True
    key = _key(left)
    return key is not None and key == _key(right)


def _plain(cell: Any) -> Any:
    return cell.item() if is_a(cell, np.generic) and cell.dtype.kind not in "mMV" else cell


def _equal(left: Any, right: Any) -> bool:
    try:
        if hasattr(left, "__array__") and not is_a(left, np.generic):
            return False
        if is_a(left, np.timedelta64, np.datetime64) and type(left) is not type(right):
            return False
        answer = left == right
        return is_a(answer, bool, np.bool_) and bool(answer)
    except Exception:  # of a cell's own methods, whatever they are
        return False


def _key(cell: Any) -> float | str | None:
    try:
        number = _number(cell)
    except Exception:  # of a cell's own methods, whatever they are
        return None
    if not math.isnan(number):
        return number
    return str.strip(cell) if is_a(cell, str) else None


# --- many -----------------------------------------------------------------------------------------


def as_cells(array: NDArray[Any]) -> NDArray[np.float64]:
    """Floats of the same shape; NaN for a cell that is none, without a word."""
    with np.errstate(all="ignore"):
        if array.dtype.kind in _NUMERIC:
            return array.astype(np.float64)
        if array.dtype.kind == "c":
            return np.where(np.imag(array) == 0, np.real(array), np.nan).astype(np.float64)
        made = read_each(_number, array.flat, math.nan)
    return np.array(made, dtype=np.float64).reshape(array.shape)


def class_numbers(labels: NDArray[Any], classes: Iterable[Any], other: int = 0) -> NDArray[Any]:
    """The number of each label's class, by itself; ``other`` for what is none of them."""
    known = [_plain(one) for one in classes]
    keys = [_key(one) for one in known]

    def number(label: Any) -> int:
        label = _plain(label)
        for at, one in enumerate(known):
            if _equal(label, one):
                return at
        key = _key(label)
        return keys.index(key) if key is not None and key in keys else other

    if labels.dtype.kind in _NUMERIC:
        values, where = np.unique(labels, return_inverse=True)
        found = np.array([number(value) for value in values], dtype=np.int64)
        return found[where.reshape(-1)]
    return np.array(read_each(number, labels.flat, other), dtype=np.int64)


# --- tables ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Table:
    """Rows that are not read yet.

    Attributes:
        shape: of the table.
        read: reads it: floats, NaN for a cell that is none.
        names: of the columns, where they have any.
    """

    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float64]]
    names: Any = None

    @classmethod
    def of(cls, values: Any, columns: int | None = None, usual: int | None = None) -> Table:
        """From arrays, frames and lists of rows; in lists, a row of another length is all NaN.

        Args:
            values: the table.
            columns: how many there are, where that is declared; it is what lists are read by.
            usual: how many there are in lists of several lengths.

        Raises:
            TypeError: for what is no table.
            ValueError: for lists of several lengths, if no number of columns is declared.
        """
        if hasattr(values, "iloc") and hasattr(values, "columns"):
            return cls(tuple(values.shape), lambda: _frame(values), values.columns)
        if not isinstance(values, _LISTS):
            array = _array("X", values)
            if array.ndim != 1 or array.dtype.kind != "O":
                return cls(array.shape, lambda: as_cells(array), getattr(values, "columns", None))
            values = array.tolist()
        if columns is None:
            columns = _common_length(values, usual)
        if columns is None:
            return cls((len(values),), lambda: as_cells(as_objects(values)))
        width = columns
        return cls((len(values), width), lambda: _rows(values, width))

    def outline(self) -> Any:
        """An array or a frame of the same shape and names, with nothing of the cells in it."""
        empty = np.broadcast_to(np.float64(0), self.shape)
        if self.names is None or len(self.shape) != 2:
            return empty
        try:
            import pandas as pd
        except ImportError:
            return empty
        return pd.DataFrame(empty, columns=self.names)


@final
@dataclass(frozen=True)
class Column:
    """Labels, or numbers to predict, that are not read yet.

    Attributes:
        length: how many.
        read: reads them: an array of numbers, or of objects.
    """

    length: int
    read: Callable[[], NDArray[Any]]

    @classmethod
    def of(cls, values: Any) -> Column:
        """From an array, a series or a list.

        Raises:
            TypeError: for what is none of them.
            ValueError: for one of several columns.
        """
        if isinstance(values, _LISTS):
            return cls(len(values), lambda: as_objects([_only(cell) for cell in values]))
        if hasattr(values, "iloc"):
            if len(values.shape) == 2 and values.shape[1] == 1:
                values = values.iloc[:, 0]
            if len(values.shape) == 1:
                return cls(len(values), lambda: _series(values))
        array = _array("y", values)
        if array.ndim == 2 and array.shape[1] == 1:
            text = "A column-vector y was passed when a 1d array was expected: y.ravel() is one"
            warnings.warn(text, DataConversionWarning, stacklevel=3)
            array = array[:, 0]
        if array.ndim != 1:
            raise ValueError(f"y should be a 1d array, got an array of shape {array.shape} instead")
        return cls(len(array), lambda: array)


def _array(name: str, values: Any) -> NDArray[Any]:
    if hasattr(values, "tocsr"):
        raise TypeError(f"{name} must be dense, sparse data is not taken: {name}.toarray() is")
    if not hasattr(values, "__array__") or isinstance(values, np.generic):
        raise TypeError(f"{name} must be an array, a frame or a list, got {type(values).__name__}")
    return np.asarray(values)


def as_objects(cells: Sequence[Any]) -> NDArray[Any]:
    """One cell each, as it is."""
    made = np.empty(len(cells), dtype=object)
    for at, cell in enumerate(cells):
        made[at] = cell
    return made


def _only(cell: Any) -> Any:
    """The entry of a list of one; anything else as it is."""
    return cell[0] if is_a(cell, *_LISTS) and len(cell) == 1 else cell


def _series(values: Any) -> NDArray[Any]:
    numeric = getattr(values.dtype, "kind", "O") in _NUMERIC and isinstance(values.dtype, np.dtype)
    return values.to_numpy() if numeric else values.to_numpy(dtype=object)


def _frame(values: Any) -> NDArray[np.float64]:
    made = np.empty(values.shape)
    for at in range(values.shape[1]):
        made[:, at] = as_cells(_series(values.iloc[:, at]))
    return made


def _cells_of(rows: Sequence[Any]) -> list[Sequence[Any] | None]:
    """The cells of each row; None for what is no row."""
    return read_each(_listed, rows, None)


def _listed(row: Any) -> Sequence[Any] | None:
    if is_a(row, *_LISTS):
        return row
    found = np.asarray(row) if hasattr(row, "__array__") else np.array(0)
    return list(found) if found.ndim == 1 else None


def _common_length(rows: Sequence[Any], usual: int | None) -> int | None:
    """Of all rows; None if there are no rows, or no row is a list."""
    lengths = {None if cells is None else len(cells) for cells in _cells_of(rows)}
    if len(lengths) > 1 and usual is not None:
        return usual
    if len(lengths) > 1:
        raise ValueError(
            "X must have rows of one length; or bounds must be declared for each column, by which "
            "a row of another length is known and replaced: bounds=([0, 0], [1, 1])"
        )
    return lengths.pop() if lengths else None


def _rows(rows: Sequence[Any], columns: int) -> NDArray[np.float64]:
    made = np.full((len(rows), columns), np.nan)
    for at, cells in enumerate(_cells_of(rows)):
        if cells is not None and len(cells) == columns:
            made[at] = read_each(_number, cells, math.nan)
    return made
