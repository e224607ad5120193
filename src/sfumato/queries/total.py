"""Expressions that are defined on every row: no division by zero, no overflow, no failed cast.

An engine that fails on one row tells that such a row exists. So whatever is computed from private
columns is built from these pieces. Each gives a value or NULL for every possible row, on every
engine, and NULL counts as "no" in a filter and as "missing" in a statistic.

Engines differ in what fails: PostgreSQL refuses doubles that overflow *or underflow*, DuckDB
integers that overflow, Spark both and bad casts. The guards here satisfy the strictest of them:

- numbers are compared as they are and computed with as doubles;
- NaN and the infinities are missing;
- a factor counts as missing unless it is 0 or lies in [1e-150, 1e150], a term unless it is at most
  1e300, so that no product, quotient or sum can leave the doubles;
- text becomes a number only on engines that can try (DuckDB, Spark);
- what is compared has one type: an engine that converts a date into a time, or text into a UUID, by
  itself may fail on a row.

A guard names its operand up to three times, so arithmetic may be nested only so deep.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.queries.engine import Value, built_in, either, engine_name

__all__ = ["Total", "finite_number"]

_LARGEST = 1.7976931348623157e308
_WIDE, _TINY, _SUMMABLE = 1e150, 1e-150, 1e300
_DECIMAL_LIMIT, _DECIMAL_PLACES = 10**18, 100
_DOUBLES_HOLD = 76
_DEEPEST = 5
_ALL_INTEGERS = dt.Decimal(20, 0)  # of 64 bits, with a sign or without

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def finite_number(cell: Value, engine: str) -> Value:
    """A numeric, boolean or text column as a double, or NULL where it holds no finite number.

    Raises:
        ValueError: for a column of another type, which is public.
    """
    kind = cell.type()
    if kind.is_boolean():
        return either(cell.isnull(), ibis.null("float64"), either(cell, 1.0, 0.0))
    if kind.is_integer():
        return cell.cast("float64")
    if kind.is_decimal():
        return _finite(_moderate(cell, kind).cast("float64"))
    if kind.is_string() and engine in ("duckdb", "pyspark"):
        return _finite(cell.try_cast("float64"))
    if kind.is_floating():
        return _finite(cell.cast("float64"))
    raise ValueError(
        f"column {cell.get_name()!r} must be numeric, got {kind}"
        + (": declare what it holds with types={...}" if kind.is_string() else "")
    )


def _moderate(cell: Value, kind: Any) -> Value:
    """A decimal that a double can hold. PostgreSQL's may be as large as 1e400 and as small.

    Where the type says that every value fits, it is left as it is: a constant such as 10^18 need
    not fit a decimal with many places, and DuckDB would fail on the first row.
    """
    if kind.precision is not None and kind.precision <= _DOUBLES_HOLD:
        return cell
    inside = (cell <= _DECIMAL_LIMIT) & (cell >= -_DECIMAL_LIMIT)
    places: Value = ibis.literal(_DECIMAL_PLACES, type="int32")
    return either(inside, built_in("round", kind, cell, places), ibis.null(kind))


def _finite(cell: Value) -> Value:
    """NULL for NaN (which sorts above every number in these engines) and the infinities."""
    inside = (cell <= _LARGEST) & (cell >= -_LARGEST)
    return either(inside, cell, ibis.null("float64"))


class Total:
    """Builds total expressions over one table; every method takes and gives Ibis values."""

    def __init__(self, table: ir.Table) -> None:
        self.table = table
        self.engine = engine_name(table)
        self._depths: dict[Any, int] = {}  # of what arithmetic made: always finite or NULL

    def column(self, name: str) -> Value:
        """A column, as it is stored."""
        return self.table[column_named(self.table.columns, name)]

    def literal(self, value: Any) -> Value:
        """A constant, which is public.

        Raises:
            ValueError: for one that is no finite number, text, date or time.
        """
        if value is None:
            return ibis.null()
        if isinstance(value, float | int) and not abs(value) <= _LARGEST:
            validation.fail("number in the filter", "finite", value)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            value = float(value)
        try:
            return ibis.literal(value)
        except Exception:
            raise ValueError(f"a filter cannot hold {type(value).__name__} constants") from None

    # --- arithmetic ---------------------------------------------------------------------------

    def number(self, value: Value) -> Value:
        """A value as a finite double, or NULL."""
        if value.op() in self._depths:
            return value
        if not (value.type().is_numeric() or value.type().is_boolean() or value.type().is_string()):
            raise ValueError(f"arithmetic needs numbers, got {value.type()}")
        return finite_number(value.name("value"), self.engine)

    def add(self, a: Value, b: Value, sign: int = 1) -> Value:
        """A + b, or a - b."""
        x, y = self._term(a), self._term(b)
        return self._made(x + y if sign > 0 else x - y, a, b)

    def multiply(self, a: Value, b: Value) -> Value:
        """A b."""
        return self._made(self._factor(a) * self._factor(b), a, b)

    def divide(self, a: Value, b: Value) -> Value:
        """A / b as a double; NULL where b is 0."""
        return self._made(self._factor(a) / self._factor(b).nullif(0.0), a, b)

    def modulo(self, a: Value, b: Value) -> Value:
        """The remainder of a whole number by a constant."""
        divisor = getattr(b.op(), "value", None)
        if not a.type().is_integer() or not isinstance(divisor, int) or divisor < 2:
            raise ValueError("a remainder takes a whole-number column and a constant from 2 on")
        return a % divisor

    def negate(self, a: Value) -> Value:
        """-a as a double."""
        return self._made(-self.number(a), a)

    def absolute(self, a: Value) -> Value:
        """|a| as a double."""
        return self._made(self.number(a).abs(), a)

    def _term(self, a: Value) -> Value:
        x = self._plain_number(a)
        return either(x.abs() <= _SUMMABLE, x, ibis.null("float64"))

    def _factor(self, a: Value) -> Value:
        x = self._plain_number(a)
        moderate = (x.abs() <= _WIDE) & (x.abs() >= _TINY)
        return either(moderate | (x == 0), x, ibis.null("float64"))

    def _plain_number(self, a: Value) -> Value:
        """Like ``number``; a column of doubles as it is, for the guards leave out NaN as well."""
        return a.cast("float64") if a.type().is_floating() else self.number(a)

    def _made(self, result: Value, *operands: Value) -> Value:
        depth = 1 + max(self._depths.get(operand.op(), 0) for operand in operands)
        if depth > _DEEPEST:
            raise ValueError(f"arithmetic in a filter may be nested {_DEEPEST} deep, not {depth}")
        self._depths[result.op()] = depth
        return result

    # --- logic --------------------------------------------------------------------------------

    def compare(self, operator: str, a: Value, b: Value) -> Value:
        """One of = <> < <= > >=; text is read as a number or a date where the other side is one."""
        if a.type().is_null() or b.type().is_null():
            return ibis.null("boolean")  # as in SQL: nothing is equal to NULL
        x, y = _signed(self._alike(a, b), self._alike(b, a))
        if not _comparable(x.type(), y.type()):
            raise ValueError(f"cannot compare {a.type()} with {b.type()}")
        return _COMPARISONS[operator](x, y)

    def between(self, a: Value, low: Value, high: Value) -> Value:
        """Low <= a <= high."""
        return self.compare(">=", a, low) & self.compare("<=", a, high)

    def member(self, a: Value, options: Sequence[Value]) -> Value:
        """Whether a equals one of the options. Constants are looked up in one list."""
        if not options:
            return ibis.literal(False)
        found, listed = list[Value](), dict[Any, tuple[Value, list[Any]]]()
        for option in options:
            constant = self._constant(option, a)
            if constant is None:
                found.append(self.compare("=", a, option))
            else:
                x = self._alike(a, option)
                listed.setdefault((x.op(), type(constant)), (x, []))[1].append(constant)
        found += [x.isin(list(dict.fromkeys(constants))) for x, constants in listed.values()]
        while len(found) > 1:  # in pairs: a long list must not become a deep expression
            found = [x if y is None else x | y for x, y in zip_longest(found[::2], found[1::2])]
        return found[0]

    def _constant(self, option: Value, a: Value) -> Any:
        """A number or a text as ``a`` is compared with it; None for what is no such constant."""
        value, kind = getattr(option.op(), "value", None), a.type()
        if isinstance(value, str) and kind.is_string():
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if kind.is_integer() and isinstance(value, int):
            return None if value < 0 and kind.is_unsigned_integer() else value
        return float(value) if kind.is_numeric() or kind.is_string() else None

    def truth(self, a: Value) -> Value:
        """A as a boolean."""
        if not a.type().is_boolean() and not a.type().is_null():
            raise ValueError(f"a filter must be true or false on every row, got {a.type()}")
        return a.cast("boolean")

    def text(self, a: Value) -> Value:
        """A, which must be text."""
        if not a.type().is_string():
            raise ValueError(f"a text function needs text, got {a.type()}")
        return a

    def as_text(self, a: Value) -> Value:
        """A number, yes or no, date or text as text. 0 and -0 are the same number.

        A moment with a time zone is written in UTC, whatever the session's zone.
        """
        kind = a.type()
        if kind.is_timestamp() and kind.timezone is not None:
            zone: Value = ibis.literal("UTC")
            return built_in("timezone", dt.Timestamp(scale=6), zone, a).cast("string")
        if kind.is_floating():
            return (self.number(a) + 0.0).cast("string")
        if not (kind.is_numeric() or kind.is_boolean() or kind.is_string() or _is_moment(kind)):
            raise ValueError(f"a filter cannot read {kind} as text")
        return a.cast("string")

    def _alike(self, a: Value, other: Value) -> Value:
        """``a`` in the form in which it can be compared with ``other`` without failing."""
        mine, theirs = a.type(), other.type()
        if mine.is_floating() or (mine.is_string() and theirs.is_numeric()):
            return self.number(a)
        if mine.is_decimal() or (mine.is_integer() and not theirs.is_integer()):
            return self.number(a)
        if theirs.is_temporal() and (mine.is_string() or hasattr(a.op(), "value")):
            return self.moment(a, theirs)
        return a

    def moment(self, a: Value, kind: dt.DataType) -> Value:
        """A constant as a date or a time; in UTC where it names no zone and the column has one.

        Raises:
            ValueError: for one with a zone where the column has none: the session's would decide.
        """
        value = getattr(a.op(), "value", None)
        if not isinstance(value, str | datetime.date):
            raise ValueError("a date can be compared with a date in quotes, not with a text column")
        text = value if isinstance(value, str) else value.isoformat()
        try:
            if kind.is_date():
                return ibis.literal(datetime.date.fromisoformat(text))
            found = datetime.datetime.fromisoformat(text)
        except ValueError:
            validation.fail("date in the filter", "like 2026-11-15", text)
        zoned = getattr(kind, "timezone", None) is not None
        if found.tzinfo is not None and not zoned:
            validation.fail(
                "date in the filter", "without a time zone, as the column has none", text
            )
        if zoned and found.tzinfo is None:
            found = found.replace(tzinfo=datetime.UTC)
        moment: Value = ibis.literal(found)
        return moment.cast(kind)


def _comparable(a: dt.DataType, b: dt.DataType) -> bool:
    """Whether every engine compares these without converting one of them on the way."""
    if a.is_numeric() or a.is_string() or a.is_boolean():
        return any(is_one(a) and is_one(b) for is_one in _SCALARS)
    return _is_moment(a) and a.copy(nullable=True) == b.copy(nullable=True)


def _signed(a: Value, b: Value) -> tuple[Value, Value]:
    """Both as they are, unless one is a whole number that has no sign and the other has one."""
    kinds = a.type(), b.type()
    if all(kind.is_integer() for kind in kinds) and any(
        one.is_uint64() and other.is_signed_integer() for one, other in (kinds, kinds[::-1])
    ):
        return a.cast(_ALL_INTEGERS), b.cast(_ALL_INTEGERS)
    return a, b


def _is_moment(kind: dt.DataType) -> bool:
    return kind.is_date() or kind.is_timestamp()


_SCALARS: tuple[Callable[[dt.DataType], bool], ...] = (
    lambda kind: kind.is_numeric(),
    lambda kind: kind.is_string(),
    lambda kind: kind.is_boolean(),
)


def column_named(columns: Sequence[str], name: str) -> str:
    """The column called so, or so but for its case if only one is."""
    if name in columns:
        return name
    close = [column for column in columns if column.lower() == str(name).lower()]
    if len(close) != 1:
        validation.fail("column", f"one of {', '.join(columns)}", name)
    return close[0]
