"""Putting a table under protection: its facts, its account in the ledger, its fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ibis.expr.datatypes as dt

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.ledger import Budget, Ledger
from sfumato.queries.engine import engine_name
from sfumato.queries.facts import Facts, check_keys
from sfumato.queries.protected import Protected
from sfumato.queries.sources import Source, open_source
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
        max_rows_per_unit: most rows of one unit that count; needed with ``unit``.
        max_groups_per_unit: most groups of a group-by that one unit may enter; as many as rows
            unless given.
        budget: what the data may cost in all. Needed the first time; later the ledger knows.
        ledger: where budgets are kept: a ledger, or its URL.
        name: what the data is called in the ledger; the file's or table's name unless given.
        table: with a URL, which table.
        analyst: who asks, for the ledger's caps and history.
        unit_name: what a unit is called; the unit column without "_id" unless given.
        neighbours: the relation: add-remove (default), zero-out or replace-one.
        domains: public categories by column.
        types: what columns of text stand for, such as ``{"age": "float64"}``.
        same_data_ok: the same data may have another budget under another name: their guarantees
            add up, and you say that you know.
        coins: where noise comes from. Seeded coins are for tests; answers say so.

    Raises:
        ValueError: for bad parameters. Nothing is spent.
    """
    named = [*([unit] if unit else ()), *(domains or ())]
    opened = open_source(source, table=table, name=name, types=types, columns=named)
    facts = _facts(
        opened, unit, max_rows_per_unit, max_groups_per_unit, unit_name, neighbours, domains
    )
    kept = ledger if isinstance(ledger, Ledger) else Ledger(ledger, create=budget is not None)
    dataset, fingerprint = validation.name("name", opened.name), opened.digest()
    kept.refuse_copies(dataset, fingerprint, opened.location, same_data_ok=same_data_ok)
    _open_account(kept, dataset, budget, facts)
    kept.identify(dataset, fingerprint, opened.location, same_data_ok=same_data_ok)
    return Protected(opened.table, facts, kept, dataset, analyst, coins=coins)


def _facts(
    source: Source,
    unit: str | None,
    rows: int | None,
    groups: int | None,
    unit_name: str,
    neighbours: Neighbours | str,
    domains: Mapping[str, Sequence[Any]] | None,
) -> Facts:
    columns = dict(source.table.schema().items())
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
        engine=engine_name(source.table),
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
    if columns[column].is_floating() or columns[column].is_nested():
        raise ValueError(
            f"unit column {column!r} must hold text or whole numbers, got {columns[column]} "
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
