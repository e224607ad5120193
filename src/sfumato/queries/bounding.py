"""Contribution bounding: at most so many rows, and so many groups, of each unit.

Whatever the table holds, the bounded table changes by at most ``rows`` rows when one unit is added
or removed, *because which of a unit's rows are kept depends on that unit's rows alone*: on their
content and how often each content occurs, and on the key. Never on a row's place in the table,
which changes when another unit's rows are removed, and never on the engine's sort.

The order of a unit's rows
    A row's content is all that a question can tell of it (:mod:`sfumato.queries.cells`). Its hash
    is a keyed hash of the content, mixed as a whole. Rows of a unit with the same hash are numbered
    0, 1, ... in the exact order of their contents, and each but the first gets another hash, of
    that hash and its number. Rows are ordered by hash, ties by content. The first ``rows`` are
    kept.

Why it is a function of the unit's rows
    Take any two runs on tables in which the unit has the same rows, in any order. Equal contents
    have equal hashes and get consecutive numbers, so that the pairs (content, hash) are the same in
    both runs, each as often. The order is total on these pairs. So the contents of the first
    ``rows`` are the same; which of several rows with one content are among them is open, and no
    question can tell.

Why it is fair
    Over the key, the hashes behave as independent uniform numbers, one for each row, rows of equal
    content included. So every set of ``rows`` rows is as likely to be kept as any other. (The
    engines' hashes are no cryptography: fairness is measured, privacy does not rest on it.)

The key is drawn from the operating system when the data are opened, and kept in memory only. Rows
without a unit (NULL) are left out.

The bounded table is materialised once, inside the engine, and reused by every later question. Group
bounds are applied on top of it: of each unit, the rows in the first ``groups`` groups, in the order
of a keyed hash of (unit, group), ties by the groups' content. By the same argument they depend on
the unit's rows alone, and every set of ``groups`` of the unit's groups is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from sfumato.core.randomness import SYSTEM
from sfumato.queries.engine import (
    Value,
    built_in,
    either,
    engine_name,
    fetch,
    fetch_column,
    materialise,
)

__all__ = ["bound_groups", "bound_rows", "bounding_engine", "secret_key"]

_DOING = "bounding contributions"
_ORDER, _NUMBER, _POSITION = (f"sfumato_{name}" for name in ("order", "number", "position"))
_FOR_GROUPS = 0x5F3759DF
"""Makes another key of the key: the order of a unit's groups has nothing to do with its rows'."""
_LARGE = 2_000_000
"""Above so many rows DuckDB looks first at those with a small hash."""
_AT_ONCE = 2**28
"""So many hashes are compared in memory at once."""
_SHORT = 64
"""Longer texts are hashed by themselves before they are hashed with others."""


def secret_key() -> int:
    """A fresh key for the order of rows."""
    return int(SYSTEM.words(1)[0] >> 1)


def bounding_engine(table: ir.Table) -> str:
    """The table's engine, if an exact order of rows is known for it.

    Raises:
        ValueError: for another engine.
    """
    engine = engine_name(table)
    if engine not in ("duckdb", "postgres", "pyspark"):
        raise ValueError(
            f"what a unit contributes is bounded in DuckDB, PostgreSQL and Spark, not in {engine}: "
            "protect a copy in Parquet, or leave out unit= if every row is a unit of its own"
        )
    return engine


def bound_rows(table: ir.Table, unit: str, rows: int, key: int) -> ir.Table:
    """At most ``rows`` rows of each ``unit``, materialised.

    Args:
        table: with columns of the kinds that questions read, and no others.
        unit: the column that tells whose a row is.
        rows: how many of a unit's rows may count.
        key: secret, for the order of rows.

    Raises:
        ValueError: for an engine in which no exact order is known.
    """
    engine = bounding_engine(table)
    known = table.filter(table[unit].notnull())
    hashed = known.mutate(**{_ORDER: _hash(known, known.columns, key)})
    if engine == "duckdb":
        return _bound_in_duckdb(hashed, unit, rows)
    numbered = _numbered(hashed, unit)
    return materialise(_first(numbered, _position(numbered, unit), rows), _DOING)


def bound_groups(
    table: ir.Table, unit: str, columns: Sequence[str], groups: int, key: int
) -> ir.Table:
    """The rows in at most ``groups`` groups of each unit, out of a bounded table; materialised."""
    engine = bounding_engine(table)
    order = [
        _hash(table, [unit, *columns], key ^ _FOR_GROUPS),
        *(_exact(table[column], engine) for column in columns),
    ]
    rank = ibis.dense_rank().over(ibis.window(group_by=unit, order_by=order))
    return materialise(_first(table, rank, groups), _DOING)


# --- the order of a unit's rows -----------------------------------------------------------------


def _numbered(hashed: ir.Table, unit: str) -> ir.Table:
    """Rows of a unit that have one hash get different ones, by their number among these rows."""
    engine = bounding_engine(hashed)
    alike = ibis.window(group_by=[unit, _ORDER], order_by=_contents(hashed))
    number = ibis.row_number().over(alike)
    numbered = hashed.mutate(**{_NUMBER: number})
    first, order = numbered[_NUMBER] == 0, numbered[_ORDER]
    fresh = either(first, order, _hash_again(order, numbered[_NUMBER], engine))
    return numbered.mutate(**{_ORDER: fresh}).drop(_NUMBER)


def _position(table: ir.Table, unit: str) -> Value:
    """Each row's place in its unit's order, from 0."""
    order = [table[_ORDER], *_contents(table)]
    return ibis.row_number().over(ibis.window(group_by=unit, order_by=order))


def _contents(table: ir.Table) -> list[Value]:
    """All that a question can tell of a row."""
    engine = bounding_engine(table)
    return [_exact(table[column], engine) for column in table.columns if column != _ORDER]


def _first(table: ir.Table, position: Value, number: int) -> ir.Table:
    """The rows whose position, counted from 0, is below a number."""
    placed = table.mutate(**{_POSITION: position})
    first = placed.filter(placed[_POSITION] < ibis.literal(number))
    return first.select(column for column in first.columns if column not in (_POSITION, _ORDER))


def _exact(cell: Value, engine: str) -> Value:
    """A value that is equal only for the same content.

    Columns as questions read them are compared exactly, but for equal numbers that are not printed
    alike: 0.0 and -0.0, in PostgreSQL 1.0 and 1.00.
    """
    kind = cell.type()
    if kind.is_floating() and engine == "postgres":  # whose text of it depends on the session
        return built_in("float8send", dt.binary, cell.cast("float64"))
    if kind.is_floating():
        return cell.cast("string")
    return _as_text(cell) if kind.is_decimal() and engine == "postgres" else cell


# --- DuckDB -------------------------------------------------------------------------------------


def _bound_in_duckdb(hashed: ir.Table, unit: str, rows: int) -> ir.Table:
    """The same choice without a window per unit, which takes ten times as long.

    Only rows whose hash occurs more than once are numbered. Sorted by (unit, hash), a row is among
    its unit's first ``rows`` unless the row so many places before it belongs to the same unit. Rows
    that tie with the one before are kept too, and the rare unit that has too many because of it is
    decided by content.

    In a large table most of a unit's rows can be passed over: a first pass looks at the rows with a
    small hash, a second at the units of which it found too few. The result is the same for every
    threshold, which is why the threshold may depend on the data.
    """
    numbered = _number_repeated(hashed, unit)
    share = _share_to_try(hashed, unit, rows)
    if share is None:
        candidates = _first_rows(numbered, unit, rows)
    else:
        order: Value = numbered[_ORDER]
        small = numbered.filter(order < ibis.literal(int(share * 2**64), type="uint64"))
        tried = _first_rows(small, unit, rows)
        full = _having(tried, unit, lambda count: count >= rows)
        rest = _first_rows(numbered.anti_join(full, unit), unit, rows)
        candidates = materialise(tried.semi_join(full, unit).union(rest), _DOING)
    return _settle_ties(candidates, unit, rows)


def _number_repeated(hashed: ir.Table, unit: str) -> ir.Table:
    """As ``_numbered``, where hashes that many rows have are few."""
    repeated = _repeated(hashed)
    if repeated is None:
        return hashed
    alike = materialise(_numbered(hashed.semi_join(repeated, _ORDER), unit), _DOING)
    return hashed.anti_join(repeated, _ORDER).union(alike)


def _repeated(hashed: ir.Table) -> ir.Table | None:
    """The hashes that more than one row has; None if there are none.

    NumPy sorts them several times as fast as DuckDB groups them, where there is memory for it.
    """
    found = fetch_column(hashed, _ORDER, _AT_ONCE, _DOING)
    if found is None:
        return _having(hashed, _ORDER, lambda count: count > 1)
    ordered = np.sort(found)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return ibis.memtable(pa.table({_ORDER: twice})) if len(twice) else None


def _share_to_try(table: ir.Table, unit: str, rows: int) -> float | None:
    """Which share of the rows to look at first; None for all of them."""
    (size,) = fetch(table.aggregate(rows=table.count(), units=table[unit].approx_nunique()), _DOING)
    if size["rows"] < _LARGE or not size["units"]:
        return None
    share = 2 * rows * size["units"] / size["rows"]
    return share if share < 0.6 else None


def _first_rows(hashed: ir.Table, unit: str, rows: int) -> ir.Table:
    window = ibis.window(order_by=[hashed[unit], hashed[_ORDER]])
    among_first = ~hashed[unit].lag(rows).over(window).identical_to(hashed[unit])
    tie = hashed[_ORDER].lag(1).over(window) == hashed[_ORDER]
    return materialise(hashed.filter(among_first | tie), _DOING)


def _having(table: ir.Table, column: str, enough: Callable[[Any], Any]) -> ir.Table:
    """The values of a column that occur often enough."""
    counted = table.group_by(column).aggregate(**{_NUMBER: table.count()})
    return materialise(counted.filter(enough(counted[_NUMBER])).select(column), _DOING)


def _settle_ties(candidates: ir.Table, unit: str, rows: int) -> ir.Table:
    kept = candidates.drop(_ORDER)
    crowded = _having(candidates, unit, lambda count: count > rows)
    if not fetch(crowded.aggregate(n=crowded.count()), _DOING)[0]["n"]:
        return kept
    tied = candidates.semi_join(crowded, unit)
    settled = _first(tied, _position(tied, unit), rows)
    return materialise(candidates.anti_join(crowded, unit).drop(_ORDER).union(settled), _DOING)


# --- keyed hashes -------------------------------------------------------------------------------


def _hash(table: ir.Table, columns: Sequence[str], key: int) -> Value:
    """A keyed hash of some columns that mixes them all, by a function of the engine.

    DuckDB's hash of several arguments leaves the last one a mere exclusive or, so it is hashed once
    more. Spark's hashes each argument with the hash so far as its seed. In PostgreSQL it is SHA-256
    of the key and the cells as text, each with its length.
    """
    cells = [table[column] for column in columns]
    engine = bounding_engine(table)
    if engine == "duckdb":
        flat = built_in("hash", dt.uint64, ibis.literal(key), *cells)
        return built_in("hash", dt.uint64, flat)
    if engine == "pyspark":
        return built_in("xxhash64", dt.int64, ibis.literal(key), *cells)
    return _sha256(_as_text(ibis.literal(f"{key} "), *map(_told_apart, cells)))


def _hash_again(order: Value, number: Value, engine: str) -> Value:
    """Another hash of the same kind, of a hash and a number."""
    if engine == "duckdb":
        return built_in("hash", dt.uint64, built_in("hash", dt.uint64, order, number))
    if engine == "pyspark":
        return built_in("xxhash64", dt.int64, order, number)
    return _sha256(_as_text(order, ibis.literal(" "), number))


def _told_apart(cell: Value) -> Value:
    """A PostgreSQL value as short text that tells where it ends; different ones seldom agree."""
    text = _as_text(cell)
    short = either(
        text.length() <= _SHORT,
        _as_text(text.length(), ibis.literal(":"), text),
        _as_text(_sha256(text)),
    )
    return either(cell.isnull(), "-", short)


def _as_text(*cells: Value) -> Value:
    """PostgreSQL values in one text, as they are printed.

    Its functions take up to a hundred arguments.
    """
    if len(cells) > 50:
        return _as_text(*(_as_text(*cells[i : i + 50]) for i in range(0, len(cells), 50)))
    return built_in("format", dt.string, ibis.literal("%s" * len(cells)), *cells)


def _sha256(text: Value) -> Value:
    """SHA-256 of a PostgreSQL text's own bytes."""
    encoding = built_in("getdatabaseencoding", dt.string)
    return built_in("sha256", dt.binary, built_in("convert_to", dt.binary, text, encoding))
