"""Private values into numbers and categories: defined on every value, one value at a time.

Nothing here raises, warns or counts because of a value, and what becomes of one value does not
depend on another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["category", "identities", "matched", "number", "numbers_of", "positions"]

_WHOLE = re.compile(r"-?[0-9]+\.0+")
_MISSING = frozenset(("", "na", "n/a", "<na>", "nan", "nat", "none", "null"))


def number(value: object) -> float:
    """The value as a number, NaN if it is none. Text counts if it reads as a number.

    >>> number(" 2.5 "), number(True), number("n/a"), number(None), number("1_000")
    (2.5, 1.0, nan, nan, nan)
    """
    try:
        value = _plain(value)
        if isinstance(value, str) and "_" in value:
            return math.nan  # Python's own spelling, and no one else's
        return float(value) if isinstance(value, str | Real | Decimal) else math.nan
    except Exception:  # whatever the value does
        return math.nan


def numbers_of(values: Sequence[Any] | NDArray) -> NDArray[np.float64]:
    """Each value as a number, NaN where it is none."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return values.astype(np.float64)
    return np.fromiter((number(value) for value in values), np.float64, len(values))


def category(value: object) -> str:
    """The value as the text by which categories are told apart.

    A whole number has no decimals, also as text: a table with a gap is often written that way.

    >>> category("Rome "), category(3), category(3.0), category("3.0"), category(None)
    ('Rome', '3', '3', '3', '')
    """
    try:
        text = "" if value is None else str(_plain(value)).strip()
        return text.partition(".")[0] if _WHOLE.fullmatch(text) else text
    except Exception:  # whatever the value does
        return ""


def _plain(value: Any) -> object:
    """Python's own value of a NumPy scalar, and the text of bytes."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def matched(
    values: Sequence[Any] | NDArray, categories: Sequence[Any], default: int
) -> NDArray[np.int64]:
    """The number of each value's category, ``default`` where it is none of them."""
    numbers = {category(known): at for at, known in enumerate(categories)}
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    found = (numbers.get(category(value), default) for value in listed)
    return np.fromiter(found, np.int64, len(listed))


def positions(
    values: Sequence[Any] | NDArray, names: Sequence[str], default: int
) -> NDArray[np.int64]:
    """The number of each value's name: text is the name, and a number is the number itself."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        good = np.isin(values, np.arange(len(names)))
        return np.where(good, values, default).astype(np.int64)
    numbers = {category(known): at for at, known in enumerate(names)}
    whole = {float(at): at for at in range(len(names))}

    def position(value: object) -> int:
        is_text = isinstance(value, str | bytes)
        return (
            numbers.get(category(value), default) if is_text else whole.get(number(value), default)
        )

    return np.fromiter((position(value) for value in values), np.int64, len(values))


def identities(values: Sequence[Any] | NDArray) -> NDArray:
    """Each value as something by which owners are told apart; None, NaN or NaT if it is missing.

    Different owners stay different, and one owner stays one, also where ids are numbers here and
    text there; 7 and 7.0 are the same. Words by which tables say that there is nothing count as
    missing: as an id, all the people without one would share it.

    >>> identities(["ann ", 7, "7.0", 7.0, "NaN", None]).tolist()
    ['ann', '7', '7', '7', None, None]
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufmM":
        return values
    return np.fromiter((_identity(value) for value in values), object, len(values))


def _identity(value: Any) -> object:
    try:
        if isinstance(value, bytes):  # keeps bytes apart that are no text
            value = value.decode("utf-8", "surrogateescape")
        value = _plain(value)
        if isinstance(value, int | float | Decimal):
            value = str(int(value) if value == value // 1 else value)
        if not isinstance(value, str):
            return value
        text = category(value)
        return None if text.lower() in _MISSING else text
    except Exception:  # whatever the value does
        return None
