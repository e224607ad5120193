"""Reading and writing a dataset's rows, inside a transaction that the caller holds."""

from __future__ import annotations

import contextlib
import hmac
import json
from collections.abc import Generator, Mapping
from typing import Any

from sqlalchemy import BindParameter, bindparam, func, or_, select

from sfumato.ledger import schema
from sfumato.ledger.amounts import Vector
from sfumato.ledger.entries import Entry, canonical, entry_hash, mark_of
from sfumato.ledger.errors import MISSHAPEN, LedgerError
from sfumato.ledger.state import Held, State
from sfumato.ledger.terms import Cap, Terms
from sfumato.ledger.transaction import Row, Transaction

__all__ = [
    "all_caps",
    "all_plans",
    "append",
    "append_if_unmoved",
    "cached_row",
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
    "raw_entries",
    "read_entries",
    "readable",
    "state_of",
    "turns_within",
]

_D, _E, _C, _P = schema.datasets, schema.entries, schema.caps, schema.plans
_NAME: BindParameter[str] = bindparam("name_")
_THE_CAP = (_C.c.dataset == _NAME) & (_C.c.cap == bindparam("cap_"))
_THE_PLAN = (_P.c.dataset == _NAME) & (_P.c.plan == bindparam("plan_"))

_NAMES = select(_D.c.name).order_by(_D.c.name)
_SELECT = select(_D).where(_D.c.name == _NAME)
_SELECT_LOCKED = _SELECT.with_for_update()
_LOCK_NAME = select(func.pg_advisory_xact_lock(730586244, func.hashtext(_NAME)))
_INSERT_DATASET = _D.insert()
_UPDATE = (
    _D.update()
    .where(_D.c.name == _NAME)
    .values({c: bindparam(c) for c in ("sequence", "head", "spent", "caps")})
)

_INSERT_ENTRY = _E.insert()
_MOVED = (
    _UPDATE.where(_D.c.sequence == bindparam("sequence_"), _D.c.head == bindparam("head_"))
    .returning(_D.c.name)
    .cte("moved")
)
_ENTRY_IF_MOVED = (
    _E.insert()
    .from_select(
        [column.name for column in _E.c],
        select(*(bindparam(f"{c.name}_new", type_=c.type) for c in _E.c)).select_from(_MOVED),
    )
    .returning(_E.c.sequence)
)
_ENTRIES = select(_E).where(_E.c.dataset == _NAME).order_by(_E.c.sequence)
_MARKED = select(_E).where(_E.c.dataset == _NAME, _E.c.mark == bindparam("mark_"))
_TURNS = (
    select(_E)
    .where(_E.c.dataset == _NAME, _E.c.sequence > bindparam("sequence_"), _E.c.kind == "resume")
    .where(_E.c.payload.like(bindparam("within_")))
    .order_by(_E.c.sequence)
)
_NUMBERED = select(_E).where(_E.c.dataset == _NAME, _E.c.sequence == bindparam("sequence_"))

_ALL_CAPS = select(_C).where(_C.c.dataset == _NAME)
_CAPS = _ALL_CAPS.where(or_(_C.c.analyst.is_(None), _C.c.analyst == bindparam("analyst_")))
_INSERT_CAP = _C.insert()
_UPDATE_CAP = _C.update().where(_THE_CAP).values(spent=bindparam("spent"))
_DELETE_CAP = _C.delete().where(_THE_CAP)

_ALL_PLANS = select(_P.c.plan, _P.c.drawn).where(_P.c.dataset == _NAME)
_PLAN = select(_P.c.drawn).where(_THE_PLAN)
_INSERT_PLAN = _P.insert()
_UPDATE_PLAN = _P.update().where(_THE_PLAN).values(drawn=bindparam("drawn"))


def names(transaction: Transaction) -> list[str]:
    """All datasets."""
    return [name for (name,) in transaction.all(_NAMES, {})]


def load(transaction: Transaction, name: str, lock: bool = False) -> State:
    """A dataset's state without its caps and plans; ``lock`` keeps other writers out.

    Raises:
        LedgerError: for a name that is not there, with those that are.
    """
    row = transaction.first(_SELECT_LOCKED if lock else _SELECT, {"name_": name})
    if row is None:
        _refuse_orphans(transaction, name)
        known = ", ".join(repr(other) for other in names(transaction)) or "none yet"
        raise LedgerError(f"the ledger has no dataset {name!r} (it has: {known}): create it first")
    return state_of(row)


def cached_row(transaction: Transaction, name: str) -> Row | None:
    """A dataset's row as it is, None for a name that is not there."""
    return transaction.first(_SELECT, {"name_": name})


def state_of(row: Row) -> State:
    """The state that a dataset's row holds."""
    name, terms, sequence, head, spent, cap_count = row
    with readable(name):
        state = State(Terms.parse(name, terms), _vector(spent), sequence, head, cap_count=cap_count)
        _require_shape(state, state.spent)
        _require(isinstance(sequence, int) and isinstance(cap_count, int), "a number is none")
    return state


@contextlib.contextmanager
def readable(name: str) -> Generator[None]:
    """Says in plain words that what is stored of a dataset is not what a ledger writes."""
    try:
        yield
    except LedgerError:
        raise
    except MISSHAPEN as error:
        said = f"{type(error).__name__}: {error}"
        raise LedgerError(
            f"what the ledger holds of {name!r} cannot be read ({said}): its file is damaged, or "
            "someone changed it. Nothing was spent; verify it, and restore it from a backup"
        ) from error


def _vector(text: str) -> Vector:
    numbers = json.loads(text)
    _require(all(type(number) is int for number in numbers), "a total is no whole number")
    return Vector.from_list(numbers)


def _require(right: bool, wrong: str) -> None:
    if not right:
        raise ValueError(wrong)


def _require_shape(state: State, spent: Vector) -> None:
    limits = len(state.terms.gate.limits)
    _require(len(spent.orders) == limits, f"{limits} totals were due, got {len(spent.orders)}")


def _refuse_orphans(transaction: Transaction, name: str) -> None:
    if transaction.first(_ENTRIES, {"name_": name}) is not None:
        raise LedgerError(
            f"dataset {name!r} has entries but no totals: someone removed its row. Nothing is "
            "spent, and its budget is not opened again; verify it, and restore it from a backup"
        )


def lock_name(transaction: Transaction, name: str) -> bool:
    """Whether the dataset exists; if not, keeps others from making it until we are done."""
    if transaction.database == "postgresql":
        transaction.run(_LOCK_NAME, {"name_": name})
    return cached_row(transaction, name) is not None


def nothing(state: State) -> Vector:
    """A charge of nothing."""
    return Vector.zero(len(state.terms.gate.limits))


def load_caps(transaction: Transaction, state: State, analyst: str | None = None) -> None:
    """Adds the caps that may concern ``analyst`` to the state, or all of them."""
    if not state.cap_count:
        return
    asked = {"name_": state.terms.dataset, "analyst_": analyst}
    rows = transaction.all(_ALL_CAPS if analyst is None else _CAPS, asked)
    with readable(state.terms.dataset):
        for _, number, _, terms, spent in rows:
            cap = Cap.from_payload(number, json.loads(terms), state.terms.gate.orders)
            state.caps[number] = Held(cap, _vector(spent))
            _require_shape(state, state.caps[number].spent)


def load_plan(transaction: Transaction, state: State, plan: int) -> None:
    """Adds one plan to the state."""
    found = transaction.first(_PLAN, {"name_": state.terms.dataset, "plan_": plan})
    if found is None:
        raise LedgerError(f"dataset {state.terms.dataset!r} has no plan {plan}: declare it first")
    with readable(state.terms.dataset):
        _require(isinstance(found[0], int) and found[0] >= 0, "a plan's place is no number")
    state.plans[plan] = found[0]


# --- writing ------------------------------------------------------------------------------------


def open_dataset(transaction: Transaction, terms: Terms, at: str) -> State:
    """Writes a new dataset and its first entry.

    Raises:
        LedgerError: if there are entries of that name without a dataset.
    """
    _refuse_orphans(transaction, terms.dataset)
    state = State.start(terms)
    transaction.run(_INSERT_DATASET, {"name": terms.dataset, "terms": terms.text} | _cache(state))
    append(transaction, state, "open", {"at": at} | terms.to_payload())
    return state


def append(transaction: Transaction, state: State, kind: str, payload: Mapping[str, Any]) -> Entry:
    """Adds one entry to the chain, and brings the cached totals up to it."""
    entry = _next(state, kind, payload)
    state.advance(entry.sequence, kind, payload, entry.hash)
    transaction.run(_INSERT_ENTRY, vars(entry))
    transaction.run(_UPDATE, {"name_": entry.dataset} | _cache(state))
    if state.cap_changes:
        _write_caps(transaction, state)
    if state.plan_changes:
        _write_plans(transaction, state)
    return entry


def append_if_unmoved(
    transaction: Transaction, state: State, kind: str, payload: Mapping[str, Any]
) -> Entry | None:
    """As :func:`append`, in one statement, but only if the head is still what ``state`` says.

    None if it is not; ``state`` is then of no use any more. For datasets without caps or plans.
    """
    entry, seen = _next(state, kind, payload), {"sequence_": state.sequence, "head_": state.head}
    state.advance(entry.sequence, kind, payload, entry.hash)
    new = {f"{column}_new": value for column, value in vars(entry).items()}
    cache = {"name_": entry.dataset} | _cache(state)
    return entry if transaction.first(_ENTRY_IF_MOVED, seen | new | cache) else None


def _next(state: State, kind: str, payload: Mapping[str, Any]) -> Entry:
    name, sequence, text = state.terms.dataset, state.sequence + 1, canonical(payload)
    hashed = entry_hash(name, sequence, kind, text, state.head)
    return Entry(name, sequence, kind, mark_of(kind, payload), text, state.head, hashed)


def _cache(state: State) -> dict[str, Any]:
    return {
        "sequence": state.sequence,
        "head": state.head,
        "spent": canonical(state.spent.to_list()),
        "caps": state.cap_count,
    }


_CAP_COLUMNS: tuple[str, ...] = ("dataset", "cap", "analyst", "terms", "spent")


def cap_row(name: str, held: Held) -> Row:
    """A cap as its row."""
    terms, spent = canonical(held.cap.to_payload()), canonical(held.spent.to_list())
    return (name, held.cap.number, held.cap.analyst, terms, spent)


def _write_caps(transaction: Transaction, state: State) -> None:
    name = state.terms.dataset
    for number, change in sorted(state.cap_changes.items()):
        which = {"name_": name, "cap_": number}
        if change == "removed":
            transaction.run(_DELETE_CAP, which)
            continue
        row = dict(zip(_CAP_COLUMNS, cap_row(name, state.caps[number]), strict=True))
        if change == "new":
            transaction.run(_INSERT_CAP, row)
        else:
            transaction.run(_UPDATE_CAP, which | {"spent": row["spent"]})
    state.cap_changes.clear()


def _write_plans(transaction: Transaction, state: State) -> None:
    name = state.terms.dataset
    for plan, change in state.plan_changes.items():
        drawn = {"drawn": state.plans[plan]}
        if change == "new":
            transaction.run(_INSERT_PLAN, {"dataset": name, "plan": plan} | drawn)
        else:
            transaction.run(_UPDATE_PLAN, {"name_": name, "plan_": plan} | drawn)
    state.plan_changes.clear()


# --- reading ------------------------------------------------------------------------------------


def read_entries(transaction: Transaction, name: str) -> list[Entry]:
    """All entries of a dataset, in the order of their numbers.

    Raises:
        LedgerError: if one is not as it was written.
    """
    return [_entry(name, row) for row in transaction.all(_ENTRIES, {"name_": name})]


def raw_entries(transaction: Transaction, name: str) -> list[Entry]:
    """As they are, for whoever verifies them."""
    return [Entry(*row) for row in transaction.all(_ENTRIES, {"name_": name})]


def _entry(name: str, row: Row) -> Entry:
    entry = Entry(*row)
    with readable(name):
        wanted = entry_hash(name, entry.sequence, entry.kind, entry.payload, entry.previous)
        _require(hmac.compare_digest(wanted, entry.hash), f"entry {entry.sequence} was changed")
        marked = mark_of(entry.kind, entry.data) == entry.mark
        _require(marked, f"entry {entry.sequence} has another's mark")
    return entry


def entry_marked(transaction: Transaction, name: str, mark: str) -> Entry | None:
    """The one entry with this mark, if there is one."""
    row = transaction.first(_MARKED, {"name_": name, "mark_": mark})
    return None if row is None else _entry(name, row)


def entry_numbered(transaction: Transaction, name: str, sequence: int) -> Entry | None:
    """The entry with this number, if there is one."""
    row = transaction.first(_NUMBERED, {"name_": name, "sequence_": sequence})
    return None if row is None else _entry(name, row)


def turns_within(transaction: Transaction, name: str, reservation: int) -> list[Entry]:
    """The turns within a reservation, in their order."""
    within = f'%"reserve":{reservation},%'  # the payload is canonical JSON, and sorts keys
    asked = {"name_": name, "sequence_": reservation, "within_": within}
    return [_entry(name, row) for row in transaction.all(_TURNS, asked)]


def all_caps(transaction: Transaction, name: str) -> dict[int, Row]:
    """The cached caps by number."""
    return {row[1]: tuple(row) for row in transaction.all(_ALL_CAPS, {"name_": name})}


def all_plans(transaction: Transaction, name: str) -> dict[int, int]:
    """How many events each plan has drawn, as cached."""
    rows = transaction.all(_ALL_PLANS, {"name_": name})
    return {row[0]: row[1] for row in rows}
