"""Inputs without labels: public rows of one's own, as a data set holds its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.data.declarations import Declaration, declaration_of
from sfumato.data.declared import Features, Pictures
from sfumato.data.delimited import files_at
from sfumato.data.own_tables import TABLES, numpy_arrays, table_of

__all__ = ["load_inputs"]


def load_inputs(
    source: str | Path, declared: Declaration | Features | Pictures | None = None
) -> NDArray[Any]:
    """The inputs at ``source``; a column of labels or of owners is not needed, and not read.

    Args:
        source: a file ``.npy`` of inputs as the data set holds them (a table's are stretched to 0
            to 1), or a table ``.csv`` or ``.tsv`` (also ``.gz``), ``.parquet`` or ``.npz`` with the
            declared columns.
        declared: what the columns are; as for :func:`~sfumato.data.own.load_own`.

    Raises:
        ValueError: for another file, or one without these columns; never because of a row.
        OSError: if there is no such file.
    """
    path = Path(source)
    if not path.name.lower().endswith(TABLES):
        validation.fail("inputs", f"a file {', '.join(TABLES)}", str(source))
    if not all(one.is_file() for one in files_at(path) or [path]):
        raise FileNotFoundError(f"inputs must be there, got {str(source)!r}")
    if path.suffix.lower() == ".npy":
        return numpy_arrays(path)[""]
    known = None if declared is None else declaration_of(declared).declared
    if not isinstance(known, Features):
        raise ValueError(
            "inputs must be a file .npy, unless columns of a table are declared, got "
            f"{str(source)!r}"
        )
    names = [column.name for column in known.columns]
    table = table_of(path, names)
    assert table is not None, path
    return known.inputs(table, len(table[names[0]]))
