"""Places where a ledger may be, and what their errors mean in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

from sfumato.ledger.errors import LedgerError

__all__ = ["Place"]

_WHERE = "a ledger is a path, 'sqlite:///privacy.db' or 'postgresql://user@host/name', got {}"


@dataclass(frozen=True)
class Place:
    """Where a ledger is.

    Attributes:
        url: with the driver; passwords in it are never shown.
        timeout: seconds to wait for others before giving up.
    """

    url: URL
    timeout: float

    @classmethod
    def parse(cls, place: str | Path, timeout: float) -> Place:
        """A path, or a URL of SQLite or PostgreSQL.

        Raises:
            LedgerError: for anything else.
        """
        if isinstance(place, Path) or "://" not in place:
            return cls(_file_url(URL.create("sqlite", database=str(place))), timeout)
        try:
            url = make_url(place)
        except ArgumentError:
            raise LedgerError(_WHERE.format("a text that is no URL")) from None
        if url.get_backend_name() in ("postgresql", "postgres"):
            return cls(url.set(drivername="postgresql+psycopg"), timeout)
        return cls(_file_url(url), timeout)

    @property
    def sqlite(self) -> bool:
        """Whether it is a file."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path:
        """SQLite's."""
        assert self.url.database
        return Path(self.url.database)

    @property
    def shown(self) -> str:
        """For messages."""
        return self.url.render_as_string(hide_password=True)

    @property
    def address(self) -> str:
        """Where it is found again, from any folder."""
        if not self.sqlite:
            return self.url.render_as_string(hide_password=False)
        return self.url.set(database=str(self.file.absolute())).render_as_string()

    def explain(self, error: BaseException | None) -> str:
        """What a database's error means here, and what to do; the database's own words after it."""
        said = " ".join(str(error).split())
        if self.url.password:
            said = said.replace(str(self.url.password), "***")
        for sign, meaning in _MEANINGS:
            if sign in said.lower():
                return f"{meaning.format(ledger=self.shown, waited=self.timeout)} ({said})"
        return f"the ledger {self.shown} failed: {said}"


def _file_url(url: URL) -> URL:
    if url.get_backend_name() != "sqlite":
        raise LedgerError(_WHERE.format(repr(url.render_as_string(hide_password=True))))
    if not url.database or url.database == ":memory:":
        raise LedgerError(
            "a ledger must outlive its process: give a file, as in 'sqlite:///privacy.db'"
        )
    if url.query:
        options = ", ".join(sorted(url.query))
        raise LedgerError(f"a ledger in a file takes no options, got {options}: leave out the '?'")
    return url


_LOCKED = (
    "{{ledger}}: {} was locked by another process for {{waited:g}} s, nothing was spent: wait for "
    "it, or give a longer timeout"
)
_MEANINGS = [
    ("database is locked", _LOCKED.format("the ledger")),
    ("lock timeout", _LOCKED.format("the dataset")),
    (
        "readonly database",
        "the ledger {ledger} cannot be written: check the permissions of the file and its folder",
    ),
    (
        "disk is full",
        "the disk of the ledger {ledger} is full: make room on it. A request that was cut off may "
        "have been charged; look at the status",
    ),
    (
        "disk i/o error",
        "the file of {ledger} could not be written or read: check its disk, and limits on the size "
        "of files. A request that was cut off may have been charged; look at the status",
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
        "the ledger {ledger} was emptied while it was open: restore it and verify it against a "
        "kept head",
    ),
    (
        "connection",
        "the server of {ledger} cannot be reached: check host, port, database and user. A request "
        "that was cut off may have been charged; look at the status",
    ),
]
