"""A fresh ledger for every test, in SQLite and in a real PostgreSQL."""

import itertools
import os
import shutil
import tempfile
import warnings
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from sfumato.ledger import Ledger

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server of our own; its folder's path must be short for its socket."""
    import psycopg

    folder = tempfile.mkdtemp(prefix="pg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about where run-time files go
        import pgserver

        running = pgserver.get_server(folder, cleanup_mode="stop")
    with psycopg.connect(running.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 100")
    yield running.get_uri()
    running.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgresql_url(server):
    """An empty schema of that server."""
    import psycopg

    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{server}&options={quote(f'-csearch_path={name}')}"


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'privacy.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.time = datetime(2026, 1, 15, 12, tzinfo=UTC)

    def __call__(self):
        return self.time

    def forward(self, **length):
        self.time += timedelta(**length)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(url, clock):
    opened = Ledger(url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_ledger(sqlite_url, clock):
    opened = Ledger(sqlite_url, clock=clock)
    yield opened
    opened.close()
