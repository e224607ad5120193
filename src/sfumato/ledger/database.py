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

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from sfumato.ledger import schema
from sfumato.ledger.errors import LedgerError

__all__ = ["Database"]

_ADVISORY_LOCK = 7_305_862_441
_INHERITED: list[object] = []
"""Connections a fork copied from its parent: kept, because closing them would disturb the parent's."""


class Database:
    """A place where a ledger is, or will be.

    Args:
        place: a file's path, ``sqlite:///path`` or ``postgresql://user@host/name``.
        create: make the tables (and SQLite's file) if they are not there.
        timeout: seconds to wait for others before giving up.
    """

    def __init__(self, place: str | Path, create: bool = True, timeout: float = 30.0) -> None:
        self.url = _parse(place)
        self.shown = self.url.render_as_string(hide_password=True)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self._timeout = timeout
        self._engine, self._owner = self._connect(), os.getpid()
        weakref.finalize(self, _dispose, self._engine, self._owner)
        self._inode: tuple[int, int] | None = None
        if self.sqlite:
            self._touch(create)
            self._inode = self._look()
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
    def writing(self) -> Generator[Connection]:
        """A transaction that no other writer shares: all of it, or nothing."""
        self._require_same_file()
        with self._plain_words(), self.engine.connect() as connection:
            connection.execution_options(ledger_writes=True)
            with connection.begin():
                yield connection

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that sees one state throughout."""
        self._require_same_file()
        with self._plain_words(), self.engine.connect() as connection:
            if not self.sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    # --- opening --------------------------------------------------------------------------------

    def _connect(self) -> Engine:
        if not self.sqlite:
            return _postgresql(self.url, self._timeout)
        engine = create_engine(self.url, creator=self._open_file)
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
        if self.sqlite and self._look() != self._inode:
            raise LedgerError(
                f"the file of {self.shown} was removed or replaced while it was open, nothing was "
                "spent: open the ledger again, and verify it against a kept head"
            )

    def _open_file(self) -> sqlite3.Connection:
        """A connection to the file, which must be there: SQLite would make an empty one."""
        place = f"file:{quote(str(self._file.absolute()))}?mode=rw"
        return sqlite3.connect(place, uri=True, timeout=self._timeout, check_same_thread=False)

    @property
    def _file(self) -> Path:
        assert self.url.database
        return Path(self.url.database)

    def _touch(self, create: bool) -> None:
        """Makes the file, readable by its owner alone, or says why there is none."""
        if self._file.exists():
            return
        if not create:
            raise LedgerError(
                f"there is no ledger at {str(self._file)!r}: create one, or look elsewhere"
            )
        if not self._file.parent.is_dir():
            raise LedgerError(
                f"the folder of {str(self._file)!r} does not exist: make it, or check the path"
            )
        try:
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise LedgerError(
                f"cannot make a ledger at {str(self._file)!r}: {error.strerror}"
            ) from error

    def _prepare(self, create: bool) -> None:
        with self.engine.connect() as connection:
            found = schema.version_of(connection)
        schema.require_known(found)
        if found == schema.VERSION:
            return
        if not create:
            raise LedgerError(f"there is no ledger in {self.shown}: create one, or look elsewhere")
        if self.sqlite:
            self._write_ahead()
        with self.engine.connect() as connection:
            connection.execution_options(ledger_writes=True)
            with connection.begin():
                if not self.sqlite:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
                schema.prepare(connection)

    def _write_ahead(self) -> None:
        """Switches the file to a write-ahead log, for good; SQLite itself does not wait here."""
        give_up = time.monotonic() + self._timeout
        while True:
            connection = sqlite3.connect(self._file, timeout=self._timeout)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
            finally:
                connection.close()

    # --- errors ---------------------------------------------------------------------------------

    @contextmanager
    def _plain_words(self) -> Generator[None]:
        try:
            yield
        except DBAPIError as error:
            raise LedgerError(self._explain(error.orig)) from error
        except sqlite3.Error as error:
            raise LedgerError(self._explain(error)) from error
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self.shown} failed: {type(error).__name__}") from error

    def _explain(self, error: BaseException | None) -> str:
        said = " ".join(str(error).split())
        password = self.url.password
        if password:
            said = said.replace(str(password), "***")
        lowered = said.lower()
        for sign, meaning in _MEANINGS:
            if sign in lowered:
                waited = f"{self._timeout:g}"
                return meaning.format(ledger=self.shown, waited=waited) + f" ({said})"
        return f"the ledger {self.shown} failed: {said}"


_MEANINGS = [
    (
        "database is locked",
        "the ledger {ledger} was locked by another process for {waited} s, nothing was spent: wait "
        "for it, or give a longer timeout",
    ),
    (
        "lock timeout",
        "the dataset was locked by another process for {waited} s, nothing was spent: wait for it, "
        "or give a longer timeout",
    ),
    (
        "readonly database",
        "the ledger {ledger} cannot be written: check the permissions of the file and its folder",
    ),
    (
        "unable to open",
        "the ledger {ledger} cannot be opened: check the path and its permissions",
    ),
    (
        "not a database",
        "the file of {ledger} is not a SQLite database: check the path; nothing was written to it",
    ),
    (
        "malformed",
        "the file of {ledger} is damaged: restore it from a backup and verify it against a kept "
        "head",
    ),
    (
        "no such table",
        "the ledger {ledger} was replaced or emptied while it was open: restore it and verify it "
        "against a kept head",
    ),
    (
        "connection",
        "the server of {ledger} cannot be reached: check host, port, database and user",
    ),
]


def _parse(place: str | Path) -> URL:
    shown = str(place)
    if isinstance(place, Path) or "://" not in place:
        url = URL.create("sqlite", database=shown)
    else:
        try:
            url = make_url(place)
        except ArgumentError:
            raise LedgerError(_WHERE.format("a text that is no URL")) from None
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise LedgerError(_WHERE.format(repr(url.render_as_string(hide_password=True))))
    if not url.database or url.database == ":memory:":
        raise LedgerError(
            "a ledger must outlive its process: give a file, as in 'sqlite:///privacy.db'"
        )
    return url


_WHERE = "a ledger is a path, 'sqlite:///privacy.db' or 'postgresql://user@host/name', got {}"


def _postgresql(url: URL, timeout: float) -> Engine:
    options: dict[str, Any] = {"connect_timeout": max(2, round(timeout))}
    try:
        engine = create_engine(url, connect_args=options, pool_pre_ping=False)
    except (ImportError, NoSuchModuleError):
        raise LedgerError(
            "a ledger in PostgreSQL needs psycopg: pip install 'sfumato[postgres]'"
        ) from None
    milliseconds = max(1, round(timeout * 1000))

    def set_up(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {milliseconds}")
        connection.commit()

    event.listen(engine, "connect", set_up)
    return engine


def _dispose(engine: Engine, owner: int) -> None:
    """Closes the connections of a ledger that is gone, in the process that opened them."""
    if owner == os.getpid():
        engine.dispose()


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, see below
    connection.execute("PRAGMA synchronous=FULL")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("ledger_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
