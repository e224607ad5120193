"""Private values that may be anything: each is read alone, in silence, whatever its code does.

A cell of a table can be an object of any class, and looking at it can run code of that class: its
text, its number, its hash, its very ``__class__``. An error, a warning or a line in a log that
comes from there tells of the row. So whatever reads such values reads them here:

    >>> read_each(lambda value: 1 / value, [4, 0, "x"], None)
    [0.25, None, None]

**The law.** For every value there is a result, and it is the one that the value has alone.

- Whatever is raised gives ``missing``. For a value of Python's or NumPy's own that is any
  ``Exception``. For an object of another class it is any ``BaseException``: a ``SystemExit`` in
  somebody's ``__str__`` is that row's and ends no program. A Ctrl-C is nobody's row and ends the
  reading: what tells the two apart is whether the process was sent the signal meanwhile.
- Warnings are not shown, and no logger speaks, while code of other classes runs.
- Which class a value has is asked by ``type(value)``, which runs no code; ``isinstance`` asks the
  value for its ``__class__`` (a weak reference's proxy passes that on), and a set of types asks
  their metaclass for a hash.

What such code does besides (printing, writing files, never ending) no reader can undo.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

__all__ = ["are_all", "is_a", "read_each", "read_one"]

_Result = TypeVar("_Result")
_Stopped = Callable[[], bool]

_SCALARS = {kind for kind in np.sctypeDict.values() if kind not in (np.object_, np.void)}
_OWN = frozenset(
    map(id, (str, bytes, int, float, bool, complex, type(None), Decimal, *_SCALARS))
)  # by identity: a metaclass may define equality and hash


def is_a(value: object, *kinds: type) -> bool:
    """Whether the value's class is one of these or comes from one; asks the value nothing.

    >>> is_a(True, int), is_a("x", int, str), is_a(None, int)
    (True, True, False)
    """
    return issubclass(type(value), kinds)


def are_all(values: Iterable[Any], *kinds: type) -> bool:
    """Whether each value is of exactly one of these classes."""
    return {id(kind) for kind in map(type, values)} <= {id(kind) for kind in kinds}


def read_each(
    read: Callable[[Any], _Result], values: Iterable[Any], missing: _Result
) -> list[_Result]:
    """``read`` of each value; ``missing`` where it fails, whatever the failure."""
    listed = list(values)
    if {id(kind) for kind in map(type, listed)} <= _OWN:
        return [_read(read, value, missing) for value in listed]
    with _alone() as stopped:
        return [_read_foreign(read, value, missing, stopped) for value in listed]


def read_one(read: Callable[[Any], _Result], value: object, missing: _Result) -> _Result:
    """``read`` of one value, as :func:`read_each` has it."""
    return read_each(read, (value,), missing)[0]


def _read(read: Callable[[Any], _Result], value: object, missing: _Result) -> _Result:
    try:
        return read(value)
    except Exception:  # an error would tell of the value
        return missing


def _read_foreign(
    read: Callable[[Any], _Result], value: object, missing: _Result, stopped: _Stopped
) -> _Result:
    try:
        return read(value)
    except BaseException:  # whatever the value's class does
        if stopped():
            raise
        return missing


@contextlib.contextmanager
def _alone() -> Generator[_Stopped]:
    """Silence, and a function that says whether somebody asked the process to stop meanwhile."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), _interrupts() as stopped:
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield stopped
        finally:
            logging.disable(before)


@contextlib.contextmanager
def _interrupts() -> Generator[_Stopped]:
    """Notes each SIGINT and hands it on to who handles it, in whose thread alone it can be."""
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield lambda: False
        return

    def noted(number: int, frame: Any) -> None:
        came.append(number)
        handler(number, frame)

    signal.signal(signal.SIGINT, noted)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, handler)
