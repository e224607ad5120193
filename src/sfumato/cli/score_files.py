"""Numbers that a model gave elsewhere, out of CSV, Parquet and NumPy files."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core import validation
from sfumato.core.json_files import require_regular
from sfumato.extras import needed_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["numbers_and_names"]

_USUAL = "surprise"


def numbers_and_names(
    option: str, path: Path, column: str | None = None, *, names: str = ""
) -> tuple[NDArray[Any], list[str]]:
    """One column of numbers, and a column of names beside it if there is one.

    Args:
        option: what the file was given as, for errors.
        path: a CSV file, with a header or without one; a Parquet, ``.npy`` or ``.npz`` file.
        column: where the numbers are. If it is None: "surprise", or else the only column.
        names: the column of names; empty for none.

    Raises:
        ValueError: for another kind of file, no such column, or what is no number.
        OSError: if the file cannot be read.
    """
    import numpy as np

    columns = _columns(option, path)
    chosen = _chosen(option, path, columns, column, names)
    try:
        numbers = np.asarray(columns[chosen], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{option} must be numbers, and some in {path} are not") from None
    if numbers.ndim == 2 and 1 in numbers.shape:
        numbers = numbers.ravel()
    if numbers.ndim != 1 or not len(numbers) or np.isnan(numbers).any():
        raise ValueError(f"{option} must be one column of numbers without gaps, got {path}")
    labels = [str(name) for name in columns[names]] if names in columns and names else []
    return numbers, labels


def _chosen(
    option: str, path: Path, columns: Mapping[str, Any], column: str | None, names: str
) -> str:
    if column is not None and column in columns:
        return column
    known = [name for name in columns if not names or name != names]
    if column is None and _USUAL in known:
        return _USUAL
    if len(known) == 1 and (column is None or known == [""]):
        return known[0]
    listed = ", ".join(repr(name) for name in known)
    return validation.fail(f"--column for {option}", f"one of those in {path}: {listed}", column)


def _columns(option: str, path: Path) -> Mapping[str, Sequence[Any] | NDArray[Any]]:
    ending = path.suffix.lower()
    if ending == ".csv":
        return _of_csv(option, path)
    if ending == ".parquet":
        return _of_parquet(path)
    if ending in (".npy", ".npz"):
        from sfumato.data.own_tables import numpy_arrays

        return numpy_arrays(path)
    return validation.fail(option, "a .csv, .parquet, .npy or .npz file", str(path))


def _of_csv(option: str, path: Path) -> Mapping[str, list[str]]:
    """A first line of numbers alone is no header, and then there must be one column.

    One line is one row, as in :mod:`sfumato.data.delimited`.
    """
    from sfumato.data.delimited import fields_of

    require_regular(path)
    text = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    lines = (line.removesuffix(b"\r") for line in text.split(b"\n"))
    try:
        rows = [[cell.decode() for cell in fields_of(line, b",")] for line in lines if line]
    except UnicodeDecodeError:
        raise ValueError(f"{option} must be in UTF-8, and {path} is not") from None
    if not rows:
        raise ValueError(f"{option} must have one or more lines, got none in {path}")
    header = [] if all(map(_is_number, rows[0])) else [name.strip() for name in rows.pop(0)]
    header = header or ([""] if len(rows[0]) == 1 else [])
    if any(len(row) != len(header) for row in rows):
        raise ValueError(
            f"{option} must have a header and as many fields in every line, or one column of "
            f"numbers, got {path}"
        )
    return {name: [row[at] for row in rows] for at, name in enumerate(header)}


def _of_parquet(path: Path) -> Mapping[str, list[Any]]:
    with needed_for("a Parquet file"):
        import pyarrow.parquet as parquet
    require_regular(path)
    return parquet.read_table(path).to_pydict()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
