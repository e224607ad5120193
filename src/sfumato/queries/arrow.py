"""Arrow tables and Parquet files for DuckDB, so that it reads every cell, whatever it holds.

DuckDB's own readers fail on some cells: text that is no UTF-8, milliseconds and durations beyond
its microseconds, times of day beyond a day, damaged JSON. A question would then fail for a table
where its neighbour without that row is answered. So each column is handed over in a raw type, in
which every pattern of bits is a value (bytes for text, whole numbers for moments), and is read from
there by an expression that gives a value or NULL for each of them:

==================  ===============  =================================================
in Arrow            raw              read as
==================  ===============  =================================================
text of all kinds   bytes            text, if they are UTF-8
moments             whole number     microseconds, in the years 1 to 9999
durations           whole number     that number, of the unit that the column has
wide decimals       doubles          that number
lists, maps, ...    as they are      whether there is a value
==================  ===============  =================================================

Types are the schema's, which is public. Parquet files with none but types of which DuckDB's own
reader reads every cell, most files, are left to it if all their text is UTF-8 when they are opened:
it is faster. Which of the two reads a file changes how long that takes and nothing else.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import duckdb
import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.types as kinds
from ibis.formats.pyarrow import PyArrowType
from pyarrow import compute

from sfumato.data.delimited import UnreadableError
from sfumato.queries.cells import Reader, presence, text_of_bytes
from sfumato.queries.engine import Value, built_in, either

__all__ = ["check_names", "open_arrow", "open_parquet"]

pc: Any = compute  # whose functions are made when it is imported

Opened = tuple[ir.Table, dict[str, dt.DataType]]
"""A table, and the types of its columns as they are declared where they differ from its own."""

_STEPS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
"""By what a number of these units is multiplied and divided to give microseconds."""
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999 in microseconds from 1970."""


def check_names(names: Iterable[str]) -> None:
    """Refuses columns whose names are the same, or differ in case alone.

    DuckDB and Spark take ``U`` and ``u`` for one column, the first of them. So a question would be
    about another column than it says, and what bounds a unit could be another than the one named.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.get(name.casefold())
        if other is not None:
            raise UnreadableError(
                f"columns must be named differently, and not in case alone, got {[other, name]}: "
                "rename one"
            )
        known[name.casefold()] = name


def open_arrow(connection: Any, arrow: pa.Table) -> Opened:
    """An Arrow table, registered with DuckDB."""
    check_names(arrow.column_names)
    columns: list[Any] = [
        _raw(arrow.column(i), _storage(f.type)) for i, f in enumerate(arrow.schema)
    ]
    raw = pa.Table.from_arrays(columns, names=arrow.column_names)
    return _registered(connection, raw, arrow.schema)


def open_parquet(connection: Any, files: Sequence[str]) -> Opened:
    """Parquet files with the same columns, each under exactly this name.

    What a file holds is what it holds: a folder called ``person=all`` gives no column, though
    engines take it for one.

    Raises:
        UnreadableError: for files of different schemas, or with a column that nothing reads.
    """
    connection.raw_sql("SET enable_geoparquet_conversion = false")  # which fails on damaged shapes
    check_names(pq.read_schema(files[0]).names)
    paths = [_exactly(path) for path in files]
    described = _described(connection, paths)
    if all(_reads_any_cell(*column) for column in described):
        read = connection.read_parquet(paths, utf8_validation="replace", hive_partitioning=False)
        if _is_text(connection, paths, read):
            return _without_impossible(read), {}
    for name, physical, converted, *_ in described:
        if converted == "DECIMAL" and physical == "BYTE_ARRAY":
            raise UnreadableError(
                f"column {name!r} holds decimals of any length, which no reader reads without "
                "failing on some: write it with a fixed length, or as doubles"
            )
    schema = pq.read_schema(files[0])
    raw = pa.schema([(field.name, _raw_type(field.type)) for field in schema])
    # Text that was written as categories is checked for UTF-8 unless it is read as such.
    options = ds.ParquetReadOptions(dictionary_columns=_categorical(files[0], schema))
    kind = ds.ParquetFileFormat(read_options=options)
    return _registered(connection, ds.dataset(list(files), schema=raw, format=kind), schema)


def _exactly(path: str) -> str:
    """The pattern by which DuckDB finds the file of this name, and no other."""
    return re.sub(r"[*?[]", lambda sign: f"[{sign[0]}]", path)


def _without_impossible(table: ir.Table) -> ir.Table:
    """Decimals with more digits than their type says are missing."""
    read = {
        name: within_digits(table[name])
        for name, kind in table.schema().items()
        if isinstance(kind, dt.Decimal)
    }
    return table.mutate(**read) if read else table


def within_digits(cell: Value) -> Value:
    """A decimal that its type can hold.

    Files and frames may hold others, of which the outermost cannot be negated: sorting fails there.
    """
    kind: Any = cell.type()
    most = f"{Decimal((0, (9,) * kind.precision, -kind.scale)):f}"
    # As text, of which no digit is lost on its way through the engine's parser.
    first, last = (ibis.literal(end).cast(kind) for end in (f"-{most}", most))
    return either(cell.between(first, last), cell, ibis.null(kind))


def _categorical(path: str, schema: pa.Schema) -> list[str]:
    """The places of values in columns of categories."""
    stored = pq.ParquetFile(path).schema
    places = [stored.column(i).path for i in range(len(stored))]
    within = {field.name for field in schema if "dictionary<" in str(field.type)}
    return [place for place in places if place.split(".")[0] in within]


def _registered(connection: Any, raw: Any, schema: pa.Schema) -> Opened:
    """Raw columns as a table of DuckDB, with an expression that reads each."""
    name = f"sfumato_{secrets.token_hex(8)}"
    connection.con.register(name, raw)
    table = connection.table(name)
    read: dict[str, Value] = {}
    declared: dict[str, dt.DataType] = {}
    for field in schema:
        reader = _reader(_storage(field.type))
        if reader is not None:
            read[field.name] = reader(table[field.name])
        if reader is presence:
            declared[field.name] = _ibis_type(field.type)
    return table.mutate(**read) if read else table, declared


def _ibis_type(kind: pa.DataType) -> dt.DataType:
    try:
        return PyArrowType.to_ibis(kind)
    except Exception:  # a type that Ibis has no word for
        return dt.unknown


def _is_text(connection: Any, paths: Sequence[str], read: ir.Table) -> bool:
    """Whether all text in the files is UTF-8."""
    texts = [name.replace('"', '""') for name, kind in read.schema().items() if kind.is_string()]
    if not texts:
        return True
    # Decoding fails on other bytes, even where the reader did not look at them.
    decoded = ", ".join(f'count(decode(encode("{name}")))' for name in texts)
    query = (
        f"SELECT {decoded} FROM read_parquet(?, utf8_validation='strict', hive_partitioning=false)"
    )
    try:
        connection.con.execute(query, [list(paths)]).fetchall()
    except duckdb.Error:
        return False
    return True


# --- types ----------------------------------------------------------------------------------------


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type of the cells themselves, without how Arrow keeps them."""
    while True:
        if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "arrow.uuid":
            kind = kind.storage_type
        elif kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _raw_type(kind: pa.DataType) -> pa.DataType:
    """A type into which every cell of ``kind`` goes, and which DuckDB reads without looking."""
    kind = _storage(kind)
    if kinds.is_string(kind) or kinds.is_string_view(kind):
        return pa.binary()
    if kinds.is_large_string(kind):
        return pa.large_binary()
    if kinds.is_time32(kind):
        return pa.int32()
    if any(is_one(kind) for is_one in _WHOLE):
        return pa.int64()
    if kinds.is_float16(kind):
        return pa.float32()
    if kinds.is_decimal(kind):
        if kind.precision > 38 or kind.scale < 0:
            return pa.float64()
        return kind if kinds.is_decimal128(kind) else pa.decimal128(38, kind.scale)
    if kinds.is_map(kind):
        return pa.map_(_raw_type(kind.key_type), _raw_type(kind.item_type))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(_raw_type(kind.value_type), kind.list_size)
    if kinds.is_list(kind) or kinds.is_list_view(kind):
        return pa.list_(_raw_type(kind.value_type))
    if kinds.is_large_list(kind) or kinds.is_large_list_view(kind):
        return pa.large_list(_raw_type(kind.value_type))
    if kinds.is_struct(kind):
        return pa.struct([(field.name, _raw_type(field.type)) for field in kind])
    return kind


_WHOLE = (kinds.is_timestamp, kinds.is_duration, kinds.is_time64, kinds.is_date64)


def _reader(kind: pa.DataType) -> Reader | None:
    """How a cell is read from its raw form; None where that is the value."""
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return text_of_bytes
    if kinds.is_timestamp(kind):
        return partial(_moment, unit=kind.unit, zone=kind.tz is not None)
    if kinds.is_date64(kind):
        return lambda cell: _moment(cell, "ms", False).cast("date")
    if kinds.is_decimal(_raw_type(kind)):
        return within_digits
    plain = kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind)
    plain |= kinds.is_decimal(kind) or kinds.is_date32(kind) or kinds.is_duration(kind)
    return None if plain or isinstance(kind, pa.BaseExtensionType) else presence


def _moment(cell: Value, unit: str, zone: bool) -> Value:
    """A number of units since 1970 as a moment, or NULL if it lies outside the years 1 to 9999."""
    times, by = _STEPS[unit]
    # The outermost whole numbers are DuckDB's infinities.
    first, last = max(_FIRST * by // times, 2 - 2**63), min(_LAST * by // times, 2**63 - 2)
    inside = cell.between(ibis.literal(first, type="int64"), ibis.literal(last, type="int64"))
    exact = cell * ibis.literal(times, type="int64")
    if by > 1:
        exact = built_in("divide", dt.int64, cell, ibis.literal(by, type="int64"))
    kind = dt.Timestamp(timezone="UTC" if zone else None, scale=6)
    made = built_in("make_timestamptz" if zone else "make_timestamp", kind, exact)
    return either(inside, made, ibis.null(kind))


# --- Arrow in memory ------------------------------------------------------------------------------


def _raw(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in its raw type; where only presence is asked for, presence is handed over."""
    decoded = pa.chunked_array([_decoded(chunk) for chunk in column.chunks], type=kind)
    if _reader(kind) is presence:
        held = pc.is_valid(decoded)
        return pc.if_else(held, held, pa.scalar(None, pa.bool_()))
    return decoded.cast(_raw_type(kind))


def _decoded(array: pa.Array) -> pa.Array:
    """Without a dictionary, run lengths or an extension type; an index to nowhere is missing."""
    if isinstance(array, pa.ExtensionArray) and array.type.extension_name != "arrow.uuid":
        return _decoded(array.storage)
    if isinstance(array, pa.RunEndEncodedArray):
        return _decoded(pc.run_end_decode(array))
    if isinstance(array, pa.DictionaryArray):
        index, values = array.indices, _decoded(array.dictionary)
        known = pc.and_(pc.greater_equal(index, 0), pc.less(index, len(values)))
        return values.take(pc.if_else(known, index, pa.scalar(None, index.type)))
    return array


# --- Parquet --------------------------------------------------------------------------------------


def _described(connection: Any, paths: Sequence[str]) -> list[tuple[Any, ...]]:
    """What the files' footers say of their columns: name, physical, converted and logical type.

    Raises:
        UnreadableError: if files differ in it, since one's cells would become the other's types.
    """
    query = (
        "SELECT name, type, converted_type, logical_type, duckdb_type, type_length, precision, "
        "scale, num_children FROM parquet_schema(?) ORDER BY column_id"
    )
    first, *others = ([*connection.con.execute(query, [path]).fetchall()] for path in paths)
    if any(other[1:] != first[1:] for other in others):
        raise UnreadableError(
            f"the files {paths[0]!r} ... must have the same columns, of the same types"
        )
    return first[1:]  # the first describes the rows


_CONVERTED = {
    *(None, "UTF8", "ENUM", "DATE", "TIMESTAMP_MICROS", "DECIMAL", "LIST", "MAP", "MAP_KEY_VALUE"),
    *(f"{sign}INT_{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
}
_LOGICAL = ("String", "Enum", "Date", "Int", "List", "Map", "UUID", "Decimal", "Null", "Timestamp")


_FRAGILE = ("JSON", "VARIANT", "GEOMETRY", "GEOGRAPHY")


def _reads_any_cell(
    _: str, physical: Any, converted: Any, logical: Any, kind: Any, *__: Any
) -> bool:
    """Whether DuckDB reads every cell of such a column, text being taken as it is."""
    known = converted in _CONVERTED and str(logical or "String").startswith(_LOGICAL)
    known &= not any(word in str(kind) for word in _FRAGILE)
    of_any_length = converted == "DECIMAL" and physical == "BYTE_ARRAY"
    return known and not of_any_length and "MilliSeconds" not in str(logical)
