"""Tables: by which column a dataset's units are told apart, in each of its tables.

A dataset's terms say whom its budget protects ("patient"), in a word. What bounds a patient's
contribution is a column: the rows with one value of it are one unit. Read with another column
("visit_id"), or with none, so that each row is a unit, the same file has other units, and ten
visits of one patient would each be charged as one patient. So the unit column belongs to the terms.

* It is fixed, or pinned, by the first opening of the table, as an entry of the chain. Later
  openings must present the same column. To present it again writes nothing.
* A dataset may hold several tables (persons, visits, drugs), each with a column of its own by
  which the *same* units are told apart. The first one is pinned when it is opened. Each further one
  is added by an explicit act (:meth:`Ledger.add_table`): whoever adds it states that a value of
  its column names the same unit as in the others.
* A pin changes only while nothing was charged, by that same act: no answer depends on it yet.

**What is then guaranteed.** Let neighbours be tables that differ in all rows of one unit: those
rows, of all tables of the dataset, whose pinned column holds its value (where there is none: one
row). Each release is charged for what its mechanism moves by when the rows with one value of the
column that it *presented* come or go. That is the pinned column, so every charge of the dataset is
about the same neighbours, and the gate's theorem applies to all of them together.

Code that has no table, such as a ``spend`` of one's own or a loop over tensors, presents none:
whoever writes it vouches that the event's unit is the dataset's. A column that is computed is known
by its name alone, and a changed file by its name in the ledger; see
:mod:`~sfumato.ledger.identity`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from sfumato.core import validation
from sfumato.ledger import store
from sfumato.ledger.entries import Entry
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.state import State
from sfumato.ledger.terms import checked_name
from sfumato.ledger.transaction import Transaction

__all__ = [
    "DatasetTable",
    "Tables",
    "add_table",
    "checked_column",
    "load",
    "pin",
    "require_same",
    "resolve",
    "tables_of",
]

_CURATOR = logging.getLogger("sfumato.curator")
_CURATOR.addHandler(logging.NullHandler())
_CURATOR.propagate = False


@dataclass(frozen=True)
class DatasetTable:
    """One table of a dataset.

    Attributes:
        name: what it is called in the dataset.
        unit_column: by which its units are told apart; None if each row is a unit.
        entry: the number of the entry that pinned it.
    """

    name: str
    unit_column: str | None
    entry: int

    def describe(self) -> str:
        """Its units, in words."""
        return _units(self.unit_column)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"table": self.name, "unit_column": self.unit_column, "entry": self.entry}


Tables = dict[str, DatasetTable]
"""A dataset's tables by name, the first pinned first."""


def checked_column(value: object) -> str | None:
    """A unit column's name, or None where each row is a unit."""
    if value is not None and (not isinstance(value, str) or not value):
        validation.fail("unit_column", "a column's name, or None where each row is a unit", value)
    return value


def load(transaction: Transaction, name: str) -> Tables:
    """The tables that a dataset holds."""
    entries = list[Entry]()
    while (entry := store.entry_marked(transaction, name, f"table:{len(entries) + 1}")) is not None:
        entries.append(entry)
    return tables_of(entries)


def tables_of(entries: Iterable[Entry]) -> Tables:
    """The tables by a dataset's entries, of which the last of each table counts."""
    found: Tables = {}
    for entry in entries:
        if entry.kind == "table":
            data = entry.data
            found[data["table"]] = DatasetTable(data["table"], data["unit_column"], entry.sequence)
    return found


def resolve(tables: Tables, dataset: str, table: str, called: str) -> str:
    """Which table is meant: the one named, or else the one that the source is called after.

    Else it is the only one, or the one with the dataset's name.

    Raises:
        LedgerError: if none of these says it.
    """
    if table:
        return checked_name("table", table)
    if not tables:
        return dataset
    if called in tables:
        return called
    if len(tables) == 1:
        return next(iter(tables))
    if dataset in tables:
        return dataset
    raise LedgerError(
        f"dataset {dataset!r} holds the tables {_listed(tables)}: say which of them this is "
        "(table=, --table), or call the file after its table"
    )


def pin(
    transaction: Transaction,
    state: State,
    tables: Tables,
    table: str,
    column: str | None,
    at: str,
) -> DatasetTable:
    """Compares the column that is presented with the pinned one; the first opening pins it.

    Raises:
        LedgerError: for another column, or another table than those of the dataset.
    """
    dataset = state.terms.dataset
    if table in tables:
        found = tables[table]
        require_same(dataset, state.terms.unit, found, column)
        return found
    if tables:
        raise LedgerError(
            f"dataset {dataset!r} holds {_listed(tables)}, and no table {table!r}. If its "
            f"{state.terms.unit}s are the same, add it, naming the column that tells them apart: "
            f"ledger.add_table({dataset!r}, {table!r}, unit_column={column!r}), or sfumato ledger "
            f"add-table {dataset} {table} {_option(column)}. Otherwise give it a dataset of its own"
        )
    before = _asked_before(transaction, dataset)
    _require_history(state, before, column)
    return _append(transaction, state, tables, table, column, "opening", at)


def require_same(dataset: str, unit: str, found: DatasetTable, column: str | None) -> None:
    """Raises unless the column presented is the pinned one.

    Raises:
        LedgerError: naming the pinned column, and the remedy.
    """
    if column == found.unit_column:
        return
    if found.unit_column is None:
        remedy = "open it without a unit column"
    else:
        remedy = (
            f"open it with the unit column {found.unit_column!r} (if it has another name now, "
            "give it this one, in a view or in the file)"
        )
    raise LedgerError(
        f"the budget of {dataset!r} protects one {unit}, and in its table {found.name!r} "
        f"{found.describe()} (entry {found.entry}), not {_presented(column)}: those are other "
        f"units. Nothing was spent: {remedy}, or give them a dataset and a budget of their own"
    )


def add_table(
    transaction: Transaction, state: State, table: str, column: str | None, at: str
) -> DatasetTable:
    """The curator's act: a further table, or another column while nothing was charged.

    Raises:
        LedgerError: for another column than the pinned one once something was charged.
    """
    tables, dataset = load(transaction, state.terms.dataset), state.terms.dataset
    if table in tables:
        if tables[table].unit_column == column:
            return tables[table]
        if _is_charged(store.read_entries(transaction, dataset)):
            require_same(dataset, state.terms.unit, tables[table], column)
    if not tables:
        _require_history(state, _asked_before(transaction, dataset), column)
    return _append(transaction, state, tables, table, column, "curator", at)


def _append(
    transaction: Transaction,
    state: State,
    tables: Tables,
    table: str,
    column: str | None,
    by: str,
    at: str,
) -> DatasetTable:
    number = 1
    while store.entry_marked(transaction, state.terms.dataset, f"table:{number}") is not None:
        number += 1
    payload = {"at": at, "by": by, "number": number, "table": table, "unit_column": column}
    entry = store.append(transaction, state, "table", payload)
    tables[table] = DatasetTable(table, column, entry.sequence)
    _CURATOR.info(
        "dataset %r: in its table %r %s from now on (entry %d)",
        state.terms.dataset, table, _units(column), entry.sequence,
    )  # fmt: skip
    return tables[table]


# --- ledgers from before columns were pinned ------------------------------------------------------


def _asked_before(transaction: Transaction, dataset: str) -> set[str | None]:
    """The unit columns of the questions that were charged so far; they are in the requests."""
    found = set[str | None]()
    for entry in store.read_entries(transaction, dataset):
        request: Any = entry.data["request"] if entry.kind == "reserve" else None
        if isinstance(request, dict) and "questions" in request and "unit" in request:
            found.add(cast("dict[str, Any]", request)["unit"])
    return found


def _require_history(state: State, before: set[str | None], column: str | None) -> None:
    """Of a ledger from before: the column must be one by which questions were charged."""
    dataset = state.terms.dataset
    if before and column not in before:
        said = " and ".join(sorted(_units(one) for one in before))
        raise LedgerError(
            f"dataset {dataset!r} was charged for questions in which {said}, not "
            f"{_presented(column)}: those are other units. Nothing was spent: open it as it was, "
            "or give them a dataset and a budget of their own"
        )
    if len(before) > 1:
        _CURATOR.warning(
            "dataset %r was charged for questions with different units (%s): its budget did not "
            "hold for all of them, see advisory SFA-2026-06",
            dataset, ", ".join(sorted(_units(one) for one in before)),
        )  # fmt: skip


def _is_charged(entries: Iterable[Entry]) -> bool:
    return any(entry.kind in ("reserve", "plan") for entry in entries)


# --- words ----------------------------------------------------------------------------------------


def _units(column: str | None) -> str:
    return "each row is a unit" if column is None else f"column {column!r} tells units apart"


def _presented(column: str | None) -> str:
    return "rows" if column is None else f"column {column!r}"


def _option(column: str | None) -> str:
    return "--each-row" if column is None else f"--unit {column}"


def _listed(tables: Tables) -> str:
    return ", ".join(f"{one.name!r} ({one.describe()})" for one in tables.values())
