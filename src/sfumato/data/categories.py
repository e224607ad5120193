"""Columns of pandas in which the rows decide together how each cell is kept, as text.

pandas keeps a column of categories by a list of the different values, and makes numbers, moments
and intervals in it of one type, which all rows decide: beside 2.5 a 1 becomes 1.0, and of values
that Python finds equal (1, 1.0 and True, or one moment in two zones) the one that came first stays.
Were each cell read as it is written then, one row would change how others are read. So

**the law**: equal values have the same text, whatever type and row they come from, and the text is
a function of the value alone.

==============================  ============================================================
value                           text
==============================  ============================================================
text                            itself
numbers, yes or no              as a double; whole ones without decimals, True as 1
... whole and beyond 2^53        missing: pandas may have rounded them to others
moments                         to the nanosecond; with a zone, in UTC
durations                       as pandas writes them
intervals                       with their ends as above
dates, periods, UUIDs,          as Python or pandas writes them
times without a zone, bytes,
enumerations
all else                        missing: equal ones may be written differently
==============================  ============================================================
"""

from __future__ import annotations

import datetime
import enum
import math
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.core.odd_values import is_a, read_each

__all__ = ["texts_of_categories"]

_EXACT = 2**53 - 1  # from here on different whole numbers are one double
_DTYPES = ("CategoricalDtype", "IntervalDtype", "PeriodDtype")


def texts_of_categories(values: Any) -> list[str | None] | None:
    """The texts of a pandas column of categories, intervals or periods; None for any other.

    >>> import pandas as pd
    >>> texts_of_categories(pd.Categorical([1, 2.5, None, True]))
    ['1', '2.5', None, '1']
    """
    kind = type(getattr(values, "dtype", None))
    if kind.__name__ not in _DTYPES or kind.__module__.partition(".")[0] != "pandas":
        return None
    if kind.__name__ != "CategoricalDtype":
        return read_each(_text, values, None)
    held = getattr(values, "array", values)
    texts = read_each(_text, held.categories, None)
    return [texts[code] if code >= 0 else None for code in held.codes.tolist()]


def _text(value: Any) -> str | None:
    """One value's text, or None if it is missing; may fail, which means the same."""
    if is_a(value, str):
        return str.encode(value).decode()  # which halves of surrogates have not
    if is_a(value, bool, int, float, complex, np.bool_, np.number, Decimal, Fraction):
        return None if is_a(value, np.timedelta64) else _number(value)
    import pandas as pd

    if value is pd.NaT or value is pd.NA:
        return None
    if is_a(value, datetime.datetime, np.datetime64):
        return _moment(pd.Timestamp(value))
    if is_a(value, datetime.timedelta, np.timedelta64):
        return str(pd.Timedelta(value))
    if is_a(value, pd.Interval):
        return _interval(_text(value.left), _text(value.right), value.closed)
    if is_a(value, bytes):
        return bytes.__repr__(value)
    if is_a(value, datetime.time):
        return value.isoformat() if value.tzinfo is None else None
    return str(value) if is_a(value, datetime.date, pd.Period, uuid.UUID, enum.Enum) else None


def _interval(left: str | None, right: str | None, closed: str) -> str | None:
    if left is None or right is None:
        return None
    opens, ends = (
        "[" if closed in ("left", "both") else "(",
        "]" if closed in ("right", "both") else ")",
    )
    return f"{opens}{left}, {right}{ends}"


def _number(value: Any) -> str | None:
    if is_a(value, complex, np.complexfloating):
        if value.imag != 0:
            return None
        value = value.real
    number = float(value)
    if math.isnan(number) or _EXACT < abs(number) < math.inf:
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _moment(value: Any) -> str | None:
    if value != value:  # NaT
        return None
    return str(value if value.tzinfo is None else value.tz_convert("UTC"))
