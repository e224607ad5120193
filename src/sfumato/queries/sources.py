"""Where private tables come from: files, data frames, databases, any Ibis table.

    >>> import pandas as pd
    >>> source = open_source(pd.DataFrame({"person": [1, 2], "age": [40, 60]}), name="people")
    >>> source.table.columns
    ('person', 'age')

What opening a source tells is its schema, which is public. The fingerprint, which reads every byte
of a file or frame, is for the curator's ledger: it recognises a copied or renamed file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.core.odd_values import are_all, is_a, read_each
from sfumato.data.categories import texts_of_categories
from sfumato.data.delimited import (
    ENDINGS,
    UnreadableError,
    check_compressed,
    files_at,
    is_delimited,
    open_delimited,
)
from sfumato.queries.arrow import check_names, open_arrow, open_parquet
from sfumato.queries.cells import readable, reads_presence
from sfumato.queries.engine import CURATOR, Value, as_view, engine_name, postgres_query, quiet
from sfumato.queries.lines import LineStream

__all__ = ["Source", "name_of", "open_source"]

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_FILES = (".parquet", *ENDINGS)
_TEXT_READER = (
    "source must not be text (CSV, JSON) that the engine reads itself, where one row can take "
    "others with it: give a CSV file's path, or make a Parquet file of it ('sfumato data convert')"
)
_OTHER_READER = (
    "source must be a table that DuckDB stores, where what it reads elsewhere (Parquet files, "
    "frames, other databases) can fail on one cell: give the file's path, the frame or the other "
    "database's URL, or CREATE TABLE AS first"
)
_FOREIGN = (
    "source must not read a foreign table of PostgreSQL's, where one line of a file or one cell of "
    "another server can make reading fail: CREATE TABLE AS first, or give the file or the server"
)
_LAZY_READER = (
    "source must not be a lazy Polars frame that reads something by itself, where one cell or one "
    "line can make it fail: give the file's path, or the frame after collect()"
)
_REBASING = tuple(f"spark.sql.parquet.{kind}RebaseModeInRead" for kind in ("datetime", "int96"))
_TEXT_LEAVES = ("READ_CSV", "READ_JSON", "READ_NDJSON")
#: Where rows may come from in DuckDB's plan. Any other leaf is a reader of something elsewhere.
_OWN_LEAVES = {
    *("SEQ_SCAN", "INDEX_SCAN", "COLUMN_DATA_SCAN", "DUMMY_SCAN", "EMPTY_RESULT"),
    *("CTE_SCAN", "REC_CTE_SCAN", "DELIM_SCAN", "DELIM_GET", "RANGE", "GENERATE_SERIES"),
}


@dataclass(frozen=True)
class Source:
    """A table to protect.

    Attributes:
        table: as Ibis sees it.
        name: what it is called in the ledger unless told otherwise.
        location: where it is, without passwords, for people.
        digest: computes a fingerprint of its content (or of its location, for a database table).
        columns: the columns' types, where they are not those that the table has: of columns that
            are read as whether there is a value.
        given: the Ibis table that the caller holds, of which filters may speak.
        plain_text: text in the table is known to be valid and to have no collation.
        close: lets go of the connection, where it was opened here.
    """

    table: ir.Table
    name: str
    location: str
    digest: Callable[[], str] = field(repr=False)
    columns: Mapping[str, dt.DataType] = field(default_factory=dict)
    given: ir.Table | None = None
    plain_text: bool = False
    close: Callable[[], None] = lambda: None


def open_source(
    source: Any,
    *,
    table: str = "",
    name: str = "",
    types: Mapping[str, str] | None = None,
    columns: Sequence[str] = (),
) -> Source:
    """Opens ``source``.

    The schema must not depend on the rows, or an error about a type would tell of them. So a CSV
    file's columns, and a pandas frame's columns of objects, are text unless ``types`` declares
    otherwise; what does not read as the declared type is missing.

    Args:
        source: a path to a Parquet or CSV file (a glob is fine), a pandas or Polars frame, an Arrow
            table, an Ibis table, or a URL that Ibis can connect to (``postgresql://``,
            ``duckdb://``, ``pyspark://``). What an engine reads from text by itself is refused.
        table: with a URL, the name of the table, or for Spark the path of a Parquet file.
        name: a name for the data; needed where none can be told from ``source``.
        types: columns that are text and stand for something else: ``{"age": "float64"}``.

        columns: which must be there. A text file whose first line lacks one may have no header, and
            then that line is someone's: it is not repeated in the error.

    Raises:
        ValueError: for a missing file, a URL to nothing, an unknown table or kind of source.
    """
    if isinstance(source, ir.Table):
        found = replace(_from_ibis(source, name), given=source)
    elif isinstance(source, str) and _URL.match(source):
        return _from_url(source, table, name, types or {})
    elif isinstance(source, str | Path):
        found = _from_file(Path(source), name, [*columns, *(types or ())])
    else:
        found = _from_frame(source, name)
    return _read(found, types or {})


def _read(found: Source, types: Mapping[str, str]) -> Source:
    """The source with its cells read as :mod:`sfumato.queries.cells` says, and as declared."""
    if engine_name(found.table) != "postgres":
        check_names(found.table.columns)
    read, kinds = readable(found.table, plain_text=found.plain_text)
    declared = _declared(read, types)
    changed = {column: declared[column].type() for column in types}
    if declared is not found.given and engine_name(declared) == "duckdb":
        declared = as_view(declared)
    return replace(found, table=declared, columns=kinds | dict(found.columns) | changed)


def _declared(table: ir.Table, types: Mapping[str, str]) -> ir.Table:
    """Text columns read as the types declared for them; what does not read so is missing."""
    changed: dict[str, Value] = {}
    for column, wanted in types.items():
        if column not in table.columns:
            validation.fail("types", f"for columns {', '.join(table.columns)}", column)
        try:
            target = ibis.dtype(wanted)
        except Exception:
            validation.fail(f"types[{column!r}]", "a type such as 'int64' or 'float64'", wanted)
        if reads_presence(target):
            validation.fail(f"types[{column!r}]", "a number, date, timestamp or boolean", wanted)
        cell = table[column]
        if cell.type().is_string() and not target.is_string():
            if engine_name(table) not in ("duckdb", "pyspark"):
                validation.fail(
                    f"types[{column!r}]",
                    "left out (this engine cannot convert text without failing on bad rows)",
                    wanted,
                )
            changed[column] = cell.try_cast(target)
        elif cell.type() != target:
            validation.fail(f"types[{column!r}]", f"{cell.type()}, as the source has it", wanted)
    return table.mutate(**changed) if changed else table


def _from_ibis(table: ir.Table, name: str) -> Source:
    found = name or _table_name(table)
    location = f"{engine_name(table)} table {found!r}"
    held = table.op()
    if isinstance(held, ops.InMemoryTable):
        digest = partial(_digest_text, location, table)
        return replace(_from_arrow(_held_as_arrow(held), found, location), digest=digest)
    _check_readers(table)
    return Source(table, found, location, partial(_digest_text, _place(table, location), table))


def _held_as_arrow(held: ops.InMemoryTable) -> Any:
    """The frame that an Ibis table in memory holds.

    A pandas frame is read as one that is given itself: Ibis infers the type of a column of objects
    from the rows, and fails on one that holds a cell of another kind.
    """
    data: Any = held.data
    schema: Any = held.schema
    if not type(data).__name__.startswith("Pandas"):
        return data.to_pyarrow(schema)
    arrow = _from_pandas(data.obj).rename_columns(list(schema.names))
    for (name, declared), had, dtype in zip(
        schema.items(), arrow.schema.types, data.obj.dtypes, strict=True
    ):
        if dtype.kind != "O" and not isinstance(declared, type(dt.DataType.from_pyarrow(had))):
            validation.fail(f"schema[{name!r}]", f"{dtype}, as the frame has it", str(declared))
    return arrow


def _check_readers(table: ir.Table) -> None:
    """Refuses what an engine reads from text by itself, in a view or an expression.

    There one row can take others with it, or make reading fail: by a quote that stays open, a
    carriage return, more cells than the engine can hold. The plan tells, and looks at no row.
    """
    backend: Any = table.get_backend()
    with _opening(f"{backend.name} table"):
        if backend.name == "duckdb":
            leaves = _leaves(_plan_in_duckdb(backend, table))
            found = any(leaf.startswith(_TEXT_LEAVES) for leaf in leaves)
            if not found and leaves - _OWN_LEAVES:
                raise UnreadableError(_OTHER_READER)
        elif backend.name == "pyspark":
            frame = backend._session.sql(backend.compile(table))
            java = getattr(frame, "_jdf", None)  # which a remote session has not
            plan = java.queryExecution().analyzed().toString() if java else ""
            found = re.search(r"(?m)^\W*Relation .*\] (csv|json|text|xml)$", plan)
            if java and re.search(r"(?m)^\W*Relation .*\] parquet$", plan):
                _check_parquet_in_spark(backend._session, frame)
        elif backend.name == "postgres":
            with backend.con.transaction(), backend.con.cursor() as cursor:
                cursor.execute(f"EXPLAIN (FORMAT JSON) {postgres_query(table)}")
                if "'Node Type': 'Foreign Scan'" in str(cursor.fetchone()):
                    raise UnreadableError(_FOREIGN)
            return
        else:
            return
        if found:
            raise UnreadableError(_TEXT_READER)


def _plan_in_duckdb(backend: Any, table: ir.Table) -> list[dict[str, Any]]:
    """What DuckDB understands of the table, before it leaves out what the rows do not need."""
    backend._run_pre_execute_hooks(table)
    ((before,),) = backend.raw_sql("SELECT current_setting('explain_output')").fetchall()
    backend.raw_sql("SET explain_output = 'all'")
    try:
        plans = backend.raw_sql(f"EXPLAIN (FORMAT JSON) {backend.compile(table)}").fetchall()
    finally:
        backend.raw_sql(f"SET explain_output = '{before}'")
    return json.loads(dict(plans)["logical_plan"])


def _check_parquet_in_spark(session: Any, frame: Any) -> None:
    """Refuses Parquet files with milliseconds, and a session, in which Spark fails on some cells.

    On a millisecond beyond its microseconds, and on dates before 1582 (moments before 1900) where
    the session says that it shall.
    """
    for setting in _REBASING:
        if str(session.conf.get(setting)).upper() == "EXCEPTION":
            raise UnreadableError(
                f"the session's {setting} is EXCEPTION, so that an old date makes every question "
                "fail: set it to CORRECTED, or to LEGACY for files that old versions wrote"
            )
    java, settings = session._jvm.org.apache, session._jsc.hadoopConfiguration()
    for name in frame.inputFiles():
        path = java.hadoop.fs.Path(name)
        footer = java.parquet.hadoop.ParquetFileReader.readFooter(settings, path)
        if "TIMESTAMP(MILLIS" in footer.getFileMetaData().getSchema().toString():
            raise UnreadableError(
                "source holds moments in milliseconds, and Spark's reader of Parquet fails on one "
                "that microseconds do not hold: write them in microseconds, or give the file's path"
            )


def _leaves(plan: list[dict[str, Any]]) -> set[str]:
    """What a plan of DuckDB begins with: the names of its operators that have no input."""
    return {
        name
        for one in plan
        for name in (_leaves(one["children"]) if one.get("children") else {one["name"].strip()})
    }


def _table_name(table: ir.Table) -> str:
    get_name = getattr(table, "get_name", None)
    try:
        found = str(get_name()) if get_name else ""
    except Exception:  # an expression, rather than a stored table, has no name
        found = ""
    if not found or found.startswith("ibis_"):
        raise ValueError("name must be given for a table that has none of its own, got ''")
    return found


def _from_file(path: Path, name: str, columns: Sequence[str] = ()) -> Source:
    lowered = path.name.lower()
    if not lowered.endswith(_FILES):
        validation.fail("source", f"a file ending in {', '.join(_FILES)}, or a URL", str(path))
    paths = _files_named(str(path))
    connection, kinds = ibis.duckdb.connect(), {}
    if lowered.endswith(".parquet"):
        with _opening(str(path)):
            table, kinds = open_parquet(connection, [str(one) for one in paths])
    else:
        table = _read_lines(connection, paths, columns)
    called = name or name_of(str(path))
    return Source(table, called, str(path), lambda: _digest_files(paths), kinds, plain_text=True)


def _files_named(path: str) -> list[Path]:
    """The files, of which there must be one."""
    paths = files_at(Path(path))
    if not paths or not all(one.is_file() for one in paths):
        raise UnreadableError(f"source must be a file that exists, got {path!r}")
    return paths


def _place(table: ir.Table, location: str) -> str:
    """Where a stored table is, however its address is spelled; ``location`` of anything else.

    So that a relative path, a link or ``main.t`` for ``t`` does not get a budget of its own.
    """
    held = table.op()
    if not isinstance(held, ops.DatabaseTable):
        return location
    backend: Any = table.get_backend()
    within = held.namespace
    if backend.name == "duckdb":
        asked = "SELECT path FROM duckdb_databases() WHERE database_name = "
        asked += "coalesce(?, current_database())"
        path = backend.con.execute(asked, [within.catalog]).fetchone()
        if path is None or not path[0]:
            return location
        name = f"{within.database or 'main'}.{held.name}".casefold()
        return f"duckdb {os.path.realpath(path[0])} {name}"
    if backend.name == "postgres":
        return _place_in_postgres(backend, within.database, held.name)
    return location


def _place_in_postgres(backend: Any, schema: str | None, name: str) -> str:
    """The server's own number, or where it is; the database; the schema and the name."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name) if part)
    info = backend.con.info
    server = f"{info.host}:{info.port}"
    with contextlib.suppress(Exception), backend.con.transaction(), backend.con.cursor() as cursor:
        cursor.execute("SELECT system_identifier FROM pg_control_system()")
        server = str(cursor.fetchone()[0])
    with backend.con.transaction(), backend.con.cursor() as cursor:
        cursor.execute(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
            [quoted],
        )
        found = cursor.fetchone() or (schema, name)
    return f"postgres {server} {info.dbname} {found[0]}.{found[1]}"


def name_of(source: str, table: str = "") -> str:
    """What a file, or a table at a URL, is called in the ledger unless told otherwise."""
    if _URL.match(source):
        return Path(table).stem.rpartition(".")[2] or table
    return re.sub(r"\.(parquet|[ct]sv(\.gz)?)$", "", Path(source).name, flags=re.IGNORECASE)


def _read_lines(connection: Any, paths: list[Path], columns: Sequence[str] = ()) -> ir.Table:
    """Every column as text; one line is one row (:mod:`sfumato.data.delimited`).

    Raises:
        ValueError: for a header that is none or lacks a column, or a damaged file.
    """
    with _opening(str(paths[0])):
        files = open_delimited(paths)
        check_compressed(paths)
    shown = f"the first line of {str(paths[0])!r}"
    header = [name.lower() for name in files.names]  # as DuckDB tells columns apart
    for column in columns:
        if column.lower() not in header:
            between = "tabs" if files.delimiter == "\t" else "commas"
            raise ValueError(
                f"{shown} does not name the column {column!r}: is there a header, are its columns "
                f"separated by {between}? 'sfumato data convert' reads other kinds"
            )
    if not header or len(set(header)) != len(header) or not all(header):
        raise ValueError(f"{shown} must name its columns, each once")
    name = f"sfumato_{secrets.token_hex(8)}"
    with _opening(str(paths[0])):
        connection.con.register(name, LineStream(files))
        return connection.table(name)


def _from_frame(frame: Any, name: str) -> Source:
    import pyarrow as pa

    module = type(frame).__module__.split(".")[0]
    if module == "pandas":
        arrow = _from_pandas(frame)
    elif module == "polars":
        arrow = _from_polars(frame)
    elif isinstance(frame, pa.Table):
        arrow = frame
    else:
        validation.fail(
            "source",
            "a path, a URL, a pandas or Polars frame, an Arrow table or an Ibis table",
            type(frame).__name__,
        )
    validation.name("name (of the data, for the ledger)", name)
    return _from_arrow(arrow, name, f"{module} frame")


def _from_arrow(arrow: Any, name: str, location: str) -> Source:
    with _opening(location):
        table, kinds = open_arrow(ibis.duckdb.connect(), arrow)
    return Source(table, name, location, lambda: _digest_arrow(arrow), kinds, plain_text=True)


def _from_polars(frame: Any) -> Any:
    """A Polars frame as Arrow; a lazy one is computed, unless it would read something itself."""
    with _opening("polars frame"):
        if hasattr(frame, "collect"):
            read = re.findall(r"(?im)^\s*(\w+) scan\b", frame.explain(optimized=False))
            if {"csv", "ndjson", "lines"} & {one.lower() for one in read}:
                raise UnreadableError(_TEXT_READER)
            if read:
                raise UnreadableError(_LAZY_READER)
            frame = frame.collect()
        return frame.to_arrow()


def _from_pandas(frame: Any) -> Any:
    """A pandas frame as Arrow; a column of objects or categories becomes text, whatever it holds.

    The type of a column is the frame's dtype, which its owner chose, never that of its values.
    Objects are read one by one; of categories, whose dtype pandas finds by all rows, each as
    :mod:`sfumato.data.categories` says.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    names = [str(label) for label in frame.columns]
    if len(set(names)) != len(names):
        validation.fail("source", "a frame whose columns have different names", names)
    for position, name in enumerate(names):
        series = frame.iloc[:, position]
        if series.dtype.kind == "O" and not _is_arrow(series.dtype):
            texts = texts_of_categories(series)
            columns[name] = _texts(list(series)) if texts is None else pa.array(texts, pa.string())
            continue
        try:
            columns[name] = pa.Array.from_pandas(series)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # the type's fault, no row's
            validation.fail(f"column {name!r}", "of a type that Arrow knows", str(series.dtype))
    return pa.table(columns)


def _is_arrow(dtype: Any) -> bool:
    """Whether a pandas column is one of Arrow's; as Python objects some of its cells fail."""
    import pandas as pd

    held = isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"
    return held or isinstance(dtype, pd.ArrowDtype)


def _texts(values: list[Any]) -> Any:
    """Objects as an Arrow column, each as :func:`_text` has it.

    Where all are text or missing Arrow gives the same, faster. It would read bytes in another way;
    they go through ``_text``, and so does what Arrow refuses: numbers, text that is no Unicode.
    """
    import pandas as pd
    import pyarrow as pa

    if are_all(values, str, type(None), float, type(pd.NA), type(pd.NaT)):
        try:
            return pa.array(values, pa.string(), from_pandas=True)
        except (pa.ArrowException, UnicodeError):
            pass
    return pa.array(read_each(_text, values, None), pa.string())


def _text(value: Any) -> str | None:
    """Any object as text, or None where it is missing; may fail, which means the same."""
    import pandas as pd

    missing = value is None or value is pd.NA or value is pd.NaT
    if missing or (is_a(value, float) and value != value):
        return None
    return str.encode(str(value)).decode()  # which halves of surrogates have not


def _from_url(url: str, table: str, name: str, types: Mapping[str, str]) -> Source:
    shown = re.sub(r"//.*@", "//", re.sub(r"(?i)(password|token|secret)=[^&]*", r"\1=", url))
    validation.name("table (which one, at the URL)", table)
    with _opening(shown):
        connection: Any = ibis.connect(url)
    location = f"{shown} {table}"

    def close() -> None:
        if connection.name != "pyspark":  # whose session others may be using
            connection.disconnect()

    try:
        with _opening(shown):
            found, kinds = _table_at(connection, table)
            digest = partial(_digest_text, _place(found, location), found)
        if connection.name == "duckdb" and table.lower().endswith(_FILES):
            digest = partial(_digest_files, _files_named(table))
        called = name or name_of(url, table)
        source = Source(found, called, location, digest, kinds, close=close)
        return _read(source, types)
    except BaseException:
        close()
        raise


def _table_at(connection: Any, table: str) -> tuple[ir.Table, Mapping[str, dt.DataType]]:
    """A table by name, or a file that we read with the engine."""
    if connection.name == "duckdb" and table.lower().endswith(".parquet"):
        return open_parquet(connection, [str(path) for path in _files_named(table)])
    if connection.name == "duckdb" and is_delimited(table):
        return _read_lines(connection, _files_named(table)), {}
    if is_delimited(table):
        raise UnreadableError(_TEXT_READER)
    if table.lower().endswith(".parquet"):
        found = connection.read_parquet(table)
    else:
        schema, _, bare = table.rpartition(".")
        found = connection.table(bare, database=schema or None)
    _check_readers(found)
    return found, {}


@contextlib.contextmanager
def _opening(shown: str) -> Iterator[None]:
    """Turns whatever a driver raises into one clear error; its words go to the curator's log."""
    try:
        with quiet():
            yield
    except UnreadableError:
        raise
    except Exception as error:
        CURATOR.error("opening %s: %s", shown, error)
        raise ValueError(
            f"source {shown!r} could not be opened ({type(error).__name__}): check that it is "
            "there, that its driver is installed and that it may be read"
        ) from None


def _digest_files(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _digest_arrow(table: Any) -> str:
    import pyarrow as pa

    digest = hashlib.sha256()

    class _Sink(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            digest.update(data)
            return len(data)

    with pa.ipc.new_stream(pa.PythonFile(_Sink(), mode="w"), table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return digest.hexdigest()


def _digest_text(location: str, table: ir.Table) -> str:
    return hashlib.sha256(f"{location} {table.schema()}".encode()).hexdigest()
