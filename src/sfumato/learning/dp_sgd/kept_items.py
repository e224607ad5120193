"""A data set's items, kept as they were when they were read.

A data set may hand out one buffer again and again: ``readinto`` fills an array that was made once,
a dictionary gets new values. Kept by reference, all items of a batch would be the last one that was
read, and one row would stand in the place of all others. So each item is copied before the next one
is read. What is made of others after that does not matter.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import Tensor

from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["kept"]

_FIXED = frozenset({str, bytes, bool, int, float, complex, type(None)})


def kept(item: Any) -> Any:
    """The item with memory of its own: tensors, arrays, lists, tuples, dictionaries; others deeply.

    Raises:
        TrainingError: for an object of another type that cannot be copied.
    """
    kind: Any = type(item)
    if kind in _FIXED:
        return item
    if isinstance(item, Tensor):
        return item.clone()
    if kind is dict:
        return {key: kept(item[key]) for key in item}
    if kind is list:
        plain = _FIXED.issuperset(map(type, item))
        return list(item) if plain else [kept(value) for value in item]
    if kind is tuple:
        return tuple([kept(value) for value in item])
    if isinstance(item, tuple) and hasattr(kind, "_make"):  # a named one
        return kind._make([kept(value) for value in item])
    if isinstance(item, np.ndarray | np.generic) and not item.dtype.hasobject:
        return item.copy()  # a record of an array is a view of it
    try:
        return copy.deepcopy(item)
    except Exception as error:
        raise TrainingError(
            f"an item of the data set holds a {kind.__name__}, which cannot be copied, so that the "
            "next item that is read could change it: give tensors, arrays, numbers and text"
        ) from error
