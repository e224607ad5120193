"""Inputs without labels: public rows of one's own, as a data set holds its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.data.declarations import Declaration, declaration_of
from sfumato.data.declared import Features, Pictures
from sfumato.data.own_tables import numpy_arrays, table_of_csv, table_of_numpy, table_of_parquet

__all__ = ["load_inputs"]

_TABLES = {".csv": table_of_csv, ".parquet": table_of_parquet, ".npz": table_of_numpy}


def load_inputs(
    source: str | Path, declared: Declaration | Features | Pictures | None = None
) -> NDArray[Any]:
    """The inputs at ``source``; a column of labels or of owners is not needed, and not read.

    Args:
        source: a file ``.npy`` of inputs as the data set holds them (a table's are stretched to 0
            to 1), or a table ``.csv``, ``.parquet`` or ``.npz`` with the declared columns.
        declared: what the columns are; as for :func:`~sfumato.data.own.load_own`.

    Raises:
        ValueError: for another file, or one without these columns; never because of a row.
        OSError: if there is no such file.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix not in (".npy", *_TABLES):
        validation.fail("inputs", f"a file .npy, {', '.join(_TABLES)}", str(source))
    if not path.is_file():
        raise FileNotFoundError(f"inputs must be there, got {str(source)!r}")
    if suffix == ".npy":
        return numpy_arrays(path)[""]
    known = None if declared is None else declaration_of(declared).declared
    if not isinstance(known, Features):
        raise ValueError(
            "inputs must be a file .npy, unless columns of a table are declared, got "
            f"{str(source)!r}"
        )
    names = [column.name for column in known.columns]
    table = _TABLES[suffix](path, names)
    return known.inputs(table, len(table[names[0]]))
