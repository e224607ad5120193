"""One total way from any engine's cell to our values, under binary equality.

**The law.** A protected table's columns are of these kinds alone: yes or no, numbers, text, UUIDs,
dates and times of day on a date. For each of them

- every cell reads as a value or as missing, whatever it holds, and no cell makes a question fail:
  text that is no UTF-8 is missing, as are dates and moments outside the years 1 to 9999;
- two cells are equal, in the engine as in Python, if and only if they hold the same value: the same
  bytes of text, the same number, the same moment. No collation, no case folding, no padding.

So a group, a join with declared keys, a filter, a distinct count and a unit's rows all mean the
same cells, and what one unit's rows hold changes neither how others are read nor with whom they
stand. That is what the sensitivities of :mod:`sfumato.queries.measures` rest on: what is read is a
function of its own row, and a row counts for the key that it holds.

Whatever else an engine stores (lists, maps, structs, JSON, bytes, bits, durations, times without a
date, ranges) can be asked one thing, whether there is a value, and is read as that: yes or missing.
Engines compare such values in ways of their own (one month and 30 days are equal durations, two
maps have no order), and some cannot be read at all.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from sfumato.queries.engine import (
    Value,
    built_in,
    duckdb_types,
    either,
    engine_name,
    postgres_types,
    quiet,
    spark_filled,
)

__all__ = ["Reader", "presence", "readable", "reads_presence", "text_of_bytes"]

Reader = Callable[[Value], Value]
_BINARY = ("", "binary", "c", "posix")
_ENGINES = ("DuckDB", "PostgreSQL", "Spark")


def readable(table: ir.Table, *, plain_text: bool = False) -> tuple[ir.Table, dict[str, Any]]:
    """The table with every column read in the one total way, and the columns' types as declared.

    The types are those of the result, except for columns that are read as whether there is a value:
    these keep their own, so that an error about one names it.

    Args:
        table: as its engine has it.
        plain_text: text in it is known to be valid and without a collation.

    Raises:
        ValueError: for a column, or a setting of the engine, that cannot be read so. Both are
            public.
    """
    kinds: dict[str, dt.DataType] = dict(table.schema().items())
    readers = _readers(table, kinds, plain_text)
    read = {name: reader(table[name]).name(name) for name, reader in readers.items()}
    declared = {
        name: read[name].type() if name in read and readers[name] is not presence else kind
        for name, kind in kinds.items()
    }
    return (table.mutate(**read) if read else table), declared


def reads_presence(kind: dt.DataType) -> bool:
    """Whether of a column of this type only that it holds a value can be asked."""
    known = kind.is_numeric() or kind.is_boolean() or kind.is_string() or kind.is_uuid()
    return not (known or kind.is_date() or kind.is_timestamp())


def presence(cell: Value) -> Value:
    """Yes where there is a value, missing where there is none."""
    return either(cell.isnull(), ibis.null("boolean"), ibis.literal(True))


def in_our_years(cell: Value) -> Value:
    """A date or a moment in the years 1 to 9999; others, and infinite ones, are missing."""
    kind: Any = cell.type()
    if kind.is_date():
        first, last = ibis.literal(date.min), ibis.literal(date.max)
    else:
        zone = None if kind.timezone is None else UTC
        first, last = (
            ibis.literal(end.replace(tzinfo=zone)) for end in (datetime.min, datetime.max)
        )
    return either(cell.between(first, last), cell, ibis.null(kind))


def _readers(table: ir.Table, kinds: dict[str, dt.DataType], plain_text: bool) -> dict[str, Reader]:
    """How to read the columns that cannot stay as they are."""
    readers: dict[str, Reader] = {}
    for name, kind in kinds.items():
        if reads_presence(kind):
            readers[name] = presence
        elif kind.is_date() or kind.is_timestamp():
            readers[name] = in_our_years
    engine = engine_name(table)
    if engine == "duckdb":
        readers |= _in_duckdb(table, kinds, plain_text)
    elif engine == "postgres":
        readers |= _in_postgres(table, kinds)
    elif engine == "pyspark":
        readers |= _in_spark(table, kinds)
    else:
        raise ValueError(
            f"source must be in {', '.join(_ENGINES)}, of which it is known how they compare and "
            f"read cells, got {engine}: export the table to Parquet"
        )
    return readers


# --- DuckDB -------------------------------------------------------------------------------------


def _in_duckdb(
    table: ir.Table, kinds: dict[str, dt.DataType], plain_text: bool
) -> dict[str, Reader]:
    """Text loses its collation on the way through its bytes; DuckDB's types do not tell of one.

    An enumeration that was read off the rows (a frame's categories) is private: DuckDB hashes and
    sorts its values by their number in it, which another unit's rows can change. So it becomes
    text. Moments in other steps than microseconds become microseconds.
    """
    own = duckdb_types(table)
    if not plain_text:
        _refuse_collation(table)
    readers: dict[str, Reader] = {}
    for name, kind in kinds.items():
        if own[name].startswith("ENUM(") and own[name].endswith(")"):
            readers[name] = _enumerated
        elif kind.is_string() and not plain_text:
            readers[name] = _text_in_duckdb
        elif own[name] in _OTHER_STEPS:
            readers[name] = _microseconds
    return readers


def _text_in_duckdb(cell: Value) -> Value:
    return text_of_bytes(built_in("encode", dt.binary, cell))


def text_of_bytes(cell: Value) -> Value:
    """Bytes as text, which has no collation then; what is no UTF-8 is missing."""
    return built_in("try", dt.string, built_in("decode", dt.string, cell))


def _enumerated(cell: Value) -> Value:
    return either(cell.isnull(), ibis.null("string"), built_in("concat", dt.string, cell))


_OTHER_STEPS = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ_NS")


def _microseconds(cell: Value) -> Value:
    zone = None if cell.type().is_timestamp() else "UTC"  # Ibis has no word for the last one
    return in_our_years(cell.try_cast(dt.Timestamp(timezone=zone, scale=6)))


def _refuse_collation(table: ir.Table) -> None:
    """Refuses a connection on which texts without a collation are not compared by their bytes."""
    backend: Any = table.get_backend()
    with quiet():
        found = backend.raw_sql("SELECT current_setting('default_collation')").fetchall()[0][0]
    if str(found or "").lower() not in _BINARY:
        raise ValueError(
            f"the connection's default_collation is {found!r}, so that different texts count as "
            "one: RESET default_collation before protecting"
        )


# --- PostgreSQL ---------------------------------------------------------------------------------

_ENCODINGS = ("UTF8", "LATIN1")
"""Encodings in which every stored text can be sent as UTF-8."""


def _in_postgres(table: ir.Table, kinds: dict[str, dt.DataType]) -> dict[str, Reader]:
    """Text of any type, without its collation if that takes different texts for one.

    A database's own collation compares equal only what has the same bytes, and so does every
    deterministic one. Others, citext, the padding of char(n) and the order of enumerations are left
    behind on the way through the text that PostgreSQL would print.
    """
    types = postgres_types(table)
    readers: dict[str, Reader] = {}
    for name, own in types.items():
        kind = kinds[name]
        if own.category in "SEIZ":
            if own.name not in ("text", "varchar") or not own.binary:
                readers[name] = _printed
        elif own.name == "money":
            readers[name] = _amount
        elif kind.is_unknown() and own.name in _BASE:  # a domain, of which Ibis knows nothing
            readers[name] = partial(_of_domain, kind=_BASE[own.name])
    if any(own.category in "SEIZ" for own in types.values()):
        _refuse_encoding(table)
    return readers


_BASE: dict[str, Any] = {
    "int2": dt.int16,
    "int4": dt.int32,
    "int8": dt.int64,
    "float4": dt.float32,
    "float8": dt.float64,
    "numeric": dt.Decimal(),
    "bool": dt.boolean,
    "uuid": dt.UUID(),
    "date": dt.date,
    "timestamp": dt.Timestamp(scale=6),
    "timestamptz": dt.Timestamp(timezone="UTC", scale=6),
}


def _of_domain(cell: Value, kind: dt.DataType) -> Value:
    base = cell.cast(kind)
    return in_our_years(base) if kind.is_date() or kind.is_timestamp() else base


def _amount(cell: Value) -> Value:
    """Money as a number of its unit; its own type takes part in no arithmetic."""
    one = built_in("cash_in", dt.unknown, ibis.literal("1"))
    return built_in("cash_div_cash", dt.float64, cell, one)


def _printed(cell: Value) -> Value:
    """The cell as text of the database's own collation."""
    printed = built_in("textout", dt.unknown, built_in("text", dt.string, cell))
    return built_in("textin", dt.string, printed)


def _refuse_encoding(table: ir.Table) -> None:
    """Refuses a database whose text cannot always be read."""
    backend: Any = table.get_backend()
    found = backend.con.info.parameter_status("server_encoding")
    if found not in _ENCODINGS:
        raise ValueError(
            f"the database's encoding is {found}, in which some texts have no reading: protect "
            "a copy in UTF8"
        )


# --- Spark --------------------------------------------------------------------------------------


def _in_spark(table: ir.Table, kinds: dict[str, dt.DataType]) -> dict[str, Reader]:
    """Text that is UTF-8, without a collation, and without the blanks that fill up a char(n)."""
    filled = spark_filled(table)
    return {
        name: partial(_text_in_spark, filled=name in filled)
        for name, kind in kinds.items()
        if kind.is_string()
    }


def _text_in_spark(cell: Value, filled: bool) -> Value:
    utf8 = ibis.literal("UTF-8")
    data = built_in("encode", dt.binary, built_in("try_validate_utf8", dt.string, cell), utf8)
    text = built_in("decode", dt.string, data, utf8)  # which has no collation
    return built_in("rtrim", dt.string, text) if filled else text
