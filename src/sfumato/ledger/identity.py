"""Identity: is this the data that the budget was opened for?

A fingerprint of the data is private (it changes when one record does), so it is no part of the
chain: it is kept in a table for the curator, as an HMAC under the ledger's own random secret, and
nothing that the ledger answers depends on it.
"""

from __future__ import annotations

import hashlib
import hmac
import warnings
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from sfumato.core import validation
from sfumato.ledger import store
from sfumato.ledger.errors import DataChangedWarning, LedgerError
from sfumato.ledger.schema import identities, meta
from sfumato.ledger.transaction import Transaction

_I = identities
_SECRET = select(meta.c.value).where(meta.c.name == "fingerprint secret")
_OTHERS = (
    select(_I.c.dataset)
    .where(_I.c.fingerprint == bindparam("hashed_"), _I.c.dataset != bindparam("name_"))
    .distinct()
)
_HAD = select(_I.c.number).where(
    _I.c.fingerprint == bindparam("hashed_"), _I.c.dataset == bindparam("name_")
)
_LATEST = (
    select(_I.c.fingerprint, _I.c.source)
    .where(_I.c.dataset == bindparam("name_"), _I.c.table_name == bindparam("table_"))
    .order_by(_I.c.number.desc())
    .limit(1)
)
_TABLES = (
    select(_I.c.table_name)
    .where(
        _I.c.fingerprint == bindparam("hashed_"),
        _I.c.dataset == bindparam("name_"),
        _I.c.table_name != bindparam("table_"),
    )
    .distinct()
)
_COLUMNS = ("dataset", "fingerprint", "source", "at", "table_name")
_REMEMBER = _I.insert().values({column: bindparam(column) for column in _COLUMNS})

__all__ = ["Identity", "identify", "warn_if_changed"]


@dataclass(frozen=True)
class Identity:
    """What was found. For the curator only.

    Attributes:
        dataset: the name asked about.
        found: "first seen", "same" or "changed".
        same_as: other datasets that held the same data, now or earlier.
        source: where the data came from last time.
    """

    dataset: str
    found: str
    same_as: tuple[str, ...] = ()
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "dataset": self.dataset,
            "found": self.found,
            "same_as": list(self.same_as),
            "source": self.source,
        }


def identify(
    transaction: Transaction,
    name: str,
    fingerprint: str,
    source: str,
    same_data_ok: bool,
    at: str,
    table: str = "",
) -> Identity:
    """Compares the data behind ``name`` with what was seen before, and remembers it.

    Each table has a history of its own; ``table`` is empty for a dataset's first one.

    Raises:
        LedgerError: if another dataset holds the same data: two names would mean two budgets; or
            another table of this one, which may tell its units apart by another column.
    """
    hashed = _hashed(transaction, fingerprint)
    others = refuse_copies(transaction, name, fingerprint, source, same_data_ok)
    if not same_data_ok:
        _refuse_copied_tables(transaction, name, table, hashed)
    before = _latest(transaction, name, table)
    found = "first seen" if before is None else "same" if before[0] == hashed else "changed"
    if found != "same":
        row = (name, hashed, source, at, table)
        transaction.run(_REMEMBER, dict(zip(_COLUMNS, row, strict=True)))
    return Identity(name, found, others, "" if before is None else before[1])


def refuse_copies(
    transaction: Transaction, name: str, fingerprint: str, source: str, same_data_ok: bool
) -> tuple[str, ...]:
    """The other datasets with the same data, which must be none unless ``same_data_ok``.

    A dataset that was opened with this data before is no copy: it was the first, or its curator
    said ``same_data_ok`` then. Another name that came later does not lock it out.
    """
    hashed = _hashed(transaction, fingerprint)
    others = _others(transaction, name, hashed)
    if others and not same_data_ok and not _had(transaction, name, hashed):
        listed = ", ".join(repr(other) for other in others)
        raise LedgerError(
            f"the data of {name!r} ({source}) is also that of {listed}: a copied or renamed file "
            "does not get a new budget. Spend from that dataset, or say same_data_ok=True "
            "(--same-data-ok) if two budgets on the same data are meant; their guarantees add up"
        )
    return others


def _refuse_copied_tables(transaction: Transaction, name: str, table: str, hashed: str) -> None:
    asked = {"hashed_": hashed, "name_": name, "table_": table}
    for (other,) in transaction.all(_TABLES, asked):
        raise LedgerError(
            f"table {table or 'the first'!r} of {name!r} holds the data of its table "
            f"{other or 'the first'!r}: one table has one name and one unit column. Open it by "
            "that name, or say same_data_ok=True (--same-data-ok) if both are meant"
        )


def warn_if_changed(identity: Identity, source: str) -> None:
    """Says that the data is not what it was."""
    if identity.found == "changed":
        warnings.warn(
            f"the data of {identity.dataset!r} changed: it was read from {identity.source!r} "
            f"before, now from {source!r}. Its budget goes on: what was spent stays spent",
            DataChangedWarning,
            stacklevel=3,
        )


def _hashed(transaction: Transaction, fingerprint: str) -> str:
    text = validation.name("fingerprint", fingerprint)
    return hmac.new(_secret(transaction), text.encode(), hashlib.sha256).hexdigest()


def _secret(transaction: Transaction) -> bytes:
    found = transaction.first(_SECRET, {})
    if found is None:
        raise LedgerError("the ledger lost its fingerprint secret: restore it from a backup")
    with store.readable("the data's fingerprints"):
        return bytes.fromhex(found[0])


def _others(transaction: Transaction, name: str, hashed: str) -> tuple[str, ...]:
    rows = transaction.all(_OTHERS, {"hashed_": hashed, "name_": name})
    return tuple(sorted(dataset for (dataset,) in rows))


def _had(transaction: Transaction, name: str, hashed: str) -> bool:
    return transaction.first(_HAD, {"hashed_": hashed, "name_": name}) is not None


def _latest(transaction: Transaction, name: str, table: str) -> tuple[str, str] | None:
    row = transaction.first(_LATEST, {"name_": name, "table_": table})
    return None if row is None else (row[0], row[1])
