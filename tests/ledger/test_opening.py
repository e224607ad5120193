"""Opening: where a ledger may be, what goes wrong, and that nothing is left behind."""

import os
import sqlite3
import stat
import subprocess
import sys

import pytest
from sqlalchemy import text

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, Ledger, LedgerError
from sfumato.ledger.places import Place
from sfumato.ledger.schema import VERSION


def test_a_path_and_its_url_are_the_same_ledger(tmp_path):
    path = tmp_path / "a b" / "privacy#1.db"
    path.parent.mkdir()
    Ledger(path).create("census", Budget(1.0))
    assert Ledger(str(path)).names() == ["census"]
    assert Ledger(f"sqlite:///{path}").names() == ["census"]


def test_the_file_is_its_owners_alone_and_durable(sqlite_url, sqlite_ledger):
    path = sqlite_url.removeprefix("sqlite:///")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with sqlite_ledger._database.writing() as transaction:
        assert transaction.first(text("PRAGMA journal_mode"), {}) == ("truncate",)
        assert transaction.first(text("PRAGMA synchronous"), {}) == (3,)  # EXTRA


def spend_a_half(place):
    ledger = Ledger(place)
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(2.0)) as spending:
        spending.commit(1)
    ledger.close()
    return place


def test_a_write_ahead_log_is_given_up_with_nothing_lost(tmp_path):
    """As another program, or an earlier version, may have left the file."""
    path = spend_a_half(tmp_path / "privacy.db")
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    other.execute("UPDATE ledger_meta SET value = value")  # now there is something in the log
    other.commit()
    with pytest.raises(LedgerError, match="locked by another process"):
        Ledger(path, timeout=0.1)
    other.close()
    ledger = Ledger(path, create=False)
    assert ledger.status("census").left == 0.5
    ledger.close()
    assert path.read_bytes()[18:20] == b"\x01\x01"  # SQLite's mark of a rollback journal
    assert not (tmp_path / "privacy.db-wal").exists()


def test_a_database_that_is_no_ledger_keeps_its_write_ahead_log(tmp_path):
    other = sqlite3.connect(tmp_path / "app.db")
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("CREATE TABLE own (x)")
    other.close()
    with pytest.raises(LedgerError, match="there is no ledger in"):
        Ledger(tmp_path / "app.db", create=False)
    assert (tmp_path / "app.db").read_bytes()[18:20] == b"\x02\x02"


def test_a_file_with_two_names_is_refused(tmp_path):
    path, second = spend_a_half(tmp_path / "privacy.db"), tmp_path / "second.db"
    ledger = Ledger(path)
    os.link(path, second)
    for place in (path, second):
        with pytest.raises(LedgerError, match=r"has 2 names \(hard links\)"):
            Ledger(place)
    with pytest.raises(LedgerError, match="remove all names but one"):
        ledger.spend("census", LaplaceEvent(2.0))
    os.remove(second)
    with ledger.spend("census", LaplaceEvent(2.0)):
        pass
    ledger.close()
    second.symlink_to(path)
    assert Ledger(second).status("census").left == 0.0


def test_a_server_set_to_forget_is_told_to_remember(postgresql_url):
    careless = "%20-csynchronous_commit%3Doff%20-cdefault_transaction_isolation%3Dserializable"
    ledger = Ledger(postgresql_url + careless)
    with ledger._database.writing() as transaction:
        assert transaction.first(text("SHOW synchronous_commit"), {}) == ("on",)
        assert transaction.first(text("SHOW transaction_isolation"), {}) == ("read committed",)
    ledger.close()


def test_connections_that_the_server_cut_are_replaced(postgresql_url):
    ledger, other = Ledger(postgresql_url), Ledger(postgresql_url)
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(4.0)):
        pass
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with other._database.writing() as transaction:
        transaction.all(text(cut + " AND backend_type = 'client backend'"), {})
    with pytest.raises(LedgerError, match=r"cannot be reached|terminating"):
        ledger.spend("census", LaplaceEvent(4.0))
    with ledger.spend("census", LaplaceEvent(4.0)):
        pass
    assert ledger.status("census").left == 0.5
    assert ledger.verify("census").ok
    ledger.close()
    other.close()


def test_a_file_that_cannot_grow_is_told_and_nothing_is_spent(sqlite_url, sqlite_ledger):
    import resource

    sqlite_ledger.create("census", Budget(1.0))
    size = os.path.getsize(sqlite_url.removeprefix("sqlite:///"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    long = "a" * 100_000  # more than there is room for
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(LedgerError, match="could not be written or read: check its disk"):
            sqlite_ledger.spend("census", LaplaceEvent(1e4), request=long)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    done = len(sqlite_ledger.history("census"))
    assert done == 1
    sqlite_ledger.spend("census", LaplaceEvent(1e4)).commit(1)
    assert len(sqlite_ledger.history("census")) == done + 2
    assert sqlite_ledger.verify("census").ok


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("database or disk is full", "is full: make room"),
        ("disk I/O error", "could not be written or read"),
        ("attempt to write a readonly database", "cannot be written: check the permissions"),
    ],
)
def test_what_is_wrong_with_a_disk_is_told_in_words_that_say_what_to_do(tmp_path, said, told):
    place = Place.parse(tmp_path / "privacy.db", 1.0)
    assert told in place.explain(sqlite3.OperationalError(said))


def test_what_a_dying_server_said_is_told_and_not_that_nothing_could_be_rolled_back(
    postgresql_url, monkeypatch
):
    import psycopg

    def fails(_):
        raise psycopg.OperationalError("sending query failed: cannot exit pipeline mode while busy")

    ledger = Ledger(postgresql_url)
    ledger.create("census", Budget(1.0))
    with (  # noqa: PT012
        pytest.raises(LedgerError, match=r"may have been charged.*unexpected postmaster exit"),
        ledger._database.writing() as transaction,
    ):
        transaction.first(text("SELECT 1"), {})
        monkeypatch.setattr(psycopg.Connection, "rollback", fails)
        raise psycopg.errors.AdminShutdown(
            "terminating connection due to unexpected postmaster exit"
        )
    monkeypatch.undo()
    ledger.spend("census", LaplaceEvent(4.0)).commit(1)
    ledger.close()


@pytest.mark.parametrize(
    ("place", "word"),
    [
        ("sqlite://", "must outlive its process"),
        ("sqlite:///:memory:", "must outlive its process"),
        ("sqlite:///a.db?mode=ro&x=%zz", "takes no options, got mode, x"),
        ("mysql://user:secret@host/db", r"got 'mysql://user:\*\*\*@host/db'"),
        ("://", "no URL"),
    ],
)
def test_other_places_are_refused(place, word):
    with pytest.raises(LedgerError, match=word):
        Ledger(place)


def test_a_missing_folder_is_not_made(tmp_path):
    with pytest.raises(LedgerError, match=r"folder of .* does not exist"):
        Ledger(tmp_path / "no" / "privacy.db")
    assert not (tmp_path / "no").exists()


def test_reading_a_missing_ledger_leaves_nothing_behind(tmp_path, postgresql_url):
    with pytest.raises(LedgerError, match="there is no ledger at"):
        Ledger(tmp_path / "privacy.db", create=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LedgerError, match="there is no ledger in"):
        Ledger(postgresql_url, create=False)


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be looked at " * 10)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a SQLite database"):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_newer_version_is_refused(url, ledger):
    newer = f"UPDATE ledger_meta SET value = '{VERSION + 1}' WHERE name = 'version'"
    with ledger._database.writing() as transaction:
        transaction.run(text(newer), {})
    with pytest.raises(LedgerError, match=f"has version {VERSION + 1}.*upgrade sfumato"):
        Ledger(url)


def test_a_server_that_is_not_there_and_no_password_in_sight():
    with pytest.raises(LedgerError, match="cannot be reached") as error:
        Ledger("postgresql://user:hunter2@127.0.0.1:1/db", timeout=2)
    assert "hunter2" not in str(error.value)
    assert "hunter2" not in repr(error.value.__cause__)


def test_a_locked_file_is_a_clear_error_and_costs_nothing(sqlite_url):
    ledger = Ledger(sqlite_url, timeout=0.2)
    ledger.create("census", Budget(1.0))
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerError, match=r"locked by another process for 0\.2 s"):
        ledger.spend("census", LaplaceEvent(1.0))
    other.execute("ROLLBACK")
    other.close()
    assert ledger.status("census").left == 1.0
    with ledger.spend("census", LaplaceEvent(1.0)):
        pass
    ledger.close()


def test_a_locked_dataset_in_postgresql_too(postgresql_url):
    ledger, other = Ledger(postgresql_url, timeout=0.3), Ledger(postgresql_url)
    ledger.create("census", Budget(1.0))
    with (
        other._book.changing("census"),
        pytest.raises(LedgerError, match=r"locked by another process for 0\.3 s"),
    ):
        ledger.spend("census", LaplaceEvent(1.0))
    assert ledger.status("census").left == 1.0
    ledger.close()
    other.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_vanishes_is_noticed(sqlite_url, sqlite_ledger, replaced, tmp_path):
    sqlite_ledger.create("census", Budget(1.0))
    path = sqlite_url.removeprefix("sqlite:///")
    os.rename(path, tmp_path / "moved.db")
    if replaced:
        Ledger(sqlite_url).create("census", Budget(1.0))
    for call in (
        lambda: sqlite_ledger.spend("census", LaplaceEvent(1.0)),
        lambda: sqlite_ledger.status("census"),
    ):
        with pytest.raises(LedgerError, match="removed or replaced while it was open"):
            call()
    assert os.path.exists(path) == replaced


def test_a_read_only_file_is_a_clear_error(sqlite_url, sqlite_ledger):
    """Root ignores permissions, so SQLite itself is told to read only."""
    sqlite_ledger.create("census", Budget(1.0))
    with sqlite_ledger._database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only=1")
    with pytest.raises(LedgerError, match="cannot be written"):
        sqlite_ledger.spend("census", LaplaceEvent(1.0))
    sqlite_ledger.close()
    assert sqlite_ledger.status("census").left == 1.0


def test_a_database_that_fails_at_the_commit_leaves_the_charge(sqlite_ledger):
    sqlite_ledger.create("census", Budget(1.0))
    spending = sqlite_ledger.spend("census", LaplaceEvent(2.0))
    with sqlite_ledger._database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only=1")
    with pytest.raises(LedgerError, match="cannot be written"), spending:
        spending.commit("never seen")
    sqlite_ledger.close()
    status = sqlite_ledger.status("census")
    assert status.left == 0.5
    assert len(status.open) == 1


def test_importing_sfumato_does_not_load_the_database():
    code = "import sys, sfumato; print('sqlalchemy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False"


def test_a_fork_opens_connections_of_its_own(url, ledger):
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(4.0)):
        pass
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with ledger.spend("census", LaplaceEvent(4.0)):
                pass
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with ledger.spend("census", LaplaceEvent(4.0)):
        pass
    assert ledger.status("census").left == 0.25
    assert ledger.verify("census").ok
