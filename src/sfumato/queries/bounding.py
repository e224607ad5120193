"""Contribution bounding: at most so many rows, and so many groups, of each unit.

Whatever the table holds, the bounded table changes by at most ``rows`` rows when one unit is added
or removed, *because which of a unit's rows are kept depends on that unit's rows alone*: they are
put into an order by a keyed hash of their content, with the content itself as tie-break, and the
first ``rows`` are kept. The order never depends on a row's position in the table, which would
change when another unit's rows are removed. Rows whose content is the same are interchangeable.

The key is drawn from the operating system when the data are opened, and kept in memory only. It
makes the choice among a unit's rows look random; privacy does not rest on it. Rows without a unit
(NULL) are left out.

The bounded table is materialised once, inside the engine, and reused by every later question. Group
bounds are applied on top of it: of each unit, the rows in the first ``groups`` groups, in the order
of a keyed hash of (unit, group).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from sfumato.core.randomness import SYSTEM
from sfumato.queries.engine import Value, built_in, engine_name, fetch, materialise

__all__ = ["bound_groups", "bound_rows", "secret_key"]

_DOING = "bounding contributions"
_ORDER = "sfumato_order"
_POSITION = "sfumato_position"
_LARGE = 2_000_000
"""Above so many rows DuckDB looks first at those with a small hash."""


def secret_key() -> int:
    """A fresh key for the order of rows."""
    return int(SYSTEM.words(1)[0] >> 1)


def bound_rows(table: ir.Table, unit: str, rows: int, key: int) -> ir.Table:
    """At most ``rows`` rows of each ``unit``, materialised."""
    known = table.filter(table[unit].notnull())
    if engine_name(table) == "duckdb":
        return _bound_in_duckdb(known, unit, rows, key)
    order = _hash(known, known.columns, key)
    position = ibis.row_number().over(
        ibis.window(group_by=unit, order_by=[order, *_sortable(known)])
    )
    return materialise(_first(known, position, rows), _DOING)


def bound_groups(
    table: ir.Table, unit: str, columns: Sequence[str], groups: int, key: int
) -> ir.Table:
    """The rows in at most ``groups`` groups of each unit, out of a bounded table; materialised."""
    order = _hash(table, [unit, *columns], key)
    rank = ibis.dense_rank().over(
        ibis.window(group_by=unit, order_by=[order, *(table[column] for column in columns)])
    )
    return materialise(_first(table, rank, groups), _DOING)


def _first(table: ir.Table, position: Value, number: int) -> ir.Table:
    """The rows whose position, counted from 0, is below a number."""
    placed = table.mutate(**{_POSITION: position})
    return placed.filter(placed[_POSITION] < ibis.literal(number)).drop(_POSITION)


# --- DuckDB -------------------------------------------------------------------------------------


def _bound_in_duckdb(table: ir.Table, unit: str, rows: int, key: int) -> ir.Table:
    """The same choice without a window per unit, which takes ten times as long.

    Sorted by (unit, hash), a row is among its unit's first ``rows`` unless the row so many places
    before it belongs to the same unit. Rows that tie with the one before are kept too, and the rare
    unit that has too many because of it is decided by content.

    In a large table most of a unit's rows can be passed over: a first pass looks at the rows with a
    small hash, a second at the units of which it found too few. The result is the same for every
    threshold, which is why the threshold may depend on the data.
    """
    hashed = table.mutate(**{_ORDER: _hash(table, table.columns, key)})
    share = _share_to_try(table, unit, rows)
    if share is None:
        candidates = _first_rows(hashed, unit, rows)
    else:
        order: Value = hashed[_ORDER]
        small = hashed.filter(order < ibis.literal(int(share * 2**64), type="uint64"))
        tried = _first_rows(small, unit, rows)
        full = _units_with(tried, unit, lambda count: count >= rows)
        rest = _first_rows(hashed.anti_join(full, unit), unit, rows)
        candidates = materialise(tried.semi_join(full, unit).union(rest), _DOING)
    return _settle_ties(candidates, unit, rows).drop(_ORDER)


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


def _units_with(table: ir.Table, unit: str, enough: Callable[[Any], Any]) -> ir.Table:
    counted = table.group_by(unit).aggregate(**{_ORDER: table.count()})
    return materialise(counted.filter(enough(counted[_ORDER])).select(unit), _DOING)


def _settle_ties(candidates: ir.Table, unit: str, rows: int) -> ir.Table:
    crowded = _units_with(candidates, unit, lambda count: count > rows)
    if not fetch(crowded.aggregate(n=crowded.count()), _DOING)[0]["n"]:
        return candidates
    tied = candidates.semi_join(crowded, unit)
    order = [tied[_ORDER], *_sortable(tied)]
    position = ibis.row_number().over(ibis.window(group_by=unit, order_by=order))
    settled = _first(tied, position, rows)
    return materialise(candidates.anti_join(crowded, unit).union(settled), _DOING)


# --- keyed hashes -------------------------------------------------------------------------------


def _hash(table: ir.Table, columns: Sequence[str], key: int) -> Value:
    """A keyed 64-bit hash of some columns, by whatever function the engine has."""
    cells = [table[column] for column in columns]
    engine = engine_name(table)
    if engine == "duckdb":
        return built_in("hash", dt.uint64, ibis.literal(key), *cells)
    if engine == "pyspark":
        return built_in("xxhash64", dt.int64, ibis.literal(key), *cells)
    nothing: Value = ibis.literal("")
    text = nothing.join([_as_text(cell) for cell in cells])
    if engine == "postgres":
        return built_in("hashtextextended", dt.int64, text, ibis.literal(key))
    return (ibis.literal(f"{key} ") + text).hash()


def _as_text(cell: Value) -> Value:
    """The cell as text that tells where it ends, so that different rows seldom look the same."""
    text = cell.cast("string")
    return (text.length().cast("string") + ":" + text).fill_null("-")


def _sortable(table: ir.Table) -> list[Value]:
    """Every column that can be sorted by: the tie-break."""
    return [
        table[column]
        for column, kind in table.schema().items()
        if column != _ORDER and not (kind.is_json() or kind.is_map() or kind.is_unknown())
    ]
