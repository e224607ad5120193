"""A ledger as one process holds it open: the database, the clock, and what was last seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sfumato.ledger import store
from sfumato.ledger.database import Database
from sfumato.ledger.entries import Entry
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.state import State
from sfumato.ledger.terms import moment
from sfumato.ledger.transaction import Transaction

__all__ = ["Book", "utc_now"]

_PATIENCE = 16


def utc_now() -> datetime:
    """The time of this machine's clock."""
    return datetime.now(UTC)


class Book:
    """Transactions on one dataset at a time, and a watch against going back.

    A process remembers the last entry it saw of each dataset, reading or writing. If the ledger
    later has fewer, an older copy was put in its place, and nothing is spent.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self.database = database
        self.clock = clock
        self._seen: dict[str, int] = {}
        self._seen_lock = threading.Lock()
        self._known: dict[str, State] = {}
        self._wait = 0

    def now(self) -> str:
        """The time as entries hold it."""
        return moment("clock", self.clock())

    @contextmanager
    def changing(self, name: str) -> Generator[tuple[Transaction, State]]:
        """A dataset that no one else can change until the block ends; all of it, or nothing."""
        seen = self.seen(name)
        with self.database.writing() as transaction:
            state = store.load(transaction, name, lock=True)
            _refuse_to_go_back(name, seen, state.sequence)
            yield transaction, state
        self._remember(name, state)

    @contextmanager
    def reading(self, name: str) -> Generator[tuple[Transaction, State]]:
        """A dataset as it is now."""
        seen = self.seen(name)  # before: meanwhile another thread may see more than this one reads
        with self.database.reading() as transaction:
            state = store.load(transaction, name)
            _refuse_to_go_back(name, seen, state.sequence)
            self._saw(name, state.sequence)
            yield transaction, state

    def seen(self, name: str) -> int:
        """The number of the last entry of a dataset that this process saw, 0 at first."""
        return self._seen.get(name, 0)

    def quickly(
        self, name: str, kind: str, payload_for: Callable[[State], dict[str, Any] | None]
    ) -> Entry | None:
        """Appends an entry in one journey to the server, if nothing happened since the last one.

        The decision is made on the state this process saw last, and written only if that is still
        the dataset's head. None if it is not, or if ``payload_for`` gives None: then the caller
        takes the lock. Where others are busy too this would mostly fail, so after a failure the
        next few requests do not try. For PostgreSQL; a file is never far.
        """
        state = self._known.pop(name, None)
        if state is None or self._wait > 0:
            self._wait -= 1
            return None
        payload = payload_for(state)
        if payload is None:
            return None
        with self.database.single() as transaction:
            entry = store.append_if_unmoved(transaction, state, kind, payload)
        if entry is None:
            self._wait = _PATIENCE
        else:
            self._remember(name, state)
        return entry

    def _remember(self, name: str, state: State) -> None:
        self._saw(name, state.sequence)
        if self.database.remote and not state.cap_count and not state.plans:
            self._known[name] = state

    def _saw(self, name: str, sequence: int) -> None:
        """Never less than before, whatever other threads see."""
        with self._seen_lock:
            self._seen[name] = max(sequence, self.seen(name))


def _refuse_to_go_back(name: str, seen: int, sequence: int) -> None:
    if sequence < seen:
        raise LedgerError(
            f"dataset {name!r} went back from entry {seen} to {sequence} while it was open: an "
            "older copy of the ledger was put in its place. Nothing was spent; restore the newer "
            "one, or verify against a kept head"
        )
