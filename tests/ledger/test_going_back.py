"""An older copy in the ledger's place: a kept head shows it, and so does having seen more."""

import shutil
from pathlib import Path

import pytest

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, Ledger, LedgerError


def test_a_restored_backup_is_found_by_a_kept_head(sqlite_url, sqlite_ledger, tmp_path):
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    sqlite_ledger.create("census", Budget(1.0))
    sqlite_ledger.close()
    backup = shutil.copy(path, tmp_path / "backup.db")
    with sqlite_ledger.spend("census", LaplaceEvent(1.0)):
        pass
    head = sqlite_ledger.head("census")
    sqlite_ledger.close()
    shutil.copy(backup, path)  # in place: the same file, older content
    with pytest.raises(LedgerError, match="went back from entry 3 to 1"):
        sqlite_ledger.spend("census", LaplaceEvent(1.0))
    sqlite_ledger.close()
    again = Ledger(sqlite_url)
    assert again.status("census").left == 1.0
    assert not again.verify("census", head).ok
    again.close()


def test_a_process_that_only_looked_notices_an_older_copy(sqlite_url, sqlite_ledger, tmp_path):
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    sqlite_ledger.create("census", Budget(1.0))
    backup = shutil.copy(path, tmp_path / "backup.db")
    with sqlite_ledger.spend("census", LaplaceEvent(1.0)):
        pass
    sqlite_ledger.close()
    reader = Ledger(sqlite_url)
    assert reader.status("census").left == 0.0
    reader.close()
    shutil.copy(backup, path)
    for call in (
        lambda: reader.spend("census", LaplaceEvent(1.0)),
        lambda: reader.status("census"),
        lambda: reader.history("census"),
    ):
        with pytest.raises(LedgerError, match="went back from entry 3 to 1"):
            call()
    (problem,) = reader.verify("census").problems
    assert "entry 3, which this process saw, is missing" in problem
    reader.close()


def test_what_was_seen_is_never_lowered(postgresql_url):
    ledger = Ledger(postgresql_url)
    ledger.create("census", Budget(1.0))
    book = ledger._book
    with book.reading("census"), ledger.spend("census", LaplaceEvent(2.0)):
        pass  # the reader has seen less than the writer, and finishes later
    assert book.seen("census") == 3
    book._saw("census", 1)
    assert book.seen("census") == 3
    ledger.close()
