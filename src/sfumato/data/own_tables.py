"""Tables of one's own: the declared columns out of Parquet, delimited text and NumPy files.

Each reader gives columns of equal length by name, and does not look at what the values are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.core.json_files import require_regular
from sfumato.data.categories import texts_of_categories
from sfumato.data.delimited import ENDINGS, files_at, is_delimited, read_columns
from sfumato.extras import needed_for

__all__ = [
    "TABLES",
    "columns_of",
    "numpy_arrays",
    "table_of",
    "table_of_lines",
    "table_of_numpy",
    "table_of_parquet",
]

TABLES = (".parquet", *ENDINGS, ".npy", ".npz")
"""How names of files with tables end."""


def table_of(path: Path, names: Sequence[str]) -> dict[str, Any] | None:
    """The columns of a file by the ending of its name; None for an ending that is none of ours."""
    if is_delimited(path):
        return table_of_lines(path, names)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return table_of_parquet(path, names)
    return table_of_numpy(path, names) if suffix in (".npy", ".npz") else None


def table_of_parquet(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The columns of a Parquet file; no others are read."""
    with needed_for("a Parquet file"):
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    _require(names, parquet.read_schema(path).names, path)
    table = parquet.read_table(path, columns=list(names))
    columns: dict[str, Any] = {}
    for name in names:
        column = table[name]
        # By the column's type alone: one missing value must not change how others are read.
        if arrow.types.is_floating(column.type):
            floats = column.cast(arrow.float64()).fill_null(math.nan)
            columns[name] = floats.to_numpy()
        else:
            columns[name] = _listed(column)
    return columns


def _listed(column: Any) -> list[Any]:
    """The values; one that Python cannot hold (a day of the year 20000, spoilt text) is missing."""
    try:
        return column.to_pylist()
    except Exception:  # an error would tell of the value
        return [_held(value) for value in column]


def _held(value: Any) -> Any:
    try:
        return value.as_py()
    except Exception:
        return None


def table_of_lines(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The columns of delimited text as text, as :mod:`sfumato.data.delimited` reads it.

    The path may hold a star. Cells that are missing are empty.
    """
    return dict(read_columns(files_at(path), names))


def table_of_numpy(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The columns of an ``.npz`` file of arrays, or of an ``.npy`` file.

    The latter holds either named fields, or one column for each declared one and then the label.
    """
    if path.suffix.lower() == ".npz":
        return columns_of(numpy_arrays(path), names)
    array = numpy_arrays(path)[""]
    if array.dtype.names is not None:
        return columns_of({name: array[name] for name in array.dtype.names}, names)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(
            f"source must hold rows of {len(names)} columns ({', '.join(names)}), "
            f"got an array of {array.ndim} dimensions or of other columns in {str(path)!r}"
        )
    return {name: array[:, at] for at, name in enumerate(names)}


def columns_of(table: Any, names: Sequence[str]) -> dict[str, Any]:
    """The columns of a data frame or of a mapping from names to arrays."""
    known = getattr(table, "columns", None)  # a data frame, of pandas or of polars
    if known is None:
        if not isinstance(table, Mapping):
            raise ValueError(
                "the function must give a data frame or a mapping from columns to arrays, "
                f"got {type(table).__name__}"
            )
        known = table.keys()
    _require(names, list(known), "the data")
    columns: dict[str, Any] = {}
    for name in names:
        columns[name] = _column(table[name])
    if any(np.ndim(c) != 1 for c in columns.values() if isinstance(c, np.ndarray)):
        raise ValueError("each column must have one dimension: give an array for each of them")
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("columns must be of the same length, got different ones")
    return columns


def _column(values: Any) -> Any:
    """The values as a list or an array, gaps and large whole numbers included."""
    if isinstance(values, np.ma.MaskedArray):
        return values.tolist()
    if isinstance(values, list | tuple):
        return values
    texts = texts_of_categories(values)
    if texts is not None:
        return texts
    array = np.asarray(values)
    # Polars makes floats of whole numbers if one is missing, which large ones do not survive.
    whole = "int" in str(getattr(values, "dtype", "")).lower()
    if whole and array.dtype.kind == "f" and hasattr(values, "to_list"):
        return values.to_list()
    return array


def numpy_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name, or the one of an ``.npy`` file as "".

    Raises:
        ValueError: for arrays of Python objects, which could run code when they are read.
    """
    require_regular(path)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, MemoryError):
        raise
    except Exception:  # NumPy's reader raises what Python's own parser does
        raise ValueError(
            f"source must be a NumPy file of numbers or text, without Python objects, "
            f"got {str(path)!r}"
        ) from None


def _require(names: Sequence[str], known: Sequence[Any], where: object) -> None:
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"columns must be in {where}, got {', '.join(missing)}, which are not")
