"""Where a ledger lives: SQLite or PostgreSQL, opened safely, with errors in plain words.

Durability: an entry is on disk when its transaction returns (SQLite: write-ahead log with
``synchronous=FULL``; PostgreSQL: its default). Exclusion: SQLite begins every writing transaction
with ``BEGIN IMMEDIATE``; PostgreSQL locks the dataset's row. After a fork the child opens
connections of its own.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from sfumato.ledger import schema
from sfumato.ledger.errors import LedgerError
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
        self._sqlite = self.place.sqlite
        self.remote = not self._sqlite
        self._file = str(self.place.file) if self._sqlite else ""
        if self._sqlite:
            self._touch(create)
        self._inode = self._look() if self._sqlite else None
        self._engine, self._owner = self._connect(), os.getpid()
        self._errors: tuple[type[Exception], ...] = (self._engine.dialect.dbapi.Error,)  # type: ignore[union-attr]
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
        self._require_same_file()
        pooled = self.engine.raw_connection()
        transaction: Transaction = (
            SqliteTransaction(pooled, self.place.timeout)
            if self._sqlite
            else PostgresqlTransaction(pooled, single)
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
        if not self._sqlite:
            return _postgresql(self.place)
        engine = create_engine(self.place.url, creator=self._open_file)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _require_same_file(self) -> None:
        """SQLite would go on writing to a file that was deleted or replaced under it."""
        if self._sqlite and self._look() != self._inode:
            raise LedgerError(
                f"the file of {self.place.shown} was removed or replaced while it was open, "
                "nothing was spent: open the ledger again, and verify it against a kept head"
            )

    def _open_file(self) -> sqlite3.Connection:
        """A connection to the file, which must be there: SQLite would make an empty one."""
        place = f"file:{quote(os.path.abspath(self._file))}?mode=rw"
        waits = self.place.timeout
        return sqlite3.connect(place, uri=True, timeout=waits, check_same_thread=False)

    def _touch(self, create: bool) -> None:
        """Makes the file, readable by its owner alone, or says why there is none."""
        file = self.place.file
        if file.exists():
            return
        if not create:
            raise LedgerError(f"there is no ledger at {str(file)!r}: create one, or look elsewhere")
        if not file.parent.is_dir():
            raise LedgerError(
                f"the folder of {str(file)!r} does not exist: make it, or check the path"
            )
        try:
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise LedgerError(f"cannot make a ledger at {str(file)!r}: {error.strerror}") from error

    def _prepare(self, create: bool) -> None:
        with self.engine.connect() as connection:
            found = schema.version_of(connection)
        schema.require_known(found)
        if found == schema.VERSION:
            return
        if not create:
            raise LedgerError(
                f"there is no ledger in {self.place.shown}: create one, or look elsewhere"
            )
        if self._sqlite:
            self._write_ahead()
        with self.engine.connect() as connection:
            connection.execution_options(ledger_writes=True)
            with connection.begin():
                if not self._sqlite:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
                schema.prepare(connection)

    def _write_ahead(self) -> None:
        """Switches the file to a write-ahead log, for good; SQLite itself does not wait here."""
        give_up = time.monotonic() + self.place.timeout
        while True:
            connection = self._open_file()
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
            finally:
                connection.close()

    @contextmanager
    def _plain_words(self) -> Generator[None]:
        try:
            yield
        except DBAPIError as error:
            raise LedgerError(self.place.explain(error.orig)) from error
        except self._errors as error:
            raise LedgerError(self.place.explain(error)) from error
        except SQLAlchemyError as error:
            name = type(error).__name__
            raise LedgerError(f"the ledger {self.place.shown} failed: {name}") from error


def _postgresql(place: Place) -> Engine:
    options: dict[str, Any] = {"connect_timeout": max(2, round(place.timeout))}
    try:
        engine = create_engine(place.url, connect_args=options)
    except (ImportError, NoSuchModuleError):
        raise LedgerError(
            "a ledger in PostgreSQL needs psycopg: pip install 'sfumato[postgres]'"
        ) from None
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


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, see below
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA fullfsync=1")  # on macOS the disk itself, not its cache


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("ledger_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
