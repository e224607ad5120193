"""Where a ledger lives: SQLite or PostgreSQL, opened safely, with errors in plain words.

Durability: an entry is on disk when its transaction returns (SQLite: rollback journal with
``synchronous=EXTRA``; PostgreSQL: its default). Exclusion: SQLite begins every writing transaction
with ``BEGIN IMMEDIATE``; PostgreSQL locks the dataset's row. After a fork the child opens
connections of its own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from sfumato.extras import not_installed
from sfumato.ledger import schema
from sfumato.ledger.errors import AlreadyWritten, LedgerError
from sfumato.ledger.files import LedgerFile
from sfumato.ledger.places import Place
from sfumato.ledger.transaction import PostgresqlTransaction, SqliteTransaction, Transaction

__all__ = ["Database"]

_ADVISORY_LOCK = 7_305_862_441
_INHERITED: list[object] = []
"""Connections a fork copied from its parent: kept, as closing them would disturb the parent's."""


class Database:
    """A place where a ledger is, or will be.

    Args:
        place: a file's path, ``sqlite:///path`` or ``postgresql://user@host/name``.
        create: make the tables (and SQLite's file) if they are not there.
        timeout: seconds to wait for others before giving up.
    """

    def __init__(self, place: str | Path, create: bool = True, timeout: float = 30.0) -> None:
        self.place = Place.parse(place, timeout)
        self.remote = not self.place.sqlite
        self._file = None if self.remote else LedgerFile(self.place, create)
        self._engine, self._owner = self._connect(), os.getpid()
        driver: Any = self._engine.dialect.dbapi
        self._errors: tuple[type[Exception], ...] = (driver.Error,)
        self._twice: type[Exception] = driver.IntegrityError
        weakref.finalize(self, _dispose, self._engine, self._owner)
        with self._plain_words():
            self._prepare(create)

    @property
    def engine(self) -> Engine:
        """This process's engine; a child's own after a fork."""
        if self._owner != os.getpid():
            _INHERITED.append(self._engine.pool)
            self._engine.dispose(close=False)
            self._owner = os.getpid()
        return self._engine

    @contextmanager
    def writing(self) -> Generator[Transaction]:
        """A transaction that no other writer shares: all of it, or nothing."""
        with self._plain_words(), self._transaction(writes=True) as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Generator[Transaction]:
        """A transaction that sees one state throughout."""
        with self._plain_words(), self._transaction(writes=False) as transaction:
            yield transaction

    @contextmanager
    def single(self) -> Generator[Transaction]:
        """A transaction of one statement, for PostgreSQL: one journey to the server and back."""
        with self._plain_words(), self._transaction(writes=True, single=True) as transaction:
            yield transaction

    @contextmanager
    def _transaction(self, writes: bool, single: bool = False) -> Generator[Transaction]:
        if self._file is not None:
            self._file.require_same()
        pooled = self.engine.raw_connection()
        transaction: Transaction = (
            PostgresqlTransaction(pooled, single)
            if self.remote
            else SqliteTransaction(pooled, self.place.timeout)
        )
        try:
            transaction.begin(writes)
            yield transaction
            transaction.commit()
        except BaseException:
            transaction.abandon()
            raise
        finally:
            transaction.release()

    # --- opening --------------------------------------------------------------------------------

    def _connect(self) -> Engine:
        if self._file is None:
            return _postgresql(self.place)
        engine = create_engine(self.place.url, creator=self._file.connect)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _prepare(self, create: bool) -> None:
        with self.engine.connect() as connection:
            found = schema.version_of(connection)
        schema.require_known(found)
        if found == 0 and not create:
            raise LedgerError(
                f"there is no ledger in {self.place.shown}: create one, or look elsewhere"
            )
        if self._file is not None:
            self.engine.dispose()
            self._file.adopt()
        if found == schema.VERSION:
            return
        with self.engine.connect() as connection:
            connection.execution_options(ledger_writes=True)
            with connection.begin():
                if self.remote:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
                schema.prepare(connection)

    @contextmanager
    def _plain_words(self) -> Generator[None]:
        try:
            yield
        except DBAPIError as error:
            raise LedgerError(self.place.explain(error.orig)) from error
        except self._twice as error:
            raise AlreadyWritten(self.place.explain(error)) from error
        except self._errors as error:
            raise LedgerError(self.place.explain(error)) from error
        except UnicodeDecodeError as error:
            raise LedgerError(self.place.explain(ValueError("malformed text"))) from error
        except SQLAlchemyError as error:
            name = type(error).__name__
            raise LedgerError(f"the ledger {self.place.shown} failed: {name}") from error


def _postgresql(place: Place) -> Engine:
    options: dict[str, Any] = {"connect_timeout": max(2, round(place.timeout))}
    try:
        engine = create_engine(place.url, connect_args=options)
    except (ImportError, NoSuchModuleError):
        raise LedgerError(not_installed("psycopg", "a ledger in PostgreSQL")) from None
    milliseconds = max(1, round(place.timeout * 1000))

    def set_up(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {milliseconds}")
            for statement in _SESSION:
                cursor.execute(statement)
        connection.commit()

    event.listen(engine, "connect", set_up)
    return engine


_SESSION = (
    # Whatever the server's defaults: waiting for a row gives its newest version, not an error ...
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # ... and a commit that returned is on disk.
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'",
)


def _dispose(engine: Engine, owner: int) -> None:
    """Closes the connections of a ledger that is gone, in the process that opened them."""
    if owner == os.getpid():
        engine.dispose()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("ledger_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
