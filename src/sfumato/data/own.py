"""Data of your own, from a file, a folder or a function, as a :class:`Dataset`.

    import sfumato as sf

    data = sf.load_own("patients.parquet", sf.Features(columns=..., label=..., classes=...))
    data = sf.load_own("wages.csv", sf.Features(columns=..., label=..., label_bounds=(0, 60)))
    data = sf.load_own("scans/", sf.Pictures(shape=(32, 32, 1), classes=("healthy", "ill")))
    data = sf.load_own("clinic:read_scans", sf.Pictures(...))  # function read_scans of clinic.py

What is declared is public and checked with clear errors; what is in the rows is not, and never
leads to one. A bad file or folder as such (not there, no such column, arrays of another shape) is
an error: its layout is taken to be public.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.functions import function_named, names_function
from sfumato.data.declarations import Declaration, declaration_of
from sfumato.data.declared import Features, Pictures
from sfumato.data.delimited import files_at
from sfumato.data.examples import Dataset, Examples
from sfumato.data.own_images import pictures_of_arrays, pictures_of_folder
from sfumato.data.own_tables import TABLES, columns_of, numpy_arrays, table_of
from sfumato.data.values import identities

__all__ = ["Source", "load_own"]

Source = str | Path | Callable[[], Any]
_Found = tuple[Examples, Examples | None, NDArray | None]  # to train on, to test on, owners


def load_own(
    source: Source,
    declared: Declaration | Features | Pictures,
    *,
    test: Source | None = None,
    name: str | None = None,
) -> Dataset:
    """The data at ``source`` as it was declared.

    Args:
        source: for :class:`Features` a file ``.parquet``, ``.csv``, ``.tsv`` (also ``.gz``, and
            several by a star in the name), ``.npy`` or ``.npz``; for :class:`Pictures` a folder
            with a sub-folder for each class, or a file ``.npz``; for both a function without
            arguments, as ``"module:function"`` or itself.
        declared: what is public about it. A :class:`Declaration` may name the column of owners,
            which is then read for the rows to train on; an owner that is missing is no error.
        test: where the examples to test on are. Rows are not split here, since by their order
            one person more or less would move all others; an ``.npz`` file may hold both parts.
        name: what to call it; otherwise it is called after the source.

    Raises:
        ValueError: for a parameter that cannot be; never because of a row.
        OSError: if there is no such file or folder.
    """
    whole = declaration_of(declared)
    declared = whole.declared
    numbers = declared.label_bounds if isinstance(declared, Features) else None
    train, inner_test, owners = _read(source, declared, whole.owner)
    tested = inner_test if test is None else _read(test, declared)[0]
    called = _called(source)
    return Dataset(
        name=called if name is None else validation.name("name", name),
        train=train,
        test=tested or _none(declared),
        classes=tuple(map(str, declared.classes)),
        shape=declared.shape,
        bounds=declared.bounds,
        source=str(source) if isinstance(source, str | Path) else called,
        owners=owners,
        public_size=whole.public_size,
        test_is_public=whole.public_test,
        target_bounds=numbers,
    )


def _read(source: Source, declared: Features | Pictures, owner: str | None = None) -> _Found:
    if callable(source):
        return _of_function(source, declared, owner)
    if not isinstance(source, str | Path) or not str(source):
        validation.fail("source", "a path, 'module:function' or a function", source)
    path = Path(source)
    if not path.exists() and isinstance(source, str) and names_function(source):
        return _of_function(function_named("source", source), declared, owner)
    if not all(one.exists() for one in files_at(path) or [path]):
        raise FileNotFoundError(f"source must be there, got {str(source)!r}")
    suffix = "" if path.is_dir() else path.suffix.lower()
    if isinstance(declared, Pictures):
        if path.is_dir():
            return pictures_of_folder(path, declared), None, None
        if suffix == ".npz":
            return *pictures_of_arrays(numpy_arrays(path), declared), None
        validation.fail("source", "for pictures a folder or a file .npz", str(source))
    table = None if path.is_dir() else table_of(path, _names(declared, owner))
    if table is None:
        validation.fail("source", f"for features a file {', '.join(TABLES)}", str(source))
    return _featured(table, declared, owner)


def _names(declared: Features, owner: str | None) -> tuple[str, ...]:
    return declared.names if owner is None else (*declared.names, owner)


def _featured(table: dict[str, Any], declared: Features, owner: str | None) -> _Found:
    labels = table[declared.label]
    examples = Examples(declared.inputs(table, len(labels)), declared.labels(labels))
    return examples, None, None if owner is None else identities(table[owner])


def _none(declared: Features | Pictures) -> Examples:
    if isinstance(declared, Pictures):
        return Examples(declared.blank(0), np.zeros(0, np.int64))
    return Examples(np.zeros((0, *declared.shape), np.float32), declared.labels(()))


def _of_function(
    function: Callable[[], Any], declared: Features | Pictures, owner: str | None
) -> _Found:
    made = function()
    if isinstance(declared, Features):
        return _featured(columns_of(made, _names(declared, owner)), declared, owner)
    if isinstance(made, tuple) and len(made) == 2:
        made = {"images": made[0], "labels": made[1]}
    return *pictures_of_arrays(made, declared), None


def _called(source: Source) -> str:
    if callable(source):
        return getattr(source, "__name__", "") or "function"
    return Path(source).stem or "data"
