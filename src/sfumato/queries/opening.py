"""Putting a table under protection: its facts, its account in the ledger, its fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.ledger import Budget, Ledger
from sfumato.queries.bounding import bounding_engine
from sfumato.queries.cells import reads_presence
from sfumato.queries.engine import engine_name
from sfumato.queries.facts import Facts, check_keys
from sfumato.queries.protected import Protected
from sfumato.queries.sources import Source, name_of, open_source
from sfumato.queries.total import column_named

__all__ = ["DEFAULT_LEDGER", "protect"]

DEFAULT_LEDGER = "sqlite:///privacy.db"


def protect(
    source: Any,
    *,
    unit: str | None = None,
    max_rows_per_unit: int | None = None,
    max_groups_per_unit: int | None = None,
    budget: Budget | None = None,
    ledger: Ledger | str = DEFAULT_LEDGER,
    name: str = "",
    table: str = "",
    analyst: str = "",
    unit_name: str = "",
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
    domains: Mapping[str, Sequence[Any]] | None = None,
    types: Mapping[str, str] | None = None,
    same_data_ok: bool = False,
    coins: Coins = SYSTEM,
) -> Protected:
    """Puts a table under protection of a budget.

    Args:
        source: a Parquet or CSV file, a pandas or Polars frame, an Ibis table, or a URL.
        unit: the column that tells whose a row is. Without it, every row is a unit of its own.
            The ledger keeps it with the budget: later openings must name the same.
        max_rows_per_unit: most rows of one unit that count; needed with ``unit``.
        max_groups_per_unit: most groups of a group-by that one unit may enter; as many as rows
            unless given.
        budget: what the data may cost in all. Needed the first time; later the ledger knows.
        ledger: where budgets are kept: a ledger, or its URL.
        name: what the data is called in the ledger; the file's or table's name unless given.
        table: with a URL, which table. It is also the table's name in the dataset, where one
            dataset (``name``) holds several, each with a unit column of its own: the first is taken
            from the first opening, others are added by :meth:`Ledger.add_table`.
        analyst: who asks, for the ledger's caps and history.
        unit_name: what a unit is called; the unit column without "_id" unless given.
        neighbours: the relation: add-remove (default), zero-out or replace-one.
        domains: public categories by column.
        types: what columns of text stand for, such as ``{"age": "float64"}``.
        same_data_ok: the same data may have another budget under another name: their guarantees
            add up, and you say that you know.
        coins: where noise comes from. Seeded coins are for tests; answers say so.

    Raises:
        LedgerError: if the budget is for other units, or another unit column.
        ValueError: for bad parameters. Nothing is spent.
    """
    named = [*([unit] if unit else ()), *(domains or ())]
    opened = open_source(source, table=table, name=name, types=types, columns=named)
    try:
        facts = _facts(
            opened, unit, max_rows_per_unit, max_groups_per_unit, unit_name, neighbours, domains
        )
        kept = ledger if isinstance(ledger, Ledger) else Ledger(ledger, create=budget is not None)
        dataset, fingerprint = validation.name("name", opened.name), opened.digest()
        kept.refuse_copies(dataset, fingerprint, opened.location, same_data_ok=same_data_ok)
        _open_account(kept, dataset, budget, facts)
        column = None if facts.unit_column is None else _stored_column(source, facts.unit_column)
        which, called = _names(source, table)
        held = kept.open_table(dataset, column, table=which, called=called)
        kept.identify(
            dataset, fingerprint, opened.location, same_data_ok=same_data_ok, table=held.name
        )
        return Protected(
            opened.table, facts, kept, dataset, analyst, coins=coins,
            table_name="" if held.name == dataset else held.name, given=opened.given,
        )  # fmt: skip
    except BaseException:
        opened.close()  # nobody else knows of its connection
        raise


def _names(source: Any, table: str) -> tuple[str, str]:
    """The table's name in its dataset, if it was given one, and a file's name."""
    if not isinstance(source, str | Path):
        return table, ""
    if "://" in str(source):
        return name_of(str(source), table), ""
    return table, name_of(str(source))


def _stored_column(source: Any, column: str) -> str:
    """What the unit column is called where it is stored.

    An Ibis expression can give another column the pinned one's name. A renamed column is followed
    to where it is stored, and one that is computed says so.
    """
    if not isinstance(source, ir.Table):
        return column
    return _origin(source[column].op()) or f"{column} (computed)"


def _origin(node: Any) -> str | None:
    """The stored column that an Ibis value is, None if it is computed from one."""
    if isinstance(node, ops.Alias):
        return _origin(node.arg)
    if not isinstance(node, ops.Field):
        return None
    name, relation = str(node.name), node.rel
    if isinstance(relation, ops.Set):
        left, right = (ops.Field(side, name) for side in (relation.left, relation.right))
        return _origin(left) if _origin(left) == _origin(right) else None
    inside = relation.values.get(name)
    stored = inside is None or isinstance(relation, ops.PhysicalTable | ops.SQLQueryResult)
    return name if stored else _origin(inside)


def _facts(
    source: Source,
    unit: str | None,
    rows: int | None,
    groups: int | None,
    unit_name: str,
    neighbours: Neighbours | str,
    domains: Mapping[str, Sequence[Any]] | None,
) -> Facts:
    columns = dict(source.columns)
    engine = engine_name(source.table) if unit is None else bounding_engine(source.table)
    most = _most_rows(unit, rows)
    for name in columns:
        if name.lower().startswith("sfumato_"):
            validation.fail("column", "named otherwise (sfumato_... is ours)", name)
    column = None if unit is None else _unit_column(columns, unit)
    called = unit_name or (column.removesuffix("_id") if column else "") or "record"
    return Facts(
        columns=columns,
        unit=called,
        unit_column=column,
        rows=most,
        groups=most if groups is None else validation.count("max_groups_per_unit", groups),
        neighbours=Neighbours.parse(neighbours),
        domains=_public(columns, domains or {}),
        engine=engine,
    )


def _most_rows(unit: str | None, rows: int | None) -> int:
    """How many rows of a unit count."""
    if unit is None:
        if rows not in (None, 1):
            validation.fail("max_rows_per_unit", "left out without a unit column", rows)
        return 1
    if rows is None:
        raise ValueError(
            f"max_rows_per_unit must be given with unit={unit!r} (--max-rows): how many of one "
            "unit's rows may count is what the noise is calibrated to; declared, never measured"
        )
    return validation.count("max_rows_per_unit", rows)


def _unit_column(columns: Mapping[str, dt.DataType], unit: str) -> str:
    """The column that tells whose a row is, of a type by which rows can be told apart."""
    column = column_named(tuple(columns), unit)
    kind = columns[column]
    if kind.is_floating() or reads_presence(kind):
        raise ValueError(
            f"unit column {column!r} must hold text or whole numbers, got {kind} "
            "(pandas makes ids floats when one is missing: astype('Int64') first)"
        )
    return column


def _public(
    columns: Mapping[str, dt.DataType], domains: Mapping[str, Sequence[Any]]
) -> dict[str, tuple[Any, ...]]:
    """The declared categories, by the columns' own names."""
    names = {key: column_named(tuple(columns), key) for key in domains}
    return {names[key]: check_keys(key, columns[names[key]], keys) for key, keys in domains.items()}


def _open_account(ledger: Ledger, dataset: str, budget: Budget | None, facts: Facts) -> None:
    if budget is not None:
        ledger.create(dataset, budget, unit=facts.unit, neighbours=facts.neighbours)
        return
    terms = ledger.terms(dataset)  # an unknown name is an error that says what to do
    if (terms.unit, terms.neighbours) != (facts.unit, facts.neighbours):
        raise ValueError(
            f"dataset {dataset!r} has a budget for one {terms.unit} under {terms.neighbours}, not "
            f"for one {facts.unit} under {facts.neighbours}: give the same unit_name and neighbours"
        )
