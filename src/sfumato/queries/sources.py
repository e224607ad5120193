"""Where private tables come from: files, data frames, databases, any Ibis table.

    >>> import pandas as pd
    >>> source = open_source(pd.DataFrame({"person": [1, 2], "age": [40, 60]}), name="people")
    >>> source.table.columns
    ('person', 'age')

Opening a source reads its schema, which is public, and no row. The fingerprint, which reads every
byte of a file or frame, is for the curator's ledger: it recognises a copied or renamed file.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.queries.engine import (
    CURATOR,
    Value,
    built_in,
    duckdb_types,
    either,
    engine_name,
    quiet,
)

__all__ = ["Source", "name_of", "open_source"]

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_FILES = (".parquet", ".csv", ".csv.gz", ".tsv")


@dataclass(frozen=True)
class Source:
    """A table to protect.

    Attributes:
        table: as Ibis sees it.
        name: what it is called in the ledger unless told otherwise.
        location: where it is, without passwords, for people.
        digest: computes a fingerprint of its content (or of its location, for a database table).
    """

    table: ir.Table
    name: str
    location: str
    digest: Callable[[], str] = field(repr=False)


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
            ``duckdb://``, ``pyspark://``).
        table: with a URL, the name of the table, or for Spark the path of a file.
        name: a name for the data; needed where none can be told from ``source``.
        types: columns that are text and stand for something else: ``{"age": "float64"}``.

        columns: which must be there. A CSV file whose first line lacks one may have no header, and
            then that line is someone's: it is not repeated in the error.

    Raises:
        ValueError: for a missing file, a URL to nothing, an unknown table or kind of source.
    """
    if isinstance(source, ir.Table):
        found = _from_ibis(source, name)
    elif isinstance(source, str) and _URL.match(source):
        found = _from_url(source, table, name)
    elif isinstance(source, str | Path):
        found = _from_file(Path(source), name, [*columns, *(types or ())])
    else:
        found = _from_frame(source, name)
    return replace(found, table=_declared(_without_enums(found.table), types or {}))


def _without_enums(table: ir.Table) -> ir.Table:
    """DuckDB's enumerations as the text they stand for.

    An enumeration that was read off the rows (a frame's categories) is private: DuckDB hashes and
    sorts its values by their number in it, which another unit's rows can change.
    """
    if engine_name(table) != "duckdb":
        return table
    changed: dict[str, Value] = {}
    for column, kind in duckdb_types(table).items():
        if kind.startswith("ENUM(") and kind.endswith(")"):
            text = built_in("concat", ibis.dtype("string"), table[column])
            changed[column] = either(table[column].isnull(), ibis.null("string"), text)
        elif "ENUM(" in kind:
            raise ValueError(
                f"column {column!r} holds categories inside {kind[:20]}...: make them text"
            )
    return table.mutate(**changed) if changed else table


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
    return Source(table, found, location, lambda: _digest_text(location, table))


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
    paths = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
    if not paths or not all(one.is_file() for one in paths):
        raise ValueError(f"source must be a file that exists, got {str(path)!r}")
    connection = ibis.duckdb.connect()
    if lowered.endswith(".parquet"):
        with _opening(str(path)):
            table = connection.read_parquet([str(one) for one in paths])
    else:
        table = _read_csv(connection, paths, columns)
    return Source(table, name or name_of(str(path)), str(path), lambda: _digest_files(paths))


def name_of(source: str, table: str = "") -> str:
    """What a file, or a table at a URL, is called in the ledger unless told otherwise."""
    if _URL.match(source):
        return Path(table).stem.rpartition(".")[2] or table
    return re.sub(r"\.(parquet|csv|csv\.gz|tsv)$", "", Path(source).name, flags=re.IGNORECASE)


def _read_csv(connection: Any, paths: list[Path], columns: Sequence[str] = ()) -> ir.Table:
    """Every column as text, nothing detected from the rows; a malformed row is passed over.

    DuckDB's parallel reader fails on a line break in quotes, and its strict mode on a stray line
    end: that such a row exists would show. One of its optimisers makes the reader convert text, and
    then passes over the rows that it cannot convert. An unclosed quote takes the lines after it
    with it, so a file must be written by something that closes quotes.
    """
    delimiter = "\t" if paths[0].name.lower().endswith(".tsv") else ","
    header, *others = [_csv_header(path, delimiter) for path in paths]
    named = {name.lower() for name in header}
    for column in columns:
        if column.lower() not in named:
            raise ValueError(
                f"the first line of {str(paths[0])!r} does not name the column {column!r}: is "
                "there a header, is it in UTF-8, are its columns separated by commas?"
            )
    if not header or len(set(header)) != len(header) or not all(header):
        raise ValueError(f"the first line of {str(paths[0])!r} must name its columns, each once")
    if any(other != header for other in others):
        raise ValueError(f"the files {paths[0].parent.name}/... must all have the same first line")
    with _opening(str(paths[0])):
        optimisers = connection.raw_sql("SELECT name FROM duckdb_optimizers()").fetchall()
        if ("type_pushdown",) in optimisers:
            connection.raw_sql("SET disabled_optimizers = 'type_pushdown'")
        return connection.read_csv(
            [str(one) for one in paths],
            auto_detect=False,
            header=True,
            delim=delimiter,
            quote='"',
            escape='"',
            new_line="\\n",
            columns=dict.fromkeys(header, "VARCHAR"),
            ignore_errors=True,
            null_padding=True,
            parallel=False,
            strict_mode=False,
        )


def _csv_header(path: Path, delimiter: str) -> list[str]:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    # What follows the first line may be in no encoding at all.
    with (
        _opening(str(path)),
        opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file,
    ):
        return next(csv.reader(file, delimiter=delimiter), [])


def _from_frame(frame: Any, name: str) -> Source:
    import pyarrow as pa

    module = type(frame).__module__.split(".")[0]
    if module == "pandas":
        arrow = _from_pandas(frame)
    elif module == "polars":
        arrow = (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
    elif isinstance(frame, pa.Table):
        arrow = frame
    else:
        validation.fail(
            "source",
            "a path, a URL, a pandas or Polars frame, an Arrow table or an Ibis table",
            type(frame).__name__,
        )
    validation.name("name (of the data, for the ledger)", name)
    connection = ibis.duckdb.connect()
    with _opening(f"{module} frame"):
        connection.con.register("frame", arrow)
        table = connection.table("frame")
    return Source(table, name, f"{module} frame", lambda: _digest_arrow(arrow))


def _from_pandas(frame: Any) -> Any:
    """A pandas frame as Arrow; a column of objects or categories becomes text, whatever it holds.

    The type of a column is the frame's dtype, which its owner chose, never that of its values.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    names = [str(label) for label in frame.columns]
    if len(set(names)) != len(names):
        validation.fail("source", "a frame whose columns have different names", names)
    for position, name in enumerate(names):
        series = frame.iloc[:, position]
        if series.dtype.kind == "O":
            columns[name] = pa.array([_text(value) for value in series], pa.string())
            continue
        try:
            columns[name] = pa.Array.from_pandas(series)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # the type's fault, no row's
            validation.fail(f"column {name!r}", "of a type that Arrow knows", str(series.dtype))
    return pa.table(columns)


def _text(value: Any) -> str | None:
    """Any object as text, or None where it is missing; fails on none of them."""
    import pandas as pd

    missing = value is None or value is pd.NA or value is pd.NaT
    if missing or (isinstance(value, float) and value != value):
        return None
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:
        return None


def _from_url(url: str, table: str, name: str) -> Source:
    shown = re.sub(r"//.*@", "//", re.sub(r"(?i)(password|token|secret)=[^&]*", r"\1=", url))
    validation.name("table (which one, at the URL)", table)
    with _opening(shown):
        connection: Any = ibis.connect(url)
        try:
            found = _table_at(connection, table)
        except BaseException:
            if connection.name != "pyspark":  # whose session others may be using
                connection.disconnect()
            raise
    location = f"{shown} {table}"
    return Source(
        found,
        name or name_of(url, table),
        location,
        lambda: _digest_text(location, found),
    )


def _table_at(connection: Any, table: str) -> ir.Table:
    """A table by name, or a file that the engine reads itself."""
    lowered = table.lower()
    if lowered.endswith(".parquet"):
        return connection.read_parquet(table)
    if lowered.endswith((".csv", ".csv.gz", ".tsv")):
        if connection.name == "duckdb":
            return _read_csv(connection, [Path(table)])
        # Spark would look at the rows to tell the types.
        return connection.read_csv(table, inferSchema=False, header=True)
    schema, _, bare = table.rpartition(".")
    return connection.table(bare, database=schema or None)


@contextlib.contextmanager
def _opening(shown: str) -> Iterator[None]:
    """Turns whatever a driver raises into one clear error; its words go to the curator's log."""
    try:
        with quiet():
            yield
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
