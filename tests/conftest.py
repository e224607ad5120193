"""What all tests share: repeatable runs, without time limits, and real databases."""

import itertools
import os
import shutil
import tempfile
import warnings
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "sfumato",
    deadline=None,  # no test asserts a wall time
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sfumato")

_numbers = itertools.count()


@pytest.fixture(scope="session")
def same_coins():
    """What a ``with same_coins(seed):`` draws is the same every time, also inside of commands.

    For tests of what noise leads to, an accuracy or an attack's success, in code that takes its
    coins from the operating system and has no argument for others.
    """
    from tests.coins import same_coins

    return same_coins


@pytest.fixture
def steady_coins(same_coins):
    """Those, for the whole of a test."""
    with same_coins(1):
        yield


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server of our own; its folder's path must be short for its socket."""
    import psycopg

    folder = tempfile.mkdtemp(prefix="pg", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT") or None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about where run-time files go
        import pgserver

        running = pgserver.get_server(folder, cleanup_mode="stop")
    with psycopg.connect(running.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 100")
        # Tests kill processes; none of them cuts the power.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
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
    """A ledger's address, in SQLite and in a real PostgreSQL."""
    return request.getfixturevalue(f"{request.param}_url")
