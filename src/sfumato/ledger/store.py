"""Reading and writing a dataset's rows, inside a transaction that the caller holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, or_, select, text

from sfumato.ledger import schema
from sfumato.ledger.amounts import Vector
from sfumato.ledger.entries import Entry, canonical, entry_hash, mark_of
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.state import Held, State
from sfumato.ledger.terms import Cap, Terms

__all__ = [
    "append",
    "cap_row",
    "entry_marked",
    "entry_numbered",
    "load",
    "load_caps",
    "load_plan",
    "lock_name",
    "names",
    "nothing",
    "open_dataset",
    "read_entries",
]

_D, _E, _C, _P = schema.datasets, schema.entries, schema.caps, schema.plans

_SELECT = select(_D).where(_D.c.name == bindparam("name_"))
_SELECT_LOCKED = _SELECT.with_for_update()
_INSERT_DATASET = _D.insert()
_UPDATE = (
    _D.update()
    .where(_D.c.name == bindparam("name_"))
    .values({c: bindparam(c) for c in ("sequence", "head", "spent", "caps")})
)
_INSERT_ENTRY = _E.insert()
_ENTRIES = select(_E).where(_E.c.dataset == bindparam("name_")).order_by(_E.c.sequence)
_MARKED = select(_E).where(_E.c.dataset == bindparam("name_"), _E.c.mark == bindparam("mark_"))
_NUMBERED = select(_E).where(
    _E.c.dataset == bindparam("name_"), _E.c.sequence == bindparam("sequence_")
)
_ALL_CAPS = select(_C).where(_C.c.dataset == bindparam("name_"))
_CAPS = _ALL_CAPS.where(or_(_C.c.analyst.is_(None), _C.c.analyst == bindparam("analyst_")))
_LOCK_NAME = text("SELECT pg_advisory_xact_lock(730586244, hashtext(:name_))")
_PLAN = select(_P).where(_P.c.dataset == bindparam("name_"), _P.c.plan == bindparam("plan_"))


def names(connection: Connection) -> list[str]:
    """All datasets."""
    return list(connection.scalars(select(_D.c.name).order_by(_D.c.name)))


def load(connection: Connection, name: str, lock: bool = False) -> State:
    """A dataset's state without its caps and plans; ``lock`` keeps other writers out.

    Raises:
        LedgerError: for a name that is not there, with those that are.
    """
    statement = _SELECT_LOCKED if lock else _SELECT
    row = connection.execute(statement, {"name_": name}).one_or_none()
    if row is None:
        known = ", ".join(repr(other) for other in names(connection)) or "none yet"
        raise LedgerError(f"the ledger has no dataset {name!r} (it has: {known}): create it first")
    return _state(row)


def lock_name(connection: Connection, name: str) -> bool:
    """Whether the dataset exists; if not, keeps others from making it until we are done."""
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK_NAME, {"name_": name})
    return connection.execute(_SELECT, {"name_": name}).one_or_none() is not None


def nothing(state: State) -> Vector:
    """A charge of nothing."""
    return Vector.zero(len(state.terms.gate.limits))


def _state(row: Row[Any]) -> State:
    return State(
        Terms.parse(row.name, row.terms),
        Vector.from_list(json.loads(row.spent)),
        row.sequence,
        row.head,
        cap_count=row.caps,
    )


def load_caps(connection: Connection, state: State, analyst: str | None = None) -> None:
    """Adds the caps that may concern ``analyst`` to the state, or all of them."""
    if not state.cap_count:
        return
    name = state.terms.dataset
    if analyst is None:
        rows = connection.execute(_ALL_CAPS, {"name_": name})
    else:
        rows = connection.execute(_CAPS, {"name_": name, "analyst_": analyst})
    orders = state.terms.gate.orders
    for row in rows:
        cap = Cap.from_payload(row.cap, json.loads(row.terms), orders)
        state.caps[row.cap] = Held(cap, Vector.from_list(json.loads(row.spent)))


def load_plan(connection: Connection, state: State, plan: int) -> None:
    """Adds one plan to the state."""
    found = connection.execute(_PLAN, {"name_": state.terms.dataset, "plan_": plan}).one_or_none()
    if found is None:
        raise LedgerError(f"dataset {state.terms.dataset!r} has no plan {plan}: declare it first")
    state.plans[plan] = found.drawn


def open_dataset(connection: Connection, terms: Terms, at: str) -> State:
    """Writes a new dataset and its first entry."""
    state = State.start(terms)
    row = {"name": terms.dataset, "terms": terms.text} | _cache(state)
    connection.execute(_INSERT_DATASET, row)
    append(connection, state, "open", {"at": at} | terms.to_payload())
    return state


def append(connection: Connection, state: State, kind: str, payload: Mapping[str, Any]) -> Entry:
    """Adds one entry to the chain, and brings the cached totals up to it."""
    name, sequence, written = state.terms.dataset, state.sequence + 1, canonical(payload)
    hashed = entry_hash(name, sequence, kind, written, state.head)
    entry = Entry(name, sequence, kind, mark_of(kind, payload), written, state.head, hashed)
    state.advance(sequence, kind, payload, hashed)
    connection.execute(_INSERT_ENTRY, vars(entry))
    connection.execute(_UPDATE, {"name_": name} | _cache(state))
    if state.changed_caps or state.removed_caps:
        _write_caps(connection, state)
    for plan in state.changed_plans:
        _write_plan(connection, state, plan)
    state.changed_plans.clear()
    return entry


def _cache(state: State) -> dict[str, Any]:
    return {
        "sequence": state.sequence,
        "head": state.head,
        "spent": canonical(state.spent.to_list()),
        "caps": state.cap_count,
    }


def _write_caps(connection: Connection, state: State) -> None:
    name = state.terms.dataset
    changed = state.changed_caps | state.removed_caps
    for number in sorted(changed):
        where = (_C.c.dataset == name) & (_C.c.cap == number)
        if number in state.removed_caps:
            connection.execute(_C.delete().where(where))
            continue
        row = cap_row(name, state.caps[number])
        done = connection.execute(_C.update().where(where).values(spent=row["spent"]))
        if done.rowcount == 0:
            connection.execute(_C.insert().values(row))
    state.changed_caps.clear()
    state.removed_caps.clear()


def cap_row(name: str, held: Held) -> dict[str, Any]:
    """A cap as its row."""
    return {
        "dataset": name,
        "cap": held.cap.number,
        "analyst": held.cap.analyst,
        "terms": canonical(held.cap.to_payload()),
        "spent": canonical(held.spent.to_list()),
    }


def _write_plan(connection: Connection, state: State, plan: int) -> None:
    name, drawn = state.terms.dataset, state.plans[plan]
    where = (_P.c.dataset == name) & (_P.c.plan == plan)
    if connection.execute(_P.update().where(where).values(drawn=drawn)).rowcount == 0:
        connection.execute(_P.insert().values(dataset=name, plan=plan, drawn=drawn))


# --- reading entries ----------------------------------------------------------------------------


def _entries(rows: Iterable[Row[Any]]) -> list[Entry]:
    return [Entry(*row) for row in rows]


def read_entries(connection: Connection, name: str) -> list[Entry]:
    """All entries of a dataset, in the order of their numbers."""
    return _entries(connection.execute(_ENTRIES, {"name_": name}))


def entry_marked(connection: Connection, name: str, mark: str) -> Entry | None:
    """The one entry with this mark, if there is one."""
    rows = _entries(connection.execute(_MARKED, {"name_": name, "mark_": mark}))
    return rows[0] if rows else None


def entry_numbered(connection: Connection, name: str, sequence: int) -> Entry | None:
    """The entry with this number, if there is one."""
    rows = _entries(connection.execute(_NUMBERED, {"name_": name, "sequence_": sequence}))
    return rows[0] if rows else None
