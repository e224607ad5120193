"""Items of a data set that are made of other items: refused, or left out.

``except Exception: return self[(i + 1) % len(self)]`` is a well-known way to pass over a bad file.
With it one row that comes or goes changes what others are. While items are read for training, an
item that asks its own data set for another one raises: so it cannot be read, and contributes
nothing, as any item that cannot be read does. A data set whose first items all do so is refused.

What is not seen is another way to other rows: ``self.rows[other]``, ``super().__getitem__(other)``,
a mean over all rows, something remembered. That an item is a function of its own row, and of the
coins, is for who writes the data set to see to.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Generator
from typing import Any

from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["own_rows_alone"]


class _Reading(threading.local):
    """Which data set is read here, and the number of the item that is being made."""

    def __init__(self) -> None:
        self.data: Any = None
        self.number: Any = None


_READING = _Reading()
_LOOKED_AT = "_looked_at_by_sfumato"


@contextlib.contextmanager
def own_rows_alone(data: Any) -> Generator[None]:
    """While items are read, none is made of another one.

    Args:
        data: the data set. Its class' ``__getitem__`` is looked at from now on, and is as it was
            for everybody else. A class that is not written in Python is left alone.
    """
    kind = type(data)
    real = getattr(kind, "__getitem__", None)
    if real is not None and not hasattr(real, _LOOKED_AT):
        with contextlib.suppress(TypeError):  # not written in Python
            kind.__getitem__ = _looked_at(real)
    before = _READING.data, _READING.number
    _READING.data, _READING.number = data, None
    try:
        yield
    finally:
        _READING.data, _READING.number = before


def _looked_at(real: Any) -> Any:
    @functools.wraps(real)
    def getitem(self: Any, index: Any) -> Any:
        # A class that overrides this one may give a row another number here.
        if _READING.data is not self or type(self).__getitem__ is not getitem:
            return real(self, index)
        outer = _READING.number
        if outer is not None and not _same(outer, index):
            raise TrainingError(
                "an item of the data set is made of another item (self[other]), so that one row "
                "more or less changes what others are: make each item of its own row alone. What "
                "cannot be read may raise: it is left out"
            )
        _READING.number = index
        try:
            return real(self, index)
        finally:
            _READING.number = outer

    setattr(getitem, _LOOKED_AT, True)
    return getitem


def _same(one: Any, two: Any) -> bool:
    return type(one) is type(two) and bool(one == two)
