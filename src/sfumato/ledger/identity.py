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

from sqlalchemy import Connection, select

from sfumato.core import validation
from sfumato.ledger.errors import DataChangedWarning, LedgerError
from sfumato.ledger.schema import identities, meta

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
    connection: Connection, name: str, fingerprint: str, source: str, same_data_ok: bool, at: str
) -> Identity:
    """Compares the data behind ``name`` with what was seen before, and remembers it.

    Raises:
        LedgerError: if another dataset holds the same data: two names would mean two budgets.
    """
    hashed = _hashed(connection, fingerprint)
    others = _others(connection, name, hashed)
    if others and not same_data_ok:
        listed = ", ".join(repr(other) for other in others)
        raise LedgerError(
            f"the data of {name!r} ({source}) is also that of {listed}: a copied or renamed file "
            "does not get a new budget. Spend from that dataset, or pass same_data_ok=True if two "
            "budgets on the same data are meant; their guarantees add up"
        )
    before = _latest(connection, name)
    found = "first seen" if before is None else "same" if before[0] == hashed else "changed"
    if found != "same":
        connection.execute(
            identities.insert().values(dataset=name, fingerprint=hashed, source=source, at=at)
        )
    return Identity(name, found, others, "" if before is None else before[1])


def warn_if_changed(identity: Identity, source: str) -> None:
    """Says that the data is not what it was."""
    if identity.found == "changed":
        warnings.warn(
            f"the data of {identity.dataset!r} changed: it was read from {identity.source!r} "
            f"before, now from {source!r}. Its budget goes on: what was spent stays spent",
            DataChangedWarning,
            stacklevel=3,
        )


def _hashed(connection: Connection, fingerprint: str) -> str:
    text = validation.name("fingerprint", fingerprint)
    return hmac.new(_secret(connection), text.encode(), hashlib.sha256).hexdigest()


def _secret(connection: Connection) -> bytes:
    found = connection.scalar(select(meta.c.value).where(meta.c.name == "fingerprint secret"))
    if found is None:
        raise LedgerError("the ledger lost its fingerprint secret: restore it from a backup")
    return bytes.fromhex(found)


def _others(connection: Connection, name: str, hashed: str) -> tuple[str, ...]:
    found = connection.scalars(
        select(identities.c.dataset)
        .where(identities.c.fingerprint == hashed, identities.c.dataset != name)
        .distinct()
    )
    return tuple(sorted(found))


def _latest(connection: Connection, name: str) -> tuple[str, str] | None:
    row = connection.execute(
        select(identities.c.fingerprint, identities.c.source)
        .where(identities.c.dataset == name)
        .order_by(identities.c.number.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else (row.fingerprint, row.source)
