"""Columns of every type, and the cells that people, programs and attackers put into them.

Arrow columns are made of stored values (bytes of a text, numbers of a moment), so that a text may
be no UTF-8 and a time of day beyond the day. Columns of databases are made of SQL literals.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from tests.neighbours.harness import UnusableError
from tests.odd_objects import FAILURES, Odd, odd_object

__all__ = [
    "ARROW",
    "DUCKDB",
    "OBJECTS",
    "POSTGRES",
    "SPARK",
    "Column",
    "arrow_array",
    "arrow_table",
    "frame_of_objects",
    "readable",
]

_FIVE = datetime.timezone(datetime.timedelta(hours=5))
TEXTS = (
    *(b"", b" ", b"a", b"A", b"rome", b"ROME", b"rome ", b"\xc3\xa9", b"e\xcc\x81"),
    *(b"\xff", b"a\xffb", b"\x00", b"a\x00b", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80"),
    *(b"NULL", b"nan", b"1", b"01", b"1e999", b"-7", b"true", b'"', b"'", b"%", b"\xef\xbb\xbf"),
    *(b"2020-02-30", b"2020-02-29", b"x" * 3000),
)  # fmt: skip
FLOATS = (
    *(0.0, -0.0, 1.0, -3.5, 1e308, -1e308, 5e-324, 0.1, 2.0**53),
    *(float("nan"), float("inf"), float("-inf")),
)
BYTES_8, BYTES_4 = (-(2**63), 2**63 - 1), (-(2**31), 2**31 - 1)
TICKS_8 = (0, 1, -1, 86_400, 10**15, -(10**17), *BYTES_8)
TICKS_4 = (0, 1, -1, 86_399, 86_400, *BYTES_4)


@dataclass(frozen=True)
class Column:
    """A column: its name, its type as the pools below call it, and a stored value for each row."""

    name: str
    type: str
    cells: tuple[Any, ...]


def _wholes(bits: int, signed: bool = True) -> tuple[int, ...]:
    low = -(2 ** (bits - 1)) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    return (low, high, 0, 1, 2, 7, 10)


_TIMES = {
    **{f"timestamp[{u}]": TICKS_8 for u in ("s", "ms", "us", "ns")},
    **{f"timestamp[{u}, tz=America/New_York]": TICKS_8 for u in ("s", "us", "ns")},
    **{f"duration[{u}]": TICKS_8 for u in ("s", "us", "ns")},
    **{f"time64[{u}]": TICKS_8 for u in ("us", "ns")},
    **{f"time32[{u}]": TICKS_4 for u in ("s", "ms")},
    "date32": TICKS_4,
    "date64": TICKS_8,
}

ARROW: Mapping[str, tuple[Any, ...]] = {
    **{f"int{bits}": _wholes(bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _wholes(bits, signed=False) for bits in (8, 16, 32, 64)},
    **_TIMES,
    **{f"{kind}string": TEXTS for kind in ("", "large_", "dictionary of ")},
    "bool": (True, False),
    "float32": FLOATS,
    "float64": FLOATS,
    "decimal128(38, 10)": (1, 10**38 - 1, 10**38, -(2**127), 2**127 - 1, 0),
    "decimal128(38, 0)": (1, 10**38 - 1, -(10**38), -(2**127), 0),
    "decimal128(5, 2)": (1, 99_999, -1, 100_000, -(2**127)),
    "decimal256(60, 20)": (Decimal(10) ** 39, Decimal("1E-20"), Decimal("2.5")),
    "binary": (b"", b"\x00", b"\xff\xfe", b"abc"),
    "list<int64>": ((), (1,), (1, None), (2**62,)),
    "struct<a: int64>": ({"a": 1}, {"a": None}),
    "map<string, int64>": ((), (("k", 1),), (("k", None),)),
    "null": (None,),
}
"""Types of Arrow, Parquet and frames, each with values as they are stored."""


_PLAIN = (
    *(0, 1, 2, 1.0, 2.5, -0.0, True, False, float("inf"), 2**53 + 1, 10**30, Decimal("1.0"), 1j),
    *("1", "1.0", "a", "", "\ud800", b"a", np.float32(0.1), np.int8(1), np.str_("a"), (1, 2)),
    *(datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1), datetime.timedelta(1)),
    *(datetime.datetime(2020, 1, 1, 5, tzinfo=zone) for zone in (datetime.UTC, _FIVE)),
    datetime.datetime(2020, 1, 1, 10, tzinfo=_FIVE),
)  # fmt: skip
OBJECTS: Mapping[str, tuple[Any, ...]] = {
    "text of objects": (*_PLAIN, *map(Odd, FAILURES)),
    "text of categories": (*_PLAIN, Odd("text"), Odd("exit")),
    "text of numbers": (0, 1, 2, 2.5, 7.0, 2**53 + 1),
}
"""Types of columns in pandas that become text, each with values of Python's."""


def frame_of_objects(columns: tuple[Column, ...]) -> Any:
    """Columns of objects, and of categories of which pandas finds the type by all rows."""
    import pandas as pd

    made: dict[str, Any] = {}
    for column in columns:
        cells = np.empty(len(column.cells), object)
        for i, cell in enumerate(column.cells):
            cells[i] = odd_object(cell.what) if type(cell) is Odd else cell
        made[column.name] = pd.Series(cells, dtype=object)
        if column.type == "int64":
            made[column.name] = made[column.name].astype("int64")
        elif column.type != "text of objects":
            made[column.name] = made[column.name].astype("category")
    return pd.DataFrame(made)


def _views() -> dict[str, tuple[Any, Any]]:
    """The type a value is stored by, and the type that it is taken for."""
    import pyarrow as pa

    found: dict[str, tuple[Any, Any]] = {
        "string": (pa.binary(), pa.string()),
        "large_string": (pa.large_binary(), pa.large_string()),
        "date32": (pa.int32(), pa.date32()),
        "date64": (pa.int64(), pa.date64()),
    }
    for unit in ("s", "ms", "us", "ns"):
        found[f"timestamp[{unit}]"] = (pa.int64(), pa.timestamp(unit))
        found[f"timestamp[{unit}, tz=America/New_York]"] = (
            pa.int64(), pa.timestamp(unit, "America/New_York"),
        )  # fmt: skip
        found[f"duration[{unit}]"] = (pa.int64(), pa.duration(unit))
    for unit in ("us", "ns"):
        found[f"time64[{unit}]"] = (pa.int64(), pa.time64(unit))
    for unit in ("s", "ms"):
        found[f"time32[{unit}]"] = (pa.int32(), pa.time32(unit))
    return found


def arrow_array(column: Column) -> Any:
    """The column as an Arrow array, of values that need not be sound."""
    import pyarrow as pa

    kinds = {
        "bool": pa.bool_(), "float32": pa.float32(), "float64": pa.float64(), "null": pa.null(),
        "binary": pa.binary(), "list<int64>": pa.list_(pa.int64()),
        "struct<a: int64>": pa.struct({"a": pa.int64()}),
        "map<string, int64>": pa.map_(pa.string(), pa.int64()),
        "decimal256(60, 20)": pa.decimal256(60, 20),
    }  # fmt: skip
    cells = [list(c) if isinstance(c, tuple) else c for c in column.cells]
    if column.type in (views := _views()):
        stored, taken = views[column.type]
        return pa.array(cells, stored).view(taken)
    if column.type == "dictionary of string":
        values = sorted({c for c in cells if c is not None})
        indices = [None if c is None else values.index(c) for c in cells]
        words = pa.array(values, pa.binary()).view(pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), words)
    if column.type.startswith("decimal128"):
        digits, places = map(int, column.type[11:-1].split(","))
        return _decimals(column.cells, pa.decimal128(digits, places))
    if column.type in kinds:
        return pa.array(cells, kinds[column.type])
    return pa.array(cells, getattr(pa, column.type)())


def _decimals(cells: tuple[Any, ...], kind: Any) -> Any:
    """By the whole numbers that they are stored as, which may have too many digits."""
    import pyarrow as pa

    held = pa.array([c is not None for c in cells], pa.bool_()).buffers()[1]
    data = b"".join((c or 0).to_bytes(16, "little", signed=True) for c in cells)
    return pa.Array.from_buffers(kind, len(cells), [held, pa.py_buffer(data)])


def arrow_table(columns: tuple[Column, ...]) -> Any:
    """All columns.

    Raises:
        UnusableError: if Arrow cannot hold them.
    """
    import pyarrow as pa

    try:
        arrays = [arrow_array(column) for column in columns]
        return pa.Table.from_arrays(arrays, [column.name for column in columns])
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise UnusableError(str(error)) from error


def readable(cell: Any) -> Any:
    """A stored value as one would write it as a key, or None where one cannot."""
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(cell, float) and cell != cell:
        return None
    return cell if isinstance(cell, bool | int | float | str | Decimal) else None


_WORDS = (
    "''",
    "' '",
    "'a'",
    "'A'",
    "'rome'",
    "'ROME'",
    "'é'",
    "'e'",
    "'e' || chr(769)",
    "'1'",
    "'nan'",
)
_MOMENTS = ("'2020-01-01'", "'0001-01-01'", "'1969-12-31'", "'infinity'", "'-infinity'")

DUCKDB: Mapping[str, tuple[str, ...]] = {
    "VARCHAR": (*_WORDS, "chr(0)", "'a' || chr(0)"),
    "VARCHAR COLLATE NOCASE": _WORDS,
    "VARCHAR COLLATE NOACCENT": _WORDS,
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127", "0"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "0", "1"),
    "UBIGINT": ("18446744073709551615", "0", "1"),
    "HUGEINT": ("170141183460469231731687303715884105727", "0", "-1"),
    "UHUGEINT": ("340282366920938463463374607431768211455", "0"),
    "DOUBLE": ("'nan'", "'inf'", "'-inf'", "0.0", "-0.0", "1e308", "0.1"),
    "FLOAT": ("'nan'", "0.0", "-0.0", "3.4e38"),
    "DECIMAL(38, 10)": ("9999999999999999999999999999", "0", "0.0000000001"),
    "DATE": (*_MOMENTS, "'5877642-06-25 (BC)'", "'5881580-07-10'"),
    "TIMESTAMP": (*_MOMENTS, "'294247-01-10 04:00:54.775806'", "'290309-12-22 (BC) 00:00:00'"),
    "TIMESTAMP_S": _MOMENTS,
    "TIMESTAMP_NS": ("'2020-01-01 00:00:00.000000001'", "'2262-04-11 23:47:16'"),
    "TIMESTAMPTZ": _MOMENTS,
    "TIME": ("'00:00'", "'23:59:59.999999'", "'24:00:00'"),
    "INTERVAL": ("INTERVAL 1 DAY", "INTERVAL 24 HOURS", "INTERVAL (-1) MONTH"),
    "UUID": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "BLOB": ("'\\x00'::BLOB", "'\\xFF'::BLOB", "''::BLOB"),
    "JSON": ("'{}'", "'[1, 2]'", "'null'", "'{\"a\": 1}'"),
    "MAP(VARCHAR, BIGINT)": ("MAP {}", "MAP {'k': 1}", "MAP {'k': NULL}"),
    "STRUCT(a BIGINT)": ("{'a': 1}", "{'a': NULL}"),
    "BIGINT[]": ("[]", "[1]", "[NULL]"),
    "BIGINT[2]": ("[1, 2]", "[NULL, 2]"),
    "BIT": ("'0'::BIT", "'101'::BIT"),
    "ENUM('rome', 'ROME', 'a')": ("'rome'", "'ROME'", "'a'"),
}
"""Types of DuckDB, each with literals."""

POSTGRES: Mapping[str, tuple[str, ...]] = {
    "text": ("''", "' '", "'a'", "'A'", "'rome'", "'ROME'", "'é'", "'e' || chr(769)", "'1'"),
    "text COLLATE any_accent": ("''", "'a'", "'A'", "'é'", "'e' || chr(769)", "'e'"),
    "citext": ("''", "'a'", "'A'", "'rome'", "'ROME'"),
    "city": ("'rome'", "'ROME'"),
    "cities": ("'rome'", "'ROME'", "'bari'"),
    "text COLLATE any_case": ("''", "'a'", "'A'", "'rome'", "'ROME'", "'é'", "'e' || chr(769)"),
    "varchar(5)": ("''", "'a'", "'A'", "'rome'"),
    "char(6)": ("''", "'a'", "'A '", "'rome'"),
    "boolean": ("true", "false"),
    "smallint": ("-32768", "32767", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "0", "1"),
    "numeric": ("'NaN'", "1e100", "0", "0.00", "1e-100", "'Infinity'"),
    "numeric(20, 5)": ("'NaN'", "999999999999999", "0.00001"),
    "double precision": ("'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "0", "1e308", "5e-324"),
    "real": ("'NaN'", "'-0'", "0", "3e38"),
    "date": ("'2020-01-01'", "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'"),
    "timestamp": ("'2020-01-01'", "'infinity'", "'4713-01-01 BC'", "'294276-12-31'"),
    "timestamptz": ("'2020-01-01'", "'infinity'", "'-infinity'", "'294276-12-31'"),
    "time": ("'00:00'", "'24:00'"),
    "timetz": ("'00:00+14'", "'24:00-14'"),
    "interval": ("'1 day'", "'24 hours'", "'-1 month'"),
    "uuid": ("'00000000-0000-0000-0000-000000000000'",),
    "json": ("'{}'", "'null'", "'[1]'"),
    "jsonb": ("'{}'", "'null'", "'[1]'"),
    "bytea": ("'\\x00'", "''"),
    "inet": ("'10.0.0.1'", "'10.0.0.1/8'", "'::1'"),
    "bigint[]": ("'{}'", "'{1,NULL}'"),
    "money": ("'1.00'", "'-92233720368547758.08'"),
    "int4range": ("'empty'", "'[1,5)'"),
    "point": ("'(0,0)'", "'(NaN,1)'"),
    "bit(3)": ("B'101'",),
}
"""Types of PostgreSQL, each with literals."""

SPARK: Mapping[str, tuple[str, ...]] = {
    "STRING": ("''", "' '", "'a'", "'A'", "'rome'", "'ROME'", "'é'", "'1'", "'nan'", "'01'"),
    "STRING COLLATE UTF8_LCASE": ("''", "'a'", "'A'", "'rome'", "'ROME'"),
    "STRING COLLATE UNICODE_CI_AI": ("'e'", "'é'", "'E'", "'rome'", "'ROME'"),
    "VARCHAR(5)": ("''", "'a'", "'rome'"),
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127", "0"),
    "INT": ("-2147483648", "2147483647", "0"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "0", "1"),
    "DOUBLE": ("'NaN'", "'Infinity'", "'-Infinity'", "0.0", "'-0.0'", "1e308", "0.1"),
    "FLOAT": ("'NaN'", "0.0", "'-0.0'", "3.4e38"),
    "DECIMAL(38, 10)": ("9999999999999999999999999999", "0", "0.0000000001"),
    "DECIMAL(5, 2)": ("999.99", "-0.01", "0"),
    "DATE": ("'2020-01-01'", "'0001-01-01'", "'9999-12-31'", "'-4712-01-01'", "'+5881580-07-11'"),
    "TIMESTAMP": ("'2020-01-01'", "'0001-01-01'", "'9999-12-31'", "'+294247-01-10 04:00:54.7'"),
    "TIMESTAMP_NTZ": ("'2020-01-01'", "'0001-01-01'", "'9999-12-31 23:59:59.999999'"),
    "INTERVAL DAY TO SECOND": ("INTERVAL '1' DAY", "INTERVAL '24' HOUR"),
    "BINARY": ("X'00'", "X'FF'", "X''"),
    "ARRAY<BIGINT>": ("array()", "array(1L)", "array(CAST(NULL AS BIGINT))"),
    "MAP<STRING, BIGINT>": ("map()", "map('k', 1L)", "map('k', CAST(NULL AS BIGINT))"),
    "STRUCT<a: BIGINT>": ("named_struct('a', 1L)", "named_struct('a', CAST(NULL AS BIGINT))"),
}
"""Types of Spark, each with expressions that are cast to them."""
