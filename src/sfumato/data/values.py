"""Private values into numbers and categories: defined on every value, one value at a time.

Nothing here raises, warns or counts because of a value, and what becomes of one value does not
depend on another: each is read as :mod:`sfumato.core.odd_values` says.
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

from sfumato.core.odd_values import is_a, read_each, read_one

__all__ = ["category", "identities", "matched", "number", "numbers_of", "positions"]

_WHOLE = re.compile(r"-?[0-9]+\.0+")
_MISSING = frozenset(("", "na", "n/a", "<na>", "nan", "nat", "none", "null"))


def number(value: object) -> float:
    """The value as a number, NaN if it is none. Text counts if it reads as a number.

    >>> number(" 2.5 "), number(True), number("n/a"), number(None), number("1_000")
    (2.5, 1.0, nan, nan, nan)
    """
    return read_one(_number, value, math.nan)


def _number(value: Any) -> float:
    value = _plain(value)
    if is_a(value, str) and "_" in value:
        return math.nan  # Python's own spelling, and no one else's
    return float(value) if is_a(value, str, Real, Decimal) else math.nan


def numbers_of(values: Sequence[Any] | NDArray) -> NDArray[np.float64]:
    """Each value as a number, NaN where it is none."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return values.astype(np.float64)
    return np.array(read_each(_number, values, math.nan), np.float64)


def category(value: object) -> str:
    """The value as the text by which categories are told apart.

    A whole number has no decimals, also as text: a table with a gap is often written that way.

    >>> category("Rome "), category(3), category(3.0), category("3.0"), category(None)
    ('Rome', '3', '3', '3', '')
    """
    return read_one(_category, value, "")


def _category(value: Any) -> str:
    text = "" if value is None else str.strip(str(_plain(value)))
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def _plain(value: Any) -> object:
    """Python's own value of a NumPy scalar, and the text of bytes."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    return value.decode("utf-8", "replace") if is_a(value, bytes) else value


def matched(
    values: Sequence[Any] | NDArray, categories: Sequence[Any], default: int
) -> NDArray[np.int64]:
    """The number of each value's category, ``default`` where it is none of them.

    Yes and no are also 1 and 0, as columns of categories have them.
    """
    numbers = {category(known): at for at, known in enumerate(categories)}
    for word, digit in (("True", "1"), ("False", "0")):
        if word in numbers:
            numbers.setdefault(digit, numbers[word])
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    found = (numbers.get(text, default) for text in read_each(_category, listed, ""))
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
        if is_a(value, str, bytes):
            return numbers.get(_category(value), default)
        return whole.get(_number(value), default)

    return np.array(read_each(position, values, default), np.int64)


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
    return np.fromiter(read_each(_identity, values, None), object, len(values))


def _identity(value: Any) -> object:
    if is_a(value, bytes):  # keeps bytes apart that are no text
        value = value.decode("utf-8", "surrogateescape")
    value = _plain(value)
    if is_a(value, int, float, Decimal):
        value = str(int(value) if value == value // 1 else value)
    if not is_a(value, str):
        return value
    text = _category(value)
    return None if text.lower() in _MISSING else text
