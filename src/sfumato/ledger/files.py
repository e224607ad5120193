"""A ledger's file: made for its owner, opened in one way, and watched while it is open.

SQLite writes the file itself and keeps what it overwrites in a rollback journal, ``FILE-journal``,
until the transaction is on disk. So everything that was committed is in the one file, also after a
crash. (With a write-ahead log it might all be in a second file, and moving the first alone would
give the budget back.) The journal's place follows from the file's name: under two names, one would
not see the other's journal, so a file with two names is refused.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from urllib.parse import quote

from sfumato.ledger.errors import LedgerError
from sfumato.ledger.places import Place
from sfumato.ledger.transaction import patiently

__all__ = ["LedgerFile"]

_SETTINGS = (
    "PRAGMA synchronous=EXTRA",  # on disk when a commit returns
    "PRAGMA fullfsync=1",  # on macOS the disk itself, not its cache
)


class LedgerFile:
    """The file at a place, which is made if ``create`` says so.

    Raises:
        LedgerError: if it is not there and may not or cannot be made, or has a second name.
    """

    def __init__(self, place: Place, create: bool) -> None:
        self._place = place
        self._path = str(place.file)
        self._adopted = False
        _make(place, create)
        found = os.stat(self._path)
        self._identity = found.st_dev, found.st_ino
        self.require_same()

    def require_same(self) -> None:
        """SQLite would go on writing to a file that was deleted or replaced under it."""
        try:
            found = os.stat(self._path)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise LedgerError(
                f"the file of {self._place.shown} was removed or replaced while it was open, "
                "nothing was spent: open the ledger again, and verify it against a kept head"
            )
        if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
            raise LedgerError(
                f"the file of {self._place.shown} has {found.st_nlink} names (hard links), and "
                "after a crash each would miss the other's journal; nothing was spent: remove all "
                "names but one, or use a symbolic link"
            )

    def adopt(self) -> None:
        """From now on it is a ledger's: connections keep a rollback journal."""
        self._adopted = True
        self.connect().close()

    def connect(self) -> sqlite3.Connection:
        """A connection to the file, which must be there: SQLite would make an empty one."""
        place = f"file:{quote(os.path.abspath(self._path))}?mode=rw"
        connection = sqlite3.connect(
            place,
            uri=True,
            timeout=self._place.timeout,
            check_same_thread=False,
            isolation_level=None,  # we say BEGIN ourselves
        )
        connection.text_factory = _text
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
            if self._adopted:
                self._keep_a_rollback_journal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep_a_rollback_journal(self, connection: sqlite3.Connection) -> None:
        """Also for a file with a write-ahead log, whose content moves into the file."""
        change = "PRAGMA journal_mode=TRUNCATE"
        (mode,) = patiently(lambda: connection.execute(change).fetchone(), self._place.timeout)
        if mode != "truncate":
            raise LedgerError(
                f"{self._place.shown} keeps its journal in mode {mode!r}, which is not durable: "
                "close other programs that use the file, and open it again"
            )


def _make(place: Place, create: bool) -> None:
    """Makes the file, readable by its owner alone, or says why there is none."""
    file = place.file
    if file.exists():
        return
    if not create:
        raise LedgerError(f"there is no ledger at {str(file)!r}: create one, or look elsewhere")
    if not file.parent.is_dir():
        raise LedgerError(f"the folder of {str(file)!r} does not exist: make it, or check the path")
    try:
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise LedgerError(f"cannot make a ledger at {str(file)!r}: {error.strerror}") from error


def _text(data: bytes) -> str:
    """Text that is no UTF-8 is read with marks in it, so that verification can say where it is."""
    return data.decode("utf-8", "replace")
