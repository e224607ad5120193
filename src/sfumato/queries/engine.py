"""The one door to Ibis's back ends: reading, and materialising a table inside the engine.

Everything here is about *where* a table lives. What may be asked of it is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import inspect
import secrets
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from sfumato.core.curator import CURATOR

_Result = TypeVar("_Result")
Value = Any
"""An Ibis value. Ibis's own types know too little of what a column can do for a checker to help."""

__all__ = [
    "CURATOR",
    "SourceError",
    "Value",
    "as_view",
    "built_in",
    "duckdb_types",
    "either",
    "engine_name",
    "fetch",
    "fetch_column",
    "materialise",
    "postgres_query",
    "postgres_types",
    "quiet",
    "spark_filled",
]


class SourceError(ValueError):
    """The data source failed. The engine's own words may quote data, so they are not repeated."""


def engine_name(table: ir.Table) -> str:
    """The engine a table lives in: ``duckdb``, ``postgres``, ``pyspark``, ..."""
    return str(table.get_backend().name)


def either(condition: Value, yes: Any, no: Any) -> Value:
    """``yes`` where the condition holds, ``no`` where it does not or is unknown."""
    return ibis.ifelse(condition, yes, no)


def built_in(name: str, result: dt.DataType, *arguments: Value) -> Value:
    """A built-in function of the engine, called with these arguments."""
    names = [f"argument_{i}" for i in range(len(arguments))]
    types = dict(zip(names, (argument.type() for argument in arguments), strict=True))

    def function(*_: Any) -> Any: ...

    function.__name__ = name
    function.__annotations__ = types | {"return": result}
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=t)
            for n, t in types.items()
        ],
        return_annotation=result,
    )
    return ibis.udf.scalar.builtin(function)(*arguments)


def duckdb_types(table: ir.Table) -> dict[str, str]:
    """The columns' types in DuckDB's own words, which tell more than Ibis's."""
    backend: Any = table.get_backend()
    with quiet():
        backend._run_pre_execute_hooks(table)
        found = backend.raw_sql(f"DESCRIBE {backend.compile(table)}").fetchall()
    return {str(row[0]): str(row[1]) for row in found}


@dataclass(frozen=True)
class PostgresType:
    """A column's type in PostgreSQL's own words; of a domain, the type that it is over.

    Attributes:
        name: of the type.
        category: S for text, E for enumerations, I for addresses, and others.
        binary: whether its collation, if it has one, takes no two different texts for one.
    """

    name: str
    category: str
    binary: bool


def postgres_query(table: ir.Table) -> str:
    """What selects the table's rows in PostgreSQL, without shapes: PostGIS would write them."""
    backend: Any = table.get_backend()
    backend._run_pre_execute_hooks(table)
    kinds = table.schema().items()
    return backend.compile(table.select([n for n, kind in kinds if not kind.is_geospatial()]))


def postgres_types(table: ir.Table) -> dict[str, PostgresType]:
    """The columns' types in PostgreSQL's own words, which tell more than Ibis's; no row is read."""
    backend: Any = table.get_backend()
    query = postgres_query(table)
    found: dict[str, PostgresType] = {}
    with backend.con.transaction(), backend.con.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({query}) AS columns LIMIT 0")
        for name, code in [(column.name, column.type_code) for column in cursor.description]:
            cursor.execute(
                "SELECT typname, typcategory, typcollation <> 0 FROM pg_type WHERE oid = %s", [code]
            )
            kind, category, collated = cursor.fetchone()
            binary = True
            if collated:
                nothing = (
                    f'SELECT "{name.replace(chr(34), 2 * chr(34))}" FROM ({query}) AS t LIMIT 0'
                )
                cursor.execute(
                    "SELECT NOT EXISTS (SELECT FROM pg_collation WHERE NOT collisdeterministic "
                    f"AND oid = TO_REGCOLLATION(PG_COLLATION_FOR(({nothing}))))"
                )
                (binary,) = cursor.fetchone()
            found[name] = PostgresType(kind, category, binary)
    return found


def spark_filled(table: ir.Table) -> set[str]:
    """The columns that Spark fills up with blanks, as it does with char(n)."""
    backend: Any = table.get_backend()
    backend._run_pre_execute_hooks(table)
    fields = backend._session.sql(backend.compile(table)).schema.fields
    declared = {
        field.name: field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", "") for field in fields
    }
    return {name for name, kind in declared.items() if kind.startswith("char")}


def fetch(table: ir.Table, doing: str) -> list[dict[str, Any]]:
    """The rows of an aggregate, as plain Python values.

    Raises:
        SourceError: if the engine fails, in the same words whatever it holds.
    """
    return _privately(doing, lambda: table.to_pyarrow().to_pylist())


def as_view(table: ir.Table) -> ir.Table:
    """The same table as a temporary view of DuckDB, so that questions about it are short."""
    backend: Any = table.get_backend()
    name = f"sfumato_{secrets.token_hex(8)}"
    with quiet():
        backend._run_pre_execute_hooks(table)
        backend.raw_sql(f'CREATE TEMPORARY VIEW "{name}" AS {backend.compile(table)}')
        return backend.table(name)


def fetch_column(table: ir.Table, column: str, most: int, doing: str) -> NDArray[Any] | None:
    """One column without missing values as an array, None if it is longer than ``most``.

    Raises:
        SourceError: as for :func:`fetch`.
    """
    short = table.select(column).limit(most + 1)
    found = _privately(doing, lambda: short.to_pyarrow()[column])
    return np.array(found) if len(found) <= most else None


def materialise(table: ir.Table, doing: str) -> ir.Table:
    """The same rows as a temporary table of the engine, computed once.

    It lives as long as the connection (a Spark session's cache, elsewhere a temporary table).
    """
    backend: Any = table.get_backend()
    name = f"sfumato_{secrets.token_hex(8)}"

    def make() -> ir.Table:
        if engine_name(table) == "pyspark":
            frame = backend._session.sql(backend.compile(table)).cache()
            frame.count()  # Spark caches when first read
            frame.createOrReplaceTempView(name)
        else:
            backend._run_pre_execute_hooks(table)
            query = backend.compile(table)
            _execute(backend, f'CREATE TEMPORARY TABLE "{name}" AS {query}')
        return backend.table(name)

    return _privately(doing, make)


def _execute(backend: Any, statement: str) -> None:
    cursor = backend.raw_sql(statement)
    if engine_name_of(backend) == "postgres":
        backend.con.commit()
        cursor.close()


def engine_name_of(backend: Any) -> str:
    """The engine behind a connection."""
    return str(backend.name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that Ibis raises about its own use of DuckDB."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fetch_arrow_table")
        yield


def _privately(doing: str, work: Callable[[], _Result]) -> _Result:
    """Engine errors become one uniform error; the engine's words go to the curator's log.

    The uniform error is raised after the engine's has been dealt with, so it does not carry it.
    """
    try:
        with quiet():
            return work()
    except Exception as error:
        CURATOR.error("%s: %s", doing, error)
    raise SourceError(
        f"the data source failed while {doing}; its own message, which may quote data, is in "
        "the log 'sfumato.curator'"
    )
