"""Which teacher learns from which rows of a data set."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data import Dataset
from sfumato.learning.pate.teachers.assigning import Parts, assign_records, assign_units

__all__ = ["dealt"]


def dealt(data: Dataset, teachers: int, salt: bytes) -> Parts:
    """Who learns from what: by a hash of each row's owner, or of the row itself, label included."""
    if data.owners is not None:
        return assign_units(data.owners, teachers, salt)
    columns = [_bytes_of(part) for part in data.train]
    return assign_records(np.concatenate(columns, axis=1), teachers, salt)


def _bytes_of(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """(n, bytes of a row)."""
    width = math.prod(rows.shape[1:])
    flat = np.ascontiguousarray(rows.reshape(len(rows), width))
    return flat.view(np.uint8).reshape(len(rows), width * rows.itemsize)
