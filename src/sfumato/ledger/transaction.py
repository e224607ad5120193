"""Transactions: Core's statements, run by the driver itself.

A release is two transactions, and each must cost little more than its wait for the disk. So
statements are written with SQLAlchemy Core, compiled once for each kind of database, and executed
by sqlite3 or psycopg without the layers between.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Executable
from sqlalchemy.dialects.postgresql.psycopg import dialect as postgresql_dialect
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

__all__ = ["PostgresqlTransaction", "Row", "SqliteTransaction", "Transaction", "patiently"]

Row = tuple[Any, ...]
_DIALECTS = {"sqlite": sqlite_dialect(paramstyle="named"), "postgresql": postgresql_dialect()}


@functools.cache
def _compiled(statement: Executable, database: str) -> tuple[str, dict[str, Any]]:
    """The text for a driver, and the values that the statement itself holds."""
    compile_for: Any = getattr(statement, "compile")  # noqa: B009 - Executable does not declare it
    compiled = compile_for(dialect=_DIALECTS[database])
    return str(compiled), {k: v for k, v in compiled.params.items() if v is not None}


_PAUSE = 2e-3
"""Seconds between two looks at a locked file, on average."""
_SHORT_PAUSE = 3e-4
"""The same for a writer at its end, who waits for the last readers while all others wait."""

_T = TypeVar("_T")


def patiently(step: Callable[[], _T], timeout: float, pause: float = _PAUSE) -> _T:
    """Takes a step in SQLite, again and again after short random pauses while it is locked out.

    SQLite's own waiting grows to a tenth of a second between two looks, and lets the unlucky
    starve; and some steps it does not wait for at all.
    """
    give_up = time.monotonic() + timeout
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
        time.sleep(random.uniform(0.5, 1.5) * pause)


class Transaction(ABC):
    """One transaction on one pooled connection: :meth:`begin`, then ``commit`` or ``abandon``."""

    database: str

    def __init__(self, pooled: Any) -> None:
        self._pooled = pooled
        self._connection: Any = pooled.driver_connection
        self._cursor: Any = self._connection.cursor()

    def run(self, statement: Executable, parameters: Mapping[str, Any]) -> None:
        """Executes a statement whose result does not matter."""
        text, own = _compiled(statement, self.database)
        self._cursor.execute(text, {**own, **parameters} if own else parameters)

    def all(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Every row of a query."""
        self.run(statement, parameters)
        return self._cursor.fetchall()

    def first(self, statement: Executable, parameters: Mapping[str, Any]) -> Row | None:
        """The first row of a query, or None."""
        self.run(statement, parameters)
        return self._cursor.fetchone()

    @abstractmethod
    def begin(self, writes: bool) -> None:
        """Starts it; one that writes in SQLite keeps other writers out from here on."""

    @abstractmethod
    def commit(self) -> None:
        """On disk when it returns."""

    @abstractmethod
    def abandon(self) -> None:
        """Undoes everything; a connection that is broken is not used again."""

    def release(self) -> None:
        """Gives the connection back."""
        self._pooled.close()


class SqliteTransaction(Transaction):
    """In SQLite, where one writes at a time, and at its end waits for those who read.

    A writer that waits to commit lets no new reader in, so it does not wait long.
    """

    database = "sqlite"

    def __init__(self, pooled: Any, timeout: float) -> None:
        super().__init__(pooled)
        self._timeout = timeout

    def begin(self, writes: bool) -> None:
        """The lock, for writing or for reading, before anything else."""
        self._cursor.execute("PRAGMA busy_timeout=0")  # the patience is ours
        if writes:
            patiently(lambda: self._cursor.execute("BEGIN IMMEDIATE"), self._timeout)
            return
        self._cursor.execute("BEGIN")
        patiently(lambda: self._cursor.execute(_LOOK).fetchall(), self._timeout)

    def commit(self) -> None:
        """Waits for readers and for the disk."""
        patiently(lambda: self._cursor.execute("COMMIT"), self._timeout, _SHORT_PAUSE)

    def abandon(self) -> None:
        """Rolls back."""
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")


_LOOK = "SELECT 1 FROM sqlite_master LIMIT 1"
"""Any query: the first one of a transaction takes the lock for reading."""


class PostgresqlTransaction(Transaction):
    """In PostgreSQL, with statements sent together until an answer is needed.

    Args:
        pooled: a connection.
        single: the transaction is one statement, which begins and commits by itself.
    """

    database = "postgresql"

    def __init__(self, pooled: Any, single: bool = False) -> None:
        super().__init__(pooled)
        self._single = single

    def begin(self, writes: bool) -> None:
        """The server hears of it with the first query."""
        if self._single:
            self._connection.autocommit = True
            return
        self._pipeline = self._connection.pipeline()
        self._pipeline.__enter__()
        if not writes:
            self._cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def commit(self) -> None:
        """Waits for the server's word that it is on disk."""
        if self._single:
            self._connection.autocommit = False
            return
        self._connection.commit()
        self._pipeline.__exit__(None, None, None)

    def abandon(self) -> None:
        """Rolls back.

        Where the server is gone there is nothing to roll back, and what it said before says more.
        """
        try:
            self._roll_back()
        except Exception:
            self._pooled.invalidate()

    def _roll_back(self) -> None:
        if not self._single:
            gone = Exception("abandoned")
            with contextlib.suppress(Exception):  # what went wrong has been said already
                self._pipeline.__exit__(type(gone), gone, None)
        if self._connection.closed or self._connection.broken:
            self._pooled.invalidate()
            return
        self._connection.rollback()
        self._connection.autocommit = False
